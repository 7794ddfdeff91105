"""Tables of the papers: every item of a paper with the claims that cover it, or with what is missing.

The items are data, one TOML file per paper. Verdicts are today's rules applied to each study's committed results.
"""

import importlib
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from case_studies.frame.deciding import to_decide
from case_studies.frame.results import ClaimResult
from case_studies.frame.stored import read_results
from case_studies.study import Study

ROOT = Path(__file__).parents[2]
PAPERS = tuple(sorted(Path(__file__).parent.glob("*.toml")))
DOCS = ROOT / "docs/papers"
STUDIES = ("lego", "dyck", "template", "language", "audit", "compiled", "approximations")
OURS = "ours"
"""First word of the source of a claim that no paper makes."""
COMMAND = "python -m case_studies.papers"
HOW_TO_READ = (
    "Each claim has a line: verdict and number [95 % interval] of the committed results, the size of the study, and "
    "the CPU time of the measurement (wall-clock time where only that was recorded), without the trainings, which "
    "claims share. The last column estimates what would decide an undecided claim: n (w / d)^2 units, for an interval "
    "of half-width w at n units and at a distance d from the bar (with few units that is an upper estimate), and a run "
    "for a claim that is not measured. `interp reproduce STUDY --list` prints every claim with its rule, for "
    "`study:id`; (ours) marks claims that the paper does not make. What is missing has its reason and an estimate of "
    "what it would take on one core. "
    f"`{COMMAND}` writes this page from `case_studies/papers/{{name}}.toml`."
)

Read = Literal["text", "code", "no"]
"""Where an item was read: in the paper's text or figures, only in the authors' code, or not at all."""
TO_READ = {"text": "", "code": " (read in the authors' code only)", "no": " (**not checked against the paper**)"}


@dataclass(frozen=True, kw_only=True)
class Item:
    """A figure, table, theorem or numbered statement of a paper."""

    item: str
    says: str
    read: Read
    claims: tuple[str, ...] = ()
    """Claims that cover it, each as study:id."""
    missing: str = ""
    """What of it is not covered, why, and what covering it would take."""
    nothing_to_test: str = ""
    """Why no claim can cover it: a definition, a drawing, settings; and where it is in this repository."""


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
    items: tuple[Item, ...]


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A claim's committed result."""

    verdict: str
    measured: float | None
    interval: tuple[float | None, float | None] | None
    seconds: float | None
    """CPU time of the measurement; wall-clock time where only that was recorded."""
    size: str
    decides: str = ""
    """What would decide it, if its verdict is not decided."""


def load_paper(path: Path) -> Paper:
    """Read a paper's TOML file.

    Raises:
        ValueError: a missing or unknown field, an item twice, or an item with neither claims nor `missing`.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    items = tuple(
        _item(fields, f"{path.name}, item {number}") for number, fields in enumerate(content.pop("items", ()), 1)
    )
    names = [item.item for item in items]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{path.name} has the item {name!r} twice; merge the two.")
    fields = _fields(content, Paper, path.name, besides={"name", "items"})
    fields["sources"] = tuple(fields["sources"])
    return Paper(name=path.stem, items=items, **fields)


def _item(content: Mapping[str, Any], place: str) -> Item:
    fields = _fields(content, Item, place, optional={"claims", "missing", "nothing_to_test"})
    if fields["read"] not in get_args(Read):
        raise ValueError(f"{place} ({fields['item']}) has read={fields['read']!r}; use {', '.join(get_args(Read))}.")
    fields["claims"] = tuple(fields.get("claims", ()))
    if not any(fields.get(name) for name in ("claims", "missing", "nothing_to_test")):
        raise ValueError(
            f"{place} ({fields['item']}) has neither claims nor missing; list the claims that cover it, or say why "
            f"there is none and what it would take (nothing_to_test for a definition)."
        )
    return Item(**{name: _on_one_line(value) for name, value in fields.items()})


def _on_one_line(value: Any) -> Any:
    return " ".join(value.split()) if isinstance(value, str) else value


def _fields(
    content: Mapping[str, Any],
    kind: type,
    place: str,
    *,
    optional: Set[str] = frozenset(),
    besides: Set[str] = frozenset(),
) -> dict[str, Any]:
    """The fields of a dataclass from a table of a file, none missing and none unknown."""
    names = set(kind.__dataclass_fields__) - besides
    for name in names - optional:
        if not content.get(name):
            raise ValueError(f"{place} has no {name}.")
    for name in content:
        if name not in names:
            raise ValueError(f"{place} has the unknown field {name!r}; it can have {', '.join(sorted(names))}.")
    return dict(content)


def study_of(name: str) -> Study:
    """A study by name."""
    return importlib.import_module(f"case_studies.{name}.study").STUDY


def known_claims(studies: Iterable[str] = STUDIES) -> dict[str, str]:
    """The source of every claim of these studies, by study:id."""
    return {f"{name}:{claim.id}": claim.source for name in studies for claim in study_of(name).claims}


def shipped_claims(studies: Iterable[str] = STUDIES) -> dict[str, Shipped]:
    """The committed result of every claim under today's rule, by study:id; none of a study without results."""
    claims = {}
    for study in map(study_of, studies):
        stored = read_results(study.shipped, study.name) if study.shipped else None
        if stored:
            result = stored.result(study, Path())
            claims |= {f"{study.name}:{claim.claim.id}": shipped(claim, result.size) for claim in result.claims}
    return claims


