"""Search for sets of heads that are needed together, and for pairs that cancel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hooks.interventions.ablation_engine import Head
from interp.auditing.experiments import Effects, HeadExperiments
from interp.core.statistics import drop_tests

OPPOSED = 0.5
"""Pairs whose writes have a cosine below minus this are removed together, since they may cancel."""
SUSPECTED = 0.05
"""p value at which the search follows up a set. Whatever it finds is tested again, on other sequences and at the
audit's level."""

Fatal = Callable[[frozenset[Head]], bool]
"""Whether removing these heads together costs more than removing each alone. Must be monotone: true of a set if true of
a subset."""


@dataclass(frozen=True)
class FatalSets:
    """Result of `fatal_sets`."""

    sets: tuple[tuple[Head, ...], ...]
    """Minimal fatal sets: none is fatal without any one of its heads."""
    together: tuple[Head, ...]
    """A largest set of heads that can be removed together."""
    removals: int
    """Number of sets tried."""


def fatal_sets(heads: Sequence[Head], fatal: Fatal) -> FatalSets:
    """Find a maximal set of heads that can be removed together, and a minimal fatal set for each other head.

    Heads join the set one by one, in the order given. A head that would make it fatal stays out; the heads of the set
    that it cannot be removed with are found by halving (QuickXplain), in about 2 k log2(heads / k) removals for k of
    them.

    Args:
        heads: Heads to search, none of them fatal alone.
        fatal: Experiment that removes a set.

    Source: Junker 2004 (QuickXplain).
    """
    tried: dict[frozenset[Head], bool] = {}

    def is_fatal(chosen: frozenset[Head]) -> bool:
        if chosen not in tried:
            tried[chosen] = fatal(chosen)
        return tried[chosen]

    if len(heads) < 2 or not is_fatal(frozenset(heads)):
        return FatalSets((), tuple(heads), len(tried))
    together, sets = list(heads[:1]), []
    for head in heads[1:]:
        if is_fatal(frozenset([*together, head])):
            sets.append(tuple(sorted([head, *_fewest(frozenset([head]), together, is_fatal, changed=False)])))
        else:
            together.append(head)
    return FatalSets(tuple(sets), tuple(together), len(tried))


def _fewest(background: frozenset[Head], heads: Sequence[Head], fatal: Fatal, *, changed: bool) -> list[Head]:
    """A minimal subset of the heads that is fatal together with the background; all of them are."""
    if changed and fatal(background):
        return []
    if len(heads) == 1:
        return list(heads)
    half = len(heads) // 2
    first, second = list(heads[:half]), list(heads[half:])
    from_second = _fewest(background | frozenset(first), second, fatal, changed=True)
    from_first = _fewest(background | frozenset(from_second), first, fatal, changed=bool(from_second))
    return from_first + from_second


@dataclass(frozen=True)
class HeadSets:
    """Sets of heads to remove together."""

    fatal: tuple[tuple[Head, ...], ...]
    opposed: tuple[tuple[Head, Head], ...]

    @property
    def all(self) -> list[tuple[Head, ...]]:
        """Every set: first the fatal ones, then the opposed pairs."""
        return [*self.fatal, *self.opposed]

    def effects(
        self,
        together: Float[np.ndarray, "sample set outcome"],
        alone: Float[np.ndarray, "sample head outcome"],
        heads: Sequence[Head],
    ) -> Float[np.ndarray, "sample set outcome"]:
        """Effects that verdicts use: of fatal sets the excess over their heads alone, of pairs the whole effect."""
        more = together.copy()
        for index, chosen in enumerate(self.fatal):
            more[:, index] -= alone[:, [heads.index(head) for head in chosen]].sum(1)
        return more


def sets_to_test(
    search: HeadExperiments, effects: Effects, outcomes: list[int], threshold: Float[np.ndarray, " outcome"]
) -> HeadSets:
    """Find sets worth a test: fatal together though no head is alone, and opposed pairs of which one is needed alone.

    Args:
        search: Experiments on other, fewer sequences than those of the effects.
        effects: Effects of single heads.
        outcomes: Indices of the outcomes that count.
        threshold: Loss of accuracy that counts on each of them.
    """
    cost = (effects.drop["mean"].sum(0) / np.maximum(effects.total.sum(0), 1e-300))[:, outcomes]
    needed = dict(zip(search.heads, (cost > threshold).any(-1), strict=True))
    spare = [head for head, alone in needed.items() if not alone]
    total = search.score().total.double().numpy()[:, outcomes]

    @cache
    def lost(*chosen: Head) -> Float[np.ndarray, "sample outcome"]:
        return search.removed([chosen])[:, 0, outcomes]

    def suspect(drop: Float[np.ndarray, "sample outcome"]) -> bool:
        p, _ = drop_tests(drop, total, threshold)
        return bool(p.min() * len(p) <= SUSPECTED)

    def fatal(chosen: frozenset[Head]) -> bool:
        together = lost(*sorted(chosen))  # a set that costs little needs no test of its heads alone
        return suspect(together) and suspect(together - sum(lost(head) for head in chosen))

    against = [pair for pair in opposed(search, OPPOSED) if any(needed[head] for head in pair)]
    return HeadSets(fatal_sets(spare, fatal).sets, tuple(against[: max(8, len(needed) // 2)]))


@torch.no_grad()
def opposed(experiments: HeadExperiments, least: float) -> list[tuple[Head, Head]]:
    """Pairs of heads with opposite writes: cosine at most -`least`.

    A head's write is its output at all positions of the batch, minus its mean over sequences at each position.
    """
    model, heads = experiments.model, experiments.heads
    written: list[Tensor] = []
    for _, _, engine in experiments.parts():
        rows = []
        for layer in range(model.cfg.n_layers):
            z, at = engine.heads(layer).z, cast(Any, model.blocks[layer])
            out = z if model.cfg.vo_identity else torch.einsum("bphe,hed->bphd", z, at.attn.W_O)
            rows.append(out.permute(2, 0, 1, 3))
        written.append(torch.cat(rows))
    every = torch.cat(written, 1)
    flat = (every - every.mean(1, keepdim=True)).flatten(1)
    size = flat.norm(dim=1, keepdim=True)
    unit = torch.where(size > 1e-9 * size.max(), flat / size.clamp_min(1e-300), 0)
    cosine = unit @ unit.T
    return [(heads[i], heads[j]) for i in range(len(heads)) for j in range(i + 1, len(heads)) if cosine[i, j] <= -least]
