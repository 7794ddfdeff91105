"""A wrapped model with only some of its edges: every other edge carries what its part writes instead.

As in `hooks.interventions.circuit_engine`: each input reads the stream of this pass, plus what the parts would change
whose edges into it are replaced.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.adapters.bridge.split_inputs import input_point, mlp_input_point, split_inputs
from hooks.interventions.ablation_engine import NewOutput
from hooks.interventions.bridge_edge_engine import BridgeEdgeEngine
from hooks.interventions.edge_engine import EMBEDDING, EMBEDDING_POINT, LETTERS, Receiver, Sender
from hooks.model.layers import take


class BridgeCircuitEngine(BridgeEdgeEngine):
    """Full passes of a wrapped model in which sets of edges are replaced together.

    Arguments and errors are those of `BridgeEdgeEngine`.
    """

    @torch.no_grad()
    def each_edit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, sets: Sequence[Bool[Tensor, " edge"]], new_output: NewOutput
    ) -> Iterator[tuple[int, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with each set of edges replaced, with the index of the set; sets are in the order of `edges`."""
        new_outputs = self._outputs_instead(new_output)
        index = 0
        for replaced in torch.stack(list(sets)).split(self.copies_per_pass):
            for logits in self._pass(replaced, new_outputs):
                yield index, logits
                index += 1

    def _pass(
        self, replaced: Bool[Tensor, "set edge"], new_outputs: Mapping[str, Tensor]
    ) -> Float[Tensor, "set batch read d_vocab_out"]:
        """Logits of some sets, computed in copies of the batch."""
        n_sets = len(replaced)
        embedding, edges = self._clean(0, "hook_resid_pre"), self.edges
        # What each part that was computed so far would change, if it were replaced
        changes = {EMBEDDING: (new_outputs[EMBEDDING_POINT] - embedding).expand(n_sets, *embedding.shape)}

        def changed_by(receiver: Receiver) -> Float[Tensor, "copies pos d_model"]:
            """The sum of what the replaced parts would change in an input."""
            columns = self.columns.get(receiver, [])
            senders = [edges[column][0] for column in columns]
            if not senders:
                return torch.zeros_like(embedding).repeat(n_sets, 1, 1)
            stacked = torch.stack([changes[sender] for sender in senders])
            weights = replaced[:, columns].to(stacked)
            return einsum(weights, stacked, "c s, s c b p d -> c b p d").flatten(0, 1)

        inputs = {name: value.expand_as(self.tokens).repeat(n_sets, 1) for name, value in self.inputs.items()}
        bridge, n_layers = self.model.bridge, len(self._layers)
        own_hooks = self._hooks_of_writers(new_outputs, changes, n_sets)
        own_hooks.append(
            (self._point(n_layers - 1, "hook_resid_post"), _changed(changed_by, Receiver("read-out", n_layers)))
        )
        with (
            split_inputs(bridge),
            bridge.hooks(fwd_hooks=self._hooks_of_readers(changed_by)),
            self.model.hooks(own_hooks),
        ):
            logits = self.model(self.tokens.repeat(n_sets, 1), **inputs)
        if self.read_at is not None:
            logits = take(logits, self.read_at.repeat(n_sets, 1))
        return logits.unflatten(0, (n_sets, -1))

    def _hooks_of_writers(
        self, new_outputs: Mapping[str, Tensor], changes: dict[Sender, Tensor], n_sets: int
    ) -> list[tuple[str, Callable]]:
        """Hooks that note what each head and MLP of a pass would change, if it were replaced; they edit nothing."""

        def note_heads(activation: Tensor, hook: Any) -> None:
            layer = hook.layer()
            change = new_outputs[hook.name] - activation.unflatten(0, (n_sets, -1))
            weights: Any = self.model.blocks[layer].attn
            written = einsum(change, weights.W_O, "c b p h e, h e d -> h c b p d")
            for head, of_head in enumerate(written):
                changes[Sender(layer, head)] = of_head

        def note_mlp(activation: Tensor, hook: Any) -> None:
            change = new_outputs[hook.name] - activation.unflatten(0, (n_sets, -1))
            changes[Sender(hook.layer(), None)] = change

        hooks: list[tuple[str, Callable]] = []
        for layer in self._layers:
            hooks.append((self._point(layer, self._output_point), note_heads))
            if self._has_mlp(layer):
                hooks.append((self._point(layer, "hook_mlp_out"), note_mlp))
        return hooks

    def _hooks_of_readers(self, changed_by: Callable[[Receiver], Tensor]) -> list[tuple[str, Callable]]:
        """Hooks that change the inputs of heads and MLPs, by the names of the bridge."""

        def of_heads(kind: Any, layer: int) -> Callable:
            def change(activation: Tensor, hook: Any) -> Tensor:
                heads = [changed_by(Receiver(kind, layer, head)) for head in range(self.model.cfg.n_heads)]
                return activation + torch.stack(heads, 2)

            return change

        hooks: list[tuple[str, Callable]] = []
        for layer in self._layers:
            hooks += [(input_point(layer, letter), of_heads(kind, layer)) for kind, letter in LETTERS.items()]
            if self._has_mlp(layer):
                hooks.append((mlp_input_point(layer), _changed(changed_by, Receiver("MLP", layer))))
        return hooks


def _changed(changed_by: Callable[[Receiver], Tensor], receiver: Receiver) -> Callable:
    """A hook that changes the input of an MLP or the read-out."""
    return lambda activation, hook: activation + changed_by(receiver)
