"""Linear probes of the residual stream, with a control task, shuffled labels and an untrained model."""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from jaxtyping import Float, Int

from hooks.checks import shown
from hooks.interventions.clean_pass import Net
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, Axes, checks_types
from interp.core.activations import EXAMPLES_PER_BLOCK, residual_blocks
from interp.core.consistency import check_known, check_that
from interp.core.inputs import all_inputs_text, distinct_inputs, inputs_or_sample, number_of_pairings, repeats_text
from interp.core.intervals import Interval
from interp.core.progress import Count
from interp.core.randomness import derived_generator, derived_seed
from interp.core.results import Result, count_range
from interp.core.statistics import CONFIDENCE, share_interval
from interp.core.verbs import EMBEDDED_STREAM, AnyModel, Needs, prepare_model, untrained_copy
from interp.probing.directions import MAX_PAIRS, DirectionSums, interchange_map, isolated_interchanges
from interp.probing.labels import control_labels, labelled, omitted_text, shuffled_labels
from interp.probing.scoring import Blocks, majority_share, position_accuracy, score_logistic, score_ridge
from interp.probing.ties import isolate_targets
from interp.tasks.base import Batch, Task
from interp.tasks.splits import ALL, EveryInput, check_sample_size, sample_split

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Solver = Literal["ridge", "logistic"]
RIDGE_CONTROLS = 20
LOGISTIC_CONTROLS = 1
"""Draws of each control; fits with scikit-learn take long."""
FEWEST_PAIRS = 14
"""Fewest pairs with other labels held fixed: if none of 14 answers follows, at most a fifth do, at 95 %."""
MOST_WITHOUT_PARTNER = 0.2
"""Share of the examples, a fifth likewise, that may agree with none of another class."""


