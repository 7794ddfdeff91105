"""Exact replacement of the embedding, heads, MLPs and neurons, in any sets, from one cached pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.interventions.ablation_engine import EMBEDDING_POINT, AblationEngine, Head, Net, NewOutput
from hooks.model.layers import take


@dataclass(frozen=True)
class Mlp:
    """The MLP of a layer, or some of its neurons."""

    layer: int
    neurons: tuple[int, ...] | None = None
    """Neurons after the nonlinearity (`mlp.hook_post`); if None, the whole output (`hook_mlp_out`)."""

    @property
    def hook_point(self) -> str:
        """Where it writes."""
        return f"blocks.{self.layer}.{'hook_mlp_out' if self.neurons is None else 'mlp.hook_post'}"


@dataclass(frozen=True)
class Embedding:
    """The embedding, position embeddings included."""

    hook_point = EMBEDDING_POINT


Part = Head | Mlp | Embedding


class PartEngine(AblationEngine):
    """One clean pass on a batch, from which sets of parts are replaced together.

    A set takes one pass, which starts at the input of its first layer. Arguments and errors are those of
    `AblationEngine`.
    """

    def __init__(self, model: Net, tokens: Int[Tensor, "batch pos"], **options: Any):
        super().__init__(model, tokens, patterns=False, **options)

    def each_edit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, sets: Sequence[Sequence[Part]], new_output: NewOutput
    ) -> Iterator[tuple[int, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with the parts of each set replaced together, with the index of the set.

        What is written instead is computed from what the part writes under the edits of earlier parts.
        """
        for index, parts in enumerate(sets):
            yield index, self._logits_without(parts, new_output)

    @torch.no_grad()
    def _logits_without(self, parts: Sequence[Part], new_output: NewOutput) -> Float[Tensor, "batch read d_vocab_out"]:
        if not parts:
            return self.logits
        # What is replaced at each hook point; None for all of it
        replaced: dict[str, list[int] | None] = {}
        layers = set()
        for member in parts:
            layer, point, indices = self._place_of(member)
            layers.add(layer)
            known = replaced.get(point, [])
            replaced[point] = None if indices is None or known is None else [*known, *indices]

        def edit(activation: Tensor, hook: Any) -> Tensor:
            new = new_output(hook.name, activation).expand_as(activation)
            indices = replaced[hook.name]
            if indices is None:
                return new
            # Heads and neurons are the third axis
            edited = activation.clone()
            edited[:, :, indices] = new[:, :, indices]
            return edited

        first = min(layers)
        # An edit of the last layer sees all positions, not only those that are read
        read_at = None if self.model.cfg.n_layers - 1 in layers else self.read_at
        with self.model.hooks([(point, edit) for point in replaced]):
            logits = self._resume(self.cache[f"blocks.{first}.hook_resid_pre"], first, None, read_at)
        return logits if read_at is not None or self.read_at is None else take(logits, self.read_at)

    def _place_of(self, member: Part) -> tuple[int, str, tuple[int, ...] | None]:
        """Layer of a part, its hook point, and its indices there; None for all of it."""
        if isinstance(member, Embedding):
            return 0, member.hook_point, None
        if isinstance(member, Mlp):
            return member.layer, member.hook_point, member.neurons
        layer, head = member
        return layer, f"blocks.{layer}.{self._output_point}", (head,)
