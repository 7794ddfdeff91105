"""Experiments on heads in several processes, each of which has some heads of the model."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from hooks.interventions.clean_pass import TOKENS_PER_PASS
from interp.auditing.experiments import Effects, HeadExperiments
from interp.core.processes import in_processes
from interp.tasks.base import Score

FEW_SETS = 8
"""Up to this number of sets per process, sending them takes longer than removing them."""
MOST_STORED = 3
"""Number of experiments that a process keeps, each with its clean runs: those of the search, and those of the tests."""


@dataclass(frozen=True)
class ParallelExperiments:
    """The experiments of a `HeadExperiments` in processes, with the same numbers.

    Sets with the same heads in their first layer are in one process, since they continue from the same activations.
    Where a pass has several edits of a layer, all that begin in this layer are. So each pass is that of one process.
    """

    experiments: HeadExperiments
    n_jobs: int
    key: str = field(default_factory=lambda: uuid4().hex)
    """Name of the experiments in the processes, where their clean runs are stored for further calls."""

    @property
    def heads(self) -> list[Head]:
        """The heads to intervene on."""
        return self.experiments.heads

    @cached_property
    def score(self) -> Score:
        """Score of the unchanged model on each sequence."""
        return self.experiments.score

    def effect_products(self) -> Float[np.ndarray, "head head"]:
        """As `HeadExperiments.effect_products`."""
        return self.experiments.effect_products()

    def effects(
        self, interventions: Sequence[str], labels: Mapping[Head, str], heads: Collection[Head] | None = None
    ) -> Effects:
        """As `HeadExperiments.effects`."""
        chosen = list(self.heads if heads is None else heads)
        shares = self._by_process(chosen, [(head,) for head in chosen])
        if len(shares) < 2:
            return self.experiments.effects(interventions, labels, heads)
        # Every process has NaN for the heads of the others
        effects_of_shares = self._in_processes("effects", [(interventions, labels, share) for share in shares])
        merged = effects_of_shares[0]
        for effects in effects_of_shares[1:]:
            drop = {
                name: np.where(np.isnan(values), effects.drop[name], values) for name, values in merged.drop.items()
            }
            merged = replace(merged, drop=drop)
        return merged

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]:
        """As `HeadExperiments.removed`."""
        numbers = range(len(sets))
        shares = self._by_process(numbers, sets)
        if len(shares) < 2 or len(sets) <= FEW_SETS * len(shares):
            return self.experiments.removed(sets)
        drops = self._in_processes("removed", [([sets[number] for number in share],) for share in shares])
        drop = np.empty((len(drops[0]), len(sets), drops[0].shape[2]))
        for share, drop_of_share in zip(shares, drops, strict=True):
            drop[:, share] = drop_of_share
        return drop

    def _by_process(self, items: Iterable[Any], sets: Sequence[Sequence[Head]]) -> list[list[Any]]:
        """Items by process, each with the set of heads that it edits: the most work first, to whoever has the least."""
        n_layers = self.experiments.model.cfg.n_layers
        # What stays together, and its work: an edit of a layer computes this layer and those after it
        items_together: dict[tuple[int, ...], list[Any]] = {}
        work: dict[tuple[int, ...], int] = {}
        for item, heads in zip(items, sets, strict=True):
            first_layer = min((layer for layer, _ in heads), default=0)
            heads_there = sorted({head for layer, head in heads if layer == first_layer})
            place = (first_layer, *heads_there) if self._has_single_edits else (first_layer,)
            items_together.setdefault(place, []).append(item)
            work[place] = work.get(place, 0) + n_layers - first_layer
        shares: list[list[Any]] = [[] for _ in range(min(self.n_jobs, len(work)))]
        work_of_share = [0] * len(shares)
        for place in sorted(work, key=lambda place: (-work[place], place)):
            least = work_of_share.index(min(work_of_share))
            shares[least] += items_together[place]
            work_of_share[least] += work[place]
        return shares

    @cached_property
    def _has_single_edits(self) -> bool:
        """Whether every chunk is large enough to be edited in one way per pass."""
        n_tokens = [engine.tokens.numel() for _, _, engine in self.experiments.experiment.clean_runs()]
        return 2 * min(n_tokens) > TOKENS_PER_PASS

    def _in_processes(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Results of a method of the experiments for each tuple of arguments, in their order."""
        sent = SentExperiments(self.key, replace(self.experiments))
        calls = [(_call, (index, sent, method, of_call)) for index, of_call in enumerate(arguments)]
        results = dict(in_processes(calls, n_jobs=self.n_jobs))
        return [results[index] for index in range(len(arguments))]


@dataclass(frozen=True)
class SentExperiments:
    """Experiments under their name; those with the same name are the same."""

    key: str
    experiments: HeadExperiments = field(compare=False)


@lru_cache(maxsize=MOST_STORED)
def _stored_experiments(sent: SentExperiments) -> HeadExperiments:
    """The experiments that an earlier call sent under this name, with their clean runs."""
    return sent.experiments


def _call(index: int, sent: SentExperiments, method: str, arguments: tuple[Any, ...]) -> tuple[int, Any]:
    """Call a method of experiments in a process that has one torch thread."""
    torch.set_num_threads(1)
    return index, getattr(_stored_experiments(sent), method)(*arguments)