@dataclass(frozen=True, kw_only=True)
class ProbeResult(Result):
    """Held-out probe accuracy for every layer and target. Layer 0 is the embedding's output."""

    label: str
    """The label that was probed."""
    solver: str
    """`ridge` or `logistic`."""
    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the targets."""
    accuracy: Annotated[Interval, Axes("layer target"), SHARE, MAY_BE_MISSING]
    """Per layer and target: fraction of held-out examples classified correctly, 0 to 1, with its 95 % interval
    (Clopper-Pearson), whose trials are distinct inputs, fewer than examples in a finite task; exact if every input was
    counted."""
    control: Annotated[Float[np.ndarray, "layer target"], SHARE, MAY_BE_MISSING]
    """Accuracy on the control task, a random class per input type, each as frequent as in the label: what memorisation
    alone achieves."""
    shuffled: Annotated[Float[np.ndarray, "layer target"], SHARE, MAY_BE_MISSING]
    """Accuracy with shuffled labels: chance level of the probe."""
    shuffled_high: Annotated[Float[np.ndarray, "layer target"], SHARE, MAY_BE_MISSING]
    """Upper 97.5 % quantile of `shuffled` over control draws."""
    untrained: Annotated[Float[np.ndarray, "layer target"], SHARE, MAY_BE_MISSING]
    """Accuracy of the same probes on an untrained model of the same config."""
    majority: Annotated[Float[np.ndarray, " target"], SHARE, MAY_BE_MISSING]
    """Share of the most frequent class among the held-out examples: accuracy of a constant answer."""
    position: Annotated[Float[np.ndarray, " target"], SHARE, MAY_BE_MISSING]
    """Accuracy of the most frequent class at the target's position and number of tokens: what these alone predict."""
    n_train: Annotated[int, COUNT]
    """Examples sampled to fit on, or all that there are."""
    n_test: Annotated[int, COUNT]
    """Held-out examples sampled to score on, or all that there are."""
    n_fitted: Annotated[Int[np.ndarray, " target"], COUNT]
    """Examples that each classifier was fitted on: those that have the target."""
    n_scored: Annotated[Int[np.ndarray, " target"], COUNT]
    """Held-out examples behind each cell: those that have the target."""
    omitted: dict[str, str]
    """Targets that were not probed, and why."""
    n_controls: Annotated[int, COUNT]
    """Draws of control labels and of shuffled labels."""
    causal: dict[str, Annotated[np.ndarray, Axes("layer target"), MAY_BE_MISSING]] | None = None
    """With `verify`: the result of `interchange_map`. If answers are tied to another label, also `alone`: the share
    that follows among pairs that agree in it, along the effects of the answer with it held fixed, with `alone_low`,
    `alone_high` and `alone_n`; NaN at other targets, and where they cannot be told apart."""
    tied: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """With `verify`: by target, other labels that the answer is tied to, which an interchange moves too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        missing = {"follows", "low", "high", "placebo", "n"} - set(self.causal) if self.causal is not None else ()
        if missing:
            raise ValueError(f"causal lacks {', '.join(sorted(missing))}.")
        for name in {"n", "alone_n"} & set(self.causal or ()):
            n = self.causal[name][~np.isnan(self.causal[name])]  # type: ignore[index]
            is_count = (n >= 0) & (n == np.round(n))
            check_that(
                is_count.all(), f"causal has {name} of {shown(n[~is_count][:1].tolist())[1:-1]}; pairs are counted."
            )
        n_fitted, n_scored = self.n_fitted.max(initial=0), self.n_scored.max(initial=0)
        check_that(n_fitted <= self.n_train, f"n_fitted is {n_fitted}; n_train is {self.n_train}.")
        check_that(n_scored <= self.n_test, f"n_scored is {n_scored}; n_test is {self.n_test}.")
        check_known("tied", self.tied, self.targets, "targets")
        omitted_too = set(self.omitted) & set(self.targets)
        check_that(not omitted_too, f"omitted has {shown(sorted(omitted_too))}, which targets has too.")

    @property
    def _sample_size(self) -> int:
        return self.n_test

    @property
    def selectivity(self) -> Float[np.ndarray, "layer target"]:
        """Accuracy minus control accuracy (Hewitt & Liang 2019)."""
        return self.accuracy.value - self.control

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer and target."""
        axes = {"layer": range(len(self.accuracy)), "target": self.targets}
        columns = self.accuracy.columns("accuracy")
        for name in ("control", "selectivity", "shuffled", "shuffled_high", "untrained"):
            columns[name] = getattr(self, name)
        for name in ("majority", "position"):
            columns[name] = np.broadcast_to(getattr(self, name), self.accuracy.shape)
        columns |= {f"interchange_{name}": values for name, values in (self.causal or {}).items()}
        return self._table(axes, **columns, n=np.broadcast_to(self.n_scored, self.accuracy.shape))

    def plot(self) -> "alt.TopLevelMixin":
        """Layer x target maps of accuracy (as LEGO Figure 4), the control task, shuffled labels, an untrained model."""
        from interp.view.charts import heatmaps

        panels = {
            "accuracy": self.accuracy.value,
            "control task": self.control,
            "shuffled labels": self.shuffled,
            "untrained model": self.untrained,
        }
        n = count_range(self.n_scored) + repeats_text(self.n_scored, self.accuracy.n)
        within = "exact" if self.accuracy.exact else f"95 % within ±{self.accuracy.half_width:.3f}"
        title = f"linear probes for {self.label}, n = {n} per cell ({within})"
        title += self._majority_text()
        if self.causal is not None:
            panels["output follows interchange"] = self.causal["follows"]
            title += f"; interchange, n >= {int(self.causal['n'].min())}"
            if not self.accuracy.exact:
                width = float(np.nanmax(self.causal["high"] - self.causal["low"]) / 2)
                title += f" (±{width:.3f})"
        return heatmaps(panels, x=self.targets, x_title="target", y_title="layer", title=title, value="fraction")

    def __str__(self) -> str:
        header = "layer  " + "  ".join(f"{name:>5}" for name in self.targets)
        rows = [f"{layer:>5}  {_row(values)}" for layer, values in enumerate(self.accuracy.value)]
        examples = (
            f"{count_range(self.n_scored)} held-out examples{repeats_text(self.n_scored, self.accuracy.n)} per cell "
        )
        examples += f"(95 % within {self.accuracy.half_width:.3f})"
        if self.accuracy.exact:
            examples = all_inputs_text(self.n_test)
        footer = (
            f"{self.solver} probes for {self.label}, {examples}; control at most "
            f"{self.control.max():.3f}, shuffled at most {self.shuffled.max():.3f}, untrained at most "
            f"{self.untrained.max():.3f}"
        )
        footer += f", position at most {self.position.max():.3f}"
        footer += self._majority_text()
        # A second block of columns on the right: the causal check.
        if self.causal is not None:
            n = count_range(self.causal["n"].astype(int))
            placebo = np.nan_to_num(self.causal["placebo"]).max()
            footer += f"; interchange: share of answers that follow, {n} pairs per cell, placebo at most {placebo:.3f}"
            footer += self._tied_text()
            header += "  interchange" + header.removeprefix("layer")
            gap = " " * len("  interchange")
            rows = [f"{row}{gap}  {_row(follows)}" for row, follows in zip(rows, self.causal["follows"], strict=True)]
        return "\n".join([header, *rows, footer + omitted_text(self.omitted)])

    def _majority_text(self) -> str:
        """The share of the most frequent class, or its range over targets."""
        low, high = (f"{share:.3f}" for share in (self.majority.min(), self.majority.max()))
        return f", majority class {low}" if low == high else f", majority class {low} to {high}"

    def _tied_text(self) -> str:
        """The labels that the answer is tied to, and the share that follows with these fixed; empty without any."""
        texts = []
        for target, names in self.tied.items():
            assert self.causal is not None
            alone = self.causal["alone"][:, self.targets.index(target)]
            follow = f"at most {np.nanmax(alone):.3f} follow" if np.isfinite(alone).any() else "cannot be told apart"
            texts.append(f"{' and '.join(names)} at {target} (held fixed: {follow})")
        return f"; answers are tied to {', '.join(texts)}" if texts else ""


