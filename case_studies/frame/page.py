"""The HTML pages of a study: what was found, a picture and a table of all claims; and a page for each claim.

Position and type do not depend on the verdict.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from case_studies.frame.claim_page import commit_text, plain_value, write_claim_page
from case_studies.frame.claims import BY_CONSTRUCTION, NOT_MEASURED
from case_studies.frame.finding import Finding, claim_page, finding_in_words
from case_studies.frame.parts import fragment
from case_studies.frame.picture import LEGEND, MARKS, picture
from case_studies.frame.results import ClaimResult, StudyResult
from case_studies.frame.to_decide import to_decide
from interp.core.page_identity import quantity
from interp.core.plain_words import plain_words
from interp.view.html import PageIdentity
from interp.view.page import Section, write_page

PUBLISHED, OWN = "Statements of papers", "Statements of our own"
VERDICTS = {
    "reproduced": "the whole 95 % interval is past the threshold; or the number itself, if it has no sampling error",
    "not reproduced": "the interval, or such a number, is on the other side; or a further condition is not met",
    "inconclusive": "the threshold is inside the interval, or too few models learned the task: undecided",
    BY_CONSTRUCTION: "true of hand-written weights or by arithmetic; it can only fail if the code is wrong",
    NOT_MEASURED: "there is no number of today's models at this size",
}
"""What each verdict means."""
LONG_SAMPLE = 14
"""Characters of a sample size that may be broken into lines."""


def write_study_page(
    result: StudyResult, *, lead: str, findings: Sequence[Finding] = (), words: Mapping[str, str] | None = None
) -> Path:
    """Write a study's results as an HTML page, and a page for each claim in the folder `claims` next to it.

    All of them open offline. Pages of claims that the study no longer has are removed.

    Args:
        result: The study's result; `result.page` is the path of the file.
        lead: What the study is about, in a few sentences.
        findings: What was found, in sentences that are shown if they are true of the result.
        words: Words of the study with their meanings.
    """
    # A page for each claim
    pages = {write_claim_page(result, index) for index in range(len(result.claims))}
    for page in (result.page.parent / "claims").glob("*.html"):
        if page not in pages:
            page.unlink()
    # The page of the study
    sections = [
        _in_short(result),
        _words(result, words or {}),
        _pictures(result),
        _tables(result),
        _details(result, lead),
    ]
    identity = _identity(result)
    finding = finding_in_words(result, findings)
    return write_page(result.page, title=result.title, lead=finding, sections=sections, identity=identity)


def _identity(result: StudyResult) -> PageIdentity:
    """The foot of the page, from stored results only: the same results give the same page."""
    settings = {name: group for claim in result.claims for name, group in claim.settings.items()}
    tasks = {str(group["task"].get("task", "")) for group in settings.values() if "task" in group}
    # Claims may have been measured at several commits; each is named once
    sources = [claim.provenance.get("source") or {} for claim in result.claims if claim.provenance]
    commits = dict.fromkeys(map(commit_text, sources))
    models = quantity(result.manifest["models"]["used"], "trained model")
    return PageIdentity(
        task=", ".join(sorted(tasks - {""})),
        model=f"{models} in {quantity(len(settings), 'group')}" if settings else "none",
        seed=f"{result.manifest['seed']} (measurements; models: on the page of each claim)",
        command=f"interp reproduce {result.study} --size {result.size}",
        commit=", ".join(commit for commit in commits if commit),
        date=result.manifest["time"],
    )


def _in_short(result: StudyResult) -> Section:
    """Whether it can be trusted, what comes next, and how it is run."""
    answers = [
        ("can I trust it?", _trust(result)),
        ("what next?", _open_questions(result)),
        ("how to run it", _commands(result)),
    ]
    return Section(title="In short", html=fragment("boxed_definitions", answers), anchor="in-short")


def _words(result: StudyResult, words: Mapping[str, str]) -> Section:
    """What the words of the study and its verdicts mean."""
    labels = set(result.verdicts.values())
    definitions = {**words, **{label: meaning for label, meaning in VERDICTS.items() if label in labels}}
    return Section(title="Words", html=fragment("boxed_definitions", definitions.items()), anchor="words")


def _trust(result: StudyResult) -> str:
    """How numbers are judged, when thresholds were set, and how many claims pass by chance."""
    n_claims = len(result.claims)
    n_after = sum(claim.claim.preregistration.when == "after a result" for claim in result.claims)
    fixed = f"{n_claims - n_after} of {n_claims} thresholds were set before a result of their statement was known"
    if n_after:
        fixed += "; for the others, the page of the statement says what was known"
    return f"Every number has its sample size, and a 95 % interval unless it is exact. {fixed}. {result.chance_text}"


def _open_questions(result: StudyResult) -> Markup:
    """How many claims are undecided or not measured, or else not reproduced, which the table says more about."""
    labels = list(result.verdicts.values())
    n_open, n_missing = labels.count("inconclusive"), labels.count(NOT_MEASURED)
    texts = []
    if n_open:
        texts.append(f"{quantity(n_open, 'statement')} undecided")
    if n_missing:
        texts.append(f"{quantity(n_missing, 'statement')} without a number")
    if not texts:
        n_refuted = labels.count("not reproduced")
        if not n_refuted:
            return Markup.escape("Nothing is open: every statement is reproduced.")
        text = (
            f"Every statement is decided; look first at the {quantity(n_refuted, 'statement')} not reproduced, in the"
        )
        return fragment("refuted", text)
    return fragment("open_questions", " and ".join(texts))


def _commands(result: StudyResult) -> Markup:
    """The commands that make, check and repeat the results, and what they cost."""
    minutes = result.manifest["seconds"] / 60
    cost = f"about {minutes / 60:.0f} hours" if minutes >= 120 else f"about {max(1, minutes):.0f} minutes"
    return fragment("commands", f"interp reproduce {result.study}", result.size, cost)


def _by_origin(result: StudyResult) -> list[tuple[str, list[ClaimResult]]]:
    """The claims of papers and our own, each with a title; without those that the study does not have."""
    published_claims = [claim for claim in result.claims if not claim.claim.is_ours]
    own_claims = [claim for claim in result.claims if claim.claim.is_ours]
    return [(title, claims) for title, claims in ((PUBLISHED, published_claims), (OWN, own_claims)) if claims]


def _pictures(result: StudyResult) -> Section:
    """Every measured claim relative to its threshold."""
    figures = Markup("\n").join(picture(title, claims) for title, claims in _by_origin(result))
    missing = sum(claim.measurement is None for claim in result.claims)
    text = LEGEND
    if missing:
        text += (
            f" {quantity(missing, 'statement')} without a number {'is' if missing == 1 else 'are'} in the table only."
        )
    return Section(
        title="Every number against its threshold", text=text, html=figures, anchor="picture", short="Picture"
    )


def _tables(result: StudyResult) -> Section:
    """The tables of claims: published statements, then our own."""
    tables = [(title, _claims_table(claims)) for title, claims in _by_origin(result)]
    return Section(title="Verdicts", tables=tables, anchor="verdicts")


def _claims_table(results: Sequence[ClaimResult]) -> list[list[str]]:
    """Rows of claims; without a column for the paper's numbers if no paper printed one."""
    rows = [["statement", "verdict", fragment("unbroken", "measured [95 %]"), "n", "paper"]]
    for claim in results:
        sample = plain_words(claim.sample)
        decided_by = plain_words(claim.criterion)
        remedy = plain_words(to_decide(claim)) if not claim.criterion else ""
        rows.append(
            [
                fragment("statement_cell", claim_page(claim.claim.id), plain_words(claim.claim.statement)),
                fragment("verdict_cell", claim.label, MARKS[claim.label], decided_by, remedy),
                fragment("number_cell", claim.number, plain_words(claim.claim.quantity)),
                fragment("unbroken", sample) if len(sample) < LONG_SAMPLE else sample,
                fragment("paper_cell", claim.claim.paper) if claim.claim.paper else "–",
            ]
        )
    if all(claim.claim.paper is None for claim in results):
        rows = [row[:-1] for row in rows]
    return rows


def _details(result: StudyResult, lead: str) -> Section:
    """Collapsed details: when rules were fixed, counts of verdicts, and the provenance of the whole study."""
    text = f"{result.tally}. Rules were fixed: {result.preregistrations}."
    html = fragment("about", text, _provenance(result))
    return Section(title="About the study", text=lead, html=html, anchor="provenance", short="About the study")


def _provenance(result: StudyResult) -> list[tuple[str, str]]:
    """The rows of the table of provenance of the whole study."""
    manifest = result.manifest
    rows = [
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
    elsewhere = [
        f"{name} ({plain_value(machine)})" for name, machine in hardware.items() if machine != manifest["hardware"]
    ]
    if elsewhere:
        rows.append(("measured on other hardware", ", ".join(elsewhere)))
    return rows


def _models(models: Mapping[str, Any]) -> str:
    """Number, dates and versions of the models in words."""
    text = f"{models['used']}, of which {models['there']} are trained, {models['trained_now']} of them in the last run"
    if models["there"]:
        text += f"; the oldest {models['oldest']}, the newest {models['newest']}"
    if models["other_versions"]:
        text += f"; {models['other_versions']} with package versions other than those below"
    return text
