"""Direct logit attribution: what embedding, heads and MLPs each add to the logit of the correct answer."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hooks import TransformerStack
from hooks.checks import shown
from hooks.interventions.ablation_engine import head_output_point
from hooks.interventions.clean_pass import Net
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, POSITIVE_COUNT, ROUNDING, SIZE, Axes, checks_types
from interp.core.activations import chunks
from interp.core.consistency import check_that
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.intervals import Interval
from interp.core.read_out import chunk_size, contrasts_of, mean_contrasts, read_directions, rows_at_targets
from interp.core.results import MOST_LINES, MOST_PANELS, Result, count_range, table_lines
from interp.core.sample import Sample
from interp.core.statistics import mean_interval
from interp.core.verbs import AnyModel, Needs, prepare_model, without_sums
from interp.tasks.base import Batch, Task
from interp.tasks.splits import EveryInput

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

EMBEDDING, READ_OUT_BIAS = "embedding", "read-out bias"
"""Parts that belong to no layer."""


@dataclass(frozen=True, kw_only=True)
class LogitAttributionResult(Result):
    """What each part of a model adds to the logit difference of every target: the correct answer's logit minus the mean
    logit of all other answers, with the final norm's scale held at its value."""

    parts: Annotated[tuple[str, ...], Axes("part")]
    """`embedding` (tokens and positions), then of each layer its heads (`0.1`), the bias of their output (`0 bias`) and
    the MLP (`0 MLP`), then `read-out bias` (of the final norm and the unembedding)."""
    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the targets."""
    contribution: Annotated[Interval, Axes("part target"), MAY_BE_MISSING]
    """Per part and target: mean over sequences of what the part adds, in logits, with its 95 % t interval, whose
    independent units are distinct inputs; exact if every input was counted."""
    control: Annotated[Float[np.ndarray, "part target"], MAY_BE_MISSING]
    """The same with the correct answers of other sequences, mean over all pairs: what a part adds to frequent answers
    whatever the sequence is. Zero if all answers are equally frequent."""
    logit_difference: Annotated[Interval, Axes("target"), MAY_BE_MISSING]
    """Per target: mean logit difference of the model, which the parts add up to."""
    remainder: Annotated[Float[np.ndarray, " target"], SIZE, MAY_BE_MISSING]
    """Largest distance, over sequences, of the sum of all parts from the logit difference: rounding, if nothing is
    missing."""
    shape: Annotated[tuple[int, int], POSITIVE_COUNT]
    """Number of layers and of heads per layer of the model."""
    n: Annotated[int, COUNT]
    """Sequences sampled, or all that there are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        layers_with_mlp = [layer for layer in range(self.shape[0]) if f"{layer} MLP" in self.parts]
        expected = names_of_parts(self.shape, layers_with_mlp)
        check_that(self.parts == expected, f"parts is {shown(self.parts)}; of this shape it must be {shown(expected)}.")
        # What parts add is the whole, but for the remainder
        distance = np.abs(self.contribution.value.sum(0) - self.logit_difference.value)
        largest = self.remainder + ROUNDING * (1 + np.abs(self.contribution.value).sum(0))
        for index in np.flatnonzero(distance > largest):
            total = self.logit_difference.value[index]
            raise ValueError(
                f"contribution of {shown(self.targets[index])} adds up to {self.contribution.value[:, index].sum():g}; "
                f"logit_difference is {total:g}, and remainder {self.remainder[index]:g}."
            )

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per part and target."""
        axes = {"part": self.parts, "target": self.targets}
        columns = self.contribution.columns("contribution")
        return self._table(axes, "control", **columns, n=np.broadcast_to(self.contribution.n, self.contribution.shape))

    def plot(self) -> "alt.TopLevelMixin":
        """Layer x part maps of the contributions, a map per target; of more than six targets the mean."""
        from interp.view.charts import heatmaps

        means = self.contribution.value
        totals = self.logit_difference.value
        names = list(self.targets)
        if len(names) > MOST_PANELS:
            names = [f"mean of {len(names)} targets"]
            means, totals = np.nanmean(means, 1, keepdims=True), np.nanmean(totals, keepdims=True)
        # One panel per target: heads and MLP of each layer; what is in no layer is in the title
        n_layers, n_heads = self.shape
        columns = [str(head) for head in range(n_heads)]
        if "0 MLP" in self.parts:
            columns.append("MLP")
        cells = [[f"{layer}.{column}" for column in columns] for layer in range(n_layers)]
        rows = np.array([[self.parts.index(name.replace(".MLP", " MLP")) for name in row] for row in cells])
        panels = {}
        for index, target in enumerate(names):
            embedding = means[0, index]
            biases = means[[name.endswith("bias") for name in self.parts], index].sum()
            title = f"{target}: {totals[index]:z.2f} = {embedding:+z.2f} embedding {biases:+z.2f} biases + cells"
            panels[title] = means[rows, index]
        largest = max(float(np.nanmax(np.abs(np.array(list(panels.values()))))), 1e-3)
        within = "exact" if self.contribution.exact else f"95 % within ±{self.contribution.half_width:.2g}"
        n = count_range(np.asarray(self.contribution.n))
        return heatmaps(
            panels,
            x=columns,
            x_title="head",
            y_title="layer",
            title=f"added to the correct answer's logit minus the mean of the others, n = {n} ({within})",
            value="logits",
            domain=(-largest, largest),
        )

    def __str__(self) -> str:
        rows = [["", *self.targets]]
        # One line per part, of many those that add most
        sizes = np.nan_to_num(np.abs(self.contribution.value)).max(1)
        shown_parts = sorted(np.argsort(-sizes, kind="stable")[:MOST_LINES])
        for row in shown_parts:
            rows.append([self.parts[row], *(added.text(2) for added in self.contribution[row])])
        rows.append(["logit difference", *(total.text(2) for total in self.logit_difference)])
        *lines, total = table_lines(rows)
        n_omitted = len(self.parts) - len(shown_parts)
        if n_omitted:
            lines.append(f"{n_omitted} parts that add less")
        lines.append(total)
        sequences = f"{self.n} sequences{repeats_text(self.n, int(np.max(self.contribution.n)))}, 95 % intervals"
        if self.contribution.exact:
            sequences = all_inputs_text(self.n)
        lines.append(
            f"added to the correct answer's logit minus the mean of the others; {sequences}; other sequences' answers: "
            f"at most {np.nanmax(np.abs(self.control)):.2f}; remainder at most {np.nanmax(self.remainder):.1g}"
        )
        return "\n".join(lines)


_without_sums = without_sums(
    "its block is {block}, whose layers do not add the outputs of heads and MLPs to the residual stream, so that "
    "logits are no sum over them. Blocks that do: pre_ln, no_norm. Use ablate_heads."
)


def _lacks_sum_over_parts(model: TransformerStack) -> str:
    """What a model lacks for direct logit attribution: layers that add to the stream, and a linear read-out."""
    if obstacle := _without_sums(model):
        return obstacle
    if getattr(model.cfg, "head", "") == "masked_lm":
        return (
            "its masked-LM head is not linear (dense, activation, LayerNorm, read-out), so that logits are no sum over "
            "heads and MLPs. Use ablate_heads."
        )
    return ""


NEEDS = Needs(
    "logit_attribution",
    reads=["blocks.0.hook_resid_pre", "attn.hook_z", "attn.W_O"],
    edits=["hook_resid_post"],
    answers=True,
    sums="heads",
    lacks=_lacks_sum_over_parts,
)


@checks_types
@restores_state
def logit_attribution(
    model: AnyModel, task: Task, *, n: int | EveryInput = 1000, seed: int = 0
) -> LogitAttributionResult:
    """What embedding, each head and each MLP add directly to the logit of the correct answer.

    The quantity is, at each target, the logit of the correct answer minus the mean logit of the task's other answers.
    The residual stream is a sum of what the parts write, and the read-out is linear once the scale of the final norm is
    held at its value for each sequence, so that the difference is a sum over parts. What a part adds through later
    layers is not in it: a head may add nothing and be needed (`ablate_heads`).

    Args:
        model: Model to read, whose layers add to the residual stream. It is not changed.
        task: Source of the sequences and their labels.
        n: Number of held-out sequences; distinct ones are the independent units of every interval. "all": every input
            of the test split once, without sampling error.
        seed: Determines the sequences.

    Raises:
        ValueError: layers that normalise the stream or do not add to it (`post_ln`, `dyck`), a read-out that is not
            linear after one norm, a hook point that is missing, a task with fewer than two answers, or too few
            sequences.

    Source: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; `apply_ln_to_stack` of
    TransformerLens freezes the norm in the same way. Differs: the contrast is with the mean of all other answers.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> added = interp.logit_attribution(lego_loop(task), task, n=32)
        >>> added.parts[added.contribution[:, 0].argmax()], bool(added.remainder.max() < 1e-5)
        ('0 MLP', True)
    """
    net = prepare_model(model, NEEDS, task)
    if task.d_vocab_out < 2:
        raise ValueError(
            f"the task has {task.d_vocab_out} output per target, and no other answers to compare the correct one with; "
            f"use a task with two answers or more."
        )
    sample = Sample.of(task, n, seed=seed, name="logit attribution")
    batch = sample.batch
    # For the control, how frequent each answer is at each target
    present = batch.present
    n_present = present.sum(0).clamp_min(1)
    frequencies = torch.zeros(batch.labels.shape[1], task.d_vocab_out)
    frequencies.scatter_add_(1, batch.labels.T, (present / n_present).T)
    # What each part adds on every sequence, with its own answer and with those of all sequences
    net.eval()
    size = chunk_size(net, batch)
    shares = [_contributions(net, task, chunk, frequencies) for chunk in chunks(batch, size)]
    added, added_to_frequent, difference = (torch.cat(arrays).numpy() for arrays in zip(*shares, strict=True))
    is_missing = ~present.numpy()
    remainder = np.where(is_missing, 0, np.abs(added.sum(1) - difference)).max(0)
    # Means over sequences that have the target
    weight = present.double().numpy()
    n_inputs = (sample.by_input(weight) > 0).sum(0)
    contribution = sample.estimate(added, weight[:, None], mean_interval)
    logit_difference = sample.estimate(difference, weight, mean_interval)
    shape = (net.cfg.n_layers, net.cfg.n_heads)
    return LogitAttributionResult(
        parts=names_of_parts(shape, [layer for layer in range(shape[0]) if _mlp_point(net, layer)]),
        targets=tuple(task.targets),
        contribution=replace(contribution, n=np.broadcast_to(n_inputs, contribution.shape).copy()),
        control=np.where(n_inputs > 0, added_to_frequent.sum(0) / np.maximum(present.sum(0).numpy(), 1), np.nan),
        logit_difference=replace(logit_difference, n=n_inputs),
        remainder=np.where(n_inputs > 0, remainder, np.nan),
        shape=shape,
        n=len(batch),
    )


def names_of_parts(shape: tuple[int, int], layers_with_mlp: Collection[int]) -> tuple[str, ...]:
    """Names of the parts that add to the residual stream, in the order in which they are computed."""
    n_layers, n_heads = shape
    names = [EMBEDDING]
    for layer in range(n_layers):
        names += [f"{layer}.{head}" for head in range(n_heads)]
        names.append(f"{layer} bias")
        if layer in layers_with_mlp:
            names.append(f"{layer} MLP")
    return (*names, READ_OUT_BIAS)


def _mlp_point(net: Net, layer: int) -> str:
    """The hook point of the MLP's output; empty if the layer has no MLP."""
    name = f"blocks.{layer}.hook_mlp_out"
    return name if name in net.hook_dict else ""


