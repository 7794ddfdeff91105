"""Interchanges of variables at every site and place, scored against the predictions of several algorithms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.tools.analysis.interchange import SubspaceInterchange

from hooks.interventions.ablation_engine import Net
from interp.algorithms.algorithm import Algorithm, Outcome
from interp.algorithms.learned import MOST_DIMENSIONS, Choices, learned_basis
from interp.algorithms.predictions import Pairs, Prediction, answered_right, mean_agreement, predict
from interp.algorithms.result import OWN
from interp.core.interchange import Interchange, Place, Read, Site, SiteKind, sites_of
from interp.core.interchange import whole as everything
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.probing.directions import span_of_differences
from interp.tasks.base import Task

LEARNED_AT = 3
"""Sites and places, those at which a whole interchange works best, at which a subspace is learned for each variable."""


@dataclass(frozen=True)
class Hypothesis:
    """A variable of an algorithm, what it predicts, and on which answers the model is judged by it."""

    prediction: Prediction
    judged: Prediction

    @property
    def name(self) -> tuple[str, str]:
        return self.prediction.algorithm.name, self.prediction.variable.name

    @property
    def per_position(self) -> bool:
        return self.prediction.variable.per_position


@dataclass(frozen=True)
class Experiment:
    """One model on pairs of inputs."""

    net: Net
    task: Task
    pairs: Pairs
    algorithms: Sequence[Algorithm]
    outcomes: Mapping[str, tuple[Outcome, Outcome]]
    """What each algorithm computes on the base and on the source inputs."""
    read: Read
    choices: Choices
    kinds: Sequence[SiteKind]
    given: Mapping[str, Site]
    """Site of each variable by name; empty if all sites are searched."""
    search: str
    seed: int
    judge_all: bool = False
    """Whether answers count which the model does not give rightly: for untrained models, which give none."""
    _runs: dict[tuple, Int[Tensor, "pair target"]] = field(default_factory=dict)

    @cached_property
    def engine(self) -> Interchange:
        return Interchange(self.net, self.pairs.base, self.pairs.source, self.kinds)

    @cached_property
    def clean(self) -> tuple[Int[Tensor, "pair target"], Int[Tensor, "pair target"]]:
        """The model's answers to the base and to the source inputs."""
        return self.read(self.engine.logits).cpu(), self.read(self.engine.source_logits).cpu()

    @cached_property
    def sites(self) -> list[Site]:
        return list(dict.fromkeys(self.given.values())) or sites_of(self.net, self.kinds)

    @cached_property
    def places(self) -> list[Place]:
        """The places of the task, for variables with one value for each example."""
        return self._places(self.task.places)

    @cached_property
    def positions(self) -> list[Place]:
        """Every position, for variables with a value at each."""
        return self._places(lambda batch: Task.places(self.task, batch))

    def _places(self, find) -> list[Place]:
        base, source = find(self.pairs.base), find(self.pairs.source)
        return [Place(name, base[name], source[name]) for name in base if name in source]

    @cached_property
    def hypotheses(self) -> list[Hypothesis]:
        found = []
        for one in self.algorithms:
            base, source = self.outcomes[one.name]
            for variable in one.variables:
                said = predict(one, variable, self.task, self.pairs, base=base, source=source)
                judged = said if self.judge_all else answered_right(said, base, source, self.clean)
                found.append(Hypothesis(said, judged))
        return found

    def answers(self, one: Hypothesis, site: Site, place: int) -> Int[Tensor, "at pair target"]:
        """The model's answers with the variable's activations interchanged at a site and place."""
        if not one.per_position:
            return self._run(one, site, self.places[place])[None]
        found = self.clean[0].expand(len(self.positions), -1, -1).clone()
        for index in one.judged.changed.any(2).any(1).nonzero()[:, 0].tolist():
            found[index] = self._run(one, site, self.positions[index])
        return found

    def n_places(self, one: Hypothesis) -> int:
        return 1 if one.per_position else len(self.places)

    def place_name(self, one: Hypothesis, place: int) -> str:
        return OWN if one.per_position else self.places[place].name

    def _run(self, one: Hypothesis, site: Site, place: Place) -> Int[Tensor, "pair target"]:
        whole = self.search != "means"
        key = (site, place.name) if whole else (one.name, site, place.name)
        if key not in self._runs:
            edit = everything if whole else SubspaceInterchange(self.span_of_means(one, site, place))
            self._runs[key] = self.engine.answers(site, place, self.read, edit)
        return self._runs[key]

    def span_of_means(
        self, one: Hypothesis, site: Site, place: Place, shuffle: torch.Generator | None = None
    ) -> Float[Tensor, "width rank"]:
        """The subspace that the mean effects of the variable's values span, on the pairs that select sites.

        Effects are fitted by least squares to the differences within pairs, so that what both inputs share cancels.
        With unrelated inputs they are the means of each value, up to a constant.

        Args:
            one: The variable.
            site: Where.
            place: At which positions.
            shuffle: If given, values are shuffled between pairs first, as a control.
        """
        rows = self.pairs.selecting
        base, source = self.engine.activations(site, place)
        values = self.labels(one, place)[:, rows]
        if shuffle is not None:
            values = values[:, torch.randperm(values.shape[1], generator=shuffle)]
        _, classes = values.unique(return_inverse=True)
        before, after = F.one_hot(classes).double()
        effects = torch.linalg.pinv(after - before) @ (source - base)[rows].double()
        return span_of_differences(effects)

    def labels(self, one: Hypothesis, place: Place) -> Int[Tensor, "two pair"]:
        """Values of the variable in the base and in the source inputs."""
        algorithm, variable = one.name
        found = torch.stack([outcome.values[variable] for outcome in self.outcomes[algorithm]])
        return found[:, :, int(place.name)] if one.per_position else found

    def accuracies(self, one: Hypothesis) -> Float[np.ndarray, "site place half measure"]:
        """Shares of changed and of kept answers as predicted, on the pairs that select and on those that score."""
        found = np.full((len(self.sites), self.n_places(one), 2, 2), np.nan)
        if not one.judged.changed[:, self.pairs.selecting].any():
            return found
        for index, site in enumerate(self.sites):
            if self.given and site != self.given[one.name[1]]:
                continue
            for place in range(self.n_places(one)):
                answers = self.answers(one, site, place)
                for half, rows in enumerate((self.pairs.selecting, self.pairs.scoring)):
                    found[index, place, half] = mean_agreement(answers, one.judged, rows)
        return found

    def elsewhere(self, one: Hypothesis, place: int) -> float:
        """Accuracy on the pairs that score at all sites of a given site's kind, or at random coordinates there."""
        own = self.given[one.name[1]]
        others = sites_of(self.net, [own.kind])
        if own.coordinates is not None:
            width = self.net.cfg.d_head if own.kind == "z" else self.net.cfg.d_model
            drawn = torch.randperm(width, generator=derived_generator(self.seed, "coordinates", *one.name))
            others = [replace(own, coordinates=tuple(drawn[: len(own.coordinates)].tolist()))]
        found = [mean_agreement(self.answers(one, site, place), one.judged, self.pairs.scoring)[0] for site in others]
        return float(np.mean(found))

    def run(self, name: str) -> list[Float[np.ndarray, "site place half measure"]]:
        """`accuracies` of all hypotheses, with progress."""
        with Count(name, len(self.hypotheses)) as count:
            found = []
            for one in self.hypotheses:
                found.append(self.accuracies(one))
                count.one()
        return found

    def learn(
        self, one: Hypothesis, accuracy: Float[np.ndarray, "site place half measure"], *, shuffled: bool = False
    ) -> tuple[int, int, Int[Tensor, "at pair target"]]:
        """Site, place and answers of the subspace, learned on the pairs that select, that works best on them.

        Args:
            one: The variable; it must have one value for each example.
            accuracy: Of whole interchanges, to choose where to learn.
            shuffled: Learn it from the predictions for other pairs and shuffled values, as a control.
        """
        score = np.nan_to_num(accuracy[:, :, 0].min(-1), nan=-1)
        order = np.argsort(-score, axis=None, kind="stable")[:LEARNED_AT]
        values = torch.cat([part.values[one.name[1]] for part in self.outcomes[one.name[0]]])
        n_values, best = len(values.unique()), None
        for flat in order.tolist():
            site, place = divmod(flat, score.shape[1])
            generator = derived_generator(self.seed, "subspace", *one.name, str(self.sites[site]), place)
            means = self.span_of_means(one, self.sites[site], self.places[place], generator if shuffled else None)
            rank, half = min(n_values - 1, MOST_DIMENSIONS), len(self.pairs) // 2
            random = torch.randn(len(means), rank, generator=generator)
            basis = learned_basis(
                self.engine, self.sites[site], self.places[place], one.judged,
                start=torch.cat([means, random], 1)[:, :rank], choices=self.choices,
                order=torch.randperm(half, generator=generator) if shuffled else None,
            )  # fmt: skip
            answers = self.engine.answers(self.sites[site], self.places[place], self.read, SubspaceInterchange(basis))[
                None
            ]
            own = min(mean_agreement(answers, one.judged, self.pairs.selecting))
            if best is None or own > best[0]:
                best = own, site, place, answers
        assert best is not None
        return best[1:]
