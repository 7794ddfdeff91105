"""Replacements of attention heads (zero, mean, resample, pattern), and activation patching.

A replacement is a value, used in two ways: `AblationEngine` calls it for the heads it ablates, and `.hook(head=...)`
is a hook for `run_with_hooks` that replaces the activation of any hook point:

    engine.each_head(Zero())
    model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_z", Zero().hook(head=2))])

Hooks return an edited copy, so caches and gradients stay intact. With b I on (`vo_identity`) z is only part of a head's
output, which is z_h W_O,h + b_h A_h x: to replace all of it, hook `hook_result`. A pattern replaced at `hook_pattern`
mixes both parts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.model.hook_names import HEAD_AXIS
from hooks.typed import checks_types

Hook = Callable[..., Tensor]


@dataclass(frozen=True, kw_only=True)
class HeadInputs:
    """Activations of one layer's heads, from which a replacement computes their new outputs.

    The output of a head is its pattern times its values: pattern @ v is z. The exception is a convolution
    (`hooks.LegoAttention`), which has one kernel per coordinate and whose pattern is their mean.
    """

    z: Float[Tensor, "batch pos head width"]
    """Head outputs: z, of width d_head, or with b I on the whole output (`hook_result`), of width d_model."""
    v: Float[Tensor, "batch pos head width"] | None = None
    """Values that the pattern mixes: v, or with b I on v W_O + b x. None in a model where they cannot be read."""
    pattern: Float[Tensor, "batch head query key"] | None = None
    """None in a model where it cannot be read."""

    def mixed(self) -> tuple[Float[Tensor, "batch head query key"], Float[Tensor, "batch pos head width"]]:
        """The pattern and the values that it mixes.

        Raises:
            ValueError: a model in which they cannot be read.
        """
        if self.pattern is None or self.v is None:
            raise ValueError(
                "this replacement needs attn.hook_pattern and attn.hook_v, which cannot be read in this model, or were "
                "not recorded (patterns=False); zero, mean and resample need attn.hook_z only."
            )
        return self.pattern, self.v


Replacement = Callable[[int, HeadInputs], Float[Tensor, "batch pos head width"]]
"""New outputs of all heads of a layer, from its index and its activations."""


class HeadReplacement(ABC):
    """A `Replacement` that can also serve as a hook."""

    @abstractmethod
    def replace(self, activation: Tensor, layer: int | None) -> Tensor:
        """The tensor that replaces an activation; `layer` is None outside layers."""

    def __call__(self, layer: int, clean: HeadInputs) -> Float[Tensor, "batch pos head width"]:
        return self.replace(clean.z, layer)

    def hook(self, *, head: int | None = None) -> Hook:
        """A hook for `run_with_hooks`.

        Args:
            head: The head to replace; if None, the whole activation.
        """
        return _hook(self.replace, head)


@dataclass(frozen=True)
class Zero(HeadReplacement):
    """Zeros."""

    def replace(self, activation: Tensor, layer: int | None) -> Tensor:
        return torch.zeros_like(activation)


@dataclass(frozen=True, eq=False)
class _FromReference(HeadReplacement):
    reference: Float[Tensor, "sample ..."] | Sequence[Float[Tensor, "sample ..."]]
    """The hook point's activation on other inputs of the same length; one tensor, or one per layer."""

    def _samples(self, layer: int | None) -> Tensor:
        if isinstance(self.reference, Tensor):
            return self.reference
        return self.reference[layer]  # pyright: ignore[reportCallIssue, reportArgumentType]


class Mean(_FromReference):
    """The mean over the samples of a reference run."""

    def replace(self, activation: Tensor, layer: int | None) -> Tensor:
        average = self._samples(layer).mean(0, keepdim=True)
        return _fitting(average, activation).expand_as(activation)


@dataclass(frozen=True, eq=False)
class Resample(_FromReference):
    """Samples of a reference run, one for each sequence of the batch."""

    rows: Int[Tensor, " batch"]
    """Index of the sample that replaces each sequence."""

    def replace(self, activation: Tensor, layer: int | None) -> Tensor:
        reference = _fitting(self._samples(layer), activation)
        return reference[self.rows.to(activation.device)].expand_as(activation)


