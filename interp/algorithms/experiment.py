"""Interchanges of variables in one model: its answers, at any site and place, and what is counted of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.interventions.clean_pass import Net
from hooks.model.layers import take
from interp.algorithms.algorithm import Algorithm, Computation
from interp.algorithms.learned import MOST_DIMENSIONS, learned_basis
from interp.algorithms.placebo import NONE, Candidates, placebo_sources
from interp.algorithms.predictions import Computations, Pairs, Prediction, answered_right, predict
from interp.algorithms.result import OWN
from interp.core.activations import chunks
from interp.core.devices import device_of
from interp.core.interchange import Edit, Interchange, Place, Rows, Site, SiteKind, sequences_per_pass, swap_whole
from interp.core.randomness import derived_generator
from interp.probing.directions import span_of_differences
from interp.tasks.base import Batch, Task
from interp.tasks.batch import likeliest

Search = Literal["auto", "whole", "means", "oblique", "learned"]
Interchanged = Literal["whole", "means", "oblique", "read", "learned"]
"""What an interchange moves; `read` is what an oblique one reads."""
SPANS: tuple[Interchanged, ...] = ("means", "oblique")
"""Searches that interchange the span of the means of a variable's values."""
SAME = 1e-4
"""Activations that differ by less than this share of their norm are the same: nothing is interchanged."""


