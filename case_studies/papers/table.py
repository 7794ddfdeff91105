"""Tables of the papers: every item of a paper with the claims that cover it, or with what is missing.

The items are data, one TOML file per paper. Verdicts are today's rules applied to each study's committed results.
"""

import importlib
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

from case_studies.frame.claims import NOT_MEASURED, OURS
from case_studies.frame.measurement import Measurement
from case_studies.frame.paper_statements import PaperStatement, item_statements
from case_studies.frame.results import LABELS, StudyResult
from case_studies.frame.stored import read_results
from case_studies.frame.to_decide import to_decide
from case_studies.study import Study
from hooks.checks import check_choice, did_you_mean

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs/papers"
FRONT_PAGES = (ROOT / "README.md", ROOT / "docs/index.md")
"""Pages with the table of counts."""
COUNTS_BEGIN, COUNTS_END = "<!-- counts of verdicts -->", "<!-- end of counts -->"
STUDIES = ("lego", "dyck", "template", "language")
"""The studies of the papers; language models count with templates."""
COMMAND = "python -m case_studies.papers"
HOW_TO_READ = (
    "Each claim has a line: its verdict, and its number with the 95 % interval, from the committed results of size "
    "standard. The last column says what would decide an undecided claim ([how it is estimated]"
    "(../howto/check_a_study.md)), or what is missing, why, and what it would take on one core. "
    "`interp reproduce {name} --page` draws a page for each claim, and that of another study for `study:id`; (ours) "
    "marks claims that the paper does not make. `{command}` writes this page from `case_studies/papers/{name}.toml`."
)

SourceRead = Literal["text", "code", "no"]
"""Where an item was read: in the paper's text or figures, only in the authors' code, or not at all."""
READ_MARKS = {"text": "", "code": " (read in the authors' code only)", "no": " (**not checked against the paper**)"}
"""What the table adds to an item, by where it was read."""
LONGEST_REASON = 24
"""Letters of a reason that are shown; the rest is folded."""


@dataclass(frozen=True, kw_only=True)
class PaperItem:
    """A figure, table, theorem or numbered statement of a paper.

    Raises:
        ValueError: an unknown `read`, or neither claims nor a reason why there is none.
    """

    item: str
    says: str
    read: SourceRead
    claims: tuple[str, ...] = ()
    """Claims that cover it, each as study:id."""
    statements: tuple[PaperStatement, ...] = ()
    """What it says, claim by claim, for the claims whose source it is."""
    missing: str = ""
    """What of it is not covered, why, and what covering it would take."""
    nothing_to_test: str = ""
    """Why no claim can cover it: a definition, a drawing, settings; and where it is in this repository."""

    def __post_init__(self):
        check_choice("read", self.read, SourceRead)
        if not (self.claims or self.missing or self.nothing_to_test):
            raise ValueError(
                f"{self.item} has neither claims nor missing; list the claims that cover it, or say why there is none "
                "and what it would take (nothing_to_test for a definition)."
            )


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper and its items, in the paper's order."""

    name: str
    title: str
    arxiv: str
    version: str
    """The version whose numbering is used, and how far it was checked."""
    sources: tuple[str, ...]
    """First words of the sources of claims that cite this paper."""
    items: tuple[PaperItem, ...]


