"""The fewest edges that keep a task: found by removal, and judged as a whole on other sequences."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float

from hooks.checks import check_number, shown
from hooks.files import user_path, write_json, write_text
from hooks.interventions.ablation_engine import part_points
from hooks.interventions.bridge_circuit_engine import BridgeCircuitEngine
from hooks.interventions.circuit_engine import BLOCKS_WITH_CIRCUITS, CircuitEngine
from hooks.interventions.clean_pass import Net
from hooks.randomness import usable_seed
from hooks.typed import COUNT, DIFFERENCE, DISTINCT, MAY_BE_MISSING, POSITIVE_COUNT, ROUNDING, SHARE, Axes
from interp.core.consistency import check_lost_accuracy, check_same_numbers, check_that
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.intervals import Interval
from interp.core.results import Result, table_lines
from interp.core.sample import Sample
from interp.core.statistics import EQUAL, drop_interval, pooled_interval
from interp.heads.circuit_json import circuit_json
from interp.heads.experiment import Edit, Experiment
from interp.heads.interventions import Intervention
from interp.heads.part_names import Part, check_edges, named_part
from interp.tasks.base import Task
from interp.tasks.splits import EveryInput

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from interp.view.circuit import DrawnEdge
    from interp.view.html import PageIdentity

MODEL, CIRCUIT, WITHOUT, MAGNITUDE, NOTHING = (
    "whole model",
    "circuit",
    "without the circuit",
    "largest single costs, same size",
    "no edge",
)
SETS = (MODEL, CIRCUIT, WITHOUT, MAGNITUDE, NOTHING)
N_SUBSETS, N_RANDOM = 8, 8
"""Random halves of a circuit on which it is compared with the model; random circuits of the same size."""
Answer = Literal["yes", "no", "undecided"]


@dataclass(frozen=True, kw_only=True)
class CircuitResult(Result):
    """A circuit: edges of a model that do its task while every other edge is replaced.

    It was found on one half of the sequences; all figures are from the other half. The independent units of every
    interval are distinct inputs. With every input (`n="all"`) it was found and measured on all of them, and the
    intervals are exact.
    """

    method: str
    """What replaced edges carry."""
    senders: Annotated[tuple[str, ...], Axes("edge")]
    """The part that writes, of every edge of the model."""
    receivers: Annotated[tuple[str, ...], Axes("edge")]
    """The input that reads."""
    cost: Annotated[Float[np.ndarray, " edge"], DIFFERENCE, MAY_BE_MISSING]
    """Accuracy lost without each edge alone, largest over judged outcomes (`interp.edges`)."""
    in_circuit: Annotated[Bool[np.ndarray, " edge"], Axes("edge")]
    """Which edges are in the circuit."""
    outcomes: Annotated[tuple[str, ...], Axes("outcome"), DISTINCT]
    chances: Annotated[tuple[float, ...], Axes("outcome"), SHARE]
    """Accuracy of uniform guessing."""
    judged: Annotated[tuple[bool, ...], Axes("outcome")]
    """Outcomes on which the model is above chance, which the circuit was found by."""
    faithful: Annotated[float, SHARE]
    """Share of the accuracy above chance that a circuit has to keep."""
    sets: Annotated[tuple[str, ...], Axes("set"), DISTINCT]
    """Sets of edges that were kept: the whole model, the circuit, the model without the circuit, the edges with the
    largest single costs, no edge, and random circuits of the same size."""
    performs: Annotated[Interval, Axes("set outcome"), SHARE, MAY_BE_MISSING]
    """Accuracy with only these edges, with its 95 % interval."""
    lost: Annotated[Interval, Axes("outcome"), DIFFERENCE, MAY_BE_MISSING]
    """Accuracy of the model minus that of the circuit, on the same sequences."""
    left_over: Annotated[Interval, Axes("outcome"), DIFFERENCE, MAY_BE_MISSING]
    """Accuracy of the model without the circuit minus that with no edge at all."""
    lost_without: Annotated[Interval, Axes("circuit_edge outcome"), DIFFERENCE, MAY_BE_MISSING]
    """For each edge of the circuit: accuracy of the model minus that of the circuit without this edge."""
    gaps: Annotated[Interval, Axes("subset outcome"), DIFFERENCE, MAY_BE_MISSING]
    """For random halves of the circuit: accuracy of the model without them minus that of the circuit without them."""
    without_halves: Annotated[Interval, Axes("pair subset outcome"), SHARE, MAY_BE_MISSING]
    """Accuracy of the model, and of the circuit, without each half."""
    n_by_cost: Annotated[int, COUNT]
    """Number of edges with the largest single costs that are needed to keep as much, on the sequences of the search."""
    n_found: Annotated[int, COUNT]
    """Number of edges that the search left; the circuit has fewer if it may have `at_most` fewer."""
    n_tried: Annotated[int, COUNT]
    """Sets of edges that the search tried."""
    shape: Annotated[tuple[int, int, int], POSITIVE_COUNT]
    """Number of layers, of heads per layer, and width of the stream."""
    n: Annotated[int, COUNT]
    """Sequences, of which half find the circuit; or the number of all inputs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_edges(self.senders, self.receivers, self.shape)
        check_that(self.sets[: len(SETS)] == SETS, f"sets is {shown(self.sets)}; it must begin with {', '.join(SETS)}.")
        # The circuit is what the search left of the edges with the largest single costs
        n_members = int(self.in_circuit.sum())
        n_lost = len(self.lost_without)
        check_that(n_lost == n_members, f"lost_without is of {n_lost} edges; in_circuit has {n_members}.")
        sizes = (n_members, self.n_found, self.n_by_cost, len(self.cost))
        text = (
            f"in_circuit has {sizes[0]} edges, n_found is {sizes[1]} and n_by_cost {sizes[2]} of {sizes[3]}: they grow."
        )
        check_that(sorted(sizes) == list(sizes), text)
        least = np.sort(self.cost)[::-1][: self.n_by_cost].min(initial=np.inf)
        for name, cost in zip(self.names, self.cost[self.in_circuit], strict=True):
            text = f"in_circuit has {name}, whose cost {cost:g} is none of the {self.n_by_cost} largest."
            check_that(np.isnan(cost) or cost >= least - ROUNDING, text)
        # An edge into a part whose own edges are replaced changes nothing, so the search does not leave it
        members = [edge for edge, is_member in zip(self._edges(), self.in_circuit, strict=True) if is_member]
        writing = {(sender.layer, sender.head) for sender, _ in members}
        for name, (_, receiver) in zip(self.names, members, strict=True):
            is_read = receiver.kind == "read-out" or (receiver.layer, receiver.head) in writing
            text = f"in_circuit has {name}, but no edge from there: the search leaves none that leads to no answer."
            check_that(is_read or n_members < self.n_found, text)
        # Differences of the accuracies
        accuracy = dict(zip(self.sets, self.performs.value, strict=True))
        lost, left_over = accuracy[MODEL] - accuracy[CIRCUIT], accuracy[WITHOUT] - accuracy[NOTHING]
        check_same_numbers("lost", self.lost.value, lost, "the difference of performs")
        check_same_numbers("left_over", self.left_over.value, left_over, "the difference of performs")
        of_model, of_circuit = self.without_halves.value
        check_same_numbers("gaps", self.gaps.value, of_model - of_circuit, "the difference of without_halves")
        check_lost_accuracy("lost_without", self.lost_without.value, accuracy[MODEL])

    def _edges(self) -> list[tuple[Part, Part]]:
        return [
            (named_part(sender), named_part(receiver))
            for sender, receiver in zip(self.senders, self.receivers, strict=True)
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the edges of the circuit."""
        names = []
        for sender, receiver, is_member in zip(self.senders, self.receivers, self.in_circuit, strict=True):
            if is_member:
                names.append(f"{sender} > {receiver}")
        return tuple(names)

    @property
    def is_faithful(self) -> Answer:
        """Whether the circuit keeps as much of the accuracy above chance as asked for, on every judged outcome."""
        return _at_most(self.lost, self._tolerated, np.array(self.judged))

    @property
    def is_complete(self) -> Answer:
        """Whether the model without the circuit keeps no more than what is tolerated of the accuracy above chance, and
        model and circuit without the same half of the circuit differ by no more than that, on every judged outcome.

        A difference counts if the better of the two is above chance: below it both have lost the task.
        """
        judged, tolerated, chance = np.array(self.judged), self._tolerated, np.array(self.chances)
        answers = [_at_most(self.left_over, tolerated, judged)]
        for index in range(len(self.gaps)):
            low, high = self.gaps.low[index], self.gaps.high[index]
            above_chance = (self.without_halves.low[:, index] > chance).any(0)
            both_at_chance = (self.without_halves.high[:, index] <= chance + tolerated).all(0)
            differs = ((low > tolerated + EQUAL) | (high < -tolerated - EQUAL)) & above_chance
            is_close = (high <= tolerated + EQUAL) & (low >= -tolerated - EQUAL)
            if differs[judged].any():
                answers.append("no")
            else:
                answers.append("yes" if (is_close | both_at_chance)[judged].all() else "undecided")
        return "no" if "no" in answers else "undecided" if "undecided" in answers else "yes"

    @property
    def n_needed(self) -> int:
        """Edges of the circuit without which it is shown to be unfaithful on some judged outcome."""
        too_much = self.lost_without.low > self._tolerated
        if self.lost_without.exact:
            too_much = self.lost_without.value > self._tolerated + EQUAL
        return int((too_much & np.array(self.judged)).any(1).sum())

    @property
    def _tolerated(self) -> Float[np.ndarray, " outcome"]:
        """Loss of accuracy that a faithful circuit may have."""
        above_chance = self.performs.value[0] - np.array(self.chances)
        return (1 - self.faithful) * np.maximum(np.nan_to_num(above_chance), 0)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per set of edges and outcome."""
        axes = {"set": self.sets, "outcome": self.outcomes}
        return self._table(axes, **self.performs.columns("performs"), n=np.full(self.performs.shape, self.n_measured))

    @property
    def n_measured(self) -> int:
        """Sequences behind each figure."""
        return self.n if self.performs.exact else self.n // 2

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy with only the edges of each set."""
        from interp.view.charts import dots

        title = f"{len(self.names)} of {len(self.senders)} edges, others set to {self.method}, n = {self.n_measured}"
        return dots(self.to_dataframe(), x="outcome", y="performs", series="set", title=title)

    def svg(self) -> str:
        """The circuit as a graph: layers from the bottom up, an edge as wide as its cost alone."""
        from interp.view.circuit import circuit_svg

        return str(circuit_svg(self._drawn_edges(), n_layers=self.shape[0]))

    def save_page(self, path: str | Path, *, identity: "PageIdentity | None" = None) -> Path:
        """Write the circuit as a page that opens offline: the graph, and the numbers of the edge that is clicked.

        Args:
            path: The HTML file.
            identity: What the page is about, for its heading: `interp.core.page_identity`.
        """
        from interp.view.circuit import circuit_page

        rows = [["edges that are kept", *self.outcomes]]
        for index, name in enumerate(self.sets):
            rows.append([name, *(self.performs[index, outcome].text() for outcome in range(len(self.outcomes)))])
        title = f"A circuit of {len(self.names)} of {len(self.senders)} edges"
        html = circuit_page(
            self._drawn_edges(),
            n_layers=self.shape[0],
            title=title,
            sentences=self.sentences(),
            rows=rows,
            identity=identity,
        )
        write_text(path, html)
        return user_path(path)

    def _drawn_edges(self) -> "list[DrawnEdge]":
        from interp.view.circuit import DrawnEdge

        drawn_edges = []
        for row, index in enumerate(np.flatnonzero(self.in_circuit)):
            numbers = [f"alone it costs {self.cost[index]:.3f} of accuracy"]
            for outcome, name in enumerate(self.outcomes):
                lost = self.lost_without[row, outcome].text()
                numbers.append(f"without it the circuit lacks {lost} of {name}")
            drawn_edges.append(
                DrawnEdge(
                    sender=self.senders[index],
                    receiver=self.receivers[index],
                    cost=float(self.cost[index]),
                    text="; ".join(numbers),
                )
            )
        return drawn_edges

    def save_circuit(self, path: str | Path) -> None:
        """Write the circuit in the JSON of EAP-IG's graphs, which the circuit track of MIB (Mueller et al. 2025) reads.

        `score` is the cost of an edge alone.
        """
        edges = list(zip(self.senders, self.receivers, self.cost.tolist(), self.in_circuit.tolist(), strict=True))
        write_json(path, circuit_json(edges, shape=self.shape))

    def sentences(self) -> list[str]:
        """The circuit, what was shown of it, and what the search did not try."""
        minimal = f"shown for {self.n_needed} of them"
        if self.is_faithful == "no":
            minimal = "not judged, since the circuit is not faithful"
        verdicts = f"Faithful: {self.is_faithful}. Complete: {self.is_complete}. Minimal: {minimal}."
        search = (
            f"On the sequences of the search, the {self.n_by_cost} edges with the largest single costs keep "
            f"{self.faithful:g} of the accuracy above chance or more. The search removed edges from them, one or "
            f"several at a time, and tried {self.n_tried} sets."
        )
        if self.n_found > len(self.names):
            search += f" Of the {self.n_found} edges that it left, those with the largest single costs are the circuit."
        else:
            search += " On its sequences no single further edge can go; smaller circuits of other edges were not tried."
        return [f"The circuit has {len(self.names)} of {len(self.senders)} edges. {verdicts}", search]

    def __str__(self) -> str:
        rows = [["edges that are kept", *self.outcomes]]
        for index, name in enumerate(self.sets):
            rows.append([name, *(performs.text() for performs in self.performs[index])])
        lines = table_lines(rows)
        half = self.n // 2
        sequences = f"found on {half} sequences, measured on {half}{repeats_text(half, int(np.max(self.performs.n)))}"
        if self.performs.exact:
            sequences = f"found and measured on {all_inputs_text(self.n)}"
        lines.append(f"accuracy; other edges set to {self.method}; {sequences}")
        return "\n".join([*lines, *self.sentences(), *self.names])


def _at_most(lost: Interval, tolerated: np.ndarray, judged: np.ndarray) -> Answer:
    """Whether a loss is at most what is tolerated, on every judged outcome."""
    low, high = lost.low[judged], lost.high[judged]
    if (low > tolerated[judged] + EQUAL).any():
        return "no"
    return "yes" if (high <= tolerated[judged] + EQUAL).all() else "undecided"


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Right answers and scored answers of each sequence, and the mean loss, with some edges only."""

    right: Float[np.ndarray, "sequence outcome"]
    total: Float[np.ndarray, "sequence outcome"]
    loss: float

    @property
    def accuracy(self) -> Float[np.ndarray, " outcome"]:
        return self.right.sum(0) / np.maximum(self.total.sum(0), 1e-300)


class EdgeSets:
    """Scores of a model with only some of its edges, on some sequences; each set is measured once."""

    def __init__(self, model: Net, sample: Sample, intervention: Intervention):
        self.sample, self.intervention = sample, intervention
        engine_class: Any = CircuitEngine if model.resumes_inside_layers else BridgeCircuitEngine
        points = tuple(part_points(model))
        self.experiment = Experiment(model, sample, engine=engine_class, points=points, keeps_runs=True)
        self._scores: dict[bytes, Scores] = {}

    def __len__(self) -> int:
        """Number of sets that were measured."""
        return len(self._scores)

    def scores(self, sets: Iterable[Bool[np.ndarray, " edge"]]) -> list[Scores]:
        """Scores with only the edges of each set."""
        sets = list(sets)
        new_sets = {edges.tobytes(): edges for edges in sets if edges.tobytes() not in self._scores}
        if new_sets:
            edits = [Edit(torch.from_numpy(~edges), self.intervention) for edges in new_sets.values()]
            effects = self.experiment.run(edits)
            for index, key in enumerate(new_sets):
                right, loss = effects.after[:, index, 0], float(effects.after[:, index, 1].sum())
                self._scores[key] = Scores(right=right, total=effects.total, loss=loss)
        return [self._scores[edges.tobytes()] for edges in sets]


def find_circuit(
    edges: Any,
    model: Net,
    task: Task,
    *,
    at_most: int | None,
    faithful: float,
    n: int | EveryInput,
    seed: int,
) -> CircuitResult:
    """The circuit of `EdgesResult.circuit`, which has the arguments and errors."""
    # Of a wrapped model, edges exist only if its inputs are sums over parts
    if model.capabilities is None:
        _check_block(model.cfg)
    if not edges.every_edge:
        raise ValueError(
            "these are edges between layers, or only some edges; a circuit needs every edge between parts: "
            "interp.edges(model, task).circuit()."
        )
    judged = np.isfinite(edges.threshold)
    if not judged.any():
        raise ValueError("the model is not above chance on any outcome, so there is no task to keep. Train it first.")
    check_number("faithful", faithful, low=0.0, high=1.0)
    n_edges = len(edges.names)
    if at_most is not None:
        check_number("at_most", at_most, integer=True, low=1, high=n_edges)
    sample = Sample.of(task, n, seed=seed, name="circuit", low=16)
    searching, measuring = sample.halves()
    search = EdgeSets(model, searching, edges.intervention)
    # Search on one half; then judge on the other one
    chances = np.array(task.chances)
    (clean,) = search.scores([np.ones(n_edges, dtype=bool)])
    if not (clean.accuracy > chances)[judged].all():
        before = ", ".join(f"{accuracy:.2f}" for accuracy in edges.clean[judged])
        now = ", ".join(f"{accuracy:.2f}" for accuracy in clean.accuracy[judged])
        raise ValueError(
            f"the model is not above chance on the sequences of the search: its accuracy is {now} there, and was "
            f"{before} when its edges were measured. Give more sequences (n is {n!r}), or, if the model has changed, "
            f"call interp.edges again."
        )
    least = clean.accuracy - (1 - faithful) * (clean.accuracy - chances)

    def keeps_enough(scores: Scores) -> bool:
        return bool((scores.accuracy >= least - EQUAL)[judged].all())

    by_cost = _fewest_by_cost(search, edges.order, keeps_enough)
    circuit = _without_unneeded(search, by_cost, keeps_enough)
    n_found = int(circuit.sum())
    if at_most is not None and n_found > at_most:
        circuit = _members([index for index in edges.order if circuit[index]][:at_most], n_edges)
    measured = search if sample.exact else EdgeSets(model, measuring, edges.intervention)
    return _judged(
        measured,
        edges,
        circuit,
        judged,
        faithful=faithful,
        n_by_cost=int(by_cost.sum()),
        n_found=n_found,
        n_tried=len(search),
        seed=seed,
        n=len(sample),
        shape=(model.cfg.n_layers, model.cfg.n_heads, model.cfg.d_model),
    )


def _members(indices: Any, n_edges: int) -> Bool[np.ndarray, " edge"]:
    """A set of edges from their indices."""
    members = np.zeros(n_edges, dtype=bool)
    members[list(indices)] = True
    return members


def _check_block(cfg: Any) -> None:
    """Raise ValueError unless every head is learned and every input is a sum over parts."""
    has_sums = cfg.block in BLOCKS_WITH_CIRCUITS
    if has_sums and not any(map(cfg.patterns_of, range(cfg.n_layers))):
        return
    hardcoded = " and hard-coded heads" if has_sums else ""
    raise ValueError(
        f"the model has the block {cfg.block!r}{hardcoded}; a circuit needs learned heads and inputs that are sums "
        f"over parts: {', '.join(BLOCKS_WITH_CIRCUITS)}."
    )


def _fewest_by_cost(
    search: EdgeSets, order: Sequence[int], keeps_enough: Callable[[Scores], bool]
) -> Bool[np.ndarray, " edge"]:
    """The fewest edges with the largest single costs that keep enough, by bisection; all edges if no fewer do.

    More edges are taken to keep more: where that fails, the number is one that is enough, and not the fewest.
    """
    enough, too_few = len(order), -1
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        (scores,) = search.scores([_members(order[:middle], len(order))])
        enough, too_few = (middle, too_few) if keeps_enough(scores) else (enough, middle)
    return _members(order[:enough], len(order))


def _without_unneeded(
    search: EdgeSets, circuit: Bool[np.ndarray, " edge"], keeps_enough: Callable[[Scores], bool]
) -> Bool[np.ndarray, " edge"]:
    """Edges after removing others as long as enough is kept: at the end no single edge can go.

    In each round every edge is removed alone. Those that can go alone are then removed together, the least costly half,
    quarter, ... of them if not all can go.
    """
    while True:
        members = np.flatnonzero(circuit)
        without = [circuit & (np.arange(len(circuit)) != index) for index in members]
        scores = search.scores(without)
        removable = [
            (of_edge.loss, index) for of_edge, index in zip(scores, members, strict=True) if keeps_enough(of_edge)
        ]
        if not removable:
            return circuit
        # The least costly first
        candidates = [int(index) for _, index in sorted(removable)]
        size = len(candidates)
        while size > 1:
            (together,) = search.scores([circuit & ~_members(candidates[:size], len(circuit))])
            if keeps_enough(together):
                break
            size //= 2
        circuit = circuit & ~_members(candidates[:size], len(circuit))


def _stacked(intervals: Sequence[Interval]) -> Interval:
    """Intervals of one shape, along a new first axis."""
    ends = {end: np.stack([getattr(interval, end) for interval in intervals]) for end in ("value", "low", "high")}
    return Interval(**ends, n=intervals[0].n, exact=intervals[0].exact)


def _judged(
    measured: EdgeSets,
    edges: Any,
    circuit: Bool[np.ndarray, " edge"],
    judged: Bool[np.ndarray, " outcome"],
    **fields: Any,
) -> CircuitResult:
    """The circuit on the sequences that judge it: against other sets of edges, without each edge, and by halves."""
    n_edges, members = len(circuit), np.flatnonzero(circuit)
    every_edge = np.ones(n_edges, dtype=bool)
    generator = np.random.default_rng(usable_seed(fields["seed"]))
    random_sets = [_members(generator.permutation(n_edges)[: len(members)], n_edges) for _ in range(N_RANDOM)]
    sets = {
        MODEL: every_edge,
        CIRCUIT: circuit,
        WITHOUT: every_edge & ~circuit,
        MAGNITUDE: _members(edges.order[: len(members)], n_edges),
        NOTHING: ~every_edge,
    } | {f"random {index}": members_of_set for index, members_of_set in enumerate(random_sets)}
    sample = measured.sample
    scores = measured.scores(sets.values())
    by_name = dict(zip(sets, scores, strict=True))
    total = by_name[MODEL].total[:, None]

    def accuracies(of_sets: Sequence[Scores]) -> Interval:
        right = np.stack([of_set.right for of_set in of_sets], 1)
        return sample.estimate(right, np.broadcast_to(total, right.shape).copy(), pooled_interval)

    def lost(before: Scores, after: Scores) -> Float[np.ndarray, "sequence outcome"]:
        return before.right - after.right

    without_edge = measured.scores([circuit & (np.arange(n_edges) != index) for index in members])
    lost_without = [lost(by_name[MODEL], of_edge) for of_edge in without_edge]
    # Model and circuit without the same random half of the circuit
    gaps, halves = [], []
    for _ in range(N_SUBSETS):
        subset = _members(generator.permutation(members)[: -(-len(members) // 2)], n_edges)
        of_model, of_circuit = measured.scores([every_edge & ~subset, circuit & ~subset])
        gaps.append(lost(of_model, of_circuit))
        halves.append((of_model, of_circuit))

    def interval(values: Sequence[Float[np.ndarray, "sequence outcome"]]) -> Interval:
        stacked = np.stack([*values], 1) if values else np.zeros((len(sample), 0, total.shape[-1]))
        return sample.estimate(stacked, total, drop_interval)

    costs = np.where(judged, np.nan_to_num(edges.drop.value, nan=-1.0), -1.0).max(1)
    del fields["seed"]
    return CircuitResult(
        method=edges.method,
        senders=edges.senders,
        receivers=edges.receivers,
        cost=costs,
        in_circuit=circuit,
        outcomes=tuple(sample.task.outcomes),
        chances=tuple(sample.task.chances),
        judged=tuple(judged.tolist()),
        sets=tuple(sets),
        performs=accuracies(scores),
        lost=interval([lost(by_name[MODEL], by_name[CIRCUIT])])[0],
        left_over=interval([lost(by_name[WITHOUT], by_name[NOTHING])])[0],
        lost_without=interval(lost_without),
        gaps=interval(gaps),
        without_halves=_stacked([accuracies(of_sets) for of_sets in zip(*halves, strict=True)]),
        **fields,
    )
