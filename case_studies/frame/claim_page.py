"""The HTML page of a claim: verdict and facts, charts, tables, and settings of its models."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from case_studies.frame.claims import Preregistration
from case_studies.frame.finding import claim_page
from case_studies.frame.measurement import Measurement
from case_studies.frame.parts import fragment
from case_studies.frame.picture import MARKS
from case_studies.frame.results import ClaimResult, StudyResult
from case_studies.frame.to_decide import to_decide
from interp.core.environment import source_line
from interp.core.plain_words import plain_chart, plain_words
from interp.tasks.registry import task_class_of
from interp.view.html import PageIdentity
from interp.view.page import Section, write_page

_LONG_LIST = 12
CONDITION = "A condition is a group of models trained with the same settings and different seeds."


def write_claim_page(study: StudyResult, index: int) -> Path:
    """Write the page of a claim, in the folder `claims` next to the page of its study.

    Args:
        study: The results of the study.
        index: Place of the claim among them.

    Returns:
        The path of the page.
    """
    result = study.claims[index]
    claim, m = result.claim, result.measurement
    tables = _tables(m) if m else []
    charts = list(map(_readable, m.charts)) if m else []
    explanation = _explanation(result, json.dumps([tables, charts], default=str))
    sections = [Section(title="Verdict", html=_facts(result, explanation), anchor="verdict")]
    if charts:
        sections.append(Section(title="Figures", charts=charts, anchor="figures"))
    if tables:
        sections.append(Section(title="Tables", tables=tables, anchor="tables"))
    foot = fragment("models", claim.id, _settings(result), _neighbours(study, index))
    sections.append(Section(title="Models and other statements", html=foot, anchor="models", short="Models"))
    command = f"interp reproduce {study.study} --size {study.size} --only {claim.id}"
    origin = "our own" if claim.is_ours else "a paper"
    lead = fragment("claim_lead", origin, study.page.name, study.title)
    return write_page(
        study.page.parent / claim_page(claim.id),
        title=plain_words(claim.statement),
        lead=lead,
        sections=sections,
        identity=PageIdentity(
            command=command,
            commit=commit_text((result.provenance or {}).get("source") or {}),
            date=(result.provenance or study.manifest)["time"],
        ),
    )


def _tables(m: Measurement) -> list[tuple[str, list[list[str]]]]:
    """Title and rows of each table of a measurement, and of one more with its further numbers."""
    tables = [
        (plain_words(title), [[plain_words(str(cell)) for cell in row] for row in rows]) for title, rows in m.tables
    ]
    if m.numbers:
        numbers = [[plain_words(_words(name)), plain_value(value)] for name, value in m.numbers.items()]
        tables.append(("Further numbers", [["what", "value"], *numbers]))
    return tables


def _readable(chart: Mapping[str, Any]) -> dict[str, Any]:
    """A stored chart in plain words, without labels that overlap others, which those of earlier versions had."""
    spec = plain_chart(chart)
    config = spec.get("config", {})
    axis = {"labelOverlap": "greedy", "labelSeparation": 1} | config.get("axis", {})
    return spec | {"config": config | {"axis": axis}}


def _neighbours(study: StudyResult, index: int) -> list[tuple[str, str, str]]:
    """Place, page and statement of the claims before and after a claim."""
    neighbours = []
    for name, place in (("previous", index - 1), ("next", index + 1)):
        if 0 <= place < len(study.claims):
            claim = study.claims[place].claim
            neighbours.append((name, f"{claim.id}.html", plain_words(claim.statement)))
    return neighbours


def _explanation(result: ClaimResult, figures: str) -> str:
    """Explanations of words that the figures of a claim use."""
    tasks = [group.get("task", {}).get("task") for group in result.settings.values()]
    names = [(r"\bconditions?\b", CONDITION), *_target_names(dict.fromkeys(map(str, tasks)))]
    return " ".join(explanation for pattern, explanation in names if re.search(pattern, figures))


def _target_names(tasks: Iterable[str]) -> list[tuple[str, str]]:
    """Pattern and explanation of the targets' names, of every task that has one."""
    names = []
    for task in tasks:
        try:
            explanation = task_class_of(task).target_names
        except ValueError:  # not installed here
            continue
        if explanation:
            first_name = re.escape(explanation.split()[0].rstrip(",."))
            names.append((re.sub(r"\d+", r"\\d+", first_name), explanation))
    return names


