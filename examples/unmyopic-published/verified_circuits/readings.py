"""Readings of the stated circuit: what the state of each position contributes to the sums, and other mechanisms.

A string is balanced if and only if the sums of its contributions have their goals. A reading predicts what an
interchange at one position does: the source's contribution takes the place of the base's.

| reading | contribution of position i |
|---|---|
| literal | the flag [d_i < 0]; at the last position also the final depth d_n |
| charitable | the flag [d_i < 0], and 1 or -1 for the bracket itself, so that the sum over positions is d_n |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from verified_circuits.strings import CLOSE, OPEN, Strings, every_string


@dataclass(frozen=True, eq=False, kw_only=True)
class Reading:
    """What states stand for. Axes: every `string`, `pos`, and the `sum` that is compared with its goal."""

    name: str
    contributions: Int[Tensor, "string pos sum"]
    """What the state of a position adds to the sums."""
    fixed: Int[Tensor, "string sum"] | int = 0
    """What is added besides, which an interchange leaves as it is in the base."""
    goals: tuple[int, ...] = (0, 0)
    """The sums of balanced strings."""
    equal: Int[Tensor, "string pos"] | None = None
    """What base and source of a pair must have in common at the position; None: nothing."""
    positions: tuple[int, ...] | None = None
    """Positions at which it predicts something; None: all."""
    only_possible: bool = False
    """Whether only interchanges count after which the sums are those of some string."""
    causal: bool = True
    """Whether contributions depend on no later token, so that sources differ by their tokens up to the position."""

    @property
    def sums(self) -> Int[Tensor, "string sum"]:
        """The sums of each string."""
        return self.contributions.sum(1) + self.fixed

    @property
    def n_wrong(self) -> int:
        """Number of strings that it takes for balanced or not, wrongly."""
        n = self.contributions.shape[0].bit_length() - 1
        predicted = (self.sums == torch.tensor(self.goals)).all(1)
        return int((predicted != every_string(n).balanced).sum())

    @property
    def tested_positions(self) -> tuple[int, ...]:
        """Positions at which states are interchanged."""
        return tuple(range(self.contributions.shape[1])) if self.positions is None else self.positions


def parts(reading: Reading) -> list[Reading]:
    """A reading for each sum alone: pairs of states that differ in what they add to this sum only.

    A mechanism whose sums count together can be found because of one of them, if most pairs differ in it.
    """
    readings = []
    for index in range(len(reading.goals)):
        others = [other for other in range(len(reading.goals)) if other != index]
        alone = torch.zeros_like(reading.contributions)
        alone[..., index] = reading.contributions[..., index]
        fixed = reading.sums - alone.sum(1)
        equal = _as_one_number(reading.contributions[..., others]) if others else None
        readings.append(
            Reading(
                name=f"{reading.name}, sum {index + 1} alone",
                contributions=alone,
                fixed=fixed,
                goals=reading.goals,
                equal=equal,
                positions=reading.positions,
                only_possible=reading.only_possible,
                causal=reading.causal,
            )
        )
    return readings


def _as_one_number(values: Int[Tensor, "string pos value"]) -> Int[Tensor, "string pos"]:
    """Equal numbers where all values are equal."""
    least = values.min()
    base = int(values.max() - least) + 1
    return ((values - least) * base ** torch.arange(values.shape[2])).sum(2)


def _with_zeros(strings: Strings, column: Tensor, *, sum_index: int) -> Int[Tensor, "string pos 2"]:
    """Contributions to one of the two sums, final depth (0) or violations (1)."""
    columns = [torch.zeros_like(column), torch.zeros_like(column)]
    columns[sum_index] = column
    return torch.stack(columns, 2)


def _fixed(total: Tensor | None, violations: Tensor | None) -> Int[Tensor, "string 2"]:
    """What an interchange leaves: the final depth or the number of violations of the base, or a part of it."""
    known = total if total is not None else violations
    assert known is not None
    zeros = torch.zeros_like(known)
    return torch.stack([zeros if total is None else total, zeros if violations is None else violations], 1)


def _depth_at_the_end(strings: Strings) -> Int[Tensor, "string pos"]:
    depth = torch.zeros_like(strings.tokens)
    depth[:, -1] = strings.total
    return depth


def circuit_literal(strings: Strings) -> Reading:
    """Each state has its flag, and the last one the final depth too."""
    contributions = torch.stack([_depth_at_the_end(strings), strings.flags], 2)
    return Reading(name="circuit, literal", contributions=contributions)


def circuit_charitable(strings: Strings) -> Reading:
    """Each state has its flag and its bracket; the sum of the brackets is the final depth."""
    contributions = torch.stack([strings.signs, strings.flags], 2)
    return Reading(name="circuit, charitable", contributions=contributions)


def flags_literal(strings: Strings) -> Reading:
    """An interchange of a state moves its flag; no state but the last has to do with the final depth."""
    return Reading(
        name="flags, literal",
        contributions=_with_zeros(strings, strings.flags, sum_index=1),
        fixed=_fixed(strings.total, None),
        positions=tuple(range(strings.tokens.shape[1] - 1)),
    )


def flags_charitable(strings: Strings) -> Reading:
    """An interchange of a state with one of the same bracket moves its flag."""
    return Reading(
        name="flags, charitable",
        contributions=_with_zeros(strings, strings.flags, sum_index=1),
        fixed=_fixed(strings.total, None),
        equal=strings.tokens,
    )


def flags_along_direction(strings: Strings) -> Reading:
    """An interchange along the direction of the flag moves the flag, at every position."""
    return Reading(
        name="flags, along their direction",
        contributions=_with_zeros(strings, strings.flags, sum_index=1),
        fixed=_fixed(strings.total, None),
    )


def total_literal(strings: Strings) -> Reading:
    """An interchange of the last state moves the final depth, and the last flag."""
    last = strings.tokens.shape[1] - 1
    contributions = torch.stack([_depth_at_the_end(strings), strings.flags], 2)
    return Reading(name="final depth, literal", contributions=contributions, positions=(last,))


def total_charitable(strings: Strings) -> Reading:
    """An interchange of a state with one of the same flag moves its bracket, and so the final depth by 2."""
    return Reading(
        name="final depth, charitable",
        contributions=_with_zeros(strings, strings.signs, sum_index=0),
        fixed=_fixed(None, strings.violations),
        equal=strings.flags,
    )


def total_along_direction(strings: Strings) -> Reading:
    """An interchange along the direction of the bracket moves the final depth by 2, at every position."""
    return Reading(
        name="final depth, along the bracket's direction",
        contributions=_with_zeros(strings, strings.signs, sum_index=0),
        fixed=_fixed(None, strings.violations),
    )


# The sum over positions, at one place: the pooled vector


def pooled_total(strings: Strings) -> Reading:
    """The final depth in the pooled vector is interchanged, the number of violations stays."""
    return Reading(
        name="pooled final depth",
        contributions=_with_zeros(strings, strings.total[:, None], sum_index=0),
        fixed=_fixed(None, strings.violations),
    )


def pooled_violations(strings: Strings) -> Reading:
    """The number of violations in the pooled vector is interchanged, the final depth stays."""
    return Reading(
        name="pooled violations",
        contributions=_with_zeros(strings, strings.violations[:, None], sum_index=1),
        fixed=_fixed(strings.total, None),
    )


def pooled_both(strings: Strings) -> Reading:
    """Both are interchanged, and nothing else of the pooled vector."""
    contributions = torch.stack([strings.total, strings.violations], 1)[:, None]
    return Reading(name="pooled final depth and violations", contributions=contributions)


# A fourth reading, made after a look at the states of both models: flags at one kind of bracket


def opener_flags(strings: Strings) -> Int[Tensor, "string pos"]:
    """1 at an opening bracket after which the depth is not above zero, and where only closing ones have been so far.

    If as many brackets open as close, there is one if and only if the depth was below zero somewhere: it must return.
    """
    only_closed = strings.depth == -torch.arange(1, strings.tokens.shape[1] + 1)
    return (((strings.tokens == OPEN) & (strings.depth <= 0)) | only_closed).long()


def closer_flags(strings: Strings) -> Int[Tensor, "string pos"]:
    """1 at a closing bracket after which the depth is below zero; the first position below zero is always one."""
    return ((strings.tokens == CLOSE) & (strings.depth < 0)).long()


def circuit_openers(strings: Strings) -> Reading:
    """As the charitable reading, with flags at opening brackets after which the depth is not above zero."""
    contributions = torch.stack([strings.signs, opener_flags(strings)], 2)
    return Reading(name="circuit, flags at opening brackets", contributions=contributions)


def circuit_closers(strings: Strings) -> Reading:
    """As the charitable reading, with flags at closing brackets after which the depth is below zero.

    Only interchanges count after which the sums are those of some string: none ends below zero without a flag.
    """
    contributions = torch.stack([strings.signs, closer_flags(strings)], 2)
    return Reading(name="circuit, flags at closing brackets", contributions=contributions, only_possible=True)


FLAGS: Mapping[str, Callable[[Strings], Int[Tensor, "string pos"]]] = {
    "positions": lambda strings: strings.flags,
    "openers": opener_flags,
    "closers": closer_flags,
}
"""Where flags are: at every position below zero, as stated, or at one kind of bracket."""
ONE_KIND: Mapping[str, Callable[[Strings], Reading]] = {"openers": circuit_openers, "closers": circuit_closers}
"""Readings with flags at one kind of bracket."""


def pooled_possible(strings: Strings, violations: Tensor, *, moved: tuple[bool, bool], name: str) -> Reading:
    """Final depth or a number of violations in the pooled vector is interchanged, to sums that some string has."""
    sums = torch.stack([strings.total, violations], 1)
    moves = torch.tensor(moved).long()
    return Reading(name=name, contributions=(sums * moves)[:, None], fixed=sums * (1 - moves), only_possible=True)


# Mechanisms that are false of every causal transformer with right answers, by seed


def flags_shifted(strings: Strings, shift: int) -> Reading:
    """State i has the flag of position i + shift, modulo n: of some positions it has not seen."""
    contributions = torch.stack([strings.signs, strings.flags.roll(-shift, 1)], 2)
    return Reading(name=f"flags of position i{shift:+d}", contributions=contributions, causal=False)


def wiring_permuted(strings: Strings, draw: np.random.Generator) -> Reading:
    """State i has bracket and flag of another position; no position keeps its own."""
    n = strings.tokens.shape[1]
    order = np.arange(n)
    while (order == np.arange(n)).any():
        order = draw.permutation(n)
    contributions = torch.stack([strings.signs[:, order], strings.flags[:, order]], 2)
    return Reading(name="brackets and flags of other positions", contributions=contributions, causal=False)


def flags_scattered(strings: Strings, draw: np.random.Generator) -> Reading:
    """Each string has its flags at other positions, in an order of its own."""
    order = torch.from_numpy(
        draw.permuted(np.tile(np.arange(strings.tokens.shape[1]), (len(strings.tokens), 1)), axis=1)
    )
    contributions = torch.stack([strings.signs, strings.flags.gather(1, order)], 2)
    return Reading(name="flags at random positions", contributions=contributions, causal=False)


def flags_from_the_right(strings: Strings) -> Reading:
    """Depth is counted from the right: state i has the flag that more brackets open than close from i on."""
    from_the_right = strings.signs.flip(1).cumsum(1).flip(1)
    contributions = torch.stack([strings.signs, (from_the_right > 0).long()], 2)
    return Reading(name="depth counted from the right", contributions=contributions, causal=False)


def depth_modulo(strings: Strings, modulus: int) -> Reading:
    """The last state has the final depth modulo a number."""
    contributions = torch.stack([_depth_at_the_end(strings) % modulus, strings.flags], 2)
    return Reading(name=f"final depth modulo {modulus}", contributions=contributions)


def first_half(strings: Strings) -> Reading:
    """Only brackets of the first half are counted, and must be as many open ones as closed."""
    counted = torch.arange(strings.tokens.shape[1]) < strings.tokens.shape[1] // 2
    contributions = torch.stack([strings.signs * counted, strings.flags], 2)
    return Reading(name="brackets of the first half", contributions=contributions)


def longest_run(strings: Strings) -> Reading:
    """The last state has the length of the longest run of equal brackets, which must be that of half the string."""
    n = strings.tokens.shape[1]
    same = torch.zeros_like(strings.tokens)
    for index in range(1, n):
        continues = strings.tokens[:, index] == strings.tokens[:, index - 1]
        same[:, index] = torch.where(continues, same[:, index - 1] + 1, 0)
    run = torch.zeros_like(strings.tokens)
    run[:, -1] = same.amax(1) + 1
    return Reading(
        name="longest run", contributions=torch.stack([run, strings.flags], 2), goals=(n // 2, 0), causal=True
    )


FalseMechanism = Callable[[Strings, np.random.Generator], Reading]
FALSE_MECHANISMS: Mapping[str, FalseMechanism] = {
    "flags of later positions": lambda strings, draw: flags_shifted(strings, int(draw.integers(1, 4))),
    "flags of earlier positions": lambda strings, draw: flags_shifted(strings, -int(draw.integers(1, 4))),
    "brackets and flags of other positions": wiring_permuted,
    "flags at random positions": flags_scattered,
    "depth counted from the right": lambda strings, draw: flags_from_the_right(strings),
    "final depth modulo a number": lambda strings, draw: depth_modulo(strings, int(draw.choice([2, 3, 4]))),
    "brackets of the first half": lambda strings, draw: first_half(strings),
    "longest run": lambda strings, draw: longest_run(strings),
}
"""Mechanisms that are known to be false: of tokens that a state has not seen, or with wrong answers."""


# Other mechanisms with right answers, which may be true of a causal model


def falls_below_zero(strings: Strings) -> Reading:
    """Flags only where the depth falls below zero, not where it stays there."""
    above_before = torch.cat([torch.zeros_like(strings.tokens[:, :1]), strings.depth[:, :-1]], 1) >= 0
    contributions = torch.stack([strings.signs, strings.flags * above_before], 2)
    return Reading(name="falls below zero", contributions=contributions)


def matched_pairs(strings: Strings) -> Reading:
    """A state has 1 if its bracket closes an open one; balanced strings have n / 2 such pairs."""
    n_strings, n = strings.tokens.shape
    n_open = torch.zeros(n_strings, dtype=torch.long)
    matched = torch.zeros_like(strings.tokens)
    for index in range(n):
        opens = strings.tokens[:, index] == OPEN
        matched[:, index] = (~opens & (n_open > 0)).long()
        n_open = n_open + opens.long() - matched[:, index]
    return Reading(name="matched pairs", contributions=matched[..., None], goals=(n // 2,))


RIVALS: Mapping[str, Callable[[Strings], Reading]] = {
    "falls-below-zero": falls_below_zero,
    "matched-pairs": matched_pairs,
}
"""Mechanisms with right answers that are neither reading; whether one is true is not known."""