def load_paper(path: Path) -> Paper:
    """Read a paper's TOML file.

    Raises:
        ValueError: a missing or unknown field, an item twice, or an item with neither claims nor `missing`.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    items: list[PaperItem] = []
    for number, item in enumerate(content.pop("items", ()), 1):
        place = f"{path.name}, item {number}"
        if "statements" in item:
            item["statements"] = item_statements(item, content.get("sources", ("",)), place)
        items.append(_from_table(PaperItem, item, place))
    names = [item.item for item in items]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{path.name} has the item {name!r} twice; merge the two.")
    return _from_table(Paper, content | {"name": path.stem, "items": items}, path.name)


def _from_table(cls: Any, content: Mapping[str, Any], place: str) -> Any:
    """A dataclass from a table of a TOML file: text on one line, arrays as tuples.

    Raises:
        ValueError: a missing, empty, unknown or invalid field.
    """
    unknown = sorted(content.keys() - {field.name for field in fields(cls)})
    if unknown:
        raise ValueError(f"{place} has the unknown field {unknown[0]!r}.")
    values: dict[str, Any] = {}
    for name, value in content.items():
        values[name] = " ".join(value.split()) if isinstance(value, str) else tuple(value)
    empty = sorted(name for name, value in values.items() if not value)
    if empty:
        raise ValueError(f"{place} has an empty {empty[0]}.")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from None


def study_of(name: str) -> Study:
    """A study by name."""
    return importlib.import_module(f"case_studies.{name}.study").STUDY


def known_claims(studies: Iterable[str] = STUDIES) -> dict[str, str]:
    """The source of every claim of these studies, by study:id."""
    return {f"{name}:{claim.id}": claim.source for name in studies for claim in study_of(name).claims}


def shipped_results(studies: Iterable[str] = STUDIES) -> dict[str, StudyResult]:
    """The committed results of these studies under today's rules, by study; none of a study without results."""
    results: dict[str, StudyResult] = {}
    for study in map(study_of, studies):
        stored = read_results(study.shipped, study.name) if study.shipped else None
        if stored:
            results[study.name] = stored.result(study, Path())
    return results


def check_paper(paper: Paper, sources: Mapping[str, str]) -> None:
    """Check that a paper's table lists claims that exist, and every claim that cites the paper.

    Args:
        paper: The paper.
        sources: Sources of all claims, by study:id.

    Raises:
        ValueError: an unknown study or claim, or a claim that cites the paper and is in no row.
    """
    # Every claim in the table exists
    for item in paper.items:
        for claim in item.claims:
            _check_claim(claim, sources, f"{paper.name}.toml, {item.item}")
    # Every claim that cites the paper is in the table
    listed = {claim for item in paper.items for claim in item.claims}
    missing = [claim for claim, source in sources.items() if source.startswith(paper.sources) and claim not in listed]
    if missing:
        raise ValueError(
            f"{paper.name}.toml has no row with {', '.join(missing)}; the source of {missing[0]} is "
            f"{sources[missing[0]]!r}. Add each to the claims of its item."
        )


def _check_claim(claim: str, sources: Mapping[str, str], place: str) -> None:
    """Check that a claim, study:id, exists."""
    study, _, name = claim.partition(":")
    if study not in STUDIES or not name:
        raise ValueError(f"{place}: the claim {claim!r} is of no study; write study:id, with {', '.join(STUDIES)}.")
    if claim not in sources:
        of_study = [claim_name for claim_name in sources if claim_name.startswith(f"{study}:")]
        raise ValueError(f"{place}: the study {study} has no claim {name!r}.{did_you_mean(claim, of_study)}")


def check_sources(papers: Sequence[Paper], sources: Mapping[str, str]) -> None:
    """Check that every claim cites one of these papers or is ours.

    Raises:
        ValueError: another source.
    """
    allowed = tuple(source for paper in papers for source in paper.sources)
    for claim, source in sources.items():
        if not source.startswith((OURS, *allowed)):
            raise ValueError(f"the source of {claim} is {source!r}; begin it with {OURS!r} or {', '.join(allowed)}.")


def pages(papers: Sequence[Path], sources: Mapping[str, str]) -> dict[Path, str]:
    """The page of every paper, by the path it is committed at.

    Raises:
        ValueError: invalid data, or a claim with a source that is neither ours nor one of these papers.
    """
    loaded = [load_paper(path) for path in papers]
    check_sources(loaded, sources)
    for paper in loaded:
        check_paper(paper, sources)
    results = shipped_results()
    texts = {DOCS / f"{paper.name}.md": page(paper, sources, results) for paper in loaded}
    for path in FRONT_PAGES:
        table = counts_table(loaded, sources, results, folder=DOCS.relative_to(path.parent))
        texts[path] = with_counts(path.read_text(encoding="utf-8"), table)
    return texts


