"""A published model on given inputs: its activations, its answers, and its answers under edits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.base import Batch, logits_at_targets
from published_readings.packs import Pack

Edit = Callable[[Tensor], Tensor]
"""Returns what takes the place of an activation, of the same shape."""
Removal = Literal["mean", "zero"]


@dataclass(frozen=True, eq=False)
class Runs:
    """A model on the inputs of its pack, or on others. Axes: `example`, `pos` or `query` and `key`, `answer`."""

    pack: Pack
    tokens: Int[Tensor, "example pos"]
    targets: Int[Tensor, "example answer"] | None = None
    """Right answers, -1 where there is none; None if they do not matter."""
    _kept: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def batch(self) -> Batch:
        """The inputs with their answers."""
        return self.pack.task.batch(self.tokens, self.targets)

    @property
    def real(self) -> Bool[Tensor, "example pos"]:
        """Positions that are not padding."""
        padding = self.pack.task.padding
        return torch.ones_like(self.tokens, dtype=torch.bool) if padding is None else self.tokens != padding

    @torch.no_grad()
    def activation(self, name: str) -> Tensor:
        """The activation at a hook point, such as `blocks.0.mlp.hook_post`; computed once."""
        if name not in self._kept:
            _, cache = self.pack.model.run_with_cache(self.tokens, **self._inputs, names_filter=name)
            self._kept[name] = cache[name]
        return self._kept[name]

    def pattern(self, layer: int, head: int) -> Float[Tensor, "example query key"]:
        """Attention of a head."""
        return self.activation(f"blocks.{layer}.attn.hook_pattern")[:, head]

    def written(self, layer: int, head: int) -> Float[Tensor, "example pos d_model"]:
        """What a head writes to the residual stream, without the layer's output bias."""
        z = self.activation(f"blocks.{layer}.attn.hook_z")[:, :, head]
        return z @ self.pack.weight(f"blocks.{layer}.attn.W_O")[head]

    @torch.no_grad()
    def logits(self, edits: Mapping[str, Edit] | None = None) -> Float[Tensor, "example answer d_vocab_out"]:
        """Logits where answers are read, with activations replaced at the hook points named."""
        if not edits and "logits" in self._kept:
            return self._kept["logits"]
        hooks: list[Any] = [(name, lambda value, hook, edit=edit: edit(value)) for name, edit in (edits or {}).items()]
        found = self.pack.model.run_with_hooks(self.tokens, **self._inputs, fwd_hooks=hooks)
        found = logits_at_targets(found, self.batch)
        if not edits:
            self._kept["logits"] = found
        return found

    def without_head(self, *heads: tuple[int, int], by: Removal = "mean") -> dict[str, Edit]:
        """Edits that replace the output of heads at every position."""
        layers = sorted({layer for layer, _ in heads})
        chosen = {layer: [head for at, head in heads if at == layer] for layer in layers}
        return {
            f"blocks.{layer}.attn.hook_z": self._replaced(by, (slice(None), slice(None), chosen[layer]))
            for layer in layers
        }

    def without_mlp(self, *layers: int, by: Removal = "mean") -> dict[str, Edit]:
        """Edits that replace the output of MLPs at every position."""
        return {f"blocks.{layer}.hook_mlp_out": self._replaced(by, (slice(None),)) for layer in layers}

    def without_neurons(self, layer: int, neurons: Sequence[int], by: Removal = "zero") -> dict[str, Edit]:
        """Edits that replace the activation of neurons at every position."""
        return {f"blocks.{layer}.mlp.hook_post": self._replaced(by, (..., list(neurons)))}

    def mean_of(self, value: Float[Tensor, "example pos *cells"]) -> Float[Tensor, "pos *cells"]:
        """The mean of an activation at each position over the examples that have a token there."""
        real = self.real.to(value).reshape(*self.real.shape, *(1,) * (value.ndim - 2))
        return (value * real).sum(0) / real.sum(0).clamp_min(1)

    def direct(self, written: Float[Tensor, "example pos d_model"]) -> Float[Tensor, "example answer d_vocab_out"]:
        """What a part of the final stream adds to the logits, the last norm's scale kept as it is in each example."""
        at = self.pack.task.positions
        weights, found = self.pack.weights, written[:, at]
        if "ln_final.w" in weights:
            scale = self.activation("ln_final.hook_scale")[:, at]
            found = (found - found.mean(-1, keepdim=True)) / scale * self.pack.weight("ln_final.w")
        return found @ self.pack.weight("W_U")

    def head_inputs(
        self, layer: int, head: int, stream: Float[Tensor, "example pos d_model"], parts: str = "qkv"
    ) -> dict[str, Edit]:
        """Edits after which one head, and no other part, reads this stream at the start of its layer.

        Args:
            layer: The head's layer.
            head: The head.
            stream: The residual stream that it reads.
            parts: Which of its queries, keys and values are computed from it.
        """
        normed, norm = stream, f"blocks.{layer}.ln1"
        if f"{norm}.w" in self.pack.weights:
            w, b = (self.pack.weight(f"{norm}.{part}") for part in "wb")
            normed = F.layer_norm(stream, stream.shape[-1:], w, b, eps=self.pack.model.cfg.layer_norm_eps)
        edits: dict[str, Edit] = {}
        for part in parts:
            weight = self.pack.weight(f"blocks.{layer}.attn.W_{part.upper()}")[head]
            bias = self.pack.weights.get(f"blocks.{layer}.attn.b_{part.upper()}")
            found = normed @ weight + (0 if bias is None else torch.from_numpy(bias)[head])

            def edit(value: Tensor, found: Tensor = found) -> Tensor:
                value = value.clone()
                value[:, :, head] = found
                return value

            edits[f"blocks.{layer}.attn.hook_{part}"] = edit
        return edits

    @property
    def _inputs(self) -> dict[str, Any]:
        return self.batch.model_inputs()

    def _replaced(self, by: Removal, cells: tuple) -> Edit:
        def edit(value: Tensor) -> Tensor:
            new = torch.zeros_like(value) if by == "zero" else self.mean_of(value).expand_as(value)
            found = value.clone()
            found[cells] = new[cells]
            return found

        return edit


@lru_cache(maxsize=2)
def runs(pack: Pack) -> Runs:
    """A model on the inputs of its pack."""
    return Runs(pack, pack.task.inputs, pack.task.labels)


def right(logits: Float[Tensor, "example answer out"], targets: Int[Tensor, "example answer"]) -> Bool[Tensor, " n"]:
    """Whether each answer that counts is right; all examples and answers in a row."""
    return (logits.argmax(-1) == targets)[targets >= 0]


def losses(
    logits: Float[Tensor, "example answer out"], targets: Int[Tensor, "example answer"]
) -> Float[Tensor, " example"]:
    """Cross entropy in nats, mean over the answers of each example."""
    counted = targets >= 0
    every = F.cross_entropy(logits.transpose(1, 2), targets.clamp_min(0), reduction="none") * counted
    return every.sum(1) / counted.sum(1).clamp_min(1)


def shares_right(
    logits: Float[Tensor, "example answer out"], targets: Int[Tensor, "example answer"]
) -> Float[Tensor, " example"]:
    """Share of the answers of each example that are right."""
    counted = targets >= 0
    return ((logits.argmax(-1) == targets) & counted).sum(1) / counted.sum(1).clamp_min(1)
