"""The HTML page of a study: a table of claims and verdicts, a section per claim, and provenance.

Position and type do not depend on the verdict.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from case_studies.frame.claims import BY_CONSTRUCTION, NOT_MEASURED
from case_studies.frame.results import ClaimResult, StudyResult
from case_studies.frame.to_decide import to_decide
from interp.core.environment import source_line
from interp.core.page_identity import quantity
from interp.tasks.registry import task_class_of
from interp.view.html import PageIdentity, scrolling
from interp.view.page import Section, write_page

_MARKS = {"reproduced": "✓", "not reproduced": "✗", "inconclusive": "○", BY_CONSTRUCTION: "≡", NOT_MEASURED: "–"}
_LONG_LIST = 12
ARM = "An arm is a group of models trained with the same settings and different seeds."


def write_study_page(result: StudyResult, *, lead: str) -> Path:
    """Write a study's results as one HTML file that opens offline.

    Args:
        result: The study's result; `result.page` is the path of the file.
        lead: What the study is about, in a few sentences.
    """
    explanations = _explanations(result)
    sections = [_summary(result, explanations.get("claims", ""))]
    for claim in result.claims:
        sections.append(_claim_section(claim, result, explanations.get(claim.claim.id, "")))
    sections.append(_provenance(result))
    return write_page(result.page, title=result.title, lead=lead, sections=sections, identity=_identity(result))


def _identity(result: StudyResult) -> PageIdentity:
    """The heading of the page, from stored results only: the same results give the same page."""
    settings = _settings_by_group(result)
    tasks = {str(group["task"].get("task", "")) for group in settings.values() if "task" in group}
    # Claims may have been measured at several commits; each is named once
    sources = [claim.provenance.get("source") or {} for claim in result.claims if claim.provenance]
    commits = dict.fromkeys(map(_commit, sources))
    models = quantity(result.manifest["models"]["used"], "trained model")
    return PageIdentity(
        task=", ".join(sorted(tasks - {""})),
        model=f"{models} in {quantity(len(settings), 'group')}" if settings else "none",
        seed=f"{result.manifest['seed']} (measurements; models: below each claim)",
        command=f"interp reproduce {result.study} --size {result.size}",
        commit=", ".join(commit for commit in commits if commit),
        date=result.manifest["time"],
    )


def _settings_by_group(result: StudyResult) -> dict[str, Mapping[str, Any]]:
    """The settings of every group of models that a claim reads."""
    return {name: settings for claim in result.claims for name, settings in claim.settings.items()}


def _explanations(result: StudyResult) -> dict[str, str]:
    """Explanations of words, by the claim that uses them first; key `claims` for the table of claims."""
    # The texts of the page, in its order
    statements = [f"{claim.claim.statement} {claim.claim.quantity} {claim.sample}" for claim in result.claims]
    texts = {"claims": " ".join(statements)}
    for claim in result.claims:
        m = claim.measurement
        texts[claim.claim.id] = json.dumps([m.tables, m.charts], default=str) if m else ""
    # Explain each word where it is first used
    explanations: dict[str, list[str]] = {}
    for pattern, explanation in [(r"\barms?\b", ARM), *_target_names(result)]:
        place = next((place for place, text in texts.items() if re.search(pattern, text)), None)
        if place is not None:
            explanations.setdefault(place, []).append(explanation)
    return {place: " ".join(sentences) for place, sentences in explanations.items()}


def _target_names(result: StudyResult) -> list[tuple[str, str]]:
    """Pattern and explanation of the targets' names, of every task of the study that has one."""
    tasks = [group.get("task", {}).get("task") for group in _settings_by_group(result).values()]
    names = []
    for task in dict.fromkeys(map(str, tasks)):
        try:
            explanation = task_class_of(task).target_names
        except ValueError:  # not installed here
            continue
        if explanation:
            first_name = re.escape(explanation.split()[0].rstrip(",."))
            names.append((re.sub(r"\d+", r"\\d+", first_name), explanation))
    return names


