"""Two heads that look alike, of which a model needs one: why a pattern is not a mechanism."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from interp.auditing.records import HeadVerdict
from interp.auditing.sentences import name_of
from interp.heads.kinds import meaning_of

if TYPE_CHECKING:
    from interp.auditing.result import AuditResult


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


def contrast_of(audit: "AuditResult") -> Contrast | None:
    """The two heads of the same label whose losses differ most, one faithful and one not needed.

    A head that shares its work with others (redundant) is no example of a head that is not needed.

    Args:
        audit: An audit with verdicts on all heads.

    Returns:
        The pair, or None if the audit has none.

    >>> import interp
    >>> known = interp.known_answers.known_answer("template copy, zero decoy", seed=0)
    >>> contrast = interp.audit(known.model, known.task, n=128).contrast()
    >>> contrast.faithful.place, contrast.misleading.place
    ((0, 2), (0, 1))
    """
    faithful = [head for head in audit.heads if head.verdict == "faithful"]
    unneeded = [head for head in audit.heads if head.verdict == "misleading" and head.reason == "not needed"]
    pairs = [(first, second) for first, second in product(faithful, unneeded) if first.label == second.label]
    if not pairs:
        return None
    first, second = max(pairs, key=lambda pair: _loss(audit, pair[0]) - _loss(audit, pair[1]))
    return Contrast(
        faithful=first, misleading=second, losses=(_loss_in_words(audit, first), _loss_in_words(audit, second))
    )


def most_telling_head(audit: "AuditResult") -> HeadVerdict:
    """The head to look at first: the faithful one of the contrast, else a head that costs most without it."""
    contrast = contrast_of(audit)
    if contrast is not None:
        return contrast.faithful
    labelled = [head for head in audit.heads if head.readable]
    candidates: Sequence[HeadVerdict] = labelled or audit.heads
    return max(candidates, key=lambda head: _loss(audit, head))


def _loss(audit: "AuditResult", head: HeadVerdict) -> float:
    """Accuracy lost without a head, as a fraction, on the outcome that its verdict is about."""
    return head.costs["mean"].drop[_outcome_of(audit, head)]


def _outcome_of(audit: "AuditResult", head: HeadVerdict) -> int:
    """Index of the outcome that the verdict of a needed head is about; of another head, of its largest loss."""
    if head.verdict == "faithful" and head.outcome:
        return audit.outcomes.index(head.outcome)
    return head.costs["mean"].worst(audit.threshold)


def _loss_in_words(audit: "AuditResult", head: HeadVerdict) -> str:
    """Accuracy lost without a head in points, with its interval if it has one."""
    cost, outcome = head.costs["mean"], _outcome_of(audit, head)
    points = f"{_points(cost.drop[outcome])} points on {audit.outcomes[outcome]}"
    if cost.exact:
        return points
    return f"{points} [{_points(cost.low[outcome])}, {_points(cost.high[outcome])}]"


def _points(share: float) -> str:
    """A fraction in points: hundredths, with a decimal below ten."""
    value = np.round(100 * share, 1)
    return f"{value:.0f}" if abs(value) >= 10 else f"{value + 0.0:.1f}"
