"""Audit of linear probes: is a label readable, and do the answers depend on it?"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.checks import checks_types
from hooks.interventions.ablation_engine import Net
from interp.auditing.outcomes import SHARE
from interp.core.activations import residual_blocks
from interp.core.evaluation_mode import in_evaluation_mode
from interp.core.inputs import repeats_text
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.results import Result, count_range
from interp.core.statistics import check_level, drop_interval, drop_tests, holm
from interp.core.verbs import AnyModel, prepare_model
from interp.probing.directions import Directions, DirectionSums, edited_answers
from interp.probing.probe import ProbeResult, omitted_text, probe
from interp.tasks.base import Batch, Task

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

ProbeVerdict = Literal["used", "unused", "not readable", "undecided"]
PROBE_VERDICTS: tuple[str, ...] = get_args(ProbeVerdict)
EDITS = {"interchange": "placebo", "erasure": "erasure placebo"}
"""The edits that show whether a label is used, each with its placebo."""


@dataclass(frozen=True, kw_only=True)
class ProbeAudit(Result):
    """Verdict and evidence for every layer and target. Layer 0 is the embedding's output."""

    label: str
    """Label that the probes read."""
    targets: tuple[str, ...]
    """Names of the targets."""
    verdict: tuple[tuple[str, ...], ...]
    """For each layer and target: used, unused (both readable), not readable, undecided."""
    accuracy: Float[np.ndarray, "layer target"]
    """Held-out accuracy of the probe."""
    low: Float[np.ndarray, "layer target"]
    high: Float[np.ndarray, "layer target"]
    """Bounds of its 95 % interval."""
    baseline: Float[np.ndarray, "layer target"]
    """Accuracy of the best control: shuffled labels, control task, untrained model."""
    interchange: Float[np.ndarray, "layer target"]
    """Fraction of examples in which an answer changes when the component along the class means is set to another
    example's, minus that of a placebo; NaN where the label is not readable, which is not tested."""
    interchange_low: Float[np.ndarray, "layer target"]
    interchange_high: Float[np.ndarray, "layer target"]
    erasure: Float[np.ndarray, "layer target"]
    """The same with the component set to its mean over all examples."""
    erasure_low: Float[np.ndarray, "layer target"]
    erasure_high: Float[np.ndarray, "layer target"]
    p: Float[np.ndarray, "question layer target"]
    """p values (Holm) for readable, not readable, used, unused."""
    alpha: float
    """Level of all verdicts together."""
    n: int
    """Held-out examples sampled."""
    n_fitted: Int[np.ndarray, " target"]
    """Examples that probes and class means were fitted on: those that have the target."""
    n_scored: Int[np.ndarray, " target"]
    """Held-out examples behind each value: those that have the target."""
    n_distinct: Int[np.ndarray, " target"]
    """Number of distinct inputs among them, fewer in a finite task; verdicts are about these inputs."""
    omitted: dict[str, str]
    """Targets that were not probed, and why."""

    def readable_from(self, target: str) -> int | None:
        """First layer such that the label is readable at a target there and in all later layers; None if there is none.

        Raises:
            ValueError: an unknown target (lists the known ones).
        """
        if target not in self.targets:
            raise ValueError(f"target is {target!r}; there are {', '.join(self.targets)}.")
        column = self.p[0, :, self.targets.index(target)] <= self.alpha
        first = len(column)
        while first and column[first - 1]:
            first -= 1
        return first if first < len(column) else None

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer and target."""
        import pandas as pd

        layer, target = np.indices(self.accuracy.shape)
        columns = {"layer": layer.ravel(), "target": np.array(self.targets)[target.ravel()]}
        columns["verdict"] = np.array(self.verdict).ravel()
        for name in ("accuracy", "low", "high", "baseline"):
            columns[name] = getattr(self, name).ravel()
        for name in EDITS:
            columns |= {part: getattr(self, part).ravel() for part in (name, f"{name}_low", f"{name}_high")}
        return pd.DataFrame(columns | {"n": self.n_scored[target.ravel()]})

    def plot(self) -> "alt.TopLevelMixin":
        """Heatmaps of probe accuracy, the best control, and answers changed by interchange and by erasure."""
        from interp.view.charts import heatmaps

        n, width = count_range(self.n_scored), float((self.high - self.low).max() / 2)
        panels = {"read (accuracy)": self.accuracy, "best control": self.baseline}
        panels |= {"changed by interchange": self.interchange, "changed by erasure": self.erasure}
        return heatmaps(
            panels,
            x=self.targets,
            x_title="target",
            y_title="layer",
            title=f"{self.label}: read and used, n = {n} per cell (accuracy within ±{width:.3f})",
            value="share",
        )

    def __str__(self) -> str:
        wide = max(12, *(len(name) for name in self.targets))
        lines = ["layer  " + "  ".join(f"{name:>{wide}}" for name in self.targets)]
        for layer, row in enumerate(self.verdict):
            lines.append(f"{layer:>5}  " + "  ".join(f"{one:>{wide}}" for one in row))
        counts = Counter(one for row in self.verdict for one in row)
        counted = ", ".join(f"{counts[name]} {name}" for name in PROBE_VERDICTS if counts[name])
        n = count_range(self.n_scored) + repeats_text(self.n_scored, self.n_distinct, counted=False)
        foot = f"{self.label}: {counted}; {n} examples, level {self.alpha:g} (Holm)"
        return "\n".join([*lines, foot + omitted_text(self.omitted)])


@checks_types
@in_evaluation_mode
def audit_probe(
    model: AnyModel,
    task: Task,
    *,
    label: str | None = None,
    n_train: int = 1000,
    n_test: int = 512,
    alpha: float = 0.01,
    seed: int = 0,
) -> ProbeAudit:
    """Decide for every layer and target whether a label is readable and whether the answers depend on it.

    Readable: a linear probe beats the best of its controls (shuffled labels, a control task, an untrained model) by
    more than a fifth of what that control leaves to gain. Used: setting the component along the class means to that of
    an example with another label, or to its mean over all examples, changes some answer of the example in more than a
    fifth of the examples beyond those changed by a placebo, which moves the activation by the same distance in a random
    direction.

    Args:
        model: Model to audit. It is not changed.
        task: Source of examples and labels.
        label: One of `task.probe_labels`; default: the first.
        n_train: Number of examples that probes and class means are fitted on.
        n_test: Number of held-out examples.
        alpha: Level of all verdicts together (Holm).
        seed: Determines examples, controls and placebo directions.

    Raises:
        ValueError: whatever `probe` rejects, too few test examples, or a task that does not fit the model.
    """
    model = prepare_model(model, "audit_probe", task)
    if n_test < 32:
        raise ValueError(f"n_test is {n_test}; at least 32 examples are needed for a verdict.")
    check_level(alpha)
    with Count("auditing probes", 2) as count:
        read = probe(model, task, label=label, n_train=n_train, n_test=n_test, seed=seed)
        count.one()
        audited = _audited(model, task, read, n_train=n_train, n_test=n_test, alpha=alpha, seed=seed)
        count.one()
    return audited


def _audited(
    model: Net, task: Task, read: ProbeResult, *, n_train: int, n_test: int, alpha: float, seed: int
) -> ProbeAudit:
    """The audit of probes that were fitted on the same examples."""
    columns = [task.targets.index(name) for name in read.targets]
    fitting = task.sample(n_train, generator=derived_generator(seed, "probe fit"), split="validation")
    testing = task.sample(n_test, generator=derived_generator(seed, "probe test"), split="test")
    labels = [task.probe_labels(batch)[read.label][:, columns] for batch in (fitting, testing)]
    present = fitting.present[:, columns]
    n_classes = int(torch.cat([labels[0][present], labels[1][testing.present[:, columns]]]).max()) + 1
    baseline = np.maximum(np.maximum(read.shuffled, read.control), read.untrained)
    readable = _readable(read, baseline)
    tested = readable[1] > alpha
    sums = DirectionSums(labels[0], present, n_classes)
    for rows, streams in residual_blocks(model, fitting, columns):
        sums.add(rows, streams)
    found = sums.directions().items()
    directions = {(layer, columns[index]): cell for (layer, index), cell in found if tested[layer, index]}
    changed = _changed(model, task, testing, labels[1], directions, columns, seed=seed)
    tests = {
        name: drop_tests(values[..., 0], values[..., 1], np.array(SHARE), read.n_scored)
        for name, values in changed.items()
    }
    used = np.minimum(2 * np.minimum(*(tests[name][0] for name in EDITS)), 1)
    unused = np.maximum(*(tests[name][1] for name in EDITS))
    p = holm(np.stack([*readable, used, unused]))
    shares = {
        name: [np.where(tested, end, np.nan) for end in drop_interval(values[..., 0], values[..., 1])]
        for name, values in changed.items()
    }
    return ProbeAudit(
        label=read.label,
        targets=read.targets,
        verdict=tuple(tuple(_verdict(one, alpha) for one in row) for row in p.transpose(1, 2, 0)),
        accuracy=read.accuracy,
        low=read.low,
        high=read.high,
        baseline=baseline,
        **{f"{name}{end}": shares[name][at] for name in EDITS for at, end in enumerate(("", "_low", "_high"))},
        p=p,
        alpha=alpha,
        n=n_test,
        n_fitted=read.n_fitted,
        n_scored=read.n_scored,
        n_distinct=read.n_distinct,
        omitted=read.omitted,
    )


def _readable(
    read: ProbeResult, baseline: Float[np.ndarray, "layer target"]
) -> tuple[Float[np.ndarray, "layer target"], Float[np.ndarray, "layer target"]]:
    """p values of the hypotheses "not readable" and "readable"."""
    n = np.broadcast_to(read.n_scored, read.accuracy.shape)
    example = np.arange(n.max())[:, None, None]
    answers, total = ((example < count).astype(float) for count in (np.rint(read.accuracy * n), n))
    readable, unreadable = drop_tests(answers, total, baseline + SHARE * (1 - baseline), n)
    return readable, np.where(baseline >= 1, 0.0, unreadable)  # no probe can beat a perfect control


def _changed(
    model: Net,
    task: Task,
    batch: Batch,
    labels: Int[Tensor, "batch target"],
    directions: dict[tuple[int, int], Directions],
    columns: list[int],
    *,
    seed: int,
) -> dict[str, Float[np.ndarray, "sample layer target 2"]]:
    """For each example and cell: whether an edit changes an answer minus whether its placebo does; and if it counts.

    Every example takes its value from the next one that has the target. It counts for the interchange only if their
    labels differ.
    """
    present = [batch.present[:, target].nonzero()[:, 0] for target in columns]
    pairs = {target: (rows, rows.roll(-1)) for target, rows in zip(columns, present, strict=True)}
    found = {edit: np.zeros((len(batch), model.cfg.n_layers + 1, len(columns), 2)) for edit in EDITS}
    edits = tuple(edit for both in EDITS.items() for edit in both)
    for one in edited_answers(model, task, batch, pairs, directions, edits=edits, seed=seed):
        index = columns.index(one.target)
        answered = batch.present[one.rows]
        changed = {edit: ((after != one.before) & answered).any(1).double() for edit, after in one.after.items()}
        different = (labels[one.rows, index] != labels[one.sources, index]).double()
        for edit, placebo in EDITS.items():
            counts = different if edit == "interchange" else torch.ones_like(different)
            values = torch.stack([(changed[edit] - changed[placebo]) * counts, counts], 1)
            found[edit][one.rows, one.layer, index] = values.numpy()
    return found


def _verdict(p: Float[np.ndarray, " question"], alpha: float) -> ProbeVerdict:
    readable, not_readable, used, unused = (bool(one <= alpha) for one in p)
    if not_readable:
        return "not readable"
    if not readable or not (used or unused):
        return "undecided"
    return "used" if used else "unused"