def shipped(result: ClaimResult, size: str) -> Shipped:
    """What the tables show of a claim's result at a size of its study."""
    m, cost = result.measurement, result.cost or {}
    decides = to_decide(result)
    if m is None:
        return Shipped(verdict=result.label, measured=None, interval=None, seconds=None, size=size, decides=decides)
    low, high = (end if math.isfinite(end) else None for end in (m.low, m.high))
    seconds = cost.get("cpu_seconds")
    return Shipped(
        verdict=result.label,
        measured=m.value,
        interval=(low, high),
        seconds=cost.get("seconds") if seconds is None else seconds,
        size=size,
        decides=decides,
    )


def check_paper(paper: Paper, sources: Mapping[str, str]) -> None:
    """Check that a paper's table lists claims that exist, and every claim that cites the paper.

    Args:
        paper: The paper.
        sources: Sources of all claims, by study:id.

    Raises:
        ValueError: an unknown study or claim, or a claim that cites the paper and is in no row.
    """
    for item in paper.items:
        for claim in item.claims:
            _check_claim(claim, sources, f"{paper.name}.toml, {item.item}")
    listed = {claim for item in paper.items for claim in item.claims}
    missing = [claim for claim, source in sources.items() if source.startswith(paper.sources) and claim not in listed]
    if missing:
        raise ValueError(
            f"{paper.name}.toml has no row with {', '.join(missing)}; the source of {missing[0]} is "
            f"{sources[missing[0]]!r}. Add each to the claims of its item."
        )


def _check_claim(claim: str, sources: Mapping[str, str], place: str) -> None:
    study, _, name = claim.partition(":")
    if study not in STUDIES or not name:
        raise ValueError(f"{place}: the claim {claim!r} is of no study; write study:id, with {', '.join(STUDIES)}.")
    if claim not in sources:
        of_study = [claim_name for claim_name in sources if claim_name.startswith(f"{study}:")]
        near = get_close_matches(claim, of_study, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"{place}: the study {study} has no claim {name!r}.{hint}")


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
    loaded, results = [load_paper(path) for path in papers], shipped_claims()
    check_sources(loaded, sources)
    for paper in loaded:
        check_paper(paper, sources)
    return {DOCS / f"{paper.name}.md": page(paper, sources, results) for paper in loaded}


def page(paper: Paper, sources: Mapping[str, str], shipped: Mapping[str, Shipped]) -> str:
    """A paper's page in Markdown: a head, a tally and the table."""
    covered = sum(bool(item.claims) for item in paper.items)
    untestable = sum(bool(item.nothing_to_test) for item in paper.items)
    unread = sum(item.read == "no" for item in paper.items)
    rows = [row for item in paper.items for row in _rows(item, sources, shipped)]
    return "\n".join(
        [
            f"# {paper.title}, item by item",
            "",
            f"arXiv:{paper.arxiv}. {' '.join(paper.version.split())}",
            "",
            f"{len(paper.items)} items: {covered} with a claim, {len(paper.items) - covered - untestable} missing "
            f"here, {untestable} with nothing to test (definitions, drawings, settings). {unread} could not be checked "
            "against the paper, and are marked.",
            "",
            HOW_TO_READ.format(name=paper.name),
            "",
            "| item | states | claim | verdict | measured | size | time | what would decide it |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _rows(item: Item, sources: Mapping[str, str], shipped: Mapping[str, Shipped]) -> list[str]:
    cells = [_claim_cells(claim, sources[claim], shipped.get(claim)) for claim in item.claims]
    if item.missing:
        cells.append(f"**{'also missing' if item.claims else 'missing'}**: {_cell(item.missing)} | | | | |")
    if item.nothing_to_test:
        cells.append(f"nothing to test: {_cell(item.nothing_to_test)} | | | | |")
    first = f"| **{_cell(item.item)}** | {_cell(item.says)}{TO_READ[item.read]} | {cells[0]} |"
    return [first, *(f"| | | {cell} |" for cell in cells[1:])]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _claim_cells(claim: str, source: str, result: Shipped | None) -> str:
    name = f"`{claim}`{' (ours)' if source.startswith(OURS) else ''}"
    if result is None:
        return f"{name} | not measured yet | | | |"
    return f"{name} | {result.verdict} | {_number(result)} | {result.size} | {_time(result.seconds)} | {result.decides}"


def _number(result: Shipped) -> str:
    if result.measured is None:
        return ""
    low, high = result.interval or (result.measured, result.measured)
    if low == high == result.measured:
        return f"{result.measured:.3g}"
    low_text = "-∞" if low is None else f"{low:.3g}"
    high_text = "∞" if high is None else f"{high:.3g}"
    return f"{result.measured:.3g} [{low_text}, {high_text}]"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "below 1 s"
    return f"{seconds / 60:.0f} min"
