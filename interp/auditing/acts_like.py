"""What a needed head without a label acts like: the kind whose pattern, in place of its own, keeps the answers."""

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.experiments import Effects
from interp.auditing.interventions import ITS_OWN_READING
from interp.heads.classify import HeadPatterns


@runtime_checkable
class Experiments(Protocol):
    """Experiments in this process or in several."""

    @property
    def heads(self) -> list[Head]: ...

    def effects(
        self, interventions: Sequence[str], labels: dict[Head, str], heads: Collection[Head] | None = None
    ) -> Effects: ...


def kinds_to_try(
    search: Experiments,
    patterns: HeadPatterns,
    heads: Sequence[Head],
    outcomes: Sequence[int],
    threshold: Float[np.ndarray, " outcome"],
) -> dict[Head, str]:
    """For each head the kind that it may act like; none for heads that no kind is like.

    A label says where a head attends. A head can act through the pattern of a kind that gets too little of its
    attention for a label, since the rest of its attention may change nothing. With only its attention to the keys of
    the kind, and the rest spread evenly, accuracy then falls by less than counts on every outcome, and by more on some
    with a uniform pattern. Of several such kinds it is the one that has most of its attention, above chance.

    Args:
        search: Experiments on other sequences than those that the kind is tested on, so that its choice among many
            kinds needs no correction.
        patterns: Kinds of the task, and the scores of the heads.
        heads: Needed heads without a label.
        outcomes: Indices of the outcomes that count.
        threshold: Loss of accuracy that counts on each.
    """
    best_score: dict[Head, float] = {}
    chosen: dict[Head, str] = {}
    for index, kind in enumerate(patterns.kinds if heads else ()):
        effects = search.effects((ITS_OWN_READING, "uniform"), dict.fromkeys(heads, kind), heads=heads)
        losses = {name: effects.mean(name)[:, outcomes] / threshold for name in effects.drop}
        for head in heads:
            row = search.heads.index(head)
            would_do = losses[ITS_OWN_READING][row].max() < 1 < losses["uniform"][row].max()
            score = float(patterns.score.value[(*head, index)])
            if would_do and score > best_score.get(head, 0):
                best_score[head], chosen[head] = score, kind
    return chosen
