"""The HTML page of a study: a table of claims and verdicts, a section per claim, and provenance.

Position and type do not depend on the verdict.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from case_studies.frame.claims import NOT_MEASURED
from case_studies.frame.results import ClaimResult, StudyResult
from interp.view.page import Section, write_page

_MARKS = {"reproduced": "✓", "not reproduced": "✗", "inconclusive": "○", NOT_MEASURED: "–"}
_LONG_LIST = 12


def write_study_page(result: StudyResult, *, title: str, lead: str) -> Path:
    """Write a study's results as one HTML file that opens offline.

    Args:
        result: The study's result; `result.page` is the path of the file.
        title: Heading and window title.
        lead: What the study is about, in a few sentences.
    """
    sections = [_summary(result), *(_claim(one) for one in result.claims), _provenance(result)]
    return write_page(result.page, title=title, lead=lead, sections=sections)


def _summary(result: StudyResult) -> Section:
    rows: list[tuple[Any, ...]] = [("claim", "what the paper says", "paper", _whole("measured [95 %]"), "n", "verdict")]
    for one in result.claims:
        claim = one.claim
        link = Markup('<a href="#claim-{}">{}</a>').format(claim.id, claim.id)
        statement = Markup('<span class="statement-cell">{}</span>').format(claim.statement)
        measured = Markup('{}<br><span class="quantity">{}</span>').format(_whole(one.measured), claim.quantity)
        numbers = (claim.paper or "–", measured, one.sample)
        rows.append((link, statement, *numbers, _verdict(one.label)))
    if all(one.claim.paper is None for one in result.claims):
        rows = [(*row[:2], *row[3:]) for row in rows]
    count = "1 claim" if len(result.claims) == 1 else f"{len(result.claims)} claims"
    text = f"{count} at size {result.size}: {result.tally}. Every rule was written before the run; intervals are 95 %."
    return Section(title="Claims and verdicts", text=text, table=rows, anchor="claims", short="claims")


def _whole(text: str) -> Markup:
    return Markup('<span class="whole">{}</span>').format(text)


def _verdict(label: str) -> Markup:
    """The verdict in words with a mark; the same HTML element for every verdict."""
    return Markup('<span class="verdict" data-verdict="{}">{} {}</span>').format(label, _MARKS[label], label)


def _claim(result: ClaimResult) -> Section:
    claim, m = result.claim, result.measurement
    tables = [*(m.tables if m else ())]
    if m and m.numbers:
        tables.append(("Numbers", [("what", "value"), *((_words(k), _text(v)) for k, v in m.numbers.items())]))
    return Section(
        title=claim.id,
        html=_finding(result),
        charts=m.charts if m else (),
        tables=tables,
        foot=_settings(result),
        anchor=f"claim-{claim.id}",
        in_nav=False,  # linked from the table of claims
    )


def _finding(result: ClaimResult) -> Markup:
    claim, m = result.claim, result.measurement
    number = f"{claim.quantity} {result.measured}, n = {result.sample}".strip() if m else "no number"
    facts = [
        ("Source", claim.source),
        ("The paper's number", claim.paper or "none printed"),
        ("Rule, written before the run", claim.rule),
    ]
    if result.note:
        facts.append(("About this run" if m else "Why", result.note))
    rows = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(name, text) for name, text in facts)
    return Markup(
        '<p class="statement">{}</p>\n<div class="finding"><p>{}<span class="measured">{}</span></p><dl>{}</dl></div>\n'
    ).format(claim.statement, _verdict(result.label), number, rows)


def _settings(result: ClaimResult) -> Markup:
    """Collapsed details: task, model and training settings of every group that the claim reads."""
    if not result.settings:
        return Markup("")
    rows = [
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td></tr>").format(group, _words(part), _text(values))
        for group, described in result.settings.items()
        for part, values in described.items()
    ]
    took = f"; measuring took {result.seconds:.1f} s" if result.seconds is not None else ""
    return Markup(
        "<details><summary>Settings of its models{}</summary>"
        '<div class="wide"><table><thead><tr><th>group</th><th>what</th><th>value</th></tr></thead>'
        "<tbody>{}</tbody></table></div></details>\n"
    ).format(took, Markup("").join(rows))


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
        rows.append(("measured on other hardware", ", ".join(f"{name} ({_text(made[name])})" for name in elsewhere)))
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
    if isinstance(value, list):
        shown = ", ".join(_text(item) for item in value[:_LONG_LIST])
        return f"{shown} … ({len(value)} in all)" if len(value) > _LONG_LIST else shown or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None or value == "" else str(value)