@dataclass(frozen=True, eq=False)
class Pattern(HeadReplacement):
    """Another attention pattern: as a hook for `hook_pattern`, as a replacement the clean values under it.

    Raises:
        ValueError: a row that has a negative entry or does not sum to one.
    """

    rows: Float[Tensor, "#batch query key"] | Callable[[int, Tensor], Tensor]
    """One pattern for all heads, whose rows sum to one; or a function from a layer's index and its clean pattern
    (batch, head, query, key) to the new one."""

    def __post_init__(self):
        if not isinstance(self.rows, Tensor):
            return
        sums_to_one = torch.allclose(self.rows.sum(-1), self.rows.new_ones(()), atol=1e-4)
        if (self.rows < 0).any() or not sums_to_one:
            raise ValueError("pattern has a row that is negative somewhere or does not sum to one; normalise its rows.")

    def replace(self, activation: Tensor, layer: int | None) -> Tensor:
        if not isinstance(self.rows, Tensor):
            return self.rows(layer, activation)  # pyright: ignore[reportArgumentType]
        return _fitting(self.rows[:, None], activation).expand_as(activation)

    def __call__(self, layer: int, clean: HeadInputs) -> Float[Tensor, "batch pos head width"]:
        pattern, v = clean.mixed()
        return (self.replace(pattern, layer) @ v.transpose(1, 2)).transpose(1, 2)


@checks_types
def patch(
    source: Float[Tensor, "batch ..."], *, head: int | None = None, positions: Int[Tensor, " n"] | None = None
) -> Hook:
    """Replace an activation by that of another run at the same hook point.

    Args:
        source: Activation of the other run, of the same shape.
        head: The head to patch; if None, the whole activation.
        positions: Positions to patch (axis 1); if None, all. Scores and patterns are refused: they have an axis of
            queries and one of keys. Patch `hook_z` at these positions instead.

    Returns:
        The hook. It raises ValueError for a source of another shape, and for positions of scores or patterns.
    """

    def replace(activation: Tensor, layer: int | None) -> Tensor:
        if source.shape != activation.shape:
            raise ValueError(
                f"source is {tuple(source.shape)}; the activation it replaces is {tuple(activation.shape)}."
            )
        if positions is None:
            return source
        mixed = activation.clone()
        mixed[:, positions] = source[:, positions]
        return mixed

    return _hook(replace, head, has_positions=positions is not None)


def _hook(replace: Callable[[Tensor, int | None], Tensor], head: int | None, *, has_positions: bool = False) -> Hook:
    """A hook that replaces an activation, or one head of it.

    Args:
        replace: The new activation, from the old one and its layer (None outside layers).
        head: The head to replace; if None, the whole activation.
        has_positions: True if `replace` changes certain positions of axis 1.
    """

    def edit(activation: Tensor, hook: Any) -> Tensor:
        if has_positions and hook.name.endswith(("hook_pattern", "hook_attn_scores")):
            raise ValueError(f"positions cannot be patched at {hook.name}, which has queries and keys; use hook_z.")
        layer = int(hook.name.split(".")[1]) if hook.name.startswith("blocks.") else None
        edited = replace(activation, layer)
        if head is None:
            return edited
        # All other heads stay as they are
        axis = _head_axis(hook.name, activation, head)
        mixed = activation.clone()
        mixed.select(axis, head).copy_(edited.select(axis, head))
        return mixed

    # `CheckedHooks` reads it: an edit of a hard-coded head's query would do nothing
    edit.head = head  # pyright: ignore[reportFunctionMemberAccess]
    return edit


def _head_axis(name: str, activation: Tensor, head: int) -> int:
    axis = HEAD_AXIS.get(name.rpartition(".")[2])
    if axis is None:
        raise ValueError(f"head is {head}, but {name} has no heads; leave head out or choose {', '.join(HEAD_AXIS)}.")
    if not 0 <= head < activation.shape[axis]:
        raise ValueError(f"head is {head}; {name} has heads 0 to {activation.shape[axis] - 1}.")
    return axis


def _fitting(reference: Tensor, activation: Tensor) -> Tensor:
    """The reference in the activation's dtype and device; axes after the first must agree, or be 1."""
    fits = reference.ndim == activation.ndim
    if fits:
        sizes = zip(reference.shape[1:], activation.shape[1:], strict=True)
        fits = all(reference_size in (1, size) for reference_size, size in sizes)
    if not fits:
        raise ValueError(
            f"the replacement is {tuple(reference.shape)}; the activation it replaces is {tuple(activation.shape)}. "
            f"Take it from the same hook point, on inputs of the same length."
        )
    return reference.to(activation)
