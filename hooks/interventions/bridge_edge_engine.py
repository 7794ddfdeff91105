"""Exact replacement of edges in a wrapped model with separate inputs of queries, keys, values and MLP.

An edge is replaced as in `hooks.interventions.edge_engine`, where layers add to the stream: the change of what the part
writes is added to the one input. A wrapped model cannot resume inside a layer, so every edge takes a full pass. Many
edges are computed as copies of the batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from hooks.adapters.bridge import BridgeModel
from hooks.adapters.bridge.split_inputs import input_point, mlp_input_point, split_inputs
from hooks.interventions.edge_engine import (
    EMBEDDING,
    EMBEDDING_POINT,
    LETTERS,
    EdgeEngine,
    Reach,
    Receiver,
    Sender,
)
from hooks.model.layers import take


class BridgeEdgeEngine(EdgeEngine):
    """One clean pass of a wrapped model on a batch, and the replacement of every edge.

    Arguments are those of `EdgeEngine`, with a `BridgeModel` whose layers add to the stream (`capabilities.sums`) and
    whose inputs can be split (`capabilities.split_inputs`). It is not changed.

    Raises:
        ValueError: a hook of the caller's inside a layer, which replaced edges would not pass.
    """

    further_points = ("hook_mlp_out", "hook_resid_post")
    model: BridgeModel  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, model: BridgeModel, tokens: Tensor, **options: Any):
        # Split inputs are computed in another order, with other rounding
        with split_inputs(model.bridge):
            super().__init__(model, tokens, patterns=False, **options)  # pyright: ignore[reportArgumentType]

    def _find_reach(self, layer: int) -> Reach:
        """Everything reaches past layers that add to the stream; in parallel layers, heads do not reach the MLP."""
        is_serial = self.model.capabilities.cell(self._point(layer, "hook_resid_mid"), "read").ok
        return Reach(stream=True, attention=True, stream_to_mlp=True, attention_to_mlp=is_serial)

    @torch.no_grad()
    def each_receiver(
        self, new_outputs: Mapping[str, Float[Tensor, "#batch pos *width"]]
    ) -> Iterator[tuple[Receiver, list[Sender], Float[Tensor, "sender batch read d_vocab_out"]]]:
        changes = {
            sender: self._change(sender, new_outputs) for sender in dict.fromkeys(edge[0] for edge in self.edges)
        }
        for receiver, edges in groupby(self.edges, key=lambda edge: edge[1]):
            senders = [sender for sender, _ in edges]
            copies = [
                senders[start : start + self.copies_per_pass] for start in range(0, len(senders), self.copies_per_pass)
            ]
            yield receiver, senders, torch.cat([self._logits(receiver, senders, changes) for senders in copies])

    def _change(
        self, sender: Sender, new_outputs: Mapping[str, Float[Tensor, "#batch pos *width"]]
    ) -> Float[Tensor, "batch pos d_model"]:
        """What a part writes instead, minus what it writes."""
        if sender == EMBEDDING:
            return new_outputs[EMBEDDING_POINT] - self._clean(0, "hook_resid_pre")
        name = "hook_mlp_out" if sender.head is None else self._output_point
        change = new_outputs[self._point(sender.layer, name)] - self._clean(sender.layer, name)
        if sender.head is None:
            return change
        weights: Any = self.model.blocks[sender.layer].attn
        return einsum(change[:, :, sender.head], weights.W_O[sender.head], "b p h, h d -> b p d")

    def _logits(
        self, receiver: Receiver, senders: Sequence[Sender], changes: Mapping[Sender, Tensor]
    ) -> Float[Tensor, "sender batch read d_vocab_out"]:
        """Logits with the changes of some parts added to one input, in a copy of the batch for each."""
        rows = torch.cat([changes[sender] for sender in senders])
        n_copies = len(senders)
        if receiver.kind == "read-out":
            last = self._clean(len(self._layers) - 1, "hook_resid_post")
            logits = self.resume(last.repeat(n_copies, 1, 1) + rows, len(self._layers))
            return logits.unflatten(0, (n_copies, -1))

        def add(activation: Tensor, hook: Any) -> Tensor:
            edited = activation.clone()
            into = edited if receiver.head is None else edited[:, :, receiver.head]
            into += rows
            return edited

        point = mlp_input_point(receiver.layer)
        if receiver.kind != "MLP":
            point = input_point(receiver.layer, LETTERS[receiver.kind])
        inputs = {name: value.expand_as(self.tokens).repeat(n_copies, 1) for name, value in self.inputs.items()}
        bridge = self.model.bridge
        with split_inputs(bridge), bridge.hooks(fwd_hooks=[(point, add)]):
            logits = self.model(self.tokens.repeat(n_copies, 1), **inputs)
        if self.read_at is not None:
            logits = take(logits, self.read_at.repeat(n_copies, 1))
        return logits.unflatten(0, (n_copies, -1))
