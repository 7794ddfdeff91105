"""A batch of examples, and how it is scored.

Axes: `batch` examples, `pos` positions, `target` predictions per example.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

EQUAL_LOGITS = 16 * torch.finfo(torch.float32).eps
"""Difference of two logits, absolute or as a share of the larger one, that float32 may have from rounding alone."""
AnyBatch = TypeVar("AnyBatch", bound="Batch")  # not `Self`, which the shape checker cannot read


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples and their targets. Tasks add fields in subclasses."""

    tokens: Int[Tensor, "batch pos"]
    """Token ids."""
    target_positions: Int[Tensor, "batch target"]
    """Position at which each target is predicted."""
    labels: Int[Tensor, "batch target"]
    """Correct answer for each target."""
    supervised: Bool[Tensor, " target"]
    """Targets that count in the training loss."""
    position_ids: Int[Tensor, "batch pos"] | None = None
    """Position ids; None for 0, 1, 2, ..."""
    attention_mask: Bool[Tensor, "batch pos"] | None = None
    """True for real tokens, False for padding; None if there is no padding."""
    target_mask: Bool[Tensor, "batch target"] | None = None
    """True where an example has the target; None if all examples have all. A missing target has position 0, label 0."""

    answer_fields: ClassVar[tuple[str, ...]] = ("labels",)
    """Fields that depend on the correct answers, and not on the tokens alone."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def present(self) -> Bool[Tensor, "batch target"]:
        """Whether each example has each target."""
        return torch.ones_like(self.labels, dtype=torch.bool) if self.target_mask is None else self.target_mask

    def input_keys(self) -> list[bytes]:
        """A key for each example, equal for equal inputs in any batch: tokens with their positions, without padding."""
        mask = torch.ones_like(self.tokens) if self.attention_mask is None else self.attention_mask
        # position ids that count from the first real token, so that padding on the left makes no difference
        positions = mask.cumsum(1) if self.position_ids is None else self.position_ids
        inputs = torch.stack([self.tokens, positions], 2).numpy()
        is_real = mask.bool().numpy()
        return [row[columns].tobytes() for row, columns in zip(inputs, is_real, strict=True)]

    def tensors(self) -> dict[str, Tensor]:
        """The fields that are tensors, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def with_labels_of(self: AnyBatch, rows: Int[Tensor, " batch"]) -> AnyBatch:
        """The same inputs with the correct answers of other examples, for controls on shuffled labels."""
        return replace(self, **{name: getattr(self, name)[rows] for name in self.answer_fields})

    def select(self: AnyBatch, rows: Int[Tensor, " n"] | slice) -> AnyBatch:
        """Select examples by row."""
        # `supervised` has no batch axis
        tensors = {name: value for name, value in self.tensors().items() if name != "supervised"}
        return replace(self, **{name: value[rows] for name, value in tensors.items()})

    def followed_by(self: AnyBatch, later: AnyBatch) -> AnyBatch:
        """These examples and others of the same length, in one batch."""
        tensors = {name: value for name, value in self.tensors().items() if name != "supervised"}
        return replace(self, **{name: torch.cat([value, getattr(later, name)]) for name, value in tensors.items()})

    def to(self: AnyBatch, device: torch.device | str) -> AnyBatch:
        """Move every tensor to a device."""
        return replace(self, **{name: value.to(device) for name, value in self.tensors().items()})

    def model_inputs(self) -> dict[str, Any]:
        """Keyword arguments of the model's forward pass, besides the tokens."""
        inputs = {"position_ids": self.position_ids, "attention_mask": self.attention_mask}
        return {name: value for name, value in inputs.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Score:
    """Per-example results for each outcome. Accuracy is the sum of `right` divided by the sum of `total`."""

    right: Float[Tensor, "batch outcome"]
    """Number of correct answers."""
    loss: Float[Tensor, "batch outcome"]
    """The task's loss (cross entropy in nats, or squared error), summed over answers."""
    total: Float[Tensor, "batch outcome"]
    """Number of scored answers; an example may have several, or none."""


def logits_at_targets(
    logits: Float[Tensor, "batch pos d_vocab_out"], batch: Batch
) -> Float[Tensor, "batch target d_vocab_out"]:
    """Logits at the target positions.

    Raises:
        ValueError: not the logits of every position of the batch.
    """
    check_logits(logits, batch)
    return logits.gather(1, batch.target_positions[..., None].expand(-1, -1, logits.shape[-1]))


def check_logits(logits: Tensor, batch: Batch) -> None:
    """Check that logits are those of every position of a batch.

    Raises:
        ValueError: another shape, such as that of logits at the targets.
    """
    expected = tuple(batch.tokens.shape)
    if logits.ndim != 3 or tuple(logits.shape[:2]) != expected:
        selected = tuple(logits.shape[:2]) == tuple(batch.labels.shape)
        advice = "Pass the model's own output" + (", not logits_at_targets of it." if selected else ".")
        raise ValueError(
            f"logits has the shape {tuple(logits.shape)}; needed are those of every position, (batch, pos, "
            f"d_vocab_out), here ({expected[0]}, {expected[1]}, d_vocab_out). {advice}"
        )


def check_target_logits(target_logits: Tensor, batch: Batch) -> None:
    """Check that logits are those at the targets of a batch.

    Raises:
        ValueError: another shape, such as that of logits at every position.
    """
    expected = tuple(batch.labels.shape)
    if target_logits.ndim != 3 or tuple(target_logits.shape[:2]) != expected:
        raise ValueError(
            f"target_logits has the shape {tuple(target_logits.shape)}; needed are those at the targets, (batch, "
            f"target, d_vocab_out), here ({expected[0]}, {expected[1]}, d_vocab_out). Pass "
            f"interp.tasks.base.logits_at_targets(logits, batch)."
        )


class NotFinite(ValueError):
    """Logits that are NaN or infinite."""


def check_finite_logits(logits: Float[Tensor, "*answers choice"]) -> None:
    """Check that logits are numbers: answers that are read off NaN would be wrong without a word.

    Raises:
        NotFinite: NaN or infinity.
    """
    if logits.isfinite().all():
        return
    value = logits[~logits.isfinite()][0].item()
    place = (~logits.isfinite()).nonzero()[0].tolist()
    raise NotFinite(
        f"the logits of the model are not finite: {value} first at {tuple(place)}. Its weights may be too large, or an "
        f"intervention gives such values; check model(tokens).isfinite()."
    )


def likeliest(logits: Float[Tensor, "*answers choice"]) -> Int[Tensor, "*answers"]:
    """Index of the largest logit; of logits that are equal up to rounding, the first.

    Without what an ablated head carries, all logits may be equal. Rounding would then choose the answer, and it differs
    between processors, sizes of a batch and bases of the residual stream.
    """
    largest = logits.amax(-1, keepdim=True)
    is_largest = logits >= largest - EQUAL_LOGITS * largest.abs().clamp_min(1)
    return is_largest.byte().argmax(-1)
