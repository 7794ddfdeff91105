"""The statements of the papers that claims are about: read from the papers' lists, by the id of the claim."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

PAPERS = tuple(sorted((Path(__file__).parents[1] / "papers").glob("*.toml")))
"""The lists of the papers, a file each."""


@dataclass(frozen=True, kw_only=True)
class PaperStatement:
    """What a paper says, or we after it, at an item of its list, that one claim measures.

    Raises:
        ValueError: an empty id, statement or source.
    """

    id: str
    """Of the claim."""
    statement: str
    source: str
    """The paper, and its figure, table or theorem; default in the list: the name of the item."""
    paper: str | None = None
    """The number that the paper printed, if any."""

    def __post_init__(self):
        for name in ("id", "statement", "source"):
            if not getattr(self, name):
                raise ValueError(f"the {name} of a statement is empty; each has an id and a statement.")


def item_statements(item: Mapping[str, Any], sources: Sequence[str], place: str) -> tuple[PaperStatement, ...]:
    """The statements of an item of a list.

    Args:
        item: The item as read from TOML.
        sources: First words of the sources of the paper's claims; the first are those of a source that is not given.
        place: Where the item is, for errors.

    Raises:
        ValueError: an unknown, missing or empty field, or a claim that the item does not list.
    """
    listed = {claim.partition(":")[2] for claim in item.get("claims", ())}
    statements = []
    for entry in item.get("statements", ()):
        unknown = sorted(entry.keys() - {field.name for field in fields(PaperStatement)})
        if unknown:
            raise ValueError(f"{place}: a statement has the unknown field {unknown[0]!r}.")
        values = {"id": "", "statement": "", "source": f"{sources[0]}, {item['item']}"} | entry
        try:
            statement = PaperStatement(**values)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if statement.id not in listed:
            raise ValueError(f"{place} has the statement of {statement.id}; list this claim among the item's claims.")
        statements.append(statement)
    return tuple(statements)


@cache
def paper_statements(papers: tuple[Path, ...] = PAPERS) -> Mapping[str, PaperStatement]:
    """The statements of these papers, by the id of their claim.

    Raises:
        ValueError: an invalid entry, or a claim with two statements.
    """
    statements: dict[str, PaperStatement] = {}
    for path in papers:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        for item in content["items"]:
            for statement in item_statements(item, content["sources"], f"{path.name}, {item['item']}"):
                if statement.id in statements:
                    raise ValueError(f"{path.name}, {item['item']}: {statement.id} has two statements; keep one.")
                statements[statement.id] = statement
    return statements
