"""What does a study's page say? First every claim with its verdict, then each claim by itself, then how it was made.

A claim that does not hold stands where one that holds would stand, in the same type.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from case_studies.frame.claims import NOT_RUN
from case_studies.frame.outcomes import ClaimResult, StudyResult
from interp.view.page import Section, write_page

_MARKS = {"reproduced": "✓", "not reproduced": "✗", "inconclusive": "○", NOT_RUN: "…"}
_LONG_LIST = 12


def write_study_page(result: StudyResult, *, title: str, lead: str) -> Path:
    """Write a study's results as one HTML file that opens offline.

    Args:
        result: What came of the study; its `page` says where to write.
        title: Heading and window title.
        lead: What the study is about, in a few sentences.
    """
    sections = [_summary(result), *(_claim(outcome) for outcome in result.outcomes), _provenance(result)]
    return write_page(result.page, title=title, lead=lead, sections=sections)


def _summary(result: StudyResult) -> Section:
    rows: list[tuple[Any, ...]] = [("claim", "what the paper says", "paper", _whole("measured [95 %]"), "n", "verdict")]
    for outcome in result.outcomes:
        claim = outcome.claim
        link = Markup('<a href="#claim-{}">{}</a>').format(claim.id, claim.id)
        statement = Markup('<span class="statement-cell">{}</span>').format(claim.statement)
        measured = Markup('{}<br><span class="quantity">{}</span>').format(_whole(outcome.measured), claim.quantity)
        numbers = (claim.paper or "–", measured, outcome.sample)
        rows.append((link, statement, *numbers, _verdict(outcome.label)))
    if all(outcome.claim.paper is None for outcome in result.outcomes):
        rows = [(*row[:2], *row[3:]) for row in rows]
    count = "1 claim" if len(result.outcomes) == 1 else f"{len(result.outcomes)} claims"
    text = f"{count} at size {result.size}: {result.tally}. Every rule was written before the run; intervals are 95 %."
    return Section(title="Claims and verdicts", text=text, table=rows, anchor="claims", short="claims")


def _whole(text: str) -> Markup:
    return Markup('<span class="whole">{}</span>').format(text)


def _verdict(label: str) -> Markup:
    """The verdict, in words and with a mark: the same element whatever it says."""
    return Markup('<span class="verdict" data-verdict="{}">{} {}</span>').format(label, _MARKS[label], label)


def _claim(outcome: ClaimResult) -> Section:
    claim, m = outcome.claim, outcome.measurement
    tables = [*(m.tables if m else ())]
    if m and m.numbers:
        tables.append(("Numbers", [("what", "value"), *((_words(k), _text(v)) for k, v in m.numbers.items())]))
    return Section(
        title=claim.id,
        html=_finding(outcome),
        charts=m.charts if m else (),
        tables=tables,
        foot=_settings(outcome),
        anchor=f"claim-{claim.id}",
        in_nav=False,  # the table of claims is the way in
    )


def _finding(outcome: ClaimResult) -> Markup:
    claim, m = outcome.claim, outcome.measurement
    number = f"{claim.quantity} {outcome.measured}, n = {outcome.sample}".strip() if m else "no number"
    facts = [
        ("Source", claim.source),
        ("The paper's number", claim.paper or "none printed"),
        ("Rule, written before the run", claim.rule),
    ]
    if outcome.note:
        facts.append(("About this run" if m else "Why", outcome.note))
    rows = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(name, text) for name, text in facts)
    return Markup(
        '<p class="statement">{}</p>\n<div class="finding"><p>{}<span class="measured">{}</span></p><dl>{}</dl></div>\n'
    ).format(claim.statement, _verdict(outcome.label), number, rows)


def _settings(outcome: ClaimResult) -> Markup:
    """Task, model and training of every group behind the claim, folded away until somebody wants to know."""
    if not outcome.settings:
        return Markup("")
    rows = [
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td></tr>").format(group, _words(part), _text(values))
        for group, described in outcome.settings.items()
        for part, values in described.items()
    ]
    took = f"; measuring took {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
    return Markup(
        "<details><summary>Settings of the models behind it{}</summary>"
        '<div class="wide"><table><thead><tr><th>group</th><th>what</th><th>value</th></tr></thead>'
        "<tbody>{}</tbody></table></div></details>\n"
    ).format(took, Markup("").join(rows))


def _provenance(result: StudyResult) -> Section:
    manifest = result.manifest
    models = manifest["models"]
    rows = [
        ("what", "value"),
        ("study, size, seed", f"{result.study}, {result.size}, {manifest['seed']}"),
        ("models behind the claims", _models(models)),
        ("claims measured in the last run", str(manifest["measured_now"])),
        ("the last run took", f"{manifest['wall_seconds']:.0f} s"),
        ("computing, all runs and cores together", f"{manifest['seconds']:.0f} s"),
    ]
    rows += [(name, str(value)) for name, value in {**manifest["versions"], **manifest["hardware"]}.items()]
    rows += [("threads", str(manifest["threads"])), ("written", manifest["time"])]
    made = {outcome.claim.id: outcome.made for outcome in result.outcomes if outcome.made}
    elsewhere = [name for name, one in made.items() if one["hardware"] != manifest["hardware"]]
    if elsewhere:
        rows.append(("measured on other hardware", ", ".join(f"{name} ({_text(made[name])})" for name in elsewhere)))
    return Section(title="Provenance", table=rows, anchor="provenance", short="provenance")


def _models(models: Mapping[str, Any]) -> str:
    text = f"{models['used']}, of which {models['there']} are trained, {models['trained_now']} of them in the last run"
    if models["there"]:
        text += f"; the oldest {models['oldest']}, the newest {models['newest']}"
    if models["other_versions"]:
        text += f"; {models['other_versions']} with other versions of the packages than those below"
    return text


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str:
    """A plain value to read: what varies within a group is listed, long lists are cut."""
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
