"""Two heads that look alike, of which a model needs one: why a pattern is not a mechanism."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float

from interp.auditing.records import HeadVerdict, InterventionCost
from interp.auditing.sentences import name_of
from interp.heads.kinds import meaning_of


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two heads with the same label: the model needs the first for what it looks like, and not the second."""

    faithful: HeadVerdict
    misleading: HeadVerdict
    losses: tuple[str, str]
    """What the model loses without each, in words: "46 points on #1 [44, 49]"."""

    @property
    def label(self) -> str:
        """The label of both."""
        return self.faithful.label

    def sentence(self) -> str:
        """What both look like, and what the model loses without each."""
        needed, unneeded = name_of(self.faithful.place), name_of(self.misleading.place)
        scores = f"{self.faithful.score:.2f} and {self.misleading.score:.2f}"
        return (
            f"Heads {needed} and {unneeded} look alike: each attends to {meaning_of(self.label)} ({self.label}, "
            f"scores {scores} of at most 1). Without {needed}, accuracy falls by {self.losses[0]}; without {unneeded}, "
            f"by {self.losses[1]}."
        )


def contrast_of(
    heads: Sequence[HeadVerdict], *, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"]
) -> Contrast | None:
    """The two heads of the same label whose losses differ most, one faithful and one not needed.

    A head that shares its work with others (redundant) is no example of a head that is not needed.

    Args:
        heads: The verdicts of an audit.
        outcomes: Names of the outcomes that verdicts are based on.
        threshold: Loss of accuracy that counts on each.

    Returns:
        The pair, or None if there is none.
    """
    faithful = [head for head in heads if head.verdict == "faithful"]
    unneeded = [head for head in heads if head.verdict == "misleading" and head.reason == "not needed"]
    pairs = [(first, second) for first, second in product(faithful, unneeded) if first.label == second.label]
    if not pairs:
        return None
    # Of all pairs, that with the largest difference
    losses = {head.place: _loss(head, outcomes, threshold) for head in heads}
    first, second = max(pairs, key=lambda pair: losses[pair[0].place].drop - losses[pair[1].place].drop)
    return Contrast(
        faithful=first, misleading=second, losses=(losses[first.place].in_words, losses[second.place].in_words)
    )


def most_telling_head(
    heads: Sequence[HeadVerdict], *, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"]
) -> HeadVerdict:
    """The head to look at first: the faithful one of the contrast, else the labelled head that costs most, else any."""
    contrast = contrast_of(heads, outcomes=outcomes, threshold=threshold)
    if contrast is not None:
        return contrast.faithful
    labelled = [head for head in heads if head.readable]
    return max(labelled or heads, key=lambda head: _loss(head, outcomes, threshold).drop)


@dataclass(frozen=True)
class _Loss:
    """Accuracy lost without a head on one outcome."""

    drop: float
    in_words: str


def _loss(head: HeadVerdict, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"]) -> _Loss:
    """The loss without a head: on the outcome that a faithful head's verdict is about, else the largest."""
    cost = head.costs["mean"]
    outcome = cost.worst(threshold)
    if head.verdict == "faithful" and head.outcome:
        outcome = outcomes.index(head.outcome)
    words = f"{_points(cost.drop[outcome])} points on {outcomes[outcome]}{_ends(cost, outcome)}"
    return _Loss(cost.drop[outcome], words)


def points_lost(head: HeadVerdict, threshold: Float[np.ndarray, " outcome"]) -> str:
    """The loss without a head on the outcome with the largest, relative to its threshold: "53 points", "nothing"."""
    cost = head.costs["mean"]
    outcome = cost.worst(threshold)
    points = _points(cost.drop[outcome])
    return f"{'nothing' if float(points) == 0 else f'{points} points'}{_ends(cost, outcome)}"


def _ends(cost: InterventionCost, outcome: int) -> str:
    """The bounds of a cost's interval in points; nothing if it is exact."""
    if cost.exact:
        return ""
    return f" [{_points(cost.low[outcome])}, {_points(cost.high[outcome])}]"


def _points(share: float) -> str:
    """A fraction in points: hundredths, with a decimal below ten."""
    value = np.round(100 * share, 1)
    return f"{value:.0f}" if abs(value) >= 10 else f"{value + 0.0:.1f}"