def _contributions(
    net: Net, task: Task, chunk: Batch, frequencies: Float[Tensor, "target answer"]
) -> tuple[Float[Tensor, "batch part target"], Float[Tensor, "batch part target"], Float[Tensor, "batch target"]]:
    """What each part adds with the correct answer and with the answers of all sequences, and the logit difference.

    All are zero where an example does not have the target.
    """
    n_layers, n_heads = net.cfg.n_layers, net.cfg.n_heads
    head_point = head_output_point(net.cfg)
    last = f"blocks.{n_layers - 1}.hook_resid_post"
    head_points = [f"blocks.{layer}.{head_point}" for layer in range(n_layers)]
    mlp_points = [point for layer in range(n_layers) if (point := _mlp_point(net, layer))]
    logits, rows = rows_at_targets(net, chunk, ["blocks.0.hook_resid_pre", *head_points, *mlp_points, last])
    # The contrast of each row, and its mean over the answers of all sequences at this target
    present = chunk.present
    contrasts = contrasts_of(chunk.labels[present].to(logits.device), task.d_vocab_out, logits.shape[1])
    target_of_row = torch.arange(present.shape[1]).expand(len(chunk), -1)[present]
    frequent = mean_contrasts(frequencies, logits.shape[1])[target_of_row].to(logits.device)
    # What each part writes, projected on the direction that each contrast is read from
    added = []
    for direction, constant in read_directions(net, rows[last], logits, [contrasts, frequent]):
        parts = [(rows["blocks.0.hook_resid_pre"] * direction).sum(-1)]
        for layer, point in enumerate(head_points):
            attention: Any = net.blocks[layer].attn
            heads = rows[point].unflatten(-1, (n_heads, -1))
            parts += _projected_heads(heads, direction, attention, net.cfg.vo_identity).unbind(-1)
            parts.append(direction @ attention.b_O.detach().to(direction.dtype))
            if mlp_point := _mlp_point(net, layer):
                parts.append((rows[mlp_point] * direction).sum(-1))
        added.append(torch.stack([*parts, constant], -1))
    difference = (logits * contrasts).sum(-1)
    of_right_answers, of_frequent_answers = (_per_example(values, present).mT for values in added)
    return of_right_answers, of_frequent_answers, _per_example(difference, present)


def _projected_heads(
    heads: Float[Tensor, "row head width"], direction: Float[Tensor, "row d_model"], attention: Any, with_identity: bool
) -> Float[Tensor, "row head"]:
    """What heads write, projected on directions; with b I on, `heads` is what they write, else it is their z."""
    if with_identity:
        return (heads * direction[:, None]).sum(-1)
    projection = torch.einsum("rd,hed->rhe", direction, attention.W_O.detach().to(direction.dtype))
    return (heads * projection).sum(-1)


def _per_example(rows: Float[Tensor, "row *width"], present: Tensor) -> Float[Tensor, "batch target *width"]:
    """Rows of the targets that examples have, on the CPU, with zeros for the others."""
    filled = torch.zeros(*present.shape, *rows.shape[1:], dtype=torch.float64)
    filled[present] = rows.detach().cpu().double()
    return filled
