"""Experiments that remove parts of a model: MLPs, neurons, heads and the embedding."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from hooks.interventions.part_engine import Part, layer_of
from interp.auditing.experiments import MEAN, Effects, HeadExperiments, inner_products
from interp.auditing.steps import ExperimentSource
from interp.heads.experiment import Edit, Experiment
from interp.heads.interventions import OF_PARTS
from interp.heads.parts import experiment_on_parts
from interp.tasks.base import Batch


@dataclass(frozen=True, eq=False)
class PartExperiments(HeadExperiments):
    """Removals of parts. A part takes the place of a head: it is known by its layer and its number among the parts.

    Parts have no pattern: effects of interventions on patterns are missing, as those of interventions that were not
    tried.
    """

    parts: tuple[Part, ...] = ()

    @property
    def heads(self) -> list[Head]:
        """(layer, number) of every part."""
        return [(layer_of(member), number) for number, member in enumerate(self.parts)]

    @cached_property
    def experiment(self) -> Experiment:
        """Edits of the parts on the sample, from clean runs that are kept."""
        return experiment_on_parts(self.model, self.sample, self.parts, measures=("right",), keeps_runs=True)

    def check_relations(self) -> None:
        """Without patterns, the task needs no relations."""

    def effects(
        self, interventions: Sequence[str], labels: Mapping[Head, str], heads: Collection[Head] | None = None
    ) -> Effects:
        """Apply each intervention to each part, one at a time; `labels` has no effect."""
        total = self.score.total.double().numpy()
        drop = {name: np.full((len(self.batch), len(self.parts), total.shape[1]), np.nan) for name in interventions}
        tried = self.heads if heads is None else list(heads)
        cells = [(name, number) for name in interventions if name in OF_PARTS for _, number in tried]
        edits = [Edit((self.parts[number],), OF_PARTS[name]) for name, number in cells]
        lost = self.experiment.run(edits, name="replacing parts").lost[:, :, 0]
        for index, (name, number) in enumerate(cells):
            drop[name][:, number] = lost[:, index]
        return Effects(total, drop, self.sample.exact)

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]:
        """Right answers lost when all parts of a set are replaced by their means, for each set."""
        edits = [Edit(tuple(self.parts[number] for _, number in places), MEAN) for places in sets]
        return self.experiment.run(edits).lost[:, :, 0]

    def effect_products(self) -> Float[np.ndarray, "head head"]:
        """Inner products of the changes of the logits when single parts are replaced by their means."""
        products = np.zeros((len(self.parts), len(self.parts)))
        for rows, _, engine in self.experiment.clean_runs():
            mean = self.experiment.instead(MEAN, engine, rows, 0)
            changes = [logits - engine.logits for _, logits in engine.each_edit(list(zip(self.parts)), mean)]
            products += inner_products(torch.stack(changes))
        return products


@dataclass(frozen=True, kw_only=True)
class PartSource(ExperimentSource):
    """Gives experiments on the parts of an audit."""

    parts: tuple[Part, ...]

    def on(self, batch: Batch, *, first: int = 0) -> HeadExperiments:
        """Experiments on a batch; `first` is the number of sequences of the audit before it."""
        return PartExperiments(self.model, self.sample_of(batch, first), parts=self.parts)