def counts_table(
    papers: Sequence[Paper], sources: Mapping[str, str], results: Mapping[str, StudyResult], *, folder: Path
) -> str:
    """A table in Markdown: how many statements of each paper are reproduced, without those of ours.

    Args:
        papers: The papers.
        sources: Sources of all claims, by study:id.
        results: The results of the studies.
        folder: Folder of the papers' pages, as linked from the page with the table.
    """
    header = ["paper", "statements", *LABELS]
    rows = []
    for paper in papers:
        claims = dict.fromkeys(claim for item in paper.items for claim in item.claims)
        labels = Counter(_label(claim, results) for claim in claims if not sources[claim].startswith(OURS))
        counts = [str(labels[label]) for label in LABELS]
        rows.append([f"[{paper.title}]({folder.as_posix()}/{paper.name}.md)", str(labels.total()), *counts])
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _label(claim: str, results: Mapping[str, StudyResult]) -> str:
    """The verdict of a claim, study:id; not measured in a study without results."""
    study, _, claim_id = claim.partition(":")
    return results[study].verdicts[claim_id] if study in results else NOT_MEASURED


def with_counts(text: str, table: str) -> str:
    """A front page with the table of counts between its two marks.

    Raises:
        ValueError: the page has not both marks.
    """
    before, begin, rest = text.partition(COUNTS_BEGIN)
    _, end, after = rest.partition(COUNTS_END)
    if not (begin and end):
        raise ValueError(f"a front page lacks {COUNTS_BEGIN} or {COUNTS_END}; put both where its table belongs.")
    return f"{before}{begin}\n{table}\n{end}{after}"


def page(paper: Paper, sources: Mapping[str, str], results: Mapping[str, StudyResult]) -> str:
    """A paper's page in Markdown: a head, a tally and the table."""
    # Count the items by whether they have claims, can have any, and were read
    covered = sum(bool(item.claims) for item in paper.items)
    untestable = sum(bool(item.nothing_to_test) for item in paper.items)
    unread = sum(item.read == "no" for item in paper.items)
    rows = [row for item in paper.items for row in _rows(item, paper.name, sources, results)]
    return "\n".join(
        [
            f"# {paper.title}, item by item",
            "",
            f"arXiv:{paper.arxiv}. {paper.version}",
            "",
            f"{len(paper.items)} items: {covered} with a claim, {len(paper.items) - covered - untestable} missing "
            f"here, {untestable} with nothing to test (definitions, drawings, settings). {unread} could not be checked "
            "against the paper, and are marked.",
            "",
            HOW_TO_READ.format(command=COMMAND, name=paper.name),
            "",
            "| item | verdict | measured | claim | what would decide it |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _rows(item: PaperItem, paper: str, sources: Mapping[str, str], results: Mapping[str, StudyResult]) -> list[str]:
    """The rows of an item: one for each of its claims, and one each for what is missing and what cannot be tested."""
    cells = [_claim_cells(claim, paper, sources[claim], results) for claim in item.claims]
    if item.missing:
        cells.append(f"{'also missing' if item.claims else 'missing'} | | | {_folded(item.missing)}")
    if item.nothing_to_test:
        cells.append(f"nothing to test | | | {_folded(item.nothing_to_test)}")
    first = f"| **{_cell(item.item)}**: {_cell(item.says)}{READ_MARKS[item.read]} | {cells[0]} |"
    return [first, *(f"| | {cell} |" for cell in cells[1:])]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _folded(text: str) -> str:
    """A cell that shows the beginning of a long text, and all of it on a click."""
    if len(text) <= LONGEST_REASON:
        return _cell(text)
    beginning = shorten(text.replace("`", ""), LONGEST_REASON, placeholder=" …")
    return f"<details><summary>{_cell(beginning)}</summary>{_cell(text)}</details>"


def _claim_cells(claim: str, paper: str, source: str, results: Mapping[str, StudyResult]) -> str:
    """The cells of a claim: verdict, number, name, with its study if that is not the paper's, what would decide it."""
    name = f"`{claim.removeprefix(f'{paper}:')}`{' (ours)' if source.startswith(OURS) else ''}"
    study, _, claim_id = claim.partition(":")
    if study not in results:
        return f"not measured yet | | {name} | "
    result = next(result for result in results[study].claims if result.claim.id == claim_id)
    return " | ".join([result.label, _number(result.measurement), name, _folded(to_decide(result))])


def _number(m: Measurement | None) -> str:
    """A measured number to three digits, with its interval unless that has no width."""
    if m is None:
        return ""
    if m.low == m.high == m.value:
        return f"{m.value:.3g}"
    low = f"{m.low:.3g}" if math.isfinite(m.low) else "-∞"
    high = f"{m.high:.3g}" if math.isfinite(m.high) else "∞"
    return f"{m.value:.3g} [{low}, {high}]"