def _row(values: Float[np.ndarray, " target"]) -> str:
    return "  ".join(f"{value:5.3f}" for value in values)


NEEDS = Needs("probe", reads=EMBEDDED_STREAM, untrained=True)
NEEDS_TO_VERIFY = Needs("probe with verify=True", edits=EMBEDDED_STREAM, answers=True, untrained=True)


@checks_types
@restores_state
def probe(
    model: AnyModel,
    task: Task,
    *,
    label: str | None = None,
    n_train: int | EveryInput = 4000,
    n_test: int | EveryInput = 2000,
    solver: Solver = "ridge",
    verify: bool = False,
    seed: int = 0,
) -> ProbeResult:
    """Fit a linear probe per layer and target to a frozen model, and score it on held-out examples.

    Each probe reads the residual stream at the position of its target. Its controls are a control task (a random class
    per input type, as frequent as in the label, which only memorisation can predict), shuffled labels, the same probes
    on an untrained model of the same config, and what the target's position and the number of tokens alone predict.
    Probes are fitted on validation examples and scored on test examples; the model has seen neither in training. A
    target that some examples do not have is probed in the others. Omitted are targets whose label has a single class,
    or fewer than five examples to fit on outside of the largest, or with fewer than ten examples per class to fit on,
    or with none to score on. Coordinates that differ between examples by rounding errors only are not read.

    Args:
        model: Model to probe. It is not changed.
        task: Source of examples and labels.
        label: One of `task.probe_labels`, default: the first.
        n_train: Number of examples to sample to fit on; "all": every input of the validation split once.
        n_test: Number of examples to sample to score on; it determines the intervals. "all": every input of the test
            split once, for tasks that list them (`Task.every_input`); accuracies of these probes are then exact.
        solver: `ridge` (closed form, 20 control draws; the activations of 4,096 examples are in memory at a time) or
            `logistic` (scikit-learn, one control draw; those of all examples are).
        verify: Also interchange class directions between examples and measure how often the output follows.
        seed: Determines examples, control labels and the untrained model. With n_test="all", controls are the same for
            every seed; with n_train="all" too, the seed has no effect.

    Raises:
        ValueError: labels that are no classes (floats, negative ones, another shape), an unknown label or solver,
            `verify` for a label that the model does not predict, too few examples, a label that can be probed at no
            target, targets at padding, or activations that are not finite.

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16), seed=0)
        >>> interp.probe(model, task, n_train=100, n_test=50).accuracy.shape  # layer 0 is the embedding's output
        (2, 2)

    Source: Alain & Bengio 2016 (arXiv:1610.01644); control task and selectivity: Hewitt & Liang 2019
    (arXiv:1909.03368); the map: LEGO (arXiv:2206.04301) Figure 4. Differs: one probe per layer and target, where LEGO
    has one per layer.
    """
    model = prepare_model(model, NEEDS_TO_VERIFY if verify else NEEDS, task)
    check_sample_size("n_train", n_train, low=1)
    check_sample_size("n_test", n_test, low=1)
    # Labels of the examples, at the targets that can be probed.
    batches = fitting, testing = examples_of_probes(task, n_train, n_test, seed=seed)
    every_input = n_test == ALL
    if every_input:
        seed = 0
    examples = labelled(task, batches, label, is_predicted=verify)
    label, targets, n_classes = examples.label, examples.targets, examples.n_classes
    labels, present = examples.labels, examples.present
    # Label sets: the true labels, and the draws of both controls.
    n_draws = RIDGE_CONTROLS if solver == "ridge" else LOGISTIC_CONTROLS
    true = [values.T[:, None] for values in labels]
    shuffled = shuffled_labels(labels, present, n_classes, n_draws, seed)
    control = control_labels(examples.types, labels, present, n_classes, n_draws, seed)
    # Fit and score all sets on the model's activations, and the true labels on those of an untrained model.
    model.eval()
    n_blocks = 2 * sum(-(-len(batch) // EXAMPLES_PER_BLOCK) for batch in batches)
    isolations = {}
    paired = testing if every_input else testing.select(slice(0, 2 * MAX_PAIRS))
    if verify:
        isolations = isolate_targets(
            label,
            [examples.numbers[0], {name: values[: len(paired)] for name, values in examples.numbers[1].items()}],
            [fitting.present, paired.present],
            targets,
            n_classes=n_classes,
            n_needed=FEWEST_PAIRS,
            most_uncovered=MOST_WITHOUT_PARTNER,
            n_partners=number_of_pairings(len(testing)) if every_input else None,
        )
    sums = DirectionSums(labels[0], present[0], n_classes, isolations) if verify else None
    causal = None
    with Count(f"probing {label}", n_blocks + verify, work=n_blocks * (1 + 1.2 * verify)) as count:

        def streams(net: Net, batch: Batch, sums: DirectionSums | None = None) -> Blocks:
            """Activations at the targets, block by block, which are also added to the sums of the directions."""
            for rows, block in residual_blocks(net, batch, targets):
                if sums is not None:
                    sums.add(rows, block)
                yield rows, block
                count.advance()

        score_with = score_ridge if solver == "ridge" else score_logistic
        score = partial(score_with, present=present, n_classes=n_classes)
        activations = [streams(model, fitting, sums), streams(model, testing)]
        true_scores, shuffled_scores, control_scores = score(activations, [true, shuffled, control])
        del shuffled, control  # the largest tensors here
        untrained = untrained_copy(model, derived_seed(seed, "untrained twin") % 2**31)
        (untrained_scores,) = score([streams(untrained, fitting), streams(untrained, testing)], [true])
        # Interchange the directions that the probes read; their targets are indices among the probed ones.
        if sums is not None:
            directions = {(layer, targets[index]): cell for (layer, index), cell in sums.plain_directions().items()}
            causal = interchange_map(model, task, testing, directions, seed=seed, every_input=every_input)
            if any(isolation.tied for isolation in isolations.values()):
                isolated = {(layer, targets[index]): cell for (layer, index), cell in sums.directions().items()}
                by_target = {targets[index]: isolation for index, isolation in isolations.items()}
                causal |= isolated_interchanges(
                    model, task, paired, by_target, isolated, seed=seed, every_input=every_input
                )
            count.advance(work=1.2 * n_blocks)
    # Intervals, whose trials are the distinct inputs that have the target.
    accuracy = true_scores[..., 0]
    n_fitted, n_scored = (exists.sum(0).numpy() for exists in present)
    inputs = distinct_inputs(testing)
    n_distinct = np.array([len(np.unique(inputs[exists])) for exists in present[1].T.numpy()])
    low, high = share_interval(accuracy, n_distinct)
    interval = Interval(value=accuracy, low=low, high=high, n=n_distinct)
    return ProbeResult(
        label=label,
        solver=solver,
        targets=tuple(task.targets[index] for index in targets),
        accuracy=interval.as_exact() if every_input else interval,
        control=control_scores.mean(-1),
        shuffled=shuffled_scores.mean(-1),
        shuffled_high=np.quantile(shuffled_scores, (1 + CONFIDENCE) / 2, axis=-1),
        untrained=untrained_scores[..., 0],
        majority=majority_share(labels[1], present[1]),
        position=position_accuracy(batches, labels, targets),
        n_train=len(fitting),
        n_test=len(testing),
        n_fitted=n_fitted,
        n_scored=n_scored,
        omitted=examples.omitted,
        n_controls=n_draws,
        causal=causal,
        tied={task.targets[targets[index]]: ties.tied for index, ties in isolations.items() if ties.tied},
    )


def examples_of_probes(
    task: Task, n_train: int | EveryInput, n_test: int | EveryInput, *, seed: int
) -> tuple[Batch, Batch]:
    """Examples to fit on and to score on; with "all", every input of the split.

    Raises:
        ValueError: targets at padding.
    """
    fitting = sample_split(task, n_train, generator=derived_generator(seed, "probe fit"), split="validation")
    testing = inputs_or_sample(task, n_test, generator=derived_generator(seed, "probe test"), split="test")
    for batch in (fitting, testing):
        _check_padding(batch)
    return fitting, testing


def _check_padding(batch: Batch) -> None:
    real = batch.attention_mask
    if real is not None and not (real.gather(1, batch.target_positions) | ~batch.present).all():
        raise ValueError(
            "some targets of this task are at padding and have no activations to probe; set target_mask of its "
            "batches to False there (interp.tasks.check_task names the first)."
        )
