"""Evidence of an audit: effects on heads and sets over one or several looks at growing data, and their p values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from interp.auditing.verdicts import CANCELLING, JUDGED, NEEDED_IN, Judged, PValues, raw_p_values
from interp.core.statistics import drop_interval

FIRST_LOOK = 256
"""Sequences of the first look, with `n="enough"`; every further look doubles their number."""
LAST_LOOK = 0.9
"""Share of the level that the last of several looks gets: heads that are decided before have p values far below it."""
MORE = tuple(1.25**power for power in range(1, 26))
"""Factors, up to about 260, by which the number of sequences is multiplied to find how many would decide a head."""


def planned_looks(n: int | str, limit: int) -> list[int]:
    """Numbers of sequences at which an audit may stop: n, or with "enough" doublings from `FIRST_LOOK` to the limit.

    Raises:
        ValueError: n is neither a number nor "enough", or too small a number.
    """
    if limit < 8:
        raise ValueError(f"limit is {limit}; at least 8 sequences are needed for an interval.")
    if isinstance(n, str):
        if n != "enough":
            raise ValueError(f'n is {n!r}; give a number of sequences or "enough".')
        looks = [min(FIRST_LOOK, limit)]
        while looks[-1] < limit:
            looks.append(min(2 * looks[-1], limit))
        return looks
    if n < 8:
        raise ValueError(f"n is {n}; at least 8 sequences are needed for an interval.")
    return [n]


def share_of_look(size: int, looks: Sequence[int]) -> float:
    """Share of the level of a planned look: `LAST_LOOK` for the last of several, equal parts of the rest for others."""
    if len(looks) == 1:
        return 1.0
    return LAST_LOOK if size == looks[-1] else (1 - LAST_LOOK) / (len(looks) - 1)


@dataclass
class Evidence:
    """Effects of every intervention, sequence by sequence, and the p values after each look at them.

    A p value is the smallest over the looks so far, each divided by the share of the level that the look gets, times
    the factor of its intervention (`corrections`). It holds at whatever look the audit stops, since the error of all
    looks together is at most the sum of theirs.

    Source: Lan & DeMets 1983 (alpha spending; here with fixed shares, which hold however the looks depend on each
    other).
    """

    threshold: Float[np.ndarray, " outcome"]
    looks: Sequence[int]
    """Planned numbers of sequences."""
    factors: Mapping[str, float]
    """By intervention: what its p values are multiplied by."""
    drop: dict[str, Float[np.ndarray, "sample head outcome"]] = field(default_factory=dict)
    """Right answers lost; NaN where an intervention was not tried."""
    total: Float[np.ndarray, "sample outcome"] = field(default_factory=lambda: np.empty((0, 0)))
    """Answers scored."""
    _p: PValues | None = None

    def add(
        self, drop: Mapping[str, Float[np.ndarray, "sample head outcome"]], total: Float[np.ndarray, "sample outcome"]
    ) -> None:
        """Add the sequences of one look. Heads that an earlier look left out must be left out of this one too."""
        if not self.drop:
            self.drop, self.total = dict(drop), total
        else:
            self.drop = {name: np.concatenate([self.drop[name], values]) for name, values in drop.items()}
            self.total = np.concatenate([self.total, total])
        now = raw_p_values(self._tested(), self.total, self.threshold)
        self._p = (self._p or now.unknown()).smallest(now, 1 / share_of_look(len(self.total), self.looks))

    @property
    def p(self) -> PValues:
        """Corrected p values so far."""
        assert self._p is not None
        return self._p.corrected(self.factors)

    def p_after(self, times: float) -> PValues:
        """Corrected p values after this many times the sequences, if all are like those so far."""
        assert self._p is not None
        more = raw_p_values(self._tested(), self.total, self.threshold, times=times)
        return self._p.smallest(more, 1 / share_of_look(self.looks[-1], self.looks)).corrected(self.factors)

    def _tested(self) -> dict[str, Float[np.ndarray, "sample head outcome"]]:
        return {name: self.drop[name] for name in (*JUDGED, NEEDED_IN, CANCELLING)}

    def n(self, name: str = "mean") -> Int[np.ndarray, " head"]:
        """Number of sequences on which an intervention was tried on each head."""
        return np.isfinite(self.drop[name]).all(-1).sum(0)

    def intervals(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Drop of each head and outcome with the ends of its interval; NaN where the intervention was not tried."""
        values, sizes = self.drop[name], self.n(name)
        ends = np.full((3, *values.shape[1:]), np.nan)
        for size in set(sizes.tolist()) - {0}:
            there = sizes == size
            ends[:, there] = drop_interval(values[:size, there], self.total[:size, None])
        return ends[0], ends[1], ends[2]

    def n_to_decide(self, judge: Callable[[PValues], Sequence[Judged]]) -> list[int | None]:
        """Number of sequences that would decide each undecided head, if further ones are like those so far.

        Args:
            judge: Gives the verdicts on all heads from p values.

        Returns:
            A number for each head; None for heads that are decided, or that the largest of `MORE` would not decide.
        """
        verdicts, sizes = judge(self.p), self.n()
        found: list[int | None] = [None] * len(verdicts)
        open_heads = {index for index, one in enumerate(verdicts) if one.verdict == "undecided"}
        for times in MORE:
            if not open_heads:
                break
            after = judge(self.p_after(times))
            for index in [index for index in open_heads if after[index].verdict != "undecided"]:
                found[index] = int(np.ceil(sizes[index] * times))
                open_heads.remove(index)
        return found
