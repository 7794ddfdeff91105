"""Finite groups and semigroups acting on a set, as checked tables."""

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from hooks.typed import checks_types
from interp.tasks.fields import tuples


@dataclass(frozen=True, kw_only=True)
class GroupAction:
    """A finite semigroup acting on a finite set, with one token per element.

    Source: LEGO (arXiv:2206.04301) Section 2, "learning equality and group operations". Differs: a semigroup is
    accepted, since the task uses g . x only and never an inverse.

    Raises:
        ValueError: tables of the wrong shape, a product or a point outside the set (closure), a product that
            is not associative, an action that does not respect it, or a root that is not a point.

    >>> from interp.tasks import GroupAction
    >>> product = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    >>> names = {"elements": ("r0", "r1", "r2"), "points": ("x", "y", "z")}
    >>> GroupAction(name="rotations", product=product, act=product, root_token="x0", **names).act[1][2]
    0
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
        # sizes, and entries that are elements and points (closure)
        if n < 1 or m < 2:
            raise ValueError(f"{self.name} has {n} elements and {m} points; it needs at least 1 and 2.")
        product = _checked_table("product", self.product, (n, n), n)
        act = _checked_table("act", self.act, (n, m), m)
        first_factor = np.arange(n)[:, None, None]
        # (g h) k = g (h k), all triples at once
        triples = np.argwhere(product[product] != product[first_factor, product[None]])
        if len(triples):
            g, h, k = (self.elements[index] for index in triples[0])
            raise ValueError(f"product of {self.name} is not associative: ({g} {h}) {k} differs from {g} ({h} {k}).")
        # (g h) . x = g . (h . x)
        triples = np.argwhere(act[product] != act[first_factor, act[None]])
        if len(triples):
            g, h = (self.elements[index] for index in triples[0][:2])
            x = self.points[triples[0][2]]
            raise ValueError(f"act of {self.name} is not an action: ({g} {h}) . {x} differs from {g} . ({h} . {x}).")
        if not 0 <= self.root < m:
            raise ValueError(f"root is {self.root}; {self.name} has points 0 to {m - 1}.")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "GroupAction":
        """Build a group action from its fields in JSON, where tuples are lists."""
        return cls(**tuples(values))


def _checked_table(name: str, rows: tuple[tuple[int, ...], ...], shape: tuple[int, int], limit: int) -> np.ndarray:
    """The rows as an array of a shape, all of whose entries are below the limit."""
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
    # the identity first, then by number of letters that move
    members = sorted(permutations(range(n)), key=lambda p: (sum(p[i] != i for i in range(n)), p))
    index = {member: i for i, member in enumerate(members)}
    # g h maps i to g[h[i]]
    products = [[tuple(g[h[i]] for i in range(n)) for h in members] for g in members]
    table = tuple(tuple(index[product] for product in row) for row in products)
    names = tuple(_cycle_notation(member) for member in members)
    return GroupAction(name=f"S{n}", elements=names, points=names, product=table, act=table)


def _cycle_notation(permutation: tuple[int, ...]) -> str:
    """The cycle notation of a permutation of 0, 1, ...: (12)(34); () for the identity."""
    visited: set[int] = set()
    text = ""
    for letter in range(len(permutation)):
        # follow the permutation from the letter until it returns
        cycle = []
        while letter not in visited:
            visited.add(letter)
            cycle.append(str(letter + 1))
            letter = permutation[letter]
        if len(cycle) > 1:
            text += f"({''.join(cycle)})"
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
    if name == "Z2":
        return Z2  # the paper's tokens are signs
    kind, size = name[:1], name[1:]
    largest = {"Z": 64, "S": 5}.get(kind, 0)
    if not size.isdigit() or not 2 <= int(size) <= largest:
        raise ValueError(f"group is {name!r}; choose Z2 to Z64 or S2 to S5, or build a GroupAction from tables.")
    return cyclic(int(size)) if kind == "Z" else symmetric(int(size))
