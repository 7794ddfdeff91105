"""Finite groups and semigroups acting on a set, as checked tables."""

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from hooks.checks import checks_types


@dataclass(frozen=True, kw_only=True)
class GroupAction:
    """A finite semigroup acting on a finite set, with one token per element.

    Source: LEGO (arXiv:2206.04301) Section 2, "learning equality and group operations". Differs: a semigroup is
    accepted, since the task uses g . x only and never an inverse.

    Raises:
        ValueError: tables of the wrong shape, a product or a point outside the set (closure), a product that
            is not associative, an action that does not respect it, or a root that is not a point.
    """

    name: str
    """Name, such as `Z2` or `S3`."""
    elements: tuple[str, ...]
    """Tokens of the acting elements."""
    points: tuple[str, ...]
    """Names of the points acted on: the values of variables."""
    product: tuple[tuple[int, ...], ...]
    """product[g][h] is the index of g h: first h, then g."""
    act: tuple[tuple[int, ...], ...]
    """act[g][x] is the index of the point g . x."""
    root: int = 0
    """Index of the point at which every chain starts."""
    root_token: str = "1"
    """Token of that point in a sentence."""

    def __post_init__(self):
        n, m = len(self.elements), len(self.points)
        if n < 1 or m < 2:
            raise ValueError(f"{self.name} has {n} elements and {m} points; it needs at least 1 and 2.")
        product, act = _table("product", self.product, (n, n), n), _table("act", self.act, (n, m), m)
        # (gh)k == g(hk), all triples at once
        wrong = np.argwhere(product[product] != product[np.arange(n)[:, None, None], product[None]])
        if len(wrong):
            g, h, k = (self.elements[i] for i in wrong[0])
            raise ValueError(f"product of {self.name} is not associative: ({g} {h}) {k} differs from {g} ({h} {k}).")
        wrong = np.argwhere(act[product] != act[np.arange(n)[:, None, None], act[None]])
        if len(wrong):
            g, h, x = wrong[0]
            raise ValueError(
                f"act of {self.name} is not an action: ({self.elements[g]} {self.elements[h]}) . {self.points[x]} "
                f"differs from {self.elements[g]} . ({self.elements[h]} . {self.points[x]})."
            )
        if not 0 <= self.root < m:
            raise ValueError(f"root is {self.root}; {self.name} has points 0 to {m - 1}.")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "GroupAction":
        """Build a group action from plain values."""
        tables = {name: tuple(tuple(row) for row in values[name]) for name in ("product", "act")}
        names = {name: tuple(values[name]) for name in ("elements", "points")}
        return cls(**{**values, **tables, **names})


def _table(name: str, rows: tuple[tuple[int, ...], ...], shape: tuple[int, int], limit: int) -> np.ndarray:
    if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
        raise ValueError(f"{name} has {len(rows)} rows of {sorted({len(row) for row in rows})}; it must be {shape}.")
    table = np.array(rows)
    outside = np.argwhere((table < 0) | (table >= limit))
    if len(outside):
        row, column = outside[0]
        raise ValueError(
            f"{name}[{row}][{column}] is {table[row, column]}: not closed, entries must be 0 to {limit - 1}."
        )
    return table


@checks_types
def cyclic(n: int) -> GroupAction:
    """The integers modulo n, acting on themselves by addition; elements are +0, +1, ..."""
    table = tuple(tuple((g + x) % n for x in range(n)) for g in range(n))
    names = tuple(str(x) for x in range(n))
    return GroupAction(
        name=f"Z{n}",
        elements=tuple("+" + x for x in names),
        points=names,
        product=table,
        act=table,
        root_token="0",
    )


@checks_types
def symmetric(n: int) -> GroupAction:
    """All permutations of n letters, acting on themselves from the left; elements in cycle notation."""
    members = sorted(permutations(range(n)), key=lambda p: (sum(p[i] != i for i in range(n)), p))
    index = {p: i for i, p in enumerate(members)}
    table = tuple(tuple(index[tuple(g[h[i]] for i in range(n))] for h in members) for g in members)
    names = tuple(_cycles(p) for p in members)
    return GroupAction(name=f"S{n}", elements=names, points=names, product=table, act=table)


def _cycles(permutation: tuple[int, ...]) -> str:
    seen, text = set(), ""
    for start in range(len(permutation)):
        cycle = []
        while start not in seen:
            seen.add(start)
            cycle.append(str(start + 1))
            start = permutation[start]
        text += f"({''.join(cycle)})" if len(cycle) > 1 else ""
    return text or "()"


Z2 = GroupAction(name="Z2", elements=("+", "-"), points=("+1", "-1"), product=((0, 1), (1, 0)), act=((0, 1), (1, 0)))
"""Task 1 of the LEGO paper: signs acting on {+1, -1}."""
S3 = symmetric(3)
"""Task 2 of the LEGO paper: the permutations of three letters acting on themselves."""


@checks_types
def ready_made(name: str) -> GroupAction:
    """Return a group by name: `Z2`, `S3`, or any `Zn` or `Sn`.

    Raises:
        ValueError: an unknown name.
    """
    known = {"Z2": Z2, "S3": S3}
    if name in known:
        return known[name]
    kind, size = name[:1], name[1:]
    if kind not in ("Z", "S") or not size.isdigit() or not 2 <= int(size) <= (64 if kind == "Z" else 5):
        raise ValueError(f"group is {name!r}; choose Z2 to Z64 or S2 to S5, or build a GroupAction from tables.")
    return cyclic(int(size)) if kind == "Z" else symmetric(int(size))
