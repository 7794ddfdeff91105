"""Exact replacement of what one layer gives to another: all parts of a layer as one sender and one receiver.

A layer writes the sum of what its heads and its MLP write. To replace the edge `layer 0 > layer 2`, all inputs of layer
2 read the stream in which layer 0 wrote something else; the MLP of layer 2 also reads what its heads then write. What
layer 2 makes of it is passed on to all later layers, which see the clean stream otherwise.

There are about half as many edges as the square of the number of layers, so a large model is measured between layers
first, and then between the parts of pairs of layers. Layers must add to the stream (`pre_ln`, `no_norm`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from hooks.interventions.edge_engine import EMBEDDING, EMBEDDING_POINT, EdgeEngine, Receiver, Sender


@dataclass(frozen=True)
class WholeLayer:
    """All parts of a layer, or all their inputs.

    >>> print(WholeLayer(1))
    layer 1
    """

    layer: int

    def __str__(self) -> str:
        return f"layer {self.layer}"


LayerSender = Sender | WholeLayer
LayerReceiver = Receiver | WholeLayer


class LayerEdgeEngine(EdgeEngine):
    """One clean pass on a batch, from which the replacement of every edge between layers is computed.

    Arguments and errors are those of `EdgeEngine`; `each_receiver` too.
    """

    @property
    def edges(self) -> list[tuple[LayerSender, LayerReceiver]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Every edge, or the chosen ones, by the order of receivers."""
        senders: list[LayerSender] = [EMBEDDING]
        edges: list[tuple[LayerSender, LayerReceiver]] = []
        for layer in map(WholeLayer, self._layers):
            edges += [(senders[index], layer) for index in self._indices(senders, layer)]
            senders.append(layer)
        read_out = Receiver("read-out", len(self._layers))
        return edges + [(senders[index], read_out) for index in self._indices(senders, read_out)]

    @torch.no_grad()
    def each_receiver(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, new_outputs: Mapping[str, Float[Tensor, "#batch pos *width"]]
    ) -> Iterator[tuple[LayerReceiver, list[LayerSender], Float[Tensor, "sender batch read d_vocab_out"]]]:
        """Logits with each edge replaced, all edges of one receiver at a time."""
        clean = self._clean(0, "hook_resid_pre")
        senders: list[LayerSender] = [EMBEDDING]
        changes = [new_outputs[EMBEDDING_POINT] - clean]
        for receiver in map(WholeLayer, self._layers):
            layer, stream = receiver.layer, self._clean(receiver.layer, "hook_resid_pre")
            indices = self._indices(senders, receiver)
            if indices:
                logits = [self._logits_after(layer, stream, changes[index]) for index in indices]
                yield receiver, [senders[index] for index in indices], torch.stack(logits)
            # The layer becomes a sender
            senders.append(receiver)
            changes.append(self._written(layer, new_outputs) - self._written(layer, self.cache))
        # Of the read-out, only positions that are read
        last, receiver = self._layers[-1], Receiver("read-out", len(self._layers))
        indices = self._indices(senders, receiver)
        if indices:
            clean_rows = self._block_output(last, self._clean(last, "hook_resid_pre"))
            rows = [clean_rows + self._rows_read(last, changes[index].expand_as(clean)[None])[0] for index in indices]
            yield receiver, [senders[index] for index in indices], self._read_out(torch.stack(rows))

    def _logits_after(self, layer: int, stream: Tensor, change: Tensor) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits if a layer reads a changed stream, and all later ones read what it then writes on the clean one."""
        change_read = self._rows_read(layer, change.expand_as(stream)[None])[0]
        post = self._block_output(layer, stream + change) - change_read
        return self._from_layer(layer + 1, post[None])[0]

    def _block_output(self, layer: int, stream: Tensor) -> Tensor:
        """The stream after a layer; after the last one, at positions that are read."""
        return self.model.block(layer)(stream, self.model.blocks[layer], self._context(layer))

    def _written(self, layer: int, outputs: Mapping[str, Tensor]) -> Tensor:
        """What heads and MLP of a layer write, from their outputs."""
        written = self.model.attention_output(layer, outputs[self._point(layer, self._output_point)])
        return written + outputs[self._point(layer, "hook_mlp_out")] if self._has_mlp(layer) else written
