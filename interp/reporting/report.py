"""HTML reports of results and of training runs."""

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hooks.model.baseline import Baseline
from hooks.state import restores_state
from hooks.typed import checks_types
from interp.auditing.result import AuditResult
from interp.auditing.sentences import verdict_summary
from interp.comparison.variation import VariationResult
from interp.core.page_identity import page_identity
from interp.core.progress import Count, counted
from interp.core.results import Result
from interp.core.verbs import AnyModel
from interp.evaluation.evaluate import EvaluationResult, evaluate
from interp.heads.ablate import AblationResult
from interp.heads.classify import HeadPatterns
from interp.heads.edges import EdgesResult
from interp.heads.patch import PatchResult
from interp.heads.show import show_attention
from interp.probing.logit_lens import LogitLensResult
from interp.probing.probe import ProbeResult
from interp.reporting import sections
from interp.reporting.subject import Subject, subject_of
from interp.tasks.base import Task
from interp.theory.balance import BalanceResult
from interp.training.run import TrainingRun
from interp.view.attention import AttentionPage
from interp.view.html import PageIdentity
from interp.view.page import Section, write_page


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a page about a model begins with."""

    lead: str
    """Summary in a few sentences."""
    sections: tuple[Section, ...] = ()


SECTION_OF: dict[type, Callable[[Any], Section]] = {
    BalanceResult: sections.balance_section,
    ProbeResult: sections.probe_section,
    HeadPatterns: sections.heads_section,
    AttentionPage: sections.attention_section,
    AblationResult: sections.ablation_section,
    AuditResult: sections.audit_section,
    VariationResult: sections.variation_section,
    LogitLensResult: sections.lens_section,
    PatchResult: sections.patch_section,
    EdgesResult: sections.edges_section,
}
"""The section function of each type of result."""


@checks_types
@restores_state
def report(
    results: Sequence[Any], path: str | Path, *, title: str, lead: str = "", identity: PageIdentity | None = None
) -> Path:
    """Write results to one self-contained HTML file, atomically.

    Args:
        results: Any `interp.core.results.Result`, attention pages or sections (`Section`), in the order of the page.
        path: The HTML file.
        title: Heading of the page.
        lead: Summary in a few sentences.
        identity: Task, model, seed, command, commit and date, shown below the heading. If None, only command,
            commit and date.

    Raises:
        ValueError: no results, or one that has no section.

    Example:
        >>> import interp
        >>> from tempfile import mkdtemp
        >>> from interp.view.page import Section
        >>> note = Section(title="Note", text="The model follows the chain.")
        >>> interp.report([note], f"{mkdtemp()}/page.html", title="LEGO").name
        'page.html'
    """
    if isinstance(results, str) or not isinstance(results, Sequence) or not results:
        raise ValueError(f"results is {reprlib.repr(results)}; give a list of results, one at least.")
    with Count("page", 2) as count:
        page_sections = [_section(result) for result in counted("sections", results, total=len(results))]
        count.advance()
        page = write_page(path, title=title, lead=lead, sections=page_sections, identity=identity or page_identity())
        count.advance()
    return page


@checks_types
@restores_state
def report_run(
    run: TrainingRun | AnyModel | Baseline,
    task: Task,
    path: str | Path,
    *,
    results: Sequence[Any] = (),
    control: TrainingRun | AnyModel | Baseline | None = None,
    n_test: int = 10_000,
    title: str | None = None,
    opening: Opening | None = None,
) -> tuple[Path, dict[str, EvaluationResult]]:
    """Write a page about a training run or any model: accuracies, an example, results, learning curves and provenance.

    The lead has the verdicts of the audits in `results`; pages of `interp.auditing.show_heads` are the first
    sections. Without a training run, the page has no learning curves and no settings of training.

    Args:
        run: The training run, or a model of any kind that verbs accept.
        task: Its task.
        path: The HTML file.
        results: Further results on its model, as in `report`.
        control: Another run or model, shown for comparison.
        n_test: Number of held-out examples for the accuracies.
        title: Heading of the page; default: "Training report", or "Model report" without a run.
        opening: What the page begins with; if None, a summary of the model, and two heads that look alike if an audit
            among the results has such a pair.

    Returns:
        The file, and the held-out accuracies of the model and of the control.

    Raises:
        ValueError: no test examples, a result that has no section, or a model that does not fit the task.

    Example:
        >>> import tempfile, interp
        >>> task = interp.tasks.Lego(n_vars=1)
        >>> model = interp.known_answers.lego_loop(task)
        >>> run = interp.train(model, task, interp.TrainSettings(steps=1, batch_size=4, n_eval=8))
        >>> page, accuracies = interp.report_run(run, task, f"{tempfile.mkdtemp()}/page.html", n_test=16)
        >>> page.name, list(accuracies)
        ('page.html', ['model'])
    """
    subject = subject_of(run, task)
    subjects = {"model": subject}
    if control is not None:
        subjects["control"] = subject_of(control, task)
    with Count("report", len(subjects) + 1) as count:
        # held-out accuracies of each model
        evaluations = {}
        for name, evaluated in subjects.items():
            evaluations[name] = evaluate(evaluated.model, task, n=n_test, seed=evaluated.seed)
            count.advance()
        # the page
        default_title = "Model report" if subject.run is None else "Training report"
        seed = "" if subject.run is None else f"{subject.seed} (training)"
        if opening is None:
            opening = _opening(subject, task, results, evaluations["model"])
        page = report(
            [*opening.sections, *_ordered_sections(subjects, task, results, evaluations)],
            path,
            title=default_title if title is None else title,
            lead=opening.lead,
            identity=page_identity(subject.model, task, seed=seed),
        )
        count.advance()
    return page, evaluations


def _opening(subject: Subject, task: Task, results: Sequence[Any], evaluation: EvaluationResult) -> Opening:
    """A summary of the model, and a contrast of two heads for each audit that has one."""
    contrasts = [_contrast_section(subject, task, result) for result in results if isinstance(result, AuditResult)]
    return Opening(lead=_lead(subject, task, results, evaluation), sections=tuple(filter(None, contrasts)))


def _ordered_sections(
    subjects: dict[str, Subject], task: Task, results: Sequence[Any], evaluations: dict[str, EvaluationResult]
) -> list[Any]:
    """The sections of a page about a model: pages with findings on heads come first."""
    pages_with_findings, other_results = [], []
    for result in results:
        if isinstance(result, AttentionPage) and result.findings:
            pages_with_findings.append(result)
        else:
            other_results.append(result)
    runs = {name: subject.run for name, subject in subjects.items() if subject.run is not None}
    return [
        *pages_with_findings,
        sections.accuracy_section(evaluations, task),
        sections.example_section(subjects["model"], task),
        *other_results,
        *([sections.curves_section(runs)] if runs else []),
        sections.setup_section(subjects, task),
        sections.provenance_section(subjects["model"]),
    ]


def _contrast_section(subject: Subject, task: Task, audit: AuditResult) -> Section | None:
    """Two heads that look alike, of which the model needs one, if the audit has such a pair."""
    contrast = audit.contrast()
    if contrast is None:
        return None
    heads = [contrast.faithful.place, contrast.misleading.place]
    patterns = show_attention(subject.model, task, heads=heads, seed=subject.seed)
    return sections.contrast_section(
        contrast, patterns, counted=audit.counted_with_intervals(), target_names=task.target_names
    )


def _lead(subject: Subject, task: Task, results: Sequence[Any], evaluation: EvaluationResult) -> str:
    """What the model is, its lowest accuracy, what its start installed, and how many heads have each verdict."""
    # The lowest accuracy; that of a target without answers is NaN
    lowest = int(np.nanargmin(evaluation.accuracy.value))
    accuracy, target = evaluation.accuracy.value[lowest], evaluation.targets[lowest]
    audits = [result for result in results if isinstance(result, AuditResult)]
    verdicts = [verdict_summary([head.counted_as for head in audit.heads]) for audit in audits]
    if subject.run is None:
        model = f"The model is a {subject.kind}, on {task.title}."
        installed = "How it was trained, and what that installed, is not known here."
    else:
        model = f"A {subject.kind} was trained on {task.title} with seed {subject.seed}."
        installed = sections.INSTALLED[subject.run.manifest["settings"]["association"]]
    on_examples = f"On {evaluation.n} held-out examples"
    lowest_accuracy = f"{on_examples}, its lowest accuracy on any target is {accuracy:.2%} ({target})."
    if accuracy == 1:
        lowest_accuracy = f"{on_examples}, every answer is right."
    return " ".join([model, lowest_accuracy, installed, *verdicts])


def _section(result: Any) -> Section:
    """The section of a result, by its class; any other `interp.core.results.Result` has a general one."""
    if isinstance(result, Section):
        return result
    for kind, section_of in SECTION_OF.items():
        if isinstance(result, kind):
            return section_of(result)
    if isinstance(result, Result):
        return sections.printed_section(result)
    types = ", ".join(kind.__name__ for kind in SECTION_OF)
    raise ValueError(
        f"results has a {type(result).__name__}, which has no section; pass {types}, any other "
        f"interp.core.results.Result, or a Section."
    )