def _summary(result: StudyResult, explanation: str) -> Section:
    """The tables of claims: published statements, then our own."""
    published_results = [claim for claim in result.claims if not claim.claim.is_ours]
    own_results = [claim for claim in result.claims if claim.claim.is_ours]
    tables = []
    if published_results:
        tables.append(("Published statements", _claims_table(published_results, "what the paper says")))
    if own_results:
        tables.append(("Statements of ours", _claims_table(own_results, "what we say")))
    text = (
        f"{quantity(len(result.claims), 'claim')} at size {result.size}. {result.tally}. Rules were fixed: "
        f"{result.preregistrations}. {result.chance_text} {explanation}"
    )
    return Section(title="Claims and verdicts", text=text.strip(), tables=tables, anchor="claims", short="claims")


def _claims_table(results: Sequence[ClaimResult], statement_title: str) -> list[list[str]]:
    """Rows of claims; without a column for the paper's numbers if no paper printed one."""
    rows = [["claim", "verdict", statement_title, "paper", _unbroken("measured [95 %]"), "n"]]
    for claim in results:
        paper = Markup('<span class="paper-cell">{}</span>').format(claim.claim.paper) if claim.claim.paper else "–"
        quantity_line = Markup('<span class="quantity">{}</span>').format(claim.claim.quantity)
        rows.append(
            [
                Markup('<a href="#claim-{}">{}</a>').format(claim.claim.id, claim.claim.id),
                _verdict(claim.label) + _criterion(claim),
                Markup('<span class="statement-cell">{}</span>').format(claim.claim.statement),
                paper,
                Markup("{}<br>{}").format(_unbroken(claim.number), quantity_line),
                claim.sample,
            ]
        )
    if all(claim.claim.paper is None for claim in results):
        for row in rows:
            del row[3]
    return rows


def _unbroken(text: str) -> Markup:
    """A text without line breaks."""
    return Markup('<span class="whole">{}</span>').format(text)


def _verdict(label: str) -> Markup:
    """The verdict in words with a mark; the same HTML element for every verdict."""
    return Markup('<span class="verdict" data-verdict="{}">{} {}</span>').format(label, _MARKS[label], label)


def _criterion(result: ClaimResult) -> Markup:
    """The conditions that decided a verdict, where the number next to it does not show them."""
    return Markup('<br><span class="criterion">{}</span>').format(result.criterion) if result.criterion else Markup("")


def _claim_section(result: ClaimResult, study: StudyResult, explanation: str) -> Section:
    """The section of a claim: verdict and facts, charts, tables, command, and settings of its models."""
    claim, m = result.claim, result.measurement
    # Tables of the measurement, and its further figures as one more
    tables = [*m.tables] if m else []
    if m and m.numbers:
        rows = [(_words(name), _text(value)) for name, value in m.numbers.items()]
        tables.append(("Numbers", [("what", "value"), *rows]))
    command = f"interp reproduce {study.study} --size {study.size} --only {claim.id}"
    foot = Markup('<p class="command">Made by <code>{}</code></p>\n').format(command) if m else Markup("")
    facts = _facts(result)
    if explanation:
        facts += Markup("<p>{}</p>\n").format(explanation)
    return Section(
        title=claim.id,
        html=facts,
        charts=m.charts if m else (),
        tables=tables,
        foot=foot + _settings(result),
        anchor=f"claim-{claim.id}",
        under=True,
    )


def _facts(result: ClaimResult) -> Markup:
    """Statement, verdict, number, and what a reader needs to judge them."""
    claim, m = result.claim, result.measurement
    measured = f"{claim.quantity} {result.number}, n = {result.sample}".strip() if m else "no number"
    facts = [
        ("Source", claim.source),
        ("The paper's number", claim.paper or "none printed"),
        ("Rule", claim.rule_text),
        ("Rule fixed", claim.preregistration.text),
    ]
    if result.provenance:
        facts.append(("Measured", _measured(result)))
    if result.note:
        facts.append(("About this run" if m else "Why", result.note))
    remedy = to_decide(result)
    if remedy:
        facts.append(("What would decide it", f"{remedy[0].upper()}{remedy[1:]}."))
    # Statement, then a box: verdict, number and what decided it, and the facts as a list
    rows = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(name, text) for name, text in facts)
    number = Markup("{}{}").format(measured, _criterion(result))
    return Markup(
        '<p class="statement">{}</p>\n<div class="finding"><p>{}<span class="measured">{}</span></p><dl>{}</dl></div>\n'
    ).format(claim.statement, _verdict(result.label), number, rows)


