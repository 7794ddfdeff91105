"""A model with only some of its edges: every other edge carries what its part writes instead."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import NewOutput
from hooks.interventions.edge_engine import EMBEDDING_POINT, EdgeEngine, Receiver
from hooks.model.layers import take
from hooks.model.transformer import make_context

BLOCKS_WITH_CIRCUITS = ("pre_ln", "no_norm")
"""Blocks in which every input is a sum over parts, each of which can be exchanged alone."""


class CircuitEngine(EdgeEngine):
    """Passes in which sets of edges are replaced together.

    Each input reads the sum over parts of what they write in this pass, or of their replacement where the edge between
    them is replaced. So a part whose edges are all replaced has no effect, and one replaced edge is that of
    `EdgeEngine`.

    Arguments and errors as for `EdgeEngine`; the model has a block of `BLOCKS_WITH_CIRCUITS`, and no hard-coded heads.
    """

    @torch.no_grad()
    def each_set(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        replaced: Bool[Tensor, "set edge"],
        new_outputs: Mapping[str, Float[Tensor, "#batch pos *width"]],
    ) -> Iterator[Float[Tensor, "batch read d_vocab_out"]]:
        """Logits with each set of edges replaced, one set after the other.

        Args:
            replaced: The edges of each set, in the order of `edges`.
            new_outputs: What parts write instead, as for `EdgeEngine.each_receiver`.
        """
        for sets in replaced.split(self.copies_per_pass):
            by_receiver = {receiver: sets[:, rows].to(self.logits) for receiver, rows in self.columns.items()}
            yield from self._pass(len(sets), by_receiver, new_outputs)

    def each_edit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, sets: Sequence[Bool[Tensor, " edge"]], new_output: NewOutput
    ) -> Iterator[tuple[int, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with each set of edges replaced, with the index of the set; as `each_set`."""
        return enumerate(self.each_set(torch.stack(list(sets)), self._outputs_instead(new_output)))

    def _pass(
        self, n_sets: int, replaced: Mapping[Receiver, Tensor], new_outputs: Mapping[str, Tensor]
    ) -> Float[Tensor, "set batch read d_vocab_out"]:
        """Logits of some sets, computed in copies of the batch."""
        batch, pos = self.tokens.shape
        tokens = self.tokens.repeat(n_sets, 1)
        mask = self.inputs.get("attention_mask")
        mask = None if mask is None else mask.repeat(n_sets, 1)
        context = make_context(self.model.cfg, tokens, mask, pos, tokens.device)
        embedding = self._clean(0, "hook_resid_pre")
        stream = embedding.expand(n_sets, *embedding.shape)
        # What each part that was computed so far would change, if it were replaced
        changes = [(new_outputs[EMBEDDING_POINT] - embedding).expand_as(stream)]
        for layer in self._layers:
            block: Any = self.model.block(layer)
            sites = self.model.blocks[layer]
            inputs = []
            for receivers in self._receivers_by_input(layer):
                weights = torch.stack([replaced[receiver] for receiver in receivers], 1)
                inputs.append(self._inputs(stream, changes, weights))
            read = [block.read(streams.flatten(0, 1), sites) for streams in inputs]
            heads = self._heads_of_inputs(layer, read, context).unflatten(0, (n_sets, batch))
            written = self._written(layer, heads)
            new_heads = self._written(layer, new_outputs[self._point(layer, self._output_point)])
            stream = stream + written.sum(-2) + block.attention.o.bias_or_zero
            changes += list((new_heads - written).unbind(-2))
            if self._has_mlp(layer):
                weights = replaced[Receiver("MLP", layer)][:, None]
                mlp_in = self._inputs(stream, changes, weights)[..., 0, :].flatten(0, 1)
                if block.norm_2 is not None:
                    mlp_in = block.norm_2(mlp_in, sites.ln2)
                mlp_out = block.mlp(mlp_in, sites.mlp).unflatten(0, (n_sets, batch))
                stream = stream + mlp_out
                changes.append(new_outputs[self._point(layer, "hook_mlp_out")] - mlp_out)
        weights = replaced[Receiver("read-out", len(self._layers))][:, None]
        final = self._inputs(stream, changes, weights)[..., 0, :]
        if self.read_at is not None:
            final = torch.stack([take(rows, self.read_at) for rows in final])
        return self._read_out(final)

    def _receivers_by_input(self, layer: int) -> list[list[Receiver]]:
        """The query inputs of all heads of a layer, then the key and the value inputs."""
        heads = range(self.model.cfg.n_heads)
        return [[Receiver(name, layer, head) for head in heads] for name in ("query", "key", "value")]

    def _inputs(
        self, stream: Tensor, changes: Sequence[Tensor], weights: Float[Tensor, "set input sender"]
    ) -> Float[Tensor, "set batch pos input d_model"]:
        """The stream of each set for each input, with the senders replaced whose edge into it is."""
        stacked = torch.stack(list(changes), 1)
        change = einsum(weights, stacked, "c r s, c s b p d -> c b p r d")
        return stream[:, :, :, None] + change

    def _heads_of_inputs(self, layer: int, inputs: Sequence[Tensor], context: Any) -> Tensor:
        """Outputs of the heads of a layer (z, or with b I the whole output), with separate inputs of each."""
        outputs: dict[str, Tensor] = {}

        def store(activation: Tensor, hook: Any) -> None:
            outputs["heads"] = activation

        with self.model.hooks([(self._point(layer, self._output_point), store)]):
            self.model.block(layer).attention.with_split_inputs(*inputs, context, self.model.blocks[layer].attn)
        return outputs["heads"]

    def _written(self, layer: int, heads: Float[Tensor, "*batch head width"]) -> Float[Tensor, "*batch head d_model"]:
        """What heads write to the stream, from their outputs."""
        if self.model.cfg.vo_identity:
            return heads
        return einsum(heads, self.model.blocks[layer].attn.W_O, "... h e, h e d -> ... h d")
