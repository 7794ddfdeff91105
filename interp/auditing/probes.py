"""Audit of linear probes: is a label readable, and do the answers depend on it?"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import shown
from hooks.interventions.clean_pass import Net
from hooks.state import restores_state
from hooks.typed import COUNT, DIFFERENCE, DISTINCT, MAY_BE_MISSING, SHARE, Axes, checks_types
from interp.auditing.significance import corrected_together, readable_p_values, sequences_needed, used_p_values
from interp.core.activations import residual_blocks
from interp.core.consistency import check_known, check_that
from interp.core.inputs import all_inputs_text, number_of_pairings, repeats_text
from interp.core.intervals import Interval
from interp.core.progress import Count
from interp.core.results import Result, count_range, table_lines
from interp.core.statistics import SHARE_THAT_COUNTS, check_level, drop_interval
from interp.core.verbs import STREAM, AnyModel, Needs, prepare_model
from interp.probing.directions import Directions, DirectionSums, Pairs, edited_answers
from interp.probing.labels import labelled
from interp.probing.probe import ProbeResult, examples_of_probes, omitted_text, probe
from interp.probing.ties import Isolation, isolate_targets
from interp.tasks.base import Batch, Task
from interp.tasks.splits import ALL, EveryInput, check_sample_size

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

ProbeVerdict = Literal["used", "unused", "not readable", "cannot be told apart", "undecided"]
PROBE_VERDICTS: tuple[str, ...] = get_args(ProbeVerdict)
QUESTIONS = ("readable", "not readable", "used", "unused")
"""What has a p value, in the order of `ProbeAudit.p`."""
PLACEBOS = {"interchange": "placebo", "erasure": "erasure placebo"}
"""The edits that show whether a label is used, each with its placebo."""


@dataclass(frozen=True, kw_only=True)
class ProbeAudit(Result):
    """Verdict and evidence for every layer and target. Layer 0 is the embedding's output."""

    label: str
    """Label that the probes read."""
    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the targets."""
    verdict: Annotated[tuple[tuple[ProbeVerdict, ...], ...], Axes("layer target")]
    """For each layer and target: used, unused (both readable), not readable, undecided, or cannot be told apart (from
    the labels in `confounders`)."""
    accuracy: Annotated[Interval, Axes("layer target"), SHARE, MAY_BE_MISSING]
    """Per layer and target: held-out accuracy of the probe, with its 95 % interval, whose trials are distinct inputs,
    fewer than examples in a finite task; verdicts hold for these inputs only."""
    baseline: Annotated[Float[np.ndarray, "layer target"], SHARE, MAY_BE_MISSING]
    """Accuracy of the best control: shuffled labels, control task, untrained model, position and length."""
    interchange: Annotated[Interval, Axes("layer target"), DIFFERENCE, MAY_BE_MISSING]
    """Per layer and target: fraction of examples in which an answer changes when the component along the class means is
    set to another example's, minus that of a placebo; NaN where that is not tested, because the label is not readable
    or cannot be told apart from another. With other labels held fixed, n is the number of examples with a partner that
    agrees in them and has another class."""
    erasure: Annotated[Interval, Axes("layer target"), DIFFERENCE, MAY_BE_MISSING]
    """The same with the component set to its mean over all examples."""
    p: Annotated[Float[np.ndarray, "question layer target"], SHARE, MAY_BE_MISSING]
    """p values (Holm) for readable, not readable, used, unused; the last is of the examples that could be edited only
    where too many have no partner that agrees in the labels that are held fixed."""
    alpha: Annotated[float, SHARE]
    """Level of all verdicts together; without effect if every input was counted."""
    n: Annotated[int, COUNT]
    """Held-out examples sampled, or all that there are."""
    n_fitted: Annotated[Int[np.ndarray, " target"], COUNT]
    """Examples that probes and class means were fitted on: those that have the target."""
    n_scored: Annotated[Int[np.ndarray, " target"], COUNT]
    """Held-out examples behind each value: those that have the target."""
    omitted: dict[str, str]
    """Targets that were not probed, and why."""
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By target, the other labels that are held fixed where this one is edited, since it is tied to them."""
    confounders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By target, the other labels that this one cannot be told apart from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        n_questions = len(self.p)
        check_that(n_questions == len(QUESTIONS), f"p is of {n_questions} questions; there are {len(QUESTIONS)}.")
        # A verdict follows from the p values, and from whether an edit was measured
        tested = ~np.isnan(self.interchange.value)
        for layer, index in np.ndindex(tested.shape):
            verdict, target = self.verdict[layer][index], self.targets[index]
            p, is_tested = self.p[:, layer, index], bool(tested[layer, index])
            # Whether another label may explain an effect is known of tested cells only
            possible = {_verdict(p, self.alpha, tested=is_tested, has_confounders=known) for known in (False, True)}
            text = f"verdict at layer {layer}, {target}, is {shown(verdict)}; p values and interchange say"
            check_that(verdict in possible, f"{text} {' or '.join(sorted(possible))}.")
        for name in ("held", "confounders"):
            check_known(name, getattr(self, name), self.targets, "targets")
        most = int(self.n_scored.max(initial=0))
        check_that(most <= self.n, f"n_scored is {most}; n is {self.n}.")

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
        axes = {"layer": range(len(self.accuracy)), "target": self.targets}
        columns = {**self.accuracy.columns("accuracy"), "baseline": self.baseline}
        for name in PLACEBOS:
            columns |= getattr(self, name).columns(name, f"{name}_low", f"{name}_high")
        return self._table(axes, "verdict", **columns, n=np.broadcast_to(self.n_scored, self.accuracy.shape))

    def plot(self) -> "alt.TopLevelMixin":
        """Heatmaps of probe accuracy, the best control, and answers changed by interchange and by erasure."""
        from interp.view.charts import heatmaps

        n = count_range(self.n_scored)
        within = "exact" if self.accuracy.exact else f"accuracy within ±{self.accuracy.half_width:.3f}"
        panels = {"read (accuracy)": self.accuracy.value, "best control": self.baseline}
        panels |= {"changed by interchange": self.interchange.value, "changed by erasure": self.erasure.value}
        return heatmaps(
            panels,
            x=self.targets,
            x_title="target",
            y_title="layer",
            title=f"{self.label}: read and used, n = {n} per cell ({within})",
            value="share",
        )

    def __str__(self) -> str:
        rows = [["layer", *self.targets]]
        rows += [[str(layer), *verdicts] for layer, verdicts in enumerate(self.verdict)]
        lines = table_lines(rows, n_left=0)
        counts = Counter(verdict for row in self.verdict for verdict in row)
        summary = ", ".join(f"{counts[name]} {name}" for name in PROBE_VERDICTS if counts[name])
        if self.accuracy.exact:
            foot = f"{self.label}: {summary}; {all_inputs_text(self.n)}"
        else:
            n = count_range(self.n_scored) + repeats_text(self.n_scored, self.accuracy.n, counted=False)
            foot = f"{self.label}: {summary}; {n} examples, level {self.alpha:g} (Holm)"
        foot += _labels_text("held fixed", self.held) + _labels_text("cannot be told apart from", self.confounders)
        return "\n".join([*lines, foot + omitted_text(self.omitted)])