@dataclass(frozen=True)
class Setup:
    """What the trained and the untrained model are tested on."""

    task: Task
    algorithms: tuple[Algorithm, ...]
    """The algorithm that is tested, then its rivals."""
    pairs: Pairs
    computations: Computations
    candidates: Candidates
    candidate_computations: Mapping[str, Computation]
    """What each algorithm computes on the candidates."""
    inputs: Batch
    """Inputs as they come, or all inputs, on which answers are compared."""
    stated_sites: Mapping[str, Site]
    """Site of each variable by name; empty if all sites are searched."""
    seed: int

    def scores(self, logits: Float[Tensor, "batch target d_vocab_out"]) -> Float[Tensor, "batch target choice"]:
        """Scores of the possible answers."""
        choices = self.algorithms[0].choices
        return logits if choices is None else choices(logits)

    def read_answers(self, logits: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """Answers from logits."""
        if self.algorithms[0].choices is None:
            return self.task.answers(logits)
        return likeliest(self.scores(logits))


@dataclass(frozen=True)
class Hypothesis:
    """A variable of an algorithm: what is predicted, and on which of these answers the model is judged."""

    prediction: Prediction
    judged: Prediction
    placebo: Int[Tensor, "at pair"]
    """Candidate with which the answers that must change must not; -1 where there is none."""

    @property
    def name(self) -> tuple[str, str]:
        """Names of the algorithm and of the variable."""
        return self.prediction.name

    @property
    def per_position(self) -> bool:
        return self.prediction.variable.per_position


@dataclass(frozen=True)
class PlaceboAnswers:
    """Answers with placebo sources."""

    answers: Int[Tensor, "at pair target"]
    expected: Int[Tensor, "at pair target"]
    """Those of the algorithm, which are its answers to the base inputs."""
    counted: Bool[Tensor, "at pair target"]
    """Those that must change with the pair's own source, and now must not; not those of sources that the model answers
    wrongly, nor of those that have the base's activations."""
    n_same: int
    """Placebo sources that have the base's activations."""


@dataclass(frozen=True)
class Spot:
    """What is interchanged, and where."""

    search: Interchanged
    """`whole`: the activation; `means`: the span of the means of the values; `oblique`: the same, projected along the
    variation of all else; `read`: what that one reads; `learned`: a learned subspace."""
    site: Site
    place: int
    """Index of the place; 0 for a variable with a value at each position, which is at its own."""
    basis: Float[Tensor, "width rank"] | None = field(default=None, compare=False)
    """The learned subspace."""


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
        self.clean = self._clean_answers(self.pairs.base_inputs)[self.pairs.rows.base]
        """The model's answers to the base input of each pair."""
        source_answers = self._clean_answers(self.pairs.source_inputs)
        self.answers_to_inputs = self._clean_answers(setup.inputs)
        """The model's answers to inputs as they come."""
        clean = self.clean, source_answers[self.pairs.rows.source]
        self.hypotheses = [
            self._hypothesis(algorithm, variable.name, None if judge_all else clean)
            for algorithm in setup.algorithms
            for variable in algorithm.variables
        ]
        # Placebo sources that are not among the sources of the pairs are further inputs, after these.
        self._sources = [self.pairs.source_inputs]
        self._source_row, self._source_answers = torch.arange(len(source_answers)), source_answers
        if not setup.candidates.are_sources:
            self._add_candidates(source_answers)
        self._engines: dict[SiteKind, Interchange] = {}
        self.places = self._places(setup.task.places)
        """The places of the task, for variables with one value for each example."""
        self.positions = self._places(lambda batch: Task.places(setup.task, batch))
        """Every position, for variables with a value at each."""
        self._whole_answers: dict[tuple, Int[Tensor, "pair target"]] = {}
        self._edits: dict[tuple, Edit] = {}

    def _clean_answers(self, inputs: Batch) -> Int[Tensor, "input target"]:
        """The model's answers with nothing interchanged."""
        answers = []
        for chunk in chunks(inputs, sequences_per_pass(inputs)):
            with torch.no_grad():
                on_device = chunk.to(device_of(self.net))
                options: dict[str, Any] = on_device.model_inputs()
                logits = take(self.net(on_device.tokens, **options), on_device.target_positions)
                if not logits[on_device.present].isfinite().all():
                    raise ValueError("model gives logits that are not finite, from which no answer can be read.")
                answers.append(self.setup.read_answers(logits).cpu())
        return torch.cat(answers)

    def _add_candidates(self, source_answers: Int[Tensor, "source target"]) -> None:
        """Make the candidates that are placebo sources further source inputs."""
        chosen = torch.cat([hypothesis.placebo.flatten() for hypothesis in self.hypotheses]).unique()
        chosen = chosen[chosen != NONE]
        self._source_row = torch.full((len(self.setup.candidates.batch),), NONE)
        self._source_row[chosen] = len(source_answers) + torch.arange(len(chosen))
        if len(chosen):
            further = self.setup.candidates.batch.select(chosen)
            self._sources.append(further)
            self._source_answers = torch.cat([source_answers, self._clean_answers(further)])

    def engine(self, kind: SiteKind) -> Interchange:
        """The interchanges at a kind of site; activations are recorded when it is first asked for."""
        if kind not in self._engines:
            self._engines[kind] = Interchange(self.net, self.pairs.base_inputs, self._sources, [kind])
        return self._engines[kind]

    def _places(self, places_of: Callable[[Batch], Mapping[str, Tensor]]) -> list[Place]:
        """The places that base and source inputs have."""
        base = places_of(self.pairs.base_inputs)
        sources = [places_of(batch) for batch in self._sources]
        names = [name for name in base if all(name in source for source in sources)]
        return [Place(name, base[name], torch.cat([source[name] for source in sources])) for name in names]

    def _hypothesis(
        self, algorithm: Algorithm, variable: str, clean: tuple[Int[Tensor, "_ _"], Int[Tensor, "_ _"]] | None
    ) -> Hypothesis:
        """What is predicted for a variable, and judged if the model gives these answers with nothing interchanged."""
        setup = self.setup
        computations = setup.computations[algorithm.name]
        prediction = predict(algorithm, algorithm[variable], setup.task, self.pairs, computations)
        judged = prediction if clean is None else answered_right(prediction, computations, clean)
        computed = setup.candidate_computations[algorithm.name]
        placebo = placebo_sources(judged, self.pairs, computations[0], setup.candidates, computed)
        return Hypothesis(prediction, judged, placebo)

    def answers(self, hypothesis: Hypothesis, spot: Spot, pairs: slice) -> Int[Tensor, "at pair target"]:
        """The model's answers in some of the pairs, with the variable's activations interchanged.

        Pairs in which no answer counts may have the clean answers.
        """
        if not hypothesis.per_position:
            return self._answers_at(hypothesis, 0, spot, self.places[spot.place], pairs)[None]
        # At each position at which the interchange changes an answer; elsewhere the clean answers do.
        answers = self.clean[pairs].expand(len(self.positions), -1, -1).clone()
        for position in hypothesis.judged.changed[:, pairs].any(2).any(1).nonzero()[:, 0].tolist():
            answers[position] = self._answers_at(hypothesis, position, spot, self.positions[position], pairs)
        return answers

    def _answers_at(
        self, hypothesis: Hypothesis, position: int, spot: Spot, place: Place, pairs: slice
    ) -> Int[Tensor, "pair target"]:
        engine = self.engine(spot.site.kind)
        rows = self.pairs.rows.select(pairs)
        # A whole interchange is the same for all variables, and is computed once.
        if spot.search == "whole":
            key = spot.site, place.name, pairs.start, pairs.stop
            if key not in self._whole_answers:
                self._whole_answers[key] = engine.answers(spot.site, place, rows, self.setup.read_answers)
            return self._whole_answers[key]
        # A subspace is that of one variable, in the pairs that say something about it.
        judged = hypothesis.judged
        informative = (judged.changed | judged.unchanged)[position, pairs].any(-1).nonzero()[:, 0]
        answers = self.clean[pairs].clone()
        edit = self._edit(hypothesis, spot, place)
        answers[informative] = engine.answers(spot.site, place, rows.select(informative), self.setup.read_answers, edit)
        return answers

    def placebo_answers(self, hypothesis: Hypothesis, spot: Spot, pairs: slice) -> PlaceboAnswers:
        """The model's answers with placebo sources, in some of the pairs."""
        changed = hypothesis.judged.changed[:, pairs]
        answers = self.clean[pairs].expand_as(changed).clone()
        counted = torch.zeros_like(changed)
        n_same = 0
        engine = self.engine(spot.site.kind)
        for position in changed.any(2).any(1).nonzero()[:, 0].tolist():
            place = self.positions[position] if hypothesis.per_position else self.places[spot.place]
            candidates = hypothesis.placebo[position, pairs]
            with_source = (candidates != NONE).nonzero()[:, 0]
            if not len(with_source):
                continue
            # Sources with other activations than the base's.
            rows = Rows(self.pairs.rows.base[pairs][with_source], self._source_row[candidates[with_source]])
            base, source = engine.activations(spot.site, place, rows)
            is_other = (source - base).norm(dim=1) > SAME * base.norm(dim=1)
            n_same += int((~is_other).sum())
            pairs_with_other = is_other.nonzero()[:, 0]
            rows, with_source = rows.select(pairs_with_other), with_source[pairs_with_other]
            if not len(rows):
                continue
            edit = self._edit(hypothesis, spot, place)
            answers[position, with_source] = engine.answers(spot.site, place, rows, self.setup.read_answers, edit)
            is_right = self._answered_right(hypothesis, candidates[with_source])
            counted[position, with_source] = changed[position, with_source] & is_right
        computation, _ = self.setup.computations[hypothesis.name[0]]
        return PlaceboAnswers(answers, computation.answers[pairs].expand_as(answers), counted, n_same)

    def _answered_right(self, hypothesis: Hypothesis, candidates: Int[Tensor, " row"]) -> Bool[Tensor, "row target"]:
        """Whether placebo sources are answered as the algorithm does; all of them if the variable is an input."""
        expected = self.setup.candidate_computations[hypothesis.name[0]].answers[candidates]
        if hypothesis.prediction.variable.is_input:
            return torch.ones_like(expected, dtype=torch.bool)
        return self._source_answers[self._source_row[candidates]] == expected

    def _edit(self, hypothesis: Hypothesis, spot: Spot, place: Place) -> Edit:
        """What an interchange sets the activations to."""
        if spot.search == "whole":
            return swap_whole
        # takes a second to import
        from transformer_lens.tools.analysis.interchange import SubspaceInterchange

        if spot.basis is not None:
            return SubspaceInterchange(spot.basis)
        key = spot.search, hypothesis.name, spot.site, place.name
        if key not in self._edits:
            self._edits[key] = self._edit_of_span(hypothesis, spot, place)
        return self._edits[key]

    def _edit_of_span(self, hypothesis: Hypothesis, spot: Spot, place: Place) -> Edit:
        """An interchange in the span of a variable's means, or in what an oblique one reads."""
        from transformer_lens.tools.analysis.interchange import SubspaceInterchange

        if spot.search == "means":
            return SubspaceInterchange(self.span_of_means(hypothesis, spot.site, place))
        writes, reads = self.oblique_spans(hypothesis, spot.site, place)
        if spot.search == "read":
            return SubspaceInterchange(torch.linalg.qr(reads)[0])
        return lambda base, source: base + (source - base) @ reads.to(base) @ writes.T.to(base)

    def n_places(self, hypothesis: Hypothesis) -> int:
        """Places at which a variable is looked for; a value at each position is only at its own."""
        return 1 if hypothesis.per_position else len(self.places)

    def place_name(self, hypothesis: Hypothesis, place: int) -> str:
        return OWN if hypothesis.per_position else self.places[place].name

    def span_of_means(
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
        _, effects, _ = self._effects(hypothesis, site, place, shuffle)
        return span_of_differences(effects)

    def _effects(
        self, hypothesis: Hypothesis, site: Site, place: Place, shuffle: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "pair value"], Float[Tensor, "value width"], Float[Tensor, "pair width"]]:
        """How values change within the pairs that select, their mean effects, and how activations change."""
        # Values of the variable, and activations, in base and source.
        selecting = self.pairs.selecting
        base, source = self.engine(site.kind).activations(site, place, self.pairs.rows.select(selecting))
        values = self._values(hypothesis, place)[:, selecting]
        if shuffle is not None:
            values = values[:, torch.randperm(values.shape[1], generator=shuffle)]
        # Least squares: the difference of activations is the difference of the effects of the two values.
        _, classes = values.unique(return_inverse=True)
        before, after = F.one_hot(classes).double()
        changes, difference = after - before, (source - base).double()
        return changes, torch.linalg.pinv(changes) @ difference, difference

    def oblique_spans(
        self, hypothesis: Hypothesis, site: Site, place: Place
    ) -> tuple[Float[Tensor, "width rank"], Float[Tensor, "width rank"]]:
        """Where an oblique interchange of a variable writes, and where it reads, on the pairs that select sites.

        An orthogonal interchange in the span of the means also moves whatever else varies along it, such as a variable
        whose direction is not orthogonal. This one writes the same means, but reads where nothing else varies: with
        means U, and covariance C of what differs within pairs beyond the variable, by C⁻¹U, scaled so that it reads
        from U what was written.

        Returns:
            U, and what reads it, whose product is the identity.

        Source: Fisher's linear discriminant, and the oblique projection of LEACE, Belrose et al. 2023
        (arXiv:2306.03819), which is the same if C has the variable's own variance too. Differs: C is that of
        differences within pairs, with a ridge of its mean variance times width over number of pairs, as there may be
        fewer pairs than coordinates.
        """
        changes, effects, difference = self._effects(hypothesis, site, place)
        writes = span_of_differences(effects).double()
        if not writes.shape[1]:  # it makes no difference here
            return writes.float(), writes.float()
        remaining = difference - changes @ effects
        n, width = remaining.shape
        covariance = remaining.T @ remaining / n
        ridge = max(float(covariance.diagonal().mean()) * width / n, SAME**2 * float(difference.square().mean()))
        discriminant = torch.linalg.solve(covariance + ridge * torch.eye(width).double(), writes)
        reads = discriminant @ torch.linalg.inv(writes.T @ discriminant)
        return writes.float(), reads.float()

    def _values(self, hypothesis: Hypothesis, place: Place) -> Int[Tensor, "two pair"]:
        """Values of the variable in the base and in the source inputs."""
        algorithm, variable = hypothesis.name
        base, source = self.setup.computations[algorithm]
        values = torch.stack([base.values[variable], source.values[variable]])
        if hypothesis.per_position:
            return values[:, :, int(place.name)]
        return values

    def random_coordinates(self, hypothesis: Hypothesis, site: Site) -> Site:
        """As many random coordinates as a stated site has."""
        width = self.net.cfg.d_head if site.kind == "z" else self.net.cfg.d_model
        generator = derived_generator(self.setup.seed, "coordinates", *hypothesis.name)
        coordinates = torch.randperm(width, generator=generator)[: len(site.coordinates or ())]
        return replace(site, coordinates=tuple(coordinates.tolist()))

    def learn(self, hypothesis: Hypothesis, spots: Sequence[Spot], *, shuffled: bool = False) -> list[Spot]:
        """Learn a subspace at each of several spots, on the pairs that select.

        Args:
            hypothesis: The variable; it must have one value for each example.
            spots: Where.
            shuffled: Learn it from the predictions for other pairs and shuffled values, as a control.

        Returns:
            The same spots, at which the learned subspace is interchanged from now on.
        """
        learned = []
        n_selecting = self.pairs.selecting.stop
        for spot in spots:
            place = self.places[spot.place]
            generator = derived_generator(self.setup.seed, "subspace", *hypothesis.name, str(spot.site), spot.place)
            # Start from the means of the variable's values, with random directions where these are too few.
            means = self.span_of_means(hypothesis, spot.site, place, shuffle=generator if shuffled else None)
            rank = min(len(self._values(hypothesis, place).unique()) - 1, MOST_DIMENSIONS)
            random_directions = torch.randn(len(means), rank, generator=generator, dtype=torch.float32)
            start = torch.cat([means, random_directions], 1)[:, :rank]
            order = torch.randperm(n_selecting, generator=generator) if shuffled else None
            basis = learned_basis(
                self.engine(spot.site.kind),
                spot.site,
                place,
                self.pairs.rows.select(self.pairs.selecting),
                hypothesis.judged,
                start=start,
                scores=self.setup.scores,
                order=order,
            )
            learned.append(replace(spot, search="learned", basis=basis))
        return learned
