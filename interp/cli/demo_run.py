"""Demo: train a model on LEGO, audit every head, and write a page that begins with two heads that look alike."""

from pathlib import Path
from typing import Any

import torch

from hooks.files import make_folder
from interp.auditing.audit import audit
from interp.auditing.show import show_heads
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
from interp.training.settings import TrainSettings

TASK = Lego(n_vars=3, alphabet="abcde")
"""Five letters: few enough sentences for an audit of every held-out one, which leaves no verdict open."""
CONFIG = config_for(TASK, n_layers=3, n_heads=4, d_model=32)
SETTINGS = TrainSettings(steps=600, learning_rate=2e-3, association="query_key", eval_every=150, n_eval=300)
"""A start with W_K = W_Q, and no mimicking: no head is taught a pattern."""
SHIPPED = Path(__file__).parent / "demo_model"
"""Folder of the training run that is shipped with the package: seed 0 of the demo."""
TITLE = "A pattern is not a mechanism"
N_SETS, N_TEST = 500, 4000
"""Sequences of the ablation of sets of heads, and of the accuracies."""


def demo_spec(seed: int) -> ModelSpec:
    """The model that the demo trains."""
    return ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=seed)


def run_demo(folder: Path, *, seed: int = 0, fresh: bool = False) -> Path:
    """Run the demo; a model already trained in the folder is reused.

    Args:
        folder: Folder for the model and the report.
        seed: Seed of everything random.
        fresh: Train again.

    Returns:
        Path of the report.
    """
    print(f"Training a transformer to follow chains of {TASK.n_vars} clauses, such as b=-a;a=+1;c=+b; ...")
    train_to_disk({folder / "model": demo_spec(seed)}, fresh=fresh)
    return _analyse(folder / "model", folder, seed=seed)


def run_quick_demo(folder: Path, *, seed: int = 0) -> Path:
    """Analyse the model that is shipped with the package; nothing is trained.

    Args:
        folder: Folder for results and report.
        seed: Seed of the analyses.

    Returns:
        Path of the report.
    """
    manifest = TrainingRun.load(SHIPPED).manifest
    print(f"A transformer that follows chains of {TASK.n_vars} clauses, trained with:\n  {manifest['command']}")
    return _analyse(SHIPPED, folder, seed=seed)


def _analyse(source: Path, folder: Path, *, seed: int) -> Path:
    """Probe and audit the model of a run, write results and report, and print a summary.

    In one process: a second one imports everything again, which takes longer than probes and classes.
    """
    print("Auditing every head, and probing every layer ...")
    with Count("analyses", 3) as count:
        # in the order of the page
        results = _audit(source)
        count.advance()
        results |= _probe_and_classify(source, seed)
        count.advance()
        # files and report
        make_folder(folder)
        for name, result in results.items():
            result.save(folder / f"{name}.json")
        run = TrainingRun.load(source)
        viewer = show_heads(run.model, run.task, results["audit"], probes=results["probes"], seed=seed)
        page, evaluations = report_run(
            run,
            run.task,
            folder / "report.html",
            results=[viewer, *results.values()],
            n_test=N_TEST,
            title=TITLE,
        )
        count.advance()
    # the story first: two heads that look alike, then every verdict, then accuracies
    contrast = results["audit"].contrast()
    story = f"\n{TITLE}. {contrast.sentence()}\n" if contrast else ""
    print(f"{story}\n{results['audit'].summary()}\n\n{evaluations['model']}\n\n{results['probes']}\n")
    return page


def _probe_and_classify(folder: Path, seed: int) -> dict[str, Any]:
    """Probes and patterns of a model, and ablations of the heads of each kind."""
    torch.set_num_threads(1)
    run = TrainingRun.load(folder)
    model, task = run.model, run.task
    patterns = classify_heads(model, task, seed=seed)
    results: dict[str, Any] = {"probes": probe(model, task, verify=True, seed=seed), "heads": patterns}
    heads_by_kind = {kind: patterns.heads(kind) for kind in patterns.kinds}
    heads_by_kind = {kind: heads for kind, heads in heads_by_kind.items() if heads}
    if heads_by_kind:
        results["sets"] = ablate_heads(model, task, heads=heads_by_kind, n=N_SETS, n_random=10, seed=seed)
    return results


def _audit(folder: Path) -> dict[str, Any]:
    """Verdicts on the heads of a model from every held-out sentence, also if its accuracy is at chance."""
    torch.set_num_threads(1)
    run = TrainingRun.load(folder)
    return {"audit": audit(run.model, run.task, n="all", at_chance=True)}