def _facts(result: ClaimResult, explanation: str) -> Markup:
    """Verdict, number and what decided it, what a reader needs to judge them, and an explanation of words."""
    claim, m = result.claim, result.measurement
    measured = f"{claim.quantity} {result.number}, n = {result.sample}".strip() if m else "no number"
    facts = [
        ("Source", claim.source),
        ("The paper's number", "" if claim.is_ours else claim.paper or "none printed"),
        ("How it is judged", claim.rule_text),
        ("Rule fixed", _when_fixed(claim.preregistration)),
    ]
    if result.provenance:
        facts.append(("Measured", _measured(result)))
    if result.note:
        facts.append(("About this run" if m else "Why", result.note))
    remedy = to_decide(result)
    if remedy:
        facts.append(("What would decide it", f"{remedy[0].upper()}{remedy[1:]}."))
    rows = [(name, plain_words(text)) for name, text in facts if text]
    decided_by = plain_words(result.criterion)
    return fragment("facts", result.label, MARKS[result.label], plain_words(measured), decided_by, rows, explanation)


def _when_fixed(preregistration: Preregistration) -> str:
    """When the rule was fixed, what was known by then, and how often more was measured after a look."""
    text = replace(preregistration, looks=0).text
    looks = preregistration.looks
    if not looks:
        return text
    times = "once" if looks == 1 else f"{looks} times"
    return f"{text.removesuffix('.')}. Models, seeds or inputs were added {times} after the number had been seen."


def _measured(result: ClaimResult) -> str:
    """When a claim was measured, on which files from outside, and at what cost."""
    provenance = result.provenance or {}
    cost = result.cost or {}
    facts = [str(provenance["time"])[:10]]
    if provenance.get("packs"):
        # Packs, or other files from outside
        word = result.claim.packs.word if result.claim.packs else "packs"
        facts.append(f"{word} {provenance['packs']}")
    if cost.get("cpu_seconds") is not None:
        facts.append(f"{cost['cpu_seconds']:.1f} CPU seconds")
    elif cost.get("seconds") is not None:
        facts.append(f"{cost['seconds']:.1f} s")
    if cost.get("peak_mb"):
        facts.append(f"peak memory {cost['peak_mb']:.0f} MB")
    return ", ".join(facts)


def commit_text(source: Mapping[str, Any]) -> str:
    """The commit of a measurement; of a version without a commit, that in which its results are stored."""
    stored = f", stored in commit {source['stored_in'][:10]}" if source.get("stored_in") else ""
    return source_line(source) + stored


def _settings(result: ClaimResult) -> list[tuple[str, str, str]]:
    """Task, model and training settings of every group that the claim reads: group, what, and value."""
    return [
        (group, _words(name), plain_value(values))
        for group, settings in result.settings.items()
        for name, values in settings.items()
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


def plain_value(value: Any) -> str:
    """A stored value as text; values that vary within a group are listed, long lists are cut."""
    if isinstance(value, Mapping) and set(value) == {"varies"}:
        return f"one of {', '.join(map(plain_value, value['varies']))}"
    if isinstance(value, Mapping):
        return "; ".join(f"{_words(name)} {plain_value(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        entries = ", ".join(map(plain_value, value[:_LONG_LIST])) or "none"
        return f"{entries} … ({len(value)} in all)" if len(value) > _LONG_LIST else entries
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None or value == "" else str(value)
