"""Interchanges of variables at every site and place of one model, scored against the predictions of algorithms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.tools.analysis.interchange import SubspaceInterchange

from hooks.interventions.ablation_engine import Net
from interp.algorithms.algorithm import Algorithm
from interp.algorithms.learned import MOST_DIMENSIONS, learned_basis
from interp.algorithms.predictions import Computations, Pairs, Prediction, answered_right, mean_agreement, predict
from interp.algorithms.result import OWN
from interp.core.interchange import Interchange, Place, Site, SiteKind, sites_of, swap_whole
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.probing.directions import span_of_differences
from interp.tasks.base import Task

Accuracies = Float[np.ndarray, "site place half measure"]
"""Shares of answers as predicted, at every site and place."""
SELECTED, SCORED, CHANGED, UNCHANGED = 0, 1, 0, 1
"""Indices of `Accuracies`: pairs that select and that score, answers that change and others."""
LEARNED_AT = 3
"""Sites and places, those at which a whole interchange works best, at which a subspace is learned for each variable."""


@dataclass(frozen=True)
class Setup:
    """What the trained and the untrained model are tested on."""

    task: Task
    algorithms: tuple[Algorithm, ...]
    """The algorithm that is tested, then its rivals."""
    pairs: Pairs
    computations: Computations
    kinds: tuple[SiteKind, ...]
    stated_sites: Mapping[str, Site]
    """Site of each variable by name; empty if all sites are searched."""
    search: str
    seed: int

    def scores(self, logits: Float[Tensor, "batch target d_vocab_out"]) -> Float[Tensor, "batch target choice"]:
        """Scores of the possible answers."""
        choices = self.algorithms[0].choices
        return logits if choices is None else choices(logits)

    def read_answers(self, logits: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """Answers from logits."""
        if self.algorithms[0].choices is None:
            return self.task.answers(logits)
        return self.scores(logits).argmax(-1)


@dataclass(frozen=True)
class Hypothesis:
    """A variable of an algorithm: what is predicted, and on which of these answers the model is judged."""

    prediction: Prediction
    judged: Prediction

    @property
    def name(self) -> tuple[str, str]:
        """Names of the algorithm and of the variable."""
        return self.prediction.name

    @property
    def per_position(self) -> bool:
        return self.prediction.variable.per_position


class Experiment:
    """One model on the pairs of inputs.

    Args:
        net: The model. It is not changed.
        setup: What it is tested on.
        judge_all: Whether answers count which the model does not give rightly: for untrained models, which give none.
    """

    def __init__(self, net: Net, setup: Setup, *, judge_all: bool = False):
        self.net = net
        self.setup = setup
        self.pairs = setup.pairs
        self.engine = Interchange(net, self.pairs.base, self.pairs.source, setup.kinds)
        self.clean = setup.read_answers(self.engine.logits).cpu(), setup.read_answers(self.engine.source_logits).cpu()
        """The model's answers to the base and to the source inputs."""
        self.sites = list(dict.fromkeys(setup.stated_sites.values())) or sites_of(net, setup.kinds)
        self.places = _places(setup.task.places(self.pairs.base), setup.task.places(self.pairs.source))
        """The places of the task, for variables with one value for each example."""
        base_positions = Task.places(setup.task, self.pairs.base)  # the default of all tasks: a place per position
        self.positions = _places(base_positions, Task.places(setup.task, self.pairs.source))
        """Every position, for variables with a value at each."""
        self.hypotheses = [
            self._hypothesis(algorithm, variable.name, judge_all)
            for algorithm in setup.algorithms
            for variable in algorithm.variables
        ]
        self._answers: dict[tuple, Int[Tensor, "pair target"]] = {}

    def _hypothesis(self, algorithm: Algorithm, variable: str, judge_all: bool) -> Hypothesis:
        computations = self.setup.computations[algorithm.name]
        prediction = predict(algorithm, algorithm[variable], self.setup.task, self.pairs, computations)
        judged = prediction if judge_all else answered_right(prediction, computations, self.clean)
        return Hypothesis(prediction, judged)

    def accuracies(self, name: str) -> list[Accuracies]:
        """Accuracies of all hypotheses, with progress under a name."""
        with Count(name, len(self.hypotheses)) as count:
            accuracies = []
            for hypothesis in self.hypotheses:
                accuracies.append(self._accuracies(hypothesis))
                count.advance()
        return accuracies

    def _accuracies(self, hypothesis: Hypothesis) -> Accuracies:
        n_places = 1 if hypothesis.per_position else len(self.places)
        accuracies = np.full((len(self.sites), n_places, 2, 2), np.nan)
        # Nothing to measure without an answer that changes, or away from a stated site.
        if not hypothesis.judged.changed[:, self.pairs.selecting].any():
            return accuracies
        stated_site = self.setup.stated_sites.get(hypothesis.name[1])
        for index, site in enumerate(self.sites):
            if stated_site not in (None, site):
                continue
            for place in range(n_places):
                answers = self.answers(hypothesis, site, place)
                accuracies[index, place, SELECTED] = mean_agreement(answers, hypothesis.judged, self.pairs.selecting)
                accuracies[index, place, SCORED] = mean_agreement(answers, hypothesis.judged, self.pairs.scoring)
        return accuracies

    def answers(self, hypothesis: Hypothesis, site: Site, place: int) -> Int[Tensor, "at pair target"]:
        """The model's answers with the variable's activations interchanged at a site and place."""
        if not hypothesis.per_position:
            return self._answers_at(hypothesis, site, self.places[place])[None]
        # At each position at which the interchange changes an answer; elsewhere the clean answers do.
        answers = self.clean[0].expand(len(self.positions), -1, -1).clone()
        for position in hypothesis.judged.changed.any(2).any(1).nonzero()[:, 0].tolist():
            answers[position] = self._answers_at(hypothesis, site, self.positions[position])
        return answers

    def _answers_at(self, hypothesis: Hypothesis, site: Site, place: Place) -> Int[Tensor, "pair target"]:
        """The model's answers after one interchange, each computed once."""
        # A whole interchange is the same for all variables; a subspace is that of one variable.
        of_one_variable = self.setup.search == "means"
        key = (hypothesis.name if of_one_variable else None, site, place.name)
        if key not in self._answers:
            edit = swap_whole
            if of_one_variable:
                edit = SubspaceInterchange(self._span_of_means(hypothesis, site, place))
            self._answers[key] = self.engine.answers(site, place, self.setup.read_answers, edit)
        return self._answers[key]

    def place_name(self, hypothesis: Hypothesis, place: int) -> str:
        return OWN if hypothesis.per_position else self.places[place].name

    def _span_of_means(
        self, hypothesis: Hypothesis, site: Site, place: Place, shuffle: torch.Generator | None = None
    ) -> Float[Tensor, "width rank"]:
        """The subspace that the mean effects of the variable's values span, on the pairs that select sites.

        Effects are fitted by least squares to the differences within pairs, so that what both inputs share cancels.
        With unrelated inputs they are the means of each value, up to a constant.

        Args:
            hypothesis: The variable.
            site: Where.
            place: At which positions.
            shuffle: If given, values are shuffled between pairs first, as a control.
        """
        # Values of the variable, and activations, in base and source.
        rows = self.pairs.selecting
        base, source = self.engine.activations(site, place)
        values = self._values(hypothesis, place)[:, rows]
        if shuffle is not None:
            values = values[:, torch.randperm(values.shape[1], generator=shuffle)]
        # Least squares: the difference of activations is the difference of the effects of the two values.
        _, classes = values.unique(return_inverse=True)
        before, after = F.one_hot(classes).double()
        effects = torch.linalg.pinv(after - before) @ (source - base)[rows].double()
        return span_of_differences(effects)

    def _values(self, hypothesis: Hypothesis, place: Place) -> Int[Tensor, "two pair"]:
        """Values of the variable in the base and in the source inputs."""
        algorithm, variable = hypothesis.name
        base, source = self.setup.computations[algorithm]
        values = torch.stack([base.values[variable], source.values[variable]])
        if hypothesis.per_position:
            return values[:, :, int(place.name)]
        return values

    def elsewhere(self, hypothesis: Hypothesis, place: int) -> float:
        """Accuracy on the pairs that score at all sites of a stated site's kind, or at random coordinates there."""
        stated_site = self.setup.stated_sites[hypothesis.name[1]]
        if stated_site.coordinates is None:
            sites = sites_of(self.net, [stated_site.kind])
        else:
            width = self.net.cfg.d_head if stated_site.kind == "z" else self.net.cfg.d_model
            generator = derived_generator(self.setup.seed, "coordinates", *hypothesis.name)
            coordinates = torch.randperm(width, generator=generator)[: len(stated_site.coordinates)]
            sites = [replace(stated_site, coordinates=tuple(coordinates.tolist()))]
        accuracies = []
        for site in sites:
            answers = self.answers(hypothesis, site, place)
            accuracies.append(mean_agreement(answers, hypothesis.judged, self.pairs.scoring)[CHANGED])
        return float(np.mean(accuracies))

    def learn(
        self, hypothesis: Hypothesis, accuracies: Accuracies, *, shuffled: bool = False
    ) -> tuple[int, int, Int[Tensor, "at pair target"]]:
        """Site, place and answers of the subspace, learned on the pairs that select, that works best on them.

        Args:
            hypothesis: The variable; it must have one value for each example.
            accuracies: Of whole interchanges, to choose where to learn.
            shuffled: Learn it from the predictions for other pairs and shuffled values, as a control.
        """
        # The sites and places at which a whole interchange works best.
        score = np.nan_to_num(accuracies[:, :, SELECTED].min(-1), nan=-1)
        order = np.argsort(-score, axis=None, kind="stable")[:LEARNED_AT]
        # Learn a subspace at each, and take the one that works best.
        candidates = []
        for index in order.tolist():
            site, place = divmod(index, score.shape[1])
            answers = self._learned_answers(hypothesis, self.sites[site], place, shuffled=shuffled)
            accuracy = min(mean_agreement(answers, hypothesis.judged, self.pairs.selecting))
            candidates.append((accuracy, site, place, answers))
        _, site, place, answers = max(candidates, key=lambda candidate: candidate[0])
        return site, place, answers

    def _learned_answers(
        self, hypothesis: Hypothesis, site: Site, place_index: int, *, shuffled: bool
    ) -> Int[Tensor, "at pair target"]:
        """Answers after an interchange of the subspace that is learned at a site and place."""
        place = self.places[place_index]
        generator = derived_generator(self.setup.seed, "subspace", *hypothesis.name, str(site), place_index)
        # Start from the means of the variable's values, with random directions where these are too few.
        means = self._span_of_means(hypothesis, site, place, shuffle=generator if shuffled else None)
        rank = min(len(self._values(hypothesis, place).unique()) - 1, MOST_DIMENSIONS)
        random_directions = torch.randn(len(means), rank, generator=generator)
        start = torch.cat([means, random_directions], 1)[:, :rank]
        order = torch.randperm(len(self.pairs) // 2, generator=generator) if shuffled else None
        basis = learned_basis(
            self.engine, site, place, hypothesis.judged, start=start, scores=self.setup.scores, order=order
        )
        return self.engine.answers(site, place, self.setup.read_answers, SubspaceInterchange(basis))[None]


def _places(base: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> list[Place]:
    """The places that both inputs have."""
    return [Place(name, base[name], source[name]) for name in base if name in source]