def _labels_text(lead: str, labels_by_target: Mapping[str, tuple[str, ...]]) -> str:
    """Labels by target, as the end of a text; empty if there are none."""
    by_labels: dict[str, list[str]] = {}
    for target, names in labels_by_target.items():
        by_labels.setdefault(" and ".join(names), []).append(target)
    groups = [f"{names} (at {', '.join(targets)})" for names, targets in by_labels.items()]
    return f"; {lead} {', '.join(groups)}" if groups else ""


NEEDS = Needs("audit_probe", edits=STREAM, answers=True, exact_outputs=True, untrained=True)


@checks_types
@restores_state
def audit_probe(
    model: AnyModel,
    task: Task,
    *,
    label: str | None = None,
    n_train: int | EveryInput = 1000,
    n_test: int | EveryInput = 512,
    alpha: float = 0.01,
    seed: int = 0,
) -> ProbeAudit:
    """Decide for every layer and target whether a label is readable and whether the answers depend on it.

    Readable: the accuracy of a linear probe exceeds that of its best control (shuffled labels, a control task, an
    untrained model, what the target's position and the number of tokens alone predict) by more than a fifth of the
    difference between that control and 1; never where all activations are equal. Used: setting the component
    along the class means to that of an example with another label, or to its mean over all examples, changes an answer
    in more than a fifth of the examples beyond those changed by a placebo, which moves the activation by the same
    distance in a random direction. Unused: neither edit changes an answer in more than a fifth of the examples. Where
    the placebo changes as much as the edit, neither is shown.

    Other labels of the task that this one is tied to at a target are held fixed: effects of the classes are fitted
    within groups of examples that agree in them, and an example takes its value from one of its group. Where too few
    examples differ in this label and agree in another, or edits with the other fixed cannot show that this one is
    unused, the two cannot be told apart.

    Args:
        model: Model to audit. It is not changed.
        task: Source of examples and labels.
        label: One of `task.probe_labels`; default: the first.
        n_train: Number of examples that probes and class means are fitted on; "all": every input of the validation
            split once.
        n_test: Number of held-out examples. "all": every input of the test split once, for tasks that list them
            (`Task.every_input`). Accuracies and effects are then exact, and p values are 0 or 1; each input takes its
            value from several others, in a fixed order. A cell is undecided only where a placebo changes as much as an
            edit.
        alpha: Level of all verdicts together (Holm).
        seed: Determines examples, controls and placebo directions. With n_test="all", controls and placebos are the
            same for every seed; with n_train="all" too, the seed has no effect.

    Raises:
        ValueError: whatever `probe` rejects, too few test examples, or a task that does not fit the model.

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16), seed=0)
        >>> interp.audit_probe(model, task, n_train=100, n_test=64).verdict[0]  # of each target, at the embedding
        ('not readable', 'undecided')
    """
    model = prepare_model(model, NEEDS, task)
    check_sample_size("n_test", n_test, low=1)
    if n_test != ALL and n_test < 32:
        raise ValueError(f"n_test is {n_test}; at least 32 examples are needed for a verdict.")
    check_level(alpha)
    with Count("auditing probes", 2) as count:
        probes = probe(model, task, label=label, n_train=n_train, n_test=n_test, seed=seed)
        count.advance()
        audited = _audited(model, task, probes, n_train=n_train, n_test=n_test, alpha=alpha, seed=seed)
        count.advance()
    return audited


