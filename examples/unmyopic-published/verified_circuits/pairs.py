"""Pairs of strings for interchanges at one position: both directions of the answer, and placebo sources.

| kind | base | source | the answer |
|---|---|---|---|
| to balanced | not balanced | another contribution, with which the base's sums have their goals | becomes balanced |
| to unbalanced | balanced | another contribution | becomes not balanced |
| placebo, balanced | balanced | the same contribution in another string | stays |
| placebo, unbalanced | a base of "to balanced" | the same contribution in another string | stays |

Pairs are grouped by base and source values, so that all of them can be counted, or drawn uniformly, without a list.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from verified_circuits.readings import Reading

Kind = Literal["to balanced", "to unbalanced", "placebo, balanced", "placebo, unbalanced"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FLIPS = KINDS[:2]
PLACEBOS = KINDS[2:]
BECOMES_BALANCED = {
    "to balanced": True,
    "to unbalanced": False,
    "placebo, balanced": True,
    "placebo, unbalanced": False,
}
"""Whether the predicted answer is "balanced"."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of a kind, by the number of each string, with the position of the interchange."""

    base: Int[Tensor, " pair"]
    source: Int[Tensor, " pair"]
    position: Int[Tensor, " pair"]

    def __len__(self) -> int:
        return len(self.base)


