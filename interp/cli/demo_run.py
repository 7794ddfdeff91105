"""Demo: train a model and a control on LEGO, probe and audit the model, and write a report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from interp.auditing.audit import audit
from interp.auditing.show import show_heads
from interp.core.processes import in_processes
from interp.core.progress import Count
from interp.heads.ablate import ablate_heads
from interp.heads.classify import classify_heads
from interp.probing.probe import probe
from interp.reporting.report import report_run
from interp.sweeps.parallel import train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego
from interp.training.configs import config_for
from interp.training.run import TrainingRun
from interp.training.settings import Association, TrainSettings

TASK = Lego(n_vars=4)
SHIPPED = Path(__file__).parent / "demo_model"
"""Folder of the training run that is shipped with the package. Its manifest has the command that trained it."""
SETTINGS = TrainSettings(steps=450, learning_rate=1.5e-3, eval_every=150, n_eval=500)
"""One length, without a curriculum: after mimicking, 450 steps suffice."""
BIASES: dict[str, Association] = {"model": "mimic", "control": "none"}
N_SETS, N_TEST = 500, 4000
"""Sequences of the ablation of sets of heads, and of the accuracies."""


def demo_specs(seed: int) -> dict[str, ModelSpec]:
    """A model with mimicking, and a control with the same settings without it."""
    specs = {}
    for name, association in BIASES.items():
        settings = replace(SETTINGS, association=association)
        specs[name] = ModelSpec(task=TASK, config=config_for(TASK), settings=settings, seed=seed)
    return specs


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
    specs = {folder / name: spec for name, spec in demo_specs(seed).items()}
    with Count("training models", len(specs)) as count:
        train_to_disk(specs, fresh=fresh, on_finished=lambda run_folder: count.advance())
    runs = {run_folder.name: TrainingRun.load(run_folder) for run_folder in specs}
    title = "A transformer learns to follow a chain of reasoning"
    return _analyse(runs, folder / "model", folder, seed=seed, title=title)


def run_quick_demo(folder: Path, *, seed: int = 0) -> Path:
    """Analyse the model that is shipped with the package; nothing is trained.

    Args:
        folder: Folder for results and report.
        seed: Seed of the analyses.

    Returns:
        Path of the report.
    """
    run = TrainingRun.load(SHIPPED)
    print(f"A transformer that was trained on {run.task.description}, with:\n  {run.manifest['command']}")
    title = "A transformer that follows a chain of reasoning"
    return _analyse({"model": run}, SHIPPED, folder, seed=seed, title=title, n_jobs=1)


def _analyse(
    runs: dict[str, TrainingRun], source: Path, folder: Path, *, seed: int, title: str, n_jobs: int = 2
) -> Path:
    """Probe and audit the model of a run, write results and report, and print a summary.

    For a small model, one process is faster: a second one imports everything again, which takes five seconds.
    """
    print("Probing every layer, and auditing every head ...")
    # probes and audit, in two processes if there are two
    run = runs["model"]
    results: dict[str, Any] = {}
    calls = [(analysis, (source, seed)) for analysis in (_audit, _probe_and_classify)]
    with Count("analyses", len(calls) + 1) as count:
        for results_of_call in in_processes(calls, n_jobs=n_jobs):
            results |= results_of_call
            count.advance()
        # in the order of the page
        results = {name: results[name] for name in ("audit", "probes", "heads", "sets") if name in results}
        # files and report
        folder.mkdir(parents=True, exist_ok=True)
        for name, result in results.items():
            result.save(folder / f"{name}.json")
        viewer = show_heads(run.model, run.task, results["audit"], probes=results["probes"], seed=seed)
        page, evaluations = report_run(
            run,
            run.task,
            folder / "report.html",
            results=[viewer, *results.values()],
            control=runs.get("control"),
            n_test=N_TEST,
            title=title,
        )
        count.advance()
    # the summary
    print(f"\n{evaluations['model']}\n\n{results['probes']}\n\n{results['audit'].summary()}")
    if "sets" in results:
        print(f"\n{results['sets']}\n")
    if "control" in evaluations:
        accuracies = zip(run.task.targets, evaluations["control"].accuracy.value, strict=True)
        text = ", ".join(f"{target} {accuracy:.2f}" for target, accuracy in accuracies)
        print(f"control without the association bias: {text}")
    return page


def _probe_and_classify(folder: Path, seed: int) -> dict[str, Any]:
    """Probes and patterns of a model, and ablations of the heads of each kind."""
    torch.set_num_threads(1)
    run = TrainingRun.load(folder)
    model, task = run.model, run.task
    patterns = classify_heads(model, task, seed=seed)
    results: dict[str, Any] = {"probes": probe(model, task, verify=True, seed=seed), "heads": patterns}
    heads_by_kind = {kind: patterns.heads(kind) for kind in ("association", "manipulation")}
    heads_by_kind = {kind: heads for kind, heads in heads_by_kind.items() if heads}
    if heads_by_kind:
        results["sets"] = ablate_heads(model, task, heads=heads_by_kind, n=N_SETS, n_random=10, seed=seed)
    return results


def _audit(folder: Path, seed: int) -> dict[str, Any]:
    """Verdicts on the heads of a model, also if its accuracy is at chance."""
    torch.set_num_threads(1)
    run = TrainingRun.load(folder)
    return {"audit": audit(run.model, run.task, seed=seed, at_chance=True)}
