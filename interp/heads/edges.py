"""Which edges are needed? The cost of replacing what one part of a model gives to one input of another, for every
edge, exactly."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from hooks.checks import check_choice, check_names, shown
from hooks.interventions.ablation_engine import Head
from hooks.interventions.bridge_edge_engine import BridgeEdgeEngine
from hooks.interventions.clean_pass import Net
from hooks.interventions.edge_engine import Edge, EdgeEngine, edge_name
from hooks.interventions.layer_edge_engine import LayerEdgeEngine
from hooks.state import restores_state
from hooks.typed import (
    COUNT,
    DIFFERENCE,
    DISTINCT,
    MAY_BE_INFINITE,
    MAY_BE_MISSING,
    POSITIVE_COUNT,
    ROUNDING,
    SHARE,
    Axes,
    checks_types,
)
from interp.core.consistency import check_lost_accuracy, check_same_numbers, check_that
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.intervals import Interval
from interp.core.results import MOST_LINES, NOT_SAVED, Result, table_lines
from interp.core.sample import Sample
from interp.core.statistics import EQUAL, SHARE_THAT_COUNTS, check_level, drop_interval, drop_tests, holm, mean_interval
from interp.core.verbs import STREAM, AnyModel, Needs, prepare_model, without_sums
from interp.core.weight_sums import subject_key, weight_sums
from interp.heads.circuit import CircuitResult, find_circuit
from interp.heads.experiment import Edit, Effects, Experiment
from interp.heads.interventions import Intervention, intervention_of_parts
from interp.heads.part_names import check_edges
from interp.tasks.base import Batch, Task
from interp.tasks.splits import EveryInput

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Verdict = Literal["needed", "harmless", "undecided"]
MANY_EDGES = 10_000
"""Number of edges beyond which a warning says how long they take."""
MOST_NUMBERS = 1 << 24
"""Largest number of elements of the streams with each part replaced, of which about a dozen copies are in memory: 64 MB
each in single precision."""


search_circuit = restores_state(find_circuit)


@dataclass(frozen=True, kw_only=True)
class EdgesResult(Result):
    """What replacing each edge costs, and which edges are needed.

    An edge is *needed* if replacing it alone costs more than a fifth of the accuracy above chance on some outcome, at
    the level `alpha` over all edges and outcomes together; *harmless* if it costs less on all of them, at the same
    level; else *undecided*. An edge that is harmless alone may be needed together with others.

    The independent units of every interval are distinct inputs. With every input of the task (`n="all"`) the intervals
    are exact, and no edge is undecided unless the model is at chance.
    """

    method: str
    """What the sender writes instead: zero, its mean, or what it writes for another input (`resample`)."""
    senders: Annotated[tuple[str, ...], Axes("edge")]
    """What writes: `embedding` (tokens and positions), a head (`0.1`), an MLP (`0 MLP`, with bias), or `layer 0`."""
    receivers: Annotated[tuple[str, ...], Axes("edge")]
    """What reads: queries, keys or values of a head (`1.0 q`, `1.0 k`, `1.0 v`), `1 MLP`, `layer 1`, `read-out`."""
    outcomes: Annotated[tuple[str, ...], Axes("outcome"), DISTINCT]
    """Names of the accuracies."""
    clean: Annotated[Float[np.ndarray, " outcome"], SHARE, MAY_BE_MISSING]
    """Accuracy of the model on the same sequences."""
    threshold: Annotated[Float[np.ndarray, " outcome"], SHARE, MAY_BE_MISSING]
    """Loss of accuracy that counts; missing where the model is not above chance, which no edge is judged by."""
    drop: Annotated[Interval, Axes("edge outcome"), DIFFERENCE, MAY_BE_MISSING]
    """Drop in accuracy, as a fraction, with a conservative 95 % interval over inputs; negative where accuracy rises."""
    loss_rise: Annotated[Interval, Axes("edge outcome"), MAY_BE_INFINITE]
    """Rise of the task's loss (nats, or squared error), with its 95 % t interval over inputs."""
    p_needed: Annotated[Float[np.ndarray, " edge"], SHARE]
    """One-sided p value of "it costs at most the threshold on every outcome", Holm-corrected over all edges."""
    p_harmless: Annotated[Float[np.ndarray, " edge"], SHARE]
    """One-sided p value of "it costs at least the threshold on some outcome", Holm-corrected over all edges."""
    random_drop: Annotated[Float[np.ndarray, "edge outcome"], DIFFERENCE, MAY_BE_MISSING]
    """The control: mean drop of all other edges into the same input. Missing for an input with one edge only."""
    alpha: Annotated[float, SHARE]
    """Level over all edges."""
    shape: Annotated[tuple[int, int], POSITIVE_COUNT]
    """Number of layers and of heads per layer of the model."""
    n: Annotated[int, COUNT]
    """Sequences sampled, or all that there are."""
    every_edge: bool = True
    """Whether these are all edges between parts: False with `between="layers"` or `within`."""
    weights: tuple[float, ...] = ()
    """`weight_sums` of the model, by which other results of the same model are known."""
    subject: str = ""
    """`subject_key` of the model and the task."""
    model: Any = field(default=None, repr=False, metadata=NOT_SAVED)
    """The model; None in a loaded result."""
    task: Any = field(default=None, repr=False, metadata=NOT_SAVED)
    """The task; None in a loaded result."""
    intervention: Any = field(default=None, repr=False, metadata=NOT_SAVED)
    """The method; None in a loaded result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_edges(self.senders, self.receivers, self.shape)
        check_lost_accuracy("drop", self.drop.value, self.clean)
        of_others = _mean_of_others(self.drop.value, self.receivers)
        check_same_numbers("random_drop", self.random_drop, of_others, "the mean drop of the other edges into an input")
        too_high = self.threshold > SHARE_THAT_COUNTS * self.clean + ROUNDING
        check_that(not too_high.any(), f"threshold is {shown(self.threshold.tolist())}, above a fifth of clean.")
        # No edge is shown to cost more and to cost less; an edge with a verdict costs accordingly
        largest = np.nan_to_num(self.drop.value - self.threshold, nan=-np.inf).max(1, initial=-np.inf)
        for index, name in enumerate(self.names):
            p_needed, p_harmless = self.p_needed[index], self.p_harmless[index]
            both = f"p_needed is {p_needed:g} and p_harmless {p_harmless:g} of {name}"
            # Where a drop is at the threshold, both are about a half; elsewhere one of them is larger
            check_that(max(p_needed, p_harmless) >= 0.25, f"{both}: both cannot be small.")
            excess = f"{both}, which costs {largest[index]:+g} beyond the threshold."
            check_that(p_needed > self.alpha or largest[index] > -ROUNDING, excess)
            check_that(p_harmless > self.alpha or largest[index] < ROUNDING, excess)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each edge: `embedding > 0.1 q`."""
        return tuple(edge_name(*edge) for edge in zip(self.senders, self.receivers, strict=True))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict on each edge."""
        verdicts: list[Verdict] = []
        for p_needed, p_harmless in zip(self.p_needed, self.p_harmless, strict=True):
            if p_needed <= self.alpha:
                verdicts.append("needed")
            else:
                verdicts.append("harmless" if p_harmless <= self.alpha else "undecided")
        return tuple(verdicts)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the needed edges, the most costly first."""
        verdicts = self.verdicts
        return tuple(self.names[index] for index in self.order if verdicts[index] == "needed")

    def needed_of(self, head: Head) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the needed edges into the inputs of a head, and of those from it to later inputs.

        Args:
            head: (layer, head).

        Raises:
            ValueError: a head that the model does not have.
        """
        n_layers, n_heads = self.shape
        if not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads):
            raise ValueError(
                f"head is {head}; these are edges of a model with layers 0 to {n_layers - 1} with heads 0 to "
                f"{n_heads - 1}."
            )
        name = f"{head[0]}.{head[1]}"
        edges_in = tuple(edge for edge in self.needed if edge.partition(" > ")[2].startswith(f"{name} "))
        edges_out = tuple(edge for edge in self.needed if edge.startswith(f"{name} > "))
        return edges_in, edges_out

    @property
    def order(self) -> list[int]:
        """Indices of the edges by their cost, the most costly first: the largest drop on a judged outcome, then the
        rise of the loss."""
        judged = np.isfinite(self.threshold) if np.isfinite(self.threshold).any() else np.isfinite(self.clean)
        drop = np.nan_to_num(self.drop.value[:, judged], nan=-np.inf).max(1, initial=-np.inf)
        loss = np.nan_to_num(self.loss_rise.value[:, judged]).sum(1)
        return np.lexsort((-loss, -drop)).tolist()

    def circuit(
        self,
        *,
        at_most: int | None = None,
        faithful: float = 0.95,
        n: int | EveryInput = 512,
        seed: int = 0,
    ) -> CircuitResult:
        """Search the fewest edges that keep the task while all others are replaced, and judge them as a whole.

        The fewest edges by their single costs come first; from these, edges are removed with re-measurement until none
        can go alone. On other sequences the circuit is then compared with the model, with its complement, with random
        circuits, and with as many edges by their single costs.

        Args:
            at_most: Largest number of edges; of a larger circuit those with the largest single costs, which then may
                keep less than `faithful`.
            faithful: Share of the accuracy above chance that the circuit keeps on every judged outcome.
            n: Number of sequences: half of them find the circuit, the other half judge it. "all": every input, for
                both, without sampling error.
            seed: Determines the sequences.

        Raises:
            ValueError: a loaded result, edges between layers or only some edges, a model at chance, hard-coded
                heads, a block whose inputs are no sums over parts, or a hook inside a layer.
        """
        if self.model is None:
            raise ValueError("this result was loaded and has no model; call interp.edges(model, task) again.")
        return search_circuit(self, self.model, self.task, at_most=at_most, faithful=faithful, n=n, seed=seed)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per edge and outcome."""
        axes = {"edge": self.names, "outcome": self.outcomes}
        columns = {"sender": np.array(self.senders), "receiver": np.array(self.receivers)}
        columns |= {"verdict": np.array(self.verdicts)}
        columns |= self.drop.columns("drop") | self.loss_rise.columns("loss_rise", "loss_low", "loss_high")
        columns |= {"clean": np.broadcast_to(self.clean, self.drop.shape)}
        return self._table(axes, "random_drop", "p_needed", "p_harmless", **columns, n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Sender x receiver map of the largest drop over outcomes; empty where there is no edge."""
        from interp.view.charts import heatmaps

        senders, receivers = list(dict.fromkeys(self.senders)), list(dict.fromkeys(self.receivers))
        cells = np.full((len(senders), len(receivers)), np.nan)
        largest = np.nan_to_num(self.drop.value, nan=-np.inf).max(1)
        for sender, receiver, drop in zip(self.senders, self.receivers, largest, strict=True):
            cells[senders.index(sender), receivers.index(receiver)] = drop
        within = "exact" if self.drop.exact else f"95 % within ±{self.drop.half_width:.2f}"
        return heatmaps(
            {f"{len(self.needed)} of {len(self.names)} edges are needed": cells},
            x=receivers,
            x_title="input",
            y=senders,
            y_title="part",
            title=f"accuracy lost where a part's output is set to {self.method} for one input, n = {self.n} ({within})",
            value="drop",
            domain=(-1.0, 1.0),
        )

    def sentences(self) -> list[str]:
        """The result in sentences: how many edges are needed, and which into each input."""
        counts = {verdict: self.verdicts.count(verdict) for verdict in ("needed", "harmless", "undecided")}
        level = "" if self.drop.exact else f" at level {self.alpha:g} over all"
        sentences = [
            f"{counts['needed']} of {len(self.names)} edges are needed, {counts['harmless']} are harmless, "
            f"{counts['undecided']} are undecided{level}."
        ]
        if not np.isfinite(self.threshold).any():
            best = np.nanmax(self.clean) if np.isfinite(self.clean).any() else np.nan
            return [f"The model is not above chance on any outcome (at most {best:.2f}): no edge is judged."]
        parts_by_input: dict[str, list[str]] = {}
        for name in self.needed:
            sender, _, receiver = name.partition(" > ")
            parts_by_input.setdefault(receiver, []).append(sender)
        for receiver in dict.fromkeys(self.receivers):
            if receiver in parts_by_input:
                sentences.append(f"{_input_in_words(receiver)} need {', '.join(parts_by_input[receiver])}.")
        return sentences

    def __str__(self) -> str:
        verdicts, order = self.verdicts, self.order[:MOST_LINES]
        rows = [["edge", "verdict", *self.outcomes]]
        # Accuracy lost, one line per edge
        for index in order:
            rows.append([self.names[index], verdicts[index], *(drop.text() for drop in self.drop[index])])
        rows.append(["accuracy of the model", "", *(f"{value:.3f}" for value in self.clean)])
        rows.append(["loss that counts", "", *(f"{value:.3f}" for value in self.threshold)])
        lines = table_lines(rows, n_left=2)
        if len(self.names) > len(order):
            lines.insert(1 + len(order), f"{len(self.names) - len(order)} edges that cost no more")
        sequences = f"{self.n} sequences{repeats_text(self.n, int(np.max(self.drop.n)))}, 95 % intervals"
        if self.drop.exact:
            sequences = all_inputs_text(self.n)
        lines += [f"accuracy lost where the part's output is set to {self.method} for one input; {sequences}"]
        return "\n".join([*lines, *self.sentences()])


NEEDS = Needs(
    "edges",
    reads=["blocks.0.hook_resid_pre", "attn.hook_z", "attn.W_O"],
    edits=["hook_resid_post"],
    answers=True,
    sums="heads",
    split_inputs=True,
)
NEEDS_BETWEEN_LAYERS = Needs(
    "edges between layers",
    reads=["hook_attn_out"],
    edits=STREAM,
    answers=True,
    sums="layers",
    lacks=without_sums(
        "between is 'layers', but the model's block is {block}, whose layers do not add to the residual stream. Blocks "
        "that do: pre_ln, no_norm. Use between='parts', with within= for some of the edges."
    ),
)


@checks_types
@restores_state
def edges(
    model: AnyModel,
    task: Task,
    *,
    method: Literal["mean", "zero", "resample", "counterpart"] | Intervention = "mean",
    between: Literal["parts", "layers"] = "parts",
    within: Sequence[str] | None = None,
    n: int | EveryInput = 256,
    alpha: float = 0.05,
    seed: int = 0,
) -> EdgesResult:
    """Replace what each part of a model gives to each later input, one edge at a time, and measure what that costs.

    A part is the embedding, a head or an MLP; an input is that of the queries, keys or values of a head, of an MLP, or
    of the read-out. Layers that share weights are separate parts. The input gets the residual stream in which the part
    wrote something else, while all other parts on the way wrote what they do otherwise, and norms are computed anew;
    all other inputs are those of an untouched pass until what this one changes arrives. Nothing is estimated by
    gradients: every edge takes a pass, which starts in the layer of the input.

    Args:
        model: A `hooks` transformer with any block, causal or bidirectional; or a wrapped model whose layers add to the
            stream, at a full pass per edge: between parts a TransformerLens bridge whose inputs can be split, between
            layers any (`supported_verbs`). It is not changed.
        task: Source of the sequences and their labels.
        method: What the part writes instead: its `mean` over 256 other sequences, position by position; `zero`; or what
            it writes for one of them, `resample`.
        between: `parts`, or whole `layers`: all parts of a layer as one that writes, and all their inputs as one that
            reads. A model of 12 layers of 12 heads has about 32,000 edges between parts, and 91 between layers.
        within: Names of edges between layers (`layer 0 > layer 2`) whose parts to look at, or of edges between parts
            (`0.1 > 1.0 q`, `0.1 > layer 1`): only these are measured, and the level is that over these. If None, all.
        n: Number of held-out sequences; distinct ones are the independent units of every interval. "all": every input
            of the test split once, without sampling error; the mean is over these, and `resample` pairs them.
        alpha: Level of the verdicts, over all edges together.
        seed: Determines sequences and references.

    Warns:
        UserWarning: more than 10,000 edges, with how long they take.

    Raises:
        ValueError: an unknown method, too few sequences, names that are no edges, edges between layers that do not add
            to the stream; a model with hooks inside its layers, or, between parts, a wrapped one without split inputs.

    Source: path patching of single edges (Goldowsky-Dill et al. 2023, arXiv:2304.05969), which ACDC (Conmy et al. 2023,
    arXiv:2304.14997) repeats and EAP (Syed et al. 2023, arXiv:2310.10348) estimates. Differs: exact for every edge,
    with intervals and a level over all of them; an effect is a loss of accuracy.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> result = interp.edges(lego_loop(task), task, n=64)
        >>> len(result.names), len(result.needed), result.needed[-1]
        (100, 15, '0 MLP > read-out')
    """
    check_choice("between", between, Literal["parts", "layers"])
    net = prepare_model(model, NEEDS_BETWEEN_LAYERS if between == "layers" else NEEDS, task)
    intervention = intervention_of_parts(method, task)
    check_level(alpha)
    check_names("within", within)
    if between == "layers" and within is not None:
        raise ValueError("within chooses among edges between parts, but between is 'layers'. Omit one of them.")
    sample = Sample.of(task, n, seed=seed, name="edges")
    net.eval()
    effects = edge_effects(net, sample, intervention, *_engine_and_edges(net, sample.batch, between, within))
    result = _result(effects, net, sample, intervention, alpha=alpha)
    return replace(result, every_edge=between == "parts" and within is None)


def _engine_and_edges(
    model: Net, batch: Batch, between: str, within: Sequence[str] | None
) -> tuple[type[EdgeEngine] | type[LayerEdgeEngine], Sequence[Edge] | None]:
    """The engine of edges between parts or layers, and the edges within some, None for all; warns of many."""
    if between == "layers":
        return LayerEdgeEngine, None
    engine_class: Any = EdgeEngine if model.resumes_inside_layers else BridgeEdgeEngine
    first = batch.select(slice(0, 1))
    start = perf_counter()
    all_edges = engine_class(model, first.tokens, **first.model_inputs()).edges
    seconds = perf_counter() - start
    chosen = None
    if within is not None:
        chosen = list(dict.fromkeys(edge for name in within for edge in _edges_within(name, all_edges)))
    n_edges = len(all_edges) if chosen is None else len(chosen)
    if n_edges > MANY_EDGES:
        # An edge takes about half a pass, of a wrapped model a whole one
        n_passes = n_edges // 2 if model.resumes_inside_layers else n_edges
        minutes = n_passes * seconds * len(batch) / 60
        warnings.warn(
            f"{n_edges:,} edges take about {n_passes:,} passes over {len(batch)} sequences, at most {minutes:,.0f} "
            f"minutes here. Measure between layers first, then the parts of the needed pairs: layers = "
            f"interp.edges(model, task, between='layers'); interp.edges(model, task, within=layers.needed).",
            stacklevel=4,
        )
    return engine_class, chosen


def _edges_within(name: str, edges: Sequence[Edge]) -> list[Edge]:
    """The edges between parts that a name means: of layers, of parts, or of one and the other.

    Raises:
        ValueError: there is none.
    """
    sender_name, _, receiver_name = name.partition(" > ")

    def is_named(node: Any, chosen_name: str) -> bool:
        is_in_layer = node.layer >= 0 and str(node) != "read-out" and chosen_name == f"layer {node.layer}"
        return is_in_layer or chosen_name == str(node)

    chosen = [edge for edge in edges if is_named(edge[0], sender_name) and is_named(edge[1], receiver_name)]
    if not chosen:
        raise ValueError(
            f"within has {name!r}, which is no edge of this model; give names such as 'layer 0 > layer 1', "
            f"'{edge_name(*edges[0])}' or '{edge_name(*edges[-1])}'."
        )
    return chosen


@dataclass(frozen=True, kw_only=True)
class EdgeEffects:
    """What each edge loses on every sequence."""

    edges: Sequence[tuple[Any, Any]]
    effects: Effects


def edge_effects(
    model: Net,
    sample: Sample,
    intervention: Intervention,
    engine: type[EdgeEngine] | type[LayerEdgeEngine] = EdgeEngine,
    chosen: Sequence[Edge] | None = None,
) -> EdgeEffects:
    """Replace each edge, or each of the chosen ones."""
    options = {} if chosen is None else {"chosen": {edge_name(*edge) for edge in chosen}}
    # A chunk has rows of the stream for every part that writes
    n_rows = model.cfg.n_layers * (model.cfg.n_heads + 1) + 2
    experiment = Experiment(
        model,
        sample,
        engine=engine,
        options=options,
        points=tuple(engine.written_points(model)),
        most_tokens=MOST_NUMBERS // (n_rows * model.cfg.d_model),
    )
    first = sample.batch.select(slice(0, 1))
    edges = engine(model, first.tokens, **options, **first.model_inputs()).edges
    effects = experiment.run([Edit(edge, intervention) for edge in edges], name="replacing edges")
    return EdgeEffects(edges=edges, effects=effects)


def thresholds(
    right: Float[np.ndarray, "input outcome"],
    total: Float[np.ndarray, "input outcome"],
    chances: Sequence[float],
    *,
    alpha: float,
    every_input: bool,
) -> Float[np.ndarray, " outcome"]:
    """Loss of accuracy that counts on each outcome; NaN where the model is not above chance at level alpha."""
    chance = np.array(chances)
    clean = right.sum(0) / np.maximum(total.sum(0), 1e-300)
    # A drop from the right answers to none, with chance as the threshold
    p, _ = drop_tests(right, total, chance)
    is_above = clean > chance + EQUAL if every_input else p * len(chance) <= alpha
    return np.where(is_above & (total.sum(0) > 0), SHARE_THAT_COUNTS * np.maximum(clean - chance, 0), np.nan)


def p_values(
    drop: Float[np.ndarray, "input edge outcome"],
    total: Float[np.ndarray, "input outcome"],
    threshold: Float[np.ndarray, " outcome"],
    *,
    every_input: bool,
) -> tuple[Float[np.ndarray, " edge"], Float[np.ndarray, " edge"]]:
    """p values of "it costs at most the threshold on every outcome" and of "at least the threshold on some outcome".

    The first is corrected for the number of outcomes, both are for the number of edges. With every input they are 0 or
    1.
    """
    judged = np.isfinite(threshold)
    n_edges = drop.shape[1]
    if not judged.any():
        return np.ones(n_edges), np.ones(n_edges)
    drop, total, threshold = drop[..., judged], total[:, judged], threshold[judged]
    if every_input:
        is_larger: Bool[np.ndarray, "edge outcome"] = drop.sum(0) / total.sum(0) > threshold + EQUAL
        is_needed = is_larger.any(1)
        return np.where(is_needed, 0.0, 1.0), np.where(is_needed, 1.0, 0.0)
    p_larger, p_smaller = drop_tests(drop, total[:, None], threshold)
    p_of_some = np.minimum(p_larger.min(1) * judged.sum(), 1)
    return holm(p_of_some), holm(p_smaller.max(1))


def _result(
    measured: EdgeEffects, model: Net, sample: Sample, intervention: Intervention, *, alpha: float
) -> EdgesResult:
    """Intervals, tests and the control from the effects on each sequence."""
    task, effects = sample.task, measured.effects
    total, lost = sample.by_input(effects.total), effects.lost
    clean = sample.by_input(effects.clean[:, 0])
    drop_by_input = sample.by_input(lost[:, :, 0])
    threshold = thresholds(clean, total, task.chances, alpha=alpha, every_input=sample.exact)
    p_needed, p_harmless = p_values(drop_by_input, total, threshold, every_input=sample.exact)
    # Conservative intervals of the drop; exact without sampling error
    weight = effects.total[:, None]
    drop = sample.estimate(lost[:, :, 0], weight, drop_interval)
    loss_rise = sample.estimate(-lost[:, :, 1], weight, mean_interval)
    receivers = tuple(str(receiver) for _, receiver in measured.edges)
    return EdgesResult(
        method=intervention.name,
        senders=tuple(str(sender) for sender, _ in measured.edges),
        receivers=receivers,
        outcomes=tuple(task.outcomes),
        clean=clean.sum(0) / np.where(total.sum(0) > 0, total.sum(0), np.nan),
        threshold=threshold,
        drop=drop,
        loss_rise=loss_rise,
        p_needed=p_needed,
        p_harmless=p_harmless,
        random_drop=_mean_of_others(drop.value, receivers),
        alpha=alpha,
        shape=(model.cfg.n_layers, model.cfg.n_heads),
        n=len(sample),
        weights=weight_sums(model),
        subject=subject_key(model, task),
        model=model,
        task=task,
        intervention=intervention,
    )


def _mean_of_others(
    drop: Float[np.ndarray, "edge outcome"], receivers: Sequence[str]
) -> Float[np.ndarray, "edge outcome"]:
    """Mean drop of all other edges into the same input."""
    mean = np.full(drop.shape, np.nan)
    names = np.array(receivers)
    for receiver in set(receivers):
        rows = names == receiver
        if rows.sum() > 1:
            mean[rows] = (drop[rows].sum(0) - drop[rows]) / (rows.sum() - 1)
    return mean


def _input_in_words(receiver: str) -> str:
    """`1.0 q` as "The queries of 1.0"."""
    words = {"q": "The queries of", "k": "The keys of", "v": "The values of"}
    head, _, letter = receiver.rpartition(" ")
    if letter in words:
        return f"{words[letter]} {head}"
    return "The answers (read-out)" if receiver == "read-out" else f"The outputs of {receiver}"
