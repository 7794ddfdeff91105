"""Scores of readings: shares of pairs in which the answer becomes, or stays, as predicted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from case_studies.frame.judge import Readings
from case_studies.recipes.intervals import proportion
from verified_circuits.interchanges import Edit, Site, Subject
from verified_circuits.pairs import BECOMES_BALANCED, FLIPS, KINDS, PLACEBOS, Kind, choose_pairs, groups_by_position
from verified_circuits.readings import Reading

VALUE, PAIRS = "value", "pairs"
"""Columns of a score and of its number of pairs."""
BAR = 0.9
"""The bar of `interp.implements`: shares at or above it count as found."""
PAIRS_BY_LENGTH: Mapping[int, int | None] = {10: None, 16: 8192}
"""Pairs of a kind by number of tokens; None: all. 8,192 give an interval of at most 0.011 on both sides."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """Share of the pairs of a kind with the predicted answer; positions count equally."""

    value: float
    low: float
    high: float
    n: int
    """Number of pairs."""
    by_position: Mapping[int, tuple[float, int]]
    """Share and number of pairs at each position."""

    @property
    def exact(self) -> bool:
        """Whether all pairs were counted."""
        return self.low == self.high


@dataclass(frozen=True, kw_only=True)
class Score:
    """How far a reading predicts interchanges at a site."""

    reading: str
    site: str
    shares: Mapping[Kind, Share]
    """Kinds of pairs that exist."""
    n_wrong: int
    """Number of strings that the reading itself answers wrongly."""

    def mean(self, kinds: Sequence[Kind]) -> tuple[float, float, float]:
        """Mean of the shares of two kinds, which count equally, and the ends of its interval; 0 if there are none.

        Ends of a mean of independent shares, from their own (MOVER, Zou & Donner 2008).
        """
        shares = [self.shares[kind] for kind in kinds if kind in self.shares]
        if not shares:
            return 0.0, 0.0, 0.0
        value = sum(share.value for share in shares) / len(shares)
        below = math.sqrt(sum((share.value - share.low) ** 2 for share in shares)) / len(shares)
        above = math.sqrt(sum((share.high - share.value) ** 2 for share in shares)) / len(shares)
        return value, max(0.0, value - below), min(1.0, value + above)

    @property
    def lowest(self) -> tuple[float, float, float]:
        """The lower of the means over both directions and over both placebos, with its ends; 0 if answers are wrong."""
        if self.n_wrong:
            return 0.0, 0.0, 0.0
        return min(self.mean(FLIPS), self.mean(PLACEBOS))

    @property
    def found(self) -> bool:
        """Whether the value is at or above the bar, with its whole interval."""
        return self.lowest[1] >= BAR

    @property
    def n(self) -> int:
        """Number of pairs of all kinds."""
        return sum(share.n for share in self.shares.values())

    def row(self) -> dict[str, Any]:
        """A row of `readings_of`."""
        cells: dict[str, Any] = {"reading": self.reading, "site": self.site}
        for kind in KINDS:
            share = self.shares.get(kind)
            cells[kind] = "no pairs" if share is None else f"{share.value:.3f} of {share.n:,}"
        value, low, high = self.lowest
        return {**cells, VALUE: value, "low": low, "high": high, PAIRS: self.n}


def score_reading(
    subject: Subject,
    reading: Reading,
    site: Site,
    edit: Edit,
    states: Float[Tensor, "string *pos d_model"],
    *,
    limit: int | None,
    seed: int,
    label: str | None = None,
) -> Score:
    """Interchange at a site in pairs of every kind, and compare the answers with a reading's.

    Args:
        subject: The model, which answers all strings rightly.
        reading: What states stand for.
        site: Where states are interchanged.
        edit: What is interchanged of a state.
        states: Activations of all strings at the site.
        limit: Number of pairs of each kind; None: all.
        seed: Determines which pairs are drawn.
        label: Name of the site in tables; default: the site.
    """
    label = label or site
    shares: dict[Kind, Share] = {}
    n_wrong = reading.n_wrong
    if n_wrong:
        return Score(reading=reading.name, site=label, shares=shares, n_wrong=n_wrong)
    groups = groups_by_position(reading, n=subject.n, pooled=site == "pooled")
    for kind in KINDS:
        pairs = choose_pairs(groups, kind, limit=limit, seed=seed)
        if not len(pairs):
            continue
        hits = subject.answers(pairs, site, states, edit) == BECOMES_BALANCED[kind]
        by_position = {}
        for position in pairs.position.unique().tolist():
            hits_here = hits[pairs.position == position]
            by_position[position] = (float(hits_here.double().mean()), len(hits_here))
        if limit is None:
            value = low = high = float(torch.tensor([share for share, _ in by_position.values()]).double().mean())
        else:
            value, low, high = proportion(int(hits.sum()), len(hits)).floats()
        shares[kind] = Share(value=value, low=low, high=high, n=len(pairs), by_position=by_position)
    return Score(reading=reading.name, site=label, shares=shares, n_wrong=n_wrong)


def readings_of(scores: Sequence[Score]) -> Readings:
    """Scores as rows: value with its interval, and every share; of the first, which is judged, shares by position too.

    Without ends of intervals if all pairs were counted.
    """
    # Further figures of the first score
    shares = scores[0].shares
    numbers: dict[str, Any] = {}
    for kind, share in shares.items():
        numbers[kind] = share.value
        numbers[f"{kind}, pairs"] = share.n
        if not share.exact:
            numbers[f"{kind}, interval"] = [share.low, share.high]
    # Its shares by position
    positions = sorted({position for share in shares.values() for position in share.by_position})
    rows = []
    for position in positions:
        cells = {kind: share.by_position.get(position) for kind, share in shares.items()}
        texts = {kind: "" if cell is None else f"{cell[0]:.3f} of {cell[1]:,}" for kind, cell in cells.items()}
        rows.append({"position": position + 1, **texts})
    frame = pd.DataFrame([score.row() for score in scores])
    if all(share.exact for score in scores for share in score.shares.values()):
        frame = frame.drop(columns=["low", "high"])
    return Readings(
        frame=frame,
        title="Shares of pairs with the predicted answer",
        numbers=numbers,
        tables=[("By position", pd.DataFrame(rows))],
    )