def _measured(result: ClaimResult) -> str:
    """When a claim was measured, with which source, on which packs, and at what cost."""
    provenance = result.provenance or {}
    cost = result.cost or {}
    source = provenance.get("source") or {}
    facts = [str(provenance["time"])[:10]]
    commit = _commit(source)
    if commit:
        facts.append(f"commit {commit}" if source.get("commit") else commit)
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


def _commit(source: Mapping[str, Any]) -> str:
    """The commit of a measurement; of a version without a commit, that in which its results are stored."""
    stored = f", stored in commit {source['stored_in'][:10]}" if source.get("stored_in") else ""
    return source_line(source) + stored


def _settings(result: ClaimResult) -> Markup:
    """Collapsed details: task, model and training settings of every group that the claim reads."""
    if not result.settings:
        return Markup("")
    rows = [
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td></tr>").format(group, _words(name), _text(values))
        for group, settings in result.settings.items()
        for name, values in settings.items()
    ]
    table = Markup(
        '<table><thead><tr><th scope="col">group</th><th scope="col">what</th><th scope="col">value</th></tr></thead>'
        "<tbody>{}</tbody></table>"
    ).format(Markup("").join(rows))
    return Markup("<details><summary>Settings of its models</summary>{}</details>\n").format(
        scrolling(table, label=f"Settings of {result.claim.id}")
    )


def _provenance(result: StudyResult) -> Section:
    """The table of provenance of the whole study."""
    manifest = result.manifest
    rows = [
        ("what", "value"),
        ("study, size, seed", f"{result.study}, {result.size}, {manifest['seed']}"),
        ("models used by the claims", _models(manifest["models"])),
        ("claims measured in the last run", str(manifest["measured_now"])),
        ("duration of the last run", f"{manifest['wall_seconds']:.0f} s"),
        ("computing time, all runs and cores", f"{manifest['seconds']:.0f} s"),
    ]
    rows += [(name, str(value)) for name, value in {**manifest["versions"], **manifest["hardware"]}.items()]
    rows += [("threads", str(manifest["threads"])), ("written", manifest["time"])]
    # Claims that were measured on another machine than the last run
    hardware = {claim.claim.id: claim.provenance["hardware"] for claim in result.claims if claim.provenance}
    elsewhere = [f"{name} ({_text(machine)})" for name, machine in hardware.items() if machine != manifest["hardware"]]
    if elsewhere:
        rows.append(("measured on other hardware", ", ".join(elsewhere)))
    return Section(title="Provenance", table=rows, anchor="provenance", short="provenance")


def _models(models: Mapping[str, Any]) -> str:
    """Number, dates and versions of the models in words."""
    text = f"{models['used']}, of which {models['there']} are trained, {models['trained_now']} of them in the last run"
    if models["there"]:
        text += f"; the oldest {models['oldest']}, the newest {models['newest']}"
    if models["other_versions"]:
        text += f"; {models['other_versions']} with package versions other than those below"
    return text


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str:
    """A plain value as text; values that vary within a group are listed, long lists are cut."""
    if isinstance(value, Mapping) and set(value) == {"varies"}:
        return f"one of {', '.join(map(_text, value['varies']))}"
    if isinstance(value, Mapping):
        return "; ".join(f"{_words(name)} {_text(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        entries = ", ".join(map(_text, value[:_LONG_LIST])) or "none"
        return f"{entries} … ({len(value)} in all)" if len(value) > _LONG_LIST else entries
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None or value == "" else str(value)
