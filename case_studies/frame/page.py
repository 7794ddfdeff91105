"""The HTML page of a study: a table of claims and verdicts, a section per claim, and provenance.

Position and type do not depend on the verdict.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from case_studies.frame.claims import BY_CONSTRUCTION, NOT_MEASURED
from case_studies.frame.deciding import to_decide, what_is_open
from case_studies.frame.results import ClaimResult, StudyResult
from interp.core.environment import source_line
from interp.core.page_identity import quantity
from interp.tasks.registry import task_class_of
from interp.view.html import PageIdentity, scrolling
from interp.view.page import Section, write_page

_MARKS = {"reproduced": "✓", "not reproduced": "✗", "inconclusive": "○", BY_CONSTRUCTION: "≡", NOT_MEASURED: "–"}
_LONG_LIST = 12
ARM = "An arm is a group of models trained with the same settings and different seeds."


def write_study_page(result: StudyResult, *, title: str, lead: str) -> Path:
    """Write a study's results as one HTML file that opens offline.

    Args:
        result: The study's result; `result.page` is the path of the file.
        title: Heading and window title.
        lead: What the study is about, in a few sentences.
    """
    words = _words_to_explain(result)
    claims = [_claim(one, result, words.get(one.claim.id, "")) for one in result.claims]
    sections = [_summary(result, words.get("claims", "")), *claims, _provenance(result)]
    return write_page(result.page, title=title, lead=lead, sections=sections, identity=_identity(result))


def _identity(result: StudyResult) -> PageIdentity:
    """The heading of the page, from stored results only: the same results give the same page."""
    groups = {name: described for one in result.claims for name, described in one.settings.items()}
    tasks = {str(described["task"].get("task", "")) for described in groups.values() if "task" in described}
    sources = {_source((one.made or {}).get("source") or {}): None for one in result.claims if one.made}
    models = result.manifest["models"]["used"]
    return PageIdentity(
        task=", ".join(sorted(tasks - {""})),
        model=f"{quantity(models, 'trained model')} in {quantity(len(groups), 'group')}" if groups else "none",
        seed=f"{result.manifest['seed']} (measurements; models: below each claim)",
        command=f"interp reproduce {result.study} --size {result.size}",
        commit=", ".join(name for name in sources if name),
        date=result.manifest["time"],
    )


def _words_to_explain(result: StudyResult) -> dict[str, str]:
    """Explanations of words, by the claim that uses them first; key `claims` for the table of claims."""
    shown = {"claims": " ".join(f"{one.claim.statement} {one.claim.quantity} {one.sample}" for one in result.claims)}
    for one in result.claims:
        m = one.measurement
        shown[one.claim.id] = json.dumps([m.tables, m.charts], default=str) if m else ""
    found: dict[str, str] = {}
    for pattern, words in [(r"\barms?\b", ARM), *_target_names(result)]:
        first = next((place for place, text in shown.items() if re.search(pattern, text)), None)
        if first is not None:
            found[first] = f"{found.get(first, '')} {words}".strip()
    return found


def _target_names(result: StudyResult) -> list[tuple[str, str]]:
    """Pattern and explanation of the targets' names, of every task of the study that has one."""
    described = [group.get("task", {}) for one in result.claims for group in one.settings.values()]
    found = []
    for name in dict.fromkeys(str(task.get("task")) for task in described):
        try:
            words = task_class_of(name).target_names
        except ValueError:  # not installed here
            continue
        if words:
            first = re.escape(words.split()[0].rstrip(",."))
            found.append((re.sub(r"\d+", r"\\d+", first), words))
    return found


def _summary(result: StudyResult, words: str) -> Section:
    rows: list[tuple[Any, ...]] = [("claim", "what the paper says", "paper", _whole("measured [95 %]"), "n", "verdict")]
    for one in result.claims:
        claim = one.claim
        link = Markup('<a href="#claim-{}">{}</a>').format(claim.id, claim.id)
        statement = Markup('<span class="statement-cell">{}</span>').format(claim.statement)
        measured = Markup('{}<br><span class="quantity">{}</span>').format(_whole(one.measured), claim.quantity)
        paper = Markup('<span class="paper-cell">{}</span>').format(claim.paper) if claim.paper else "–"
        numbers = (paper, measured, one.sample)
        rows.append((link, statement, *numbers, _verdict(one.label) + _criterion(one)))
    if all(one.claim.paper is None for one in result.claims):
        rows = [(*row[:2], *row[3:]) for row in rows]
    count = "1 claim" if len(result.claims) == 1 else f"{len(result.claims)} claims"
    text = (
        f"{count} at size {result.size}: {result.tally}. Rules were fixed: {result.preregistration}. Intervals are "
        f"95 %: if "
        f"every true value were at its bar, {result.by_chance:.1f} claims would be reproduced by chance. "
        f"{what_is_open(result)} {words}"
    ).strip()
    return Section(title="Claims and verdicts", text=text, table=rows, anchor="claims", short="claims")


def _whole(text: str) -> Markup:
    return Markup('<span class="whole">{}</span>').format(text)


def _verdict(label: str) -> Markup:
    """The verdict in words with a mark; the same HTML element for every verdict."""
    return Markup('<span class="verdict" data-verdict="{}">{} {}</span>').format(label, _MARKS[label], label)


