"""Heads that look up the same value and share the work, unequally or equally, on one outcome or on one of two.

Every query hints at a random value, at some level of strength, and the heads add their gains to the logit of the right
one. What the heads that are left add must exceed the hint. So the gains, the strengths of the levels and their
probabilities determine what any set of heads costs.

Each function takes a generator, which determines sizes, probabilities, scales, the rest of the heads, a decoy, the idle
heads, and whatever its arguments do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from interp.known_answers.answers import HeadTruth, KnownAnswer, draw, needed_head, redundant_heads, unneeded_heads
from interp.known_answers.lookup.model import (
    attend_to_asked,
    empty_lookup,
    lookup_answer,
    random_lookup,
    random_rest,
    write_values,
)
from interp.known_answers.lookup.task import level_rows


@dataclass(frozen=True)
class Shares:
    """Gains of heads, and levels of hints against them."""

    gains: tuple[float, ...]
    strengths: tuple[float, ...]
    """Logit of the hint at each level: halfway between the sums of the gains that do and that do not exceed it."""
    levels: tuple[float, ...]
    """Share of the queries at each level, by which the accuracy above chance falls without the heads that exceed it."""


UNEQUAL = {
    # Alone the heads cost 0.30 and 0.06 of the accuracy above chance, together all of it
    2: Shares((3.0, 2.0), (1.0, 2.5, 4.0), (0.70, 0.24, 0.06)),
    # Alone 0.28, 0.05, 0.05; any two 0.8; together all of it
    3: Shares((6.0, 4.2, 4.2), (2.1, 7.2, 9.3, 12.3), (0.20, 0.52, 0.23, 0.05)),
    # Alone 0.27, 0.05, 0.05, 0.05; any two 0.8; any three 0.95; together all of it
    4: Shares((6.0, 4.5, 4.5, 4.5), (2.2, 7.5, 12.0, 14.2, 17.2), (0.05, 0.15, 0.53, 0.22, 0.05)),
}
"""Heads of which the first is needed a little alone and the others are not, by their number."""
EQUAL = Shares((3.0, 3.0, 3.0), (1.5, 4.5), (0.2, 0.8))
"""Three heads of which any two are enough: without two of them 0.8 of the accuracy above chance is lost."""
FAINT = Shares((6.0, 2.0), (1.0, 4.0), (0.12, 0.88))
"""A head that does the work, and a backup that does an eighth of it if the first is gone."""


def share_values(generator: torch.Generator, shares: Shares, *, readable: bool = True) -> KnownAnswer:
    """Several heads look up the same value, each redundant with all others.

    Args:
        generator: Determines everything else.
        shares: Gains of the heads, and hints against them.
        readable: Queries name the letter that the heads attend to. If False they name another one.
    """
    heads = range(len(shares.gains))
    truths = redundant_heads("association" if readable else None, heads)
    return _shared(generator, shares, truths, readable=readable)


def faint_backup(generator: torch.Generator) -> KnownAnswer:
    """A head looks values up, and another one backs it up in an eighth of the queries: too few to share the work."""
    truths = needed_head("association") | unneeded_heads("association", [1])
    return _shared(generator, FAINT, truths, readable=True)


def _shared(
    generator: torch.Generator, shares: Shares, truths: dict[tuple[int, int], HeadTruth], *, readable: bool
) -> KnownAnswer:
    """A model of several heads that look up the same value, perhaps with a decoy of the same pattern."""
    task = random_lookup(generator, readable=readable, levels=(_varied(shares.levels, generator),))
    n_decoys = draw(generator, 0, 1)
    n_heads = len(shares.gains)
    scale = 0.5 + float(torch.rand((), generator=generator, dtype=torch.float32))
    strengths = [scale * strength for strength in shares.strengths]
    model = empty_lookup(task, generator, n_heads=n_heads + n_decoys, strengths=strengths)
    rest = random_rest(generator)
    for head in range(n_heads + n_decoys):
        attend_to_asked(model, task, head, rest=rest)
    for head, gain in enumerate(shares.gains):
        write_values(model, task, head, scale * gain)
    decoys = unneeded_heads("association" if readable else None, range(n_heads, n_heads + n_decoys))
    return lookup_answer(model, task, truths | decoys)


def needed_once_shared_once(generator: torch.Generator, *, readable: bool = True) -> KnownAnswer:
    """Two queries: a head answers the first one alone; either it or a backup is enough for the second one.

    The backup is redundant. The head that it backs up is needed on the first outcome, which is most of what it does.
    """
    gains = (3.0, 2.0)
    strengths = (1.0, 2.5)
    # The hint of the first query exceeds the backup, that of the second one neither of them
    levels = level_rows((0.0, 1.0), (1.0,))
    task = random_lookup(generator, readable=readable, asks=("value", "value"), levels=levels)
    model = empty_lookup(task, generator, n_heads=2, strengths=strengths)
    rest = random_rest(generator)
    for head, gain in enumerate(gains):
        attend_to_asked(model, task, head, rest=rest)
        write_values(model, task, head, gain)
    looks = "association" if readable else None
    backup = HeadTruth(truth="redundant", looks=looks, partners=((0, 0),))
    return lookup_answer(model, task, {**needed_head(looks), (0, 1): backup})


def _varied(levels: Sequence[float], generator: torch.Generator) -> tuple[float, ...]:
    """The same shares, times random factors from 0.9 to 1.1, but for the largest, which takes what is left."""
    largest = max(levels)
    factors = 0.9 + 0.2 * torch.rand(len(levels), generator=generator, dtype=torch.float64)
    varied = [share * factor for share, factor in zip(levels, factors.tolist(), strict=True)]
    index = levels.index(largest)
    varied[index] = 1 - sum(varied[:index]) - sum(varied[index + 1 :])
    return tuple(varied)
