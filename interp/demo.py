"""The main job, end to end: train a model and a control on LEGO, probe the model, write the page."""

from pathlib import Path

from interp.models import config_for
from interp.probing import probe
from interp.progress import Progress
from interp.report import report_run
from interp.sweeps import TrainJob, train_many
from interp.tasks import Lego
from interp.train_settings import Association, TrainSettings

TASK = Lego(n_vars=4)
CURRICULUM = ((2, 80), (3, 270), (4, 350))
BIASES: dict[str, Association] = {"model": "mimic", "control": "none"}


def demo_jobs(folder: Path, seed: int) -> dict[str, TrainJob]:
    """The model, whose heads are first taught where to look, and a control with the same schedule but no such bias."""
    return {
        name: TrainJob(
            task=TASK,
            config=config_for(TASK),
            settings=TrainSettings(curriculum=CURRICULUM, association=association),
            seed=seed,
            folder=folder / name,
        )
        for name, association in BIASES.items()
    }


def run_demo(folder: Path, *, seed: int = 0, fresh: bool = False) -> Path:
    """Run the whole demo; trained models in the folder are used again.

    Args:
        folder: Where models and report go.
        seed: Decides everything random.
        fresh: Train again.

    Returns:
        The report's path.
    """
    print(f"Training a transformer to follow chains of {TASK.n_vars} clauses, and a control (about a minute) ...")
    jobs = demo_jobs(folder, seed)
    with Progress(list(jobs)) as progress:
        runs = train_many(jobs, fresh=fresh, on_progress=progress)
    print("Probing every layer, and checking the probes against causes ...")
    probes = probe(runs["model"].model, TASK, verify=True, seed=seed)
    probes.save(folder / "probes.json")
    page, tested = report_run(
        runs["model"],
        TASK,
        folder / "report.html",
        probes=probes,
        control=runs["control"],
        title="A transformer learns to follow a chain of reasoning",
    )
    print(f"\n{tested['model']}\n\n{probes}\n")
    worst = ", ".join(f"{t} {a:.2f}" for t, a in zip(TASK.targets, tested["control"].accuracy, strict=True))
    print(f"control without the association bias: {worst}")
    print(f"report: {page}")
    return page
