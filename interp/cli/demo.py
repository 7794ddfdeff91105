"""Demo: train a model and a control on LEGO, analyse the model, and write a report."""

from dataclasses import replace
from pathlib import Path

from interp.core.progress import Count
from interp.heads.ablate import ablate_heads
from interp.heads.classify import classify_heads
from interp.heads.show import show_attention
from interp.probing.probe import probe
from interp.reporting.report import report_run
from interp.tasks import Lego
from interp.training.configs import config_for
from interp.training.run import TrainingRun
from interp.training.settings import Association, recipe_for
from interp.training.sweeps import TrainJob, train_to_disk

TASK = Lego(n_vars=4)
BIASES: dict[str, Association] = {"model": "mimic", "control": "none"}


def demo_jobs(folder: Path, seed: int) -> dict[str, TrainJob]:
    """A model with mimicking, and a control with the same settings without it."""
    return {
        name: TrainJob(
            task=TASK,
            config=config_for(TASK),
            settings=replace(recipe_for(TASK), association=association),
            seed=seed,
            folder=folder / name,
        )
        for name, association in BIASES.items()
    }


def run_demo(folder: Path, *, seed: int = 0, fresh: bool = False) -> Path:
    """Run the demo; models already trained in the folder are reused.

    Args:
        folder: Folder for models and report.
        seed: Seed of everything random.
        fresh: Train again.

    Returns:
        Path of the report.
    """
    print(f"Training a transformer to follow chains of {TASK.n_vars} clauses, and a control (about a minute) ...")
    jobs = demo_jobs(folder, seed)
    with Count("training models", len(jobs)) as count:
        train_to_disk(jobs, fresh=fresh, on_finished=lambda name: count.one())
    runs = {name: TrainingRun.load(job.folder) for name, job in jobs.items()}
    model = runs["model"].model
    print("Probing every layer, and intervening on the probes' directions ...")
    probes = probe(model, TASK, verify=True, seed=seed)
    probes.save(folder / "probes.json")
    print("Classifying and ablating heads ...")
    patterns = classify_heads(model, TASK, seed=seed)
    patterns.save(folder / "heads.json")
    found = {kind: patterns.heads(kind) for kind in ("association", "manipulation") if patterns.heads(kind)}
    sets = [ablate_heads(model, TASK, heads=found, n=500, n_random=20, seed=seed)] if found else []
    page, tested = report_run(
        runs["model"],
        TASK,
        folder / "report.html",
        results=[
            probes,
            patterns,
            show_attention(model, TASK, examples=3, patterns=patterns, viewer="canvas", seed=seed),
            *sets,
            ablate_heads(model, TASK, seed=seed),
        ],
        control=runs["control"],
        title="A transformer learns to follow a chain of reasoning",
    )
    print(f"\n{tested['model']}\n\n{probes}\n")
    for kind, heads in found.items():
        print(f"{kind} heads: {', '.join(f'{layer}.{head}' for layer, head in heads)}")
    for result in sets:
        print(f"\n{result}\n")
    worst = ", ".join(f"{t} {a:.2f}" for t, a in zip(TASK.targets, tested["control"].accuracy, strict=True))
    print(f"control without the association bias: {worst}")
    return page
