"""Results to one HTML file that opens offline."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from interp.auditing.result import AuditResult
from interp.comparison.variation import VariationResult
from interp.core.results import Result
from interp.evaluation.evaluate import EvaluationResult, evaluate
from interp.heads.ablate import AblationResult
from interp.heads.classify import HeadPatterns
from interp.probing.probe import ProbeResult
from interp.reporting import sections as part
from interp.tasks import Lego
from interp.tasks.base import Task
from interp.theory.balance import BalanceResult
from interp.training.run import TrainingRun
from interp.view.attention import AttentionPage
from interp.view.page import Section, write_page

SECTION_OF: dict[type, Callable[[Any], Section]] = {
    BalanceResult: part.balance,
    ProbeResult: part.probe_map,
    HeadPatterns: part.head_table,
    AttentionPage: part.gallery,
    AblationResult: part.ablations,
    AuditResult: part.verdicts,
    VariationResult: part.variations,
}
"""Which function makes a section of a result."""
NAMES = {"lego": "LEGO", "dyck": "bounded Dyck", "template": "template strings", "text": "text"}
"""What tasks are called in a sentence."""


def report(results: Sequence[Any], path: str | Path, *, title: str, lead: str = "") -> Path:
    """Write results to one self-contained HTML file, atomically.

    Args:
        results: Results of any verbs, `AttentionPage`s, or ready `Section`s, in the order they are to appear.
        path: The HTML file.
        title: Heading of the page.
        lead: What it shows, in a few sentences.

    Raises:
        ValueError: no result, or one that has no section.
    """
    return write_page(path, title=title, lead=lead, sections=[_section(result) for result in results])


def report_run(
    run: TrainingRun,
    task: Task,
    path: str | Path,
    *,
    results: Sequence[Any] = (),
    control: TrainingRun | None = None,
    n_test: int = 10_000,
    title: str = "What the model learned, and how",
) -> tuple[Path, dict[str, EvaluationResult]]:
    """Write the page of one training run: an example, curves, accuracies, what was found, provenance.

    Args:
        run: The model that the page is about.
        task: What it learned.
        path: The HTML file.
        results: What was found out about it, as in `report`.
        control: Another run to show beside it.
        n_test: Held-out examples for the accuracies.
        title: Heading of the page.

    Returns:
        The file, and the held-out accuracies of the model and of the control.

    Raises:
        ValueError: fewer than one test example, or a result that has no section.
    """
    runs = {"model": run} | ({"control": control} if control else {})
    tested = {name: evaluate(one.model, task, n=n_test, seed=one.manifest["seed"]) for name, one in runs.items()}
    sections = [
        *([part.example(run, task)] if isinstance(task, Lego) else []),
        part.what_was_trained(runs),
        part.learning_curves(runs),
        part.accuracies(tested),
        *results,
        part.provenance(run),
    ]
    cfg, (accuracy, target) = run.model.cfg, min(zip(tested["model"].accuracy, task.outcomes, strict=True))
    heads = "1 head" if cfg.n_heads == 1 else f"{cfg.n_heads} heads"
    lead = (
        f"A transformer with {cfg.n_layers} layers and {heads} per layer was trained on "
        f"{NAMES[run.manifest['task']['task']]} from seed {run.manifest['seed']}. On {n_test} held-out examples its "
        f"weakest target, {target}, is right {accuracy:.2%} of the time."
    )
    return report(sections, path, title=title, lead=lead), tested


def _section(result: Any) -> Section:
    if isinstance(result, Section):
        return result
    for kind, make in SECTION_OF.items():
        if isinstance(result, kind):
            return make(result)
    if isinstance(result, Result):
        return part.as_it_prints(result)
    known = ", ".join(kind.__name__ for kind in SECTION_OF)
    raise ValueError(
        f"results holds a {type(result).__name__}, which has no section; there are {known}, every other result of a "
        f"verb, and Section."
    )
