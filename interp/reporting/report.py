"""HTML reports of results and of training runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hooks.checks import checks_types
from interp.auditing.result import AuditResult
from interp.comparison.variation import VariationResult
from interp.core.page_identity import page_identity, quantity
from interp.core.progress import Count, counted
from interp.core.results import Result
from interp.evaluation.evaluate import EvaluationResult, evaluate
from interp.heads.ablate import AblationResult
from interp.heads.classify import HeadPatterns
from interp.probing.probe import ProbeResult
from interp.reporting import sections as part
from interp.tasks.base import Task
from interp.theory.balance import BalanceResult
from interp.training.run import TrainingRun
from interp.view.attention import AttentionPage
from interp.view.html import PageIdentity
from interp.view.page import Section, write_page

SECTION_OF: dict[type, Callable[[Any], Section]] = {
    BalanceResult: part.balance,
    ProbeResult: part.probe_map,
    HeadPatterns: part.head_table,
    AttentionPage: part.attention_maps,
    AblationResult: part.ablations,
    AuditResult: part.verdicts,
    VariationResult: part.variations,
}
"""The section function of each type of result."""


@checks_types
def report(
    results: Sequence[Any], path: str | Path, *, title: str, lead: str = "", identity: PageIdentity | None = None
) -> Path:
    """Write results to one self-contained HTML file, atomically.

    Args:
        results: Results of any verbs, attention pages or sections (`Section`), in the order of the page.
        path: The HTML file.
        title: Heading of the page.
        lead: Summary in a few sentences.
        identity: Task, model, seed, command, commit and date, shown below the heading. If None, the last three.

    Raises:
        ValueError: no results, or one that has no section.
    """
    with Count("page", 2) as count:
        sections = [_section(result) for result in counted("sections", results, total=len(results))]
        count.one()
        written = write_page(path, title=title, lead=lead, sections=sections, identity=identity or page_identity())
        count.one()
    return written


@checks_types
def report_run(
    run: TrainingRun,
    task: Task,
    path: str | Path,
    *,
    results: Sequence[Any] = (),
    control: TrainingRun | None = None,
    n_test: int = 10_000,
    title: str = "Training report",
) -> tuple[Path, dict[str, EvaluationResult]]:
    """Write a page about one training run: accuracies, an example, results, learning curves and provenance.

    If the results have an audit, the page begins with its summary, then with `interp.auditing.show_heads` if given.

    Args:
        run: The training run.
        task: Its task.
        path: The HTML file.
        results: Further results on its model, as in `report`.
        control: Another run, shown for comparison.
        n_test: Number of held-out examples for the accuracies.
        title: Heading of the page.

    Returns:
        The file, and the held-out accuracies of the model and of the control.

    Raises:
        ValueError: no test examples, or a result that has no section.
    """
    runs = {"model": run} | ({"control": control} if control else {})
    with Count("report", len(runs) + 1) as count:
        tested = {}
        for name, one in runs.items():
            tested[name] = evaluate(one.model, task, n=n_test, seed=one.manifest["seed"])
            count.one()
        written = _write_run(runs, task, path, results, tested, n_test=n_test, title=title)
        count.one()
    return written, tested


def _write_run(
    runs: dict[str, TrainingRun],
    task: Task,
    path: str | Path,
    results: Sequence[Any],
    tested: dict[str, EvaluationResult],
    *,
    n_test: int,
    title: str,
) -> Path:
    run = runs["model"]
    first = [result for result in results if isinstance(result, AttentionPage) and result.findings]
    audits = [result for result in results if isinstance(result, AuditResult)]
    sections = [
        *first,
        part.accuracies(tested, task),
        part.example(run, task),
        *(result for result in results if not any(result is one for one in first)),
        part.learning_curves(runs),
        part.training_setup(runs, task),
        part.provenance(run),
    ]
    cfg, (accuracy, target) = run.model.cfg, min(zip(tested["model"].accuracy, task.outcomes, strict=True))
    lead = (
        " ".join(audit.summary() for audit in audits)
        + " " * bool(audits)
        + (
            f"A transformer with {quantity(cfg.n_layers, 'layer')} and {quantity(cfg.n_heads, 'head')} per layer was "
            f"trained on {task.title} with seed {run.manifest['seed']}. On {n_test} held-out examples, its "
            f"lowest accuracy on any target is {accuracy:.2%} ({target})."
        )
    )
    identity = page_identity(run.model, task, seed=f"{run.manifest['seed']} (training)")
    return report(sections, path, title=title, lead=lead, identity=identity)


def _section(result: Any) -> Section:
    if isinstance(result, Section):
        return result
    for kind, make in SECTION_OF.items():
        if isinstance(result, kind):
            return make(result)
    if isinstance(result, Result):
        return part.printed(result)
    known = ", ".join(kind.__name__ for kind in SECTION_OF)
    raise ValueError(
        f"results has a {type(result).__name__}, which has no section; pass {known}, any other result of a verb, or "
        f"a Section."
    )