def _criterion(result: ClaimResult) -> Markup:
    """The conditions that decided a verdict, where the number next to it does not show them."""
    return Markup('<br><span class="criterion">{}</span>').format(result.criterion) if result.criterion else Markup("")


def _claim(result: ClaimResult, study: StudyResult, words: str) -> Section:
    claim, m = result.claim, result.measurement
    tables = [*(m.tables if m else ())]
    if m and m.numbers:
        tables.append(("Numbers", [("what", "value"), *((_words(k), _text(v)) for k, v in m.numbers.items())]))
    command = f"interp reproduce {study.study} --size {study.size} --only {claim.id}"
    made = Markup('<p class="command">Made by <code>{}</code></p>\n').format(command) if m else Markup("")
    return Section(
        title=claim.id,
        html=_finding(result, study) + (Markup("<p>{}</p>\n").format(words) if words else ""),
        charts=m.charts if m else (),
        tables=tables,
        foot=made + _settings(result),
        anchor=f"claim-{claim.id}",
        under=True,
    )


def _finding(result: ClaimResult, study: StudyResult) -> Markup:
    claim, m = result.claim, result.measurement
    number = f"{claim.quantity} {result.measured}, n = {result.sample}".strip() if m else "no number"
    facts = [
        ("Source", claim.source),
        ("The paper's number", claim.paper or "none printed"),
        ("Rule", claim.rule_text),
        ("Rule fixed", claim.preregistration.text),
    ]
    if result.made:
        facts.append(("Measured", _measured(result)))
    if result.note:
        facts.append(("About this run" if m else "Why", result.note))
    if decides := to_decide(result, study):
        facts.append(("What would decide it", f"{decides[0].upper()}{decides[1:]}."))
    rows = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(name, text) for name, text in facts)
    return Markup(
        '<p class="statement">{}</p>\n<div class="finding"><p>{}<span class="measured">{}</span></p><dl>{}</dl></div>\n'
    ).format(claim.statement, _verdict(result.label), Markup("{}{}").format(number, _criterion(result)), rows)


def _measured(result: ClaimResult) -> str:
    """When a claim was measured, with which source, on which packs, and at what cost."""
    made, cost = result.made or {}, result.cost or {}
    source = made.get("source") or {}
    parts = [str(made["time"])[:10]]
    if _source(source):
        parts.append(f"{'commit ' if source.get('commit') else ''}{_source(source)}")
    if made.get("packs"):
        parts.append(f"packs {made['packs']}")
    if cost.get("cpu_seconds") is not None:
        parts.append(f"{cost['cpu_seconds']:.1f} CPU seconds")
    elif cost.get("seconds") is not None:
        parts.append(f"{cost['seconds']:.1f} s")
    if cost.get("peak_mb"):
        parts.append(f"peak memory {cost['peak_mb']:.0f} MB")
    return ", ".join(parts)


def _source(source: Mapping[str, Any]) -> str:
    """The commit of a measurement; of a version without a commit, that in which its results are stored."""
    stored = f", stored in commit {source['stored_in'][:10]}" if source.get("stored_in") else ""
    return source_line(source) + stored


def _settings(result: ClaimResult) -> Markup:
    """Collapsed details: task, model and training settings of every group that the claim reads."""
    if not result.settings:
        return Markup("")
    rows = [
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td></tr>").format(group, _words(part), _text(values))
        for group, described in result.settings.items()
        for part, values in described.items()
    ]
    table = Markup(
        '<table><thead><tr><th scope="col">group</th><th scope="col">what</th><th scope="col">value</th></tr></thead>'
        "<tbody>{}</tbody></table>"
    ).format(Markup("").join(rows))
    return Markup("<details><summary>Settings of its models</summary>{}</details>\n").format(
        scrolling(table, label=f"Settings of {result.claim.id}")
    )


def _provenance(result: StudyResult) -> Section:
    manifest = result.manifest
    models = manifest["models"]
    rows = [
        ("what", "value"),
        ("study, size, seed", f"{result.study}, {result.size}, {manifest['seed']}"),
        ("models used by the claims", _models(models)),
        ("claims measured in the last run", str(manifest["measured_now"])),
        ("duration of the last run", f"{manifest['wall_seconds']:.0f} s"),
        ("computing time, all runs and cores", f"{manifest['seconds']:.0f} s"),
    ]
    rows += [(name, str(value)) for name, value in {**manifest["versions"], **manifest["hardware"]}.items()]
    rows += [("threads", str(manifest["threads"])), ("written", manifest["time"])]
    made = {one.claim.id: one.made for one in result.claims if one.made}
    elsewhere = [name for name, one in made.items() if one["hardware"] != manifest["hardware"]]
    if elsewhere:
        rows.append(
            ("measured on other hardware", ", ".join(f"{name} ({_text(made[name]['hardware'])})" for name in elsewhere))
        )
    return Section(title="Provenance", table=rows, anchor="provenance", short="provenance")


def _models(models: Mapping[str, Any]) -> str:
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
        return f"one of {', '.join(_text(item) for item in value['varies'])}"
    if isinstance(value, Mapping):
        return "; ".join(f"{_words(name)} {_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:_LONG_LIST])
        return f"{shown} … ({len(value)} in all)" if len(value) > _LONG_LIST else shown or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None or value == "" else str(value)