def _audited(
    model: Net,
    task: Task,
    probes: ProbeResult,
    *,
    n_train: int | EveryInput,
    n_test: int | EveryInput,
    alpha: float,
    seed: int,
) -> ProbeAudit:
    """The audit of probes that were fitted on the same examples."""
    fitting, testing = examples_of_probes(task, n_train, n_test, seed=seed)
    every_input = n_test == ALL
    examples = labelled(task, (fitting, testing), probes.label, is_predicted=False)
    columns, (fit_labels, test_labels) = examples.targets, examples.labels
    # How the label is told apart from the others, so that every cell could still be decided if all were
    fit_present, n_classes = examples.present[0], examples.n_classes
    n_needed = sequences_needed(float(4 * probes.accuracy.value.size), alpha, SHARE_THAT_COUNTS)
    isolations = isolate_targets(
        probes.label,
        examples.numbers,
        [batch.present for batch in (fitting, testing)],
        columns,
        n_classes=n_classes,
        n_needed=n_needed,
        most_uncovered=SHARE_THAT_COUNTS,
        n_partners=number_of_pairings(len(testing)) if every_input else None,
    )
    sums = DirectionSums(fit_labels, fit_present, n_classes, isolations)
    for rows, streams in residual_blocks(model, fitting, columns):
        sums.add(rows, streams)
    directions_by_index = sums.directions()
    # Which cells are readable; nothing is where all activations are equal
    baseline = np.maximum.reduce(
        [probes.shuffled, probes.control, probes.untrained, np.broadcast_to(probes.position, probes.shuffled.shape)]
    )
    n_correct = np.rint(probes.accuracy.value * probes.n_scored)
    bar = baseline + SHARE_THAT_COUNTS * (1 - baseline)
    p_readable, p_not_readable = readable_p_values(n_correct, bar, probes.n_scored, every_input=every_input)
    for cell, cell_directions in directions_by_index.items():
        if not cell_directions.varies:
            p_readable[cell], p_not_readable[cell] = 1.0, 0.0
    # Directions of the cells in which its use is tested, and the answers that edits along them change
    may_be_used = p_not_readable > alpha
    directions = {}
    for (layer, index), cell_directions in directions_by_index.items():
        if may_be_used[layer, index] and _is_testable(isolations.get(index), cell_directions):
            directions[layer, columns[index]] = cell_directions
    pairs = _pairs(testing, columns, isolations, every_input=every_input)
    placebo_seed = 0 if every_input else seed
    changes = _changes(model, task, testing, test_labels, pairs, directions, columns, seed=placebo_seed)
    # p values of all hypotheses, corrected together
    n_edited = np.array([len(pairs[target].bases.unique()) for target in columns])
    uncovered = np.zeros(len(columns))
    for index, isolation in isolations.items():
        uncovered[index] = isolation.uncovered
    p_used, p_unused = used_p_values(
        changes.values(), SHARE_THAT_COUNTS, np.maximum(n_edited, 1), uncovered, every_input=every_input
    )
    p = corrected_together([p_readable, p_not_readable, p_used, p_unused])
    # Verdicts, and the share of the examples that each edit changes, missing in cells that are not tested
    tested = np.zeros(may_be_used.shape, dtype=bool)
    for layer, target in directions:
        tested[layer, columns.index(target)] = True
    verdicts, confounders = _verdicts(p, alpha, tested, isolations)
    shares = {}
    for name, values in changes.items():
        estimates = np.where(tested, drop_interval(values[..., 0], values[..., 1]), np.nan)
        value, low, high = estimates
        share = Interval(value=value, low=low, high=high, n=n_edited)
        shares[name] = share.as_exact() if every_input else share
    return ProbeAudit(
        label=probes.label,
        targets=probes.targets,
        verdict=verdicts,
        accuracy=probes.accuracy,
        baseline=baseline,
        **shares,
        p=p,
        alpha=alpha,
        n=len(testing),
        n_fitted=probes.n_fitted,
        n_scored=probes.n_scored,
        omitted=probes.omitted,
        held={probes.targets[index]: isolation.held for index, isolation in isolations.items() if isolation.held},
        confounders={probes.targets[index]: names for index, names in confounders.items()},
    )