@dataclass(frozen=True, eq=False)
class Groups:
    """Bases and sources of one position, each in groups of equal values."""

    position: int
    base_rows: list[Int[Tensor, " string"]]
    source_rows: list[Int[Tensor, " string"]]
    matches: dict[Kind, Bool[Tensor, "base_group source_group"]]
    """Whether the pairs of two groups are of a kind."""
    prefix_shift: int
    """Number of later tokens, by which two strings with the same state may differ."""

    def count(self, kind: Kind) -> int:
        """Number of pairs of a kind, those of a string with its own state among them."""
        return int((self.matches[kind] * self._sizes).sum())

    @property
    def _sizes(self) -> Int[Tensor, "base_group source_group"]:
        base_sizes = torch.tensor([len(rows) for rows in self.base_rows])
        source_sizes = torch.tensor([len(rows) for rows in self.source_rows])
        return base_sizes[:, None] * source_sizes

    def every_pair(self, kind: Kind) -> Pairs:
        """All pairs of a kind whose states may differ."""
        empty = torch.zeros(0, dtype=torch.long)
        bases, sources = [empty], [empty]
        for base_group, source_group in self.matches[kind].nonzero().tolist():
            base_rows, source_rows = self.base_rows[base_group], self.source_rows[source_group]
            bases.append(base_rows.repeat_interleave(len(source_rows)))
            sources.append(source_rows.repeat(len(base_rows)))
        return self._distinct(torch.cat(bases), torch.cat(sources))

    def draw(self, kind: Kind, n: int, draw: np.random.Generator) -> Pairs:
        """Pairs of a kind, uniformly and with replacement; fewer than n if some are of a string with its own state."""
        weights = (self.matches[kind] * self._sizes).flatten().double().numpy()
        chosen = draw.choice(len(weights), size=n, p=weights / weights.sum())
        n_source_groups = len(self.source_rows)
        bases, sources = torch.empty(n, dtype=torch.long), torch.empty(n, dtype=torch.long)
        for group in np.unique(chosen):
            rows = np.flatnonzero(chosen == group)
            base_rows, source_rows = self.base_rows[group // n_source_groups], self.source_rows[group % n_source_groups]
            bases[rows] = base_rows[draw.integers(len(base_rows), size=len(rows))]
            sources[rows] = source_rows[draw.integers(len(source_rows), size=len(rows))]
        return self._distinct(bases, sources)

    def _distinct(self, bases: Tensor, sources: Tensor) -> Pairs:
        """Pairs of different states: strings that differ up to the position."""
        differ = (bases >> self.prefix_shift) != (sources >> self.prefix_shift)
        bases, sources = bases[differ], sources[differ]
        return Pairs(bases, sources, torch.full_like(bases, self.position))


def groups_of(reading: Reading, position: int, *, n: int, pooled: bool = False) -> Groups:
    """Bases and sources of a position, grouped by what decides the kind of a pair.

    Args:
        reading: What states stand for.
        position: Position of the interchange.
        n: Number of tokens.
        pooled: Whether states are those of whole strings, and not of their tokens up to the position.
    """
    goals = torch.tensor(reading.goals)
    contribution = reading.contributions[:, position]
    needed = goals - (reading.sums - contribution)
    equal = torch.zeros(len(contribution), dtype=torch.long) if reading.equal is None else reading.equal[:, position]
    # Of strings with the same state, one is enough as a source
    prefix_shift = 0 if pooled or not reading.causal else n - 1 - position
    sources = torch.arange(0, len(contribution), 2**prefix_shift)
    base_values, base_rows = _group(torch.cat([equal[:, None], contribution, needed], 1))
    source_values, source_rows = _group(torch.cat([equal[:, None], contribution], 1)[sources])
    source_rows = [sources[rows] for rows in source_rows]
    # The kind of the pairs of two groups
    n_sums = len(goals)
    base_contribution, base_needed = base_values[:, None, 1 : 1 + n_sums], base_values[:, None, 1 + n_sums :]
    source_contribution = source_values[None, :, 1:]
    comparable = base_values[:, None, 0] == source_values[None, :, 0]
    is_balanced = (base_contribution == base_needed).all(2)
    has_the_same = comparable & (base_contribution == source_contribution).all(2)
    has_another = comparable & ~has_the_same
    if reading.only_possible:
        # Sums after the interchange, relative to their goals, among those of all strings
        after = (source_contribution - base_needed).flatten(0, 1)
        occurring = {tuple(sums) for sums in (reading.sums - goals).tolist()}
        is_possible = torch.tensor([tuple(sums) in occurring for sums in after.tolist()])
        has_another = has_another & is_possible.view(has_another.shape)
    to_balanced = has_another & ~is_balanced & (source_contribution == base_needed).all(2)
    matches: dict[Kind, Tensor] = {
        "to balanced": to_balanced,
        "to unbalanced": has_another & is_balanced,
        "placebo, balanced": has_the_same & is_balanced,
        "placebo, unbalanced": has_the_same & to_balanced.any(1, keepdim=True),
    }
    return Groups(position, base_rows, source_rows, matches, 0 if pooled else n - 1 - position)


def _group(values: Int[Tensor, "string value"]) -> tuple[Int[Tensor, "group value"], list[Int[Tensor, " string"]]]:
    """Distinct rows, and the strings that have each."""
    # Each row as one number, its digits in a base that all values are below
    least = values.min()
    base = int(values.max() - least) + 1
    places = base ** torch.arange(values.shape[1])
    _, group = ((values - least) * places).sum(1).unique(return_inverse=True)
    order = group.argsort(stable=True)
    groups = list(order.split(group.bincount().tolist()))
    first_rows = torch.stack([rows[0] for rows in groups])
    return values[first_rows], groups


@lru_cache(maxsize=8)
def groups_by_position(reading: Reading, *, n: int, pooled: bool = False) -> list[Groups]:
    """The groups of each position at which a reading predicts something; arguments as in `groups_of`."""
    return [groups_of(reading, position, n=n, pooled=pooled) for position in reading.tested_positions]


def choose_pairs(groups: Sequence[Groups], kind: Kind, *, limit: int | None, seed: int) -> Pairs:
    """All pairs of a kind, or a number of them: positions are drawn uniformly, then pairs of the position.

    Args:
        groups: Bases and sources of each position.
        kind: Kind of pairs.
        limit: Number of pairs to draw; None: all pairs.
        seed: Determines the draws.
    """
    with_pairs = [group for group in groups if group.count(kind)]
    if limit is None:
        chosen = [group.every_pair(kind) for group in with_pairs]
    elif with_pairs:
        draw = np.random.default_rng([seed, KINDS.index(kind)])
        counts = draw.multinomial(limit, np.full(len(with_pairs), 1 / len(with_pairs))).tolist()
        chosen = [group.draw(kind, count, draw) for group, count in zip(with_pairs, counts, strict=True) if count]
    else:
        chosen = []
    if not chosen:
        none = torch.zeros(0, dtype=torch.long)
        return Pairs(none, none, none)
    return Pairs(
        torch.cat([pairs.base for pairs in chosen]),
        torch.cat([pairs.source for pairs in chosen]),
        torch.cat([pairs.position for pairs in chosen]),
    )
