"""Linear probes of the residual stream, with a control task, shuffled labels and an untrained model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits
from torch import Tensor

from hooks.modules.basic import check_choice
from interp.core.activations import class_means, residuals_at_targets
from interp.core.randomness import derived_generator, derived_seed
from interp.core.results import Result
from interp.core.statistics import CONFIDENCE, proportion_interval
from interp.core.verbs import AnyModel, prepare_model, untrained_copy
from interp.probing.interchange import interchange_map
from interp.probing.ridge import factorise, fit
from interp.tasks.base import Batch, Task

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Solver = Literal["ridge", "logistic"]
RIDGE_CONTROLS = 20
LOGISTIC_CONTROLS = 1


@dataclass(frozen=True, kw_only=True)
class ProbeResult(Result):
    """Held-out probe accuracy for every layer and target. Layer 0 is the embedding's output."""

    label: str
    """The label that was probed."""
    solver: str
    """`ridge` or `logistic`."""
    targets: tuple[str, ...]
    """Names of the targets."""
    accuracy: Float[np.ndarray, "layer target"]
    """Fraction of held-out examples classified correctly, 0 to 1."""
    low: Float[np.ndarray, "layer target"]
    high: Float[np.ndarray, "layer target"]
    """Ends of the 95 % interval (Clopper-Pearson)."""
    control: Float[np.ndarray, "layer target"]
    """Accuracy on the control task, a random class per input type: what memorisation alone achieves."""
    shuffled: Float[np.ndarray, "layer target"]
    """Accuracy with shuffled labels: chance level of the probe."""
    shuffled_high: Float[np.ndarray, "layer target"]
    """Upper 97.5 % quantile of `shuffled` over control draws."""
    untrained: Float[np.ndarray, "layer target"]
    """Accuracy of the same probes on an untrained model of the same config."""
    n_train: int
    """Examples each classifier was fitted on."""
    n_test: int
    """Held-out examples behind each cell."""
    n_controls: int
    """Draws of control labels and of shuffled labels."""
    causal: dict[str, np.ndarray] | None = None
    """With `verify`: the result of `interchange_map`."""

    @property
    def selectivity(self) -> Float[np.ndarray, "layer target"]:
        """Accuracy minus control accuracy (Hewitt & Liang 2019)."""
        return self.accuracy - self.control

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer and target."""
        axes = {"layer": range(len(self.accuracy)), "target": self.targets}
        names = ("accuracy", "low", "high", "control", "selectivity", "shuffled", "shuffled_high", "untrained")
        causal = {f"interchange_{name}": values for name, values in (self.causal or {}).items()}
        return self._table(axes, *names, **causal, n=self.n_test)

    def plot(self) -> "alt.TopLevelMixin":
        """Layer x target maps of accuracy (as LEGO Figure 4), the control task and the untrained model."""
        from interp.view.charts import heatmaps

        panels = {"accuracy": self.accuracy, "control task": self.control, "untrained model": self.untrained}
        title = f"linear probes for {self.label}, n = {self.n_test} per cell (95 % within ±{self.half_width:.3f})"
        if self.causal is not None:
            panels["output follows interchange"] = self.causal["follows"]
            width = float(np.max(self.causal["high"] - self.causal["low"]) / 2)
            title += f"; interchange, n >= {int(self.causal['n'].min())} (±{width:.3f})"
        return heatmaps(panels, x=self.targets, x_title="target", y_title="layer", title=title, value="fraction")

    @property
    def half_width(self) -> float:
        """Half the widest 95 % interval of any accuracy."""
        return float(np.max(self.high - self.low) / 2)

    def __str__(self) -> str:
        head = "layer  " + "  ".join(f"{name:>5}" for name in self.targets)
        lines = [
            f"{layer:>5}  " + "  ".join(f"{value:5.3f}" for value in row) for layer, row in enumerate(self.accuracy)
        ]
        foot = (
            f"{self.solver} probes for {self.label}, {self.n_test} held-out examples per cell (95 % within "
            f"{self.half_width:.3f}); control at most {self.control.max():.3f}, "
            f"untrained at most {self.untrained.max():.3f}"
        )
        return "\n".join([head, *lines, foot])


def probe(
    model: AnyModel,
    task: Task,
    *,
    label: str | None = None,
    n_train: int = 4000,
    n_test: int = 2000,
    solver: Solver = "ridge",
    verify: bool = False,
    seed: int = 0,
) -> ProbeResult:
    """Fit a linear probe per layer and target to a frozen model, and score it on held-out examples.

    Each probe reads the residual stream at the position of its target. Its controls are a control task (a random label
    per input type, which only memorisation can predict), shuffled labels, and the same probes on an untrained model of
    the same config. Probes are fitted on validation examples and scored on test examples; the model has seen neither
    in training. Targets whose label has a single class are omitted.

    Args:
        model: Model to probe. It is not changed.
        task: Source of examples and labels.
        label: One of `task.probe_labels`, default: the first.
        n_train: Number of examples to fit on.
        n_test: Number of examples to score on; it determines the intervals.
        solver: `ridge` (closed form, 20 control draws) or `logistic` (scikit-learn, one control draw).
        verify: Also interchange class directions between examples and measure how often the output follows.
        seed: Determines examples, control labels and the untrained model.

    Raises:
        ValueError: an unknown label or solver, `verify` for a label that the model does not predict, too few
            examples, a label with a single class at every target, or activations that are not finite.

    Source: Alain & Bengio 2016 (arXiv:1610.01644); control task and selectivity: Hewitt & Liang 2019
    (arXiv:1909.03368); the map: LEGO (arXiv:2206.04301) Figure 4. Differs: one probe per layer and target, where LEGO
    has one per layer.
    """
    model = prepare_model(model, "probe with verify=True" if verify else "probe")
    check_choice("solver", solver, Solver)
    if n_test < 1:
        raise ValueError(f"n_test is {n_test}; at least 1 example is needed.")
    batches = fitting, testing = (
        task.sample(n_train, generator=derived_generator(seed, "probe fit"), split="validation"),
        task.sample(n_test, generator=derived_generator(seed, "probe test"), split="test"),
    )
    label = label or next(iter(task.probe_labels(fitting)))
    labels = [_labels(task, batch, label) for batch in batches]
    if verify and not torch.equal(labels[1], testing.labels):
        raise ValueError(f"verify compares with the model's answers, which are not {label!r}; use verify=False.")
    n_classes = int(torch.cat(labels).max()) + 1
    kept = _varying_targets(labels[0], label, task, n_classes, n_train)
    if verify and len(kept) < len(task.targets):
        raise ValueError(f"label {label!r} has a single class at some targets; verify needs all: use verify=False.")
    labels = [values[:, kept] for values in labels]
    types = [task.control_types(batch)[:, kept] for batch in batches]
    model.eval()
    inputs = [residuals_at_targets(model, batch)[:, kept] for batch in batches]
    untrained = untrained_copy(model, derived_seed(seed, "untrained twin") % 2**31)
    untrained_inputs = [residuals_at_targets(untrained, batch)[:, kept] for batch in batches]
    score, draws = (_score_ridge, RIDGE_CONTROLS) if solver == "ridge" else (_score_logistic, LOGISTIC_CONTROLS)
    true = [values.T[:, None] for values in labels]
    accuracy = score(inputs, true, n_classes)[..., 0]
    shuffled = score(inputs, _shuffled_labels(labels, draws, seed), n_classes)
    low, high = proportion_interval(np.rint(accuracy * n_test).astype(int), n_test)
    causal = None
    if verify:
        weights, means = _directions(inputs[0], true[0], n_classes)
        causal = interchange_map(model, task, testing, labels[1], weights=weights, means=means, seed=seed)
    return ProbeResult(
        label=label,
        solver=solver,
        targets=tuple(task.targets[index] for index in kept),
        accuracy=accuracy,
        low=low,
        high=high,
        control=score(inputs, _control_labels(types, n_classes, draws, seed), n_classes).mean(-1),
        shuffled=shuffled.mean(-1),
        shuffled_high=np.quantile(shuffled, (1 + CONFIDENCE) / 2, axis=-1),
        untrained=score(untrained_inputs, true, n_classes)[..., 0],
        n_train=n_train,
        n_test=n_test,
        n_controls=draws,
        causal=causal,
    )


def _labels(task: Task, batch: Batch, label: str) -> Int[Tensor, "batch target"]:
    if batch.attention_mask is not None and not batch.attention_mask.gather(1, batch.target_positions).all():
        raise ValueError(
            "some targets of this task are padding and have no activations to probe; use examples of one length "
            "(for Dyck: prefixes, or complete words with min_length equal to length)."
        )
    known = task.probe_labels(batch)
    if label not in known:
        raise ValueError(f"label is {label!r}; this task has {', '.join(known)}.")
    return known[label]


def _varying_targets(labels: Tensor, label: str, task: Task, n_classes: int, n_train: int) -> list[int]:
    """Indices of the targets whose label has several classes."""
    if n_train < 10 * n_classes:
        raise ValueError(f"n_train is {n_train} for {n_classes} classes; give at least {10 * n_classes}.")
    kept = [index for index, values in enumerate(labels.T) if values.unique().numel() > 1]
    if not kept:
        raise ValueError(
            f"label {label!r} has a single class at every target ({int(labels[0, 0])} in all {len(labels)} examples at "
            f"{task.targets[0]}), so there is nothing to classify. Choose another label or task."
        )
    return kept


def _control_labels(
    types: list[Int[Tensor, "_ target"]], n_classes: int, draws: int, seed: int
) -> list[Int[Tensor, "target draw batch"]]:
    """A random class per input type, the same in both batches."""
    distinct, inverse = torch.cat(types).unique(return_inverse=True)
    table = torch.randint(n_classes, (draws, len(distinct)), generator=derived_generator(seed, "control task"))
    labels = table[:, inverse].permute(2, 0, 1)
    return [labels[..., : len(types[0])], labels[..., len(types[0]) :]]


def _shuffled_labels(labels: list[Tensor], draws: int, seed: int) -> list[Int[Tensor, "target draw batch"]]:
    generator = derived_generator(seed, "shuffled labels")
    return [
        torch.stack([values[torch.randperm(len(values), generator=generator)].T for _ in range(draws)], 1)
        for values in labels
    ]


def _score_ridge(inputs: list[Tensor], labels: list[Tensor], n_classes: int) -> Float[np.ndarray, "layer target draw"]:
    layers, targets = inputs[0].shape[:2]
    fit_labels, test_labels = (_per_cell(values, layers) for values in labels)
    classifier = fit(factorise(inputs[0].flatten(0, 1)), fit_labels, n_classes)
    return classifier.accuracy(inputs[1].flatten(0, 1), test_labels).view(layers, targets, -1).double().numpy()


def _directions(
    inputs: Float[Tensor, "layer target batch d_model"], labels: Int[Tensor, "target 1 batch"], n_classes: int
) -> tuple[Float[Tensor, "layer target class d_model"], Float[Tensor, "layer target class d_model"]]:
    """Probe weights and class means of every cell."""
    layers, targets = inputs.shape[:2]
    classifier = fit(factorise(inputs.flatten(0, 1)), _per_cell(labels, layers), n_classes)
    weights = classifier.weight[:, 0].transpose(1, 2).unflatten(0, (layers, targets))
    return weights, class_means(inputs, labels[:, 0].expand(layers, -1, -1), n_classes)


def _per_cell(labels: Int[Tensor, "target draw batch"], layers: int) -> Int[Tensor, "cell draw batch"]:
    return labels.expand(layers, *labels.shape).flatten(0, 1)


def _score_logistic(
    inputs: list[Tensor], labels: list[Tensor], n_classes: int
) -> Float[np.ndarray, "layer target draw"]:
    layers, targets = inputs[0].shape[:2]
    cells = [
        (inputs[0][layer, target], labels[0][target, draw], inputs[1][layer, target], labels[1][target, draw])
        for layer, target, draw in np.ndindex(layers, targets, labels[0].shape[1])
    ]
    with threadpool_limits(1):  # cells run in parallel; threads within each would compete for the same cores
        scores = Parallel(n_jobs=-1, prefer="threads")(
            delayed(_logistic_accuracy)(*(part.numpy() for part in cell)) for cell in cells
        )
    return np.array(scores).reshape(layers, targets, -1)


def _logistic_accuracy(x_fit: np.ndarray, y_fit: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(y_fit)) < 2:  # a control draw may give every input type the same class
        return float((y_test == y_fit[0]).mean())
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x_fit, y_fit).score(x_test, y_test)