def _is_testable(isolation: Isolation | None, directions: Directions) -> bool:
    """Whether the label can be told apart from others at a layer and target, so that its use can be tested."""
    return isolation is None or (isolation.testable and directions.has_effect)


def _pairs(
    batch: Batch, columns: list[int], isolations: Mapping[int, Isolation], *, every_input: bool
) -> dict[int, Pairs]:
    """By target, the examples to edit: those with a partner of another class that agrees in the labels held fixed.

    Without any to hold fixed, every example takes its value from the next one that has the target; of every input, from
    each of a family of others (`partners`).
    """
    pairs = {}
    for index, target in enumerate(columns):
        rows = batch.present[:, target].nonzero()[:, 0]
        isolation = isolations.get(index)
        if isolation is not None and isolation.held:
            pairs[target] = Pairs.isolated(isolation, rows)
        elif every_input:
            pairs[target] = Pairs.all_of(rows)
        else:
            pairs[target] = Pairs(bases=rows, sources=rows.roll(-1))
    return pairs


def _changes(
    model: Net,
    task: Task,
    batch: Batch,
    labels: Int[Tensor, "batch target"],
    pairs: dict[int, Pairs],
    directions: dict[tuple[int, int], Directions],
    columns: list[int],
    *,
    seed: int,
) -> dict[str, Float[np.ndarray, "sample layer target 3"]]:
    """By edit, for each example and cell: what `used_p_values` needs, as sums over the pairs of the example.

    An example counts for the interchange only if its label differs from that of the example whose value it takes.
    """
    shape = (len(batch), model.cfg.n_layers + 1, len(columns), 3)
    changes = {edit: np.zeros(shape) for edit in PLACEBOS}
    # Each edit and its placebo, one cell after the other
    edits = (*PLACEBOS, *PLACEBOS.values())
    for cell in edited_answers(model, task, batch, pairs, directions, edits=edits, seed=seed):
        index = columns.index(cell.target)
        answered = batch.present[cell.rows]
        changed = {}
        for edit, answers in cell.after.items():
            changed[edit] = ((answers != cell.before) & answered).any(1).double()
        different = (labels[cell.rows, index] != labels[cell.sources, index]).double()
        for edit, placebo in PLACEBOS.items():
            counts = different if edit == "interchange" else torch.ones_like(different)
            beyond_placebo = changed[edit] - changed[placebo]
            values = torch.stack([beyond_placebo * counts, counts, changed[edit] * counts], 1)
            np.add.at(changes[edit][:, cell.layer, index], cell.rows.numpy(), values.numpy())
    return changes


def _verdicts(
    p: Float[np.ndarray, "question layer target"],
    alpha: float,
    tested: Bool[np.ndarray, "layer target"],
    isolations: Mapping[int, Isolation],
) -> tuple[tuple[tuple[ProbeVerdict, ...], ...], dict[int, tuple[str, ...]]]:
    """The verdicts, and by target the labels that this one cannot be told apart from.

    Args:
        p: p values of the four questions.
        alpha: Level.
        tested: Whether it was tested if the label is used.
        isolations: How the label is told apart from others, by target.
    """
    verdicts = []
    names_by_target = {}
    for layer, row in enumerate(tested):
        verdicts_of_layer = []
        for index, is_tested in enumerate(row):
            names = isolations[index].confounders if index in isolations else ()
            verdict = _verdict(p[:, layer, index], alpha, tested=bool(is_tested), has_confounders=bool(names))
            if verdict == "cannot be told apart":
                names_by_target[index] = names or isolations[index].held
            verdicts_of_layer.append(verdict)
        verdicts.append(tuple(verdicts_of_layer))
    return tuple(verdicts), names_by_target


def _verdict(p: Float[np.ndarray, " question"], alpha: float, *, tested: bool, has_confounders: bool) -> ProbeVerdict:
    """The verdict on a cell.

    Args:
        p: p values of the four questions.
        alpha: Level.
        tested: Whether it was tested if the label is used.
        has_confounders: Whether an effect could be that of another label, if edits with it fixed have none.
    """
    is_readable, not_readable, is_used, not_used = (bool(value <= alpha) for value in p)
    if not_readable:
        return "not readable"
    if not is_readable:
        return "undecided"
    if not tested:
        return "cannot be told apart"
    if is_used:
        return "used"
    if has_confounders:
        return "cannot be told apart"
    return "unused" if not_used else "undecided"
