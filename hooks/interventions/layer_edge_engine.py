"""Exact replacement of what one layer gives to another: all parts of a layer as one sender and one receiver.

A layer writes the sum of what attention and its MLP write. To replace the edge `layer 0 > layer 2`, all inputs of layer
2 read the stream in which layer 0 wrote something else; the MLP of layer 2 also reads what its heads then write. What
layer 2 makes of it is passed on to all later layers, which see the clean stream otherwise. So a pass resumes at layer 2
from the changed stream, and the change is taken out again behind it. Many edges are computed as copies of the batch.

There are about half as many edges as the square of the number of layers, so a large model is measured between layers
first, and then between the parts of pairs of layers. Layers must add to the stream.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hooks.interventions.ablation_engine import EMBEDDING_POINT, AblationEngine, NewOutput
from hooks.interventions.clean_pass import Net
from hooks.interventions.edge_engine import EMBEDDING, Receiver, Sender, check_no_hooks_in_layers
from hooks.model.layers import take


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
LayerEdge = tuple[LayerSender, LayerReceiver]


class LayerEdgeEngine(AblationEngine):
    """One clean pass on a batch, from which the replacement of every edge between layers is computed.

    Args:
        model: The model, whose layers add to the stream. It is not changed.
        tokens: Token ids.
        options: `read_at` and `inputs` of `AblationEngine`.

    Raises:
        ValueError: a hook of the caller's inside a layer, which replaced edges would not pass.
    """

    further_points = ("hook_attn_out", "hook_mlp_out", "hook_resid_post")

    def __init__(self, model: Net, tokens: Tensor, **options: Any):
        check_no_hooks_in_layers(model)
        super().__init__(model, tokens, patterns=False, **options)

    @staticmethod
    def written_points(model: Net) -> list[str]:
        """Hook points of what is written: the embedding, and what attention and MLP of each layer add."""
        points = [f"blocks.{layer}.{name}" for layer in range(model.cfg.n_layers) for name in _ADDED]
        return [EMBEDDING_POINT, *(point for point in points if point in model.hook_dict)]

    @property
    def edges(self) -> list[LayerEdge]:
        """Every edge, by the order of receivers."""
        layers = [WholeLayer(layer) for layer in range(self.model.cfg.n_layers)]
        senders: list[LayerSender] = [EMBEDDING, *layers]
        receivers: list[LayerReceiver] = [*layers, Receiver("read-out", len(layers))]
        return [(sender, receiver) for receiver in receivers for sender in senders[: receiver.layer + 1]]

    @torch.no_grad()
    def each_edit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, edges: Sequence[LayerEdge], new_output: NewOutput
    ) -> Iterator[tuple[int, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with each edge replaced, with the index of the edge.

        Args:
            edges: Edges, by the order of receivers.
            new_output: What is written instead, at each of the `written_points`.
        """
        changes = self._changes(new_output)
        for receiver, edges_into in groupby(enumerate(edges), key=lambda numbered: numbered[1][1]):
            indices, senders = zip(*((index, sender) for index, (sender, _) in edges_into), strict=True)
            of_senders = torch.stack([changes[sender.layer + 1] for sender in senders])
            yield from zip(indices, self._logits(receiver.layer, of_senders), strict=True)

    def _changes(self, new_output: NewOutput) -> list[Float[Tensor, "batch pos d_model"]]:
        """What the embedding and each layer write instead, minus what they write."""
        changes = [torch.zeros_like(self.cache[EMBEDDING_POINT]) for _ in range(self.model.cfg.n_layers + 1)]
        for point in self.written_points(self.model):
            written = 0 if point == EMBEDDING_POINT else 1 + int(point.split(".")[1])
            changes[written] += new_output(point, self.cache[point]) - self.cache[point]
        return changes

    def _logits(
        self, layer: int, changes: Float[Tensor, "sender batch pos d_model"]
    ) -> Float[Tensor, "sender batch read d_vocab_out"]:
        """Logits if a layer, or the read-out, reads a changed stream, and all later ones read what it then writes on
        the clean one."""
        batch, n_layers = len(self.tokens), self.model.cfg.n_layers
        passes = changes.split(self.copies_per_pass)
        if layer == n_layers:
            logits = [self._resume_with(of_pass.flatten(0, 1), layer) for of_pass in passes]
            return torch.cat(logits).unflatten(0, (-1, batch))
        # Of the last layer, our own models compute only the positions that are read
        read_at = self.read_at if layer == n_layers - 1 and self.narrows else None
        rows_behind = changes

        def undo(stream: Tensor, hook: Any) -> Tensor:
            return stream - rows_behind

        logits = []
        with self.model.hooks([(f"blocks.{layer}.hook_resid_post", undo)]):
            for of_pass in passes:
                rows = of_pass.flatten(0, 1)
                rows_behind = rows if read_at is None else take(rows, read_at.repeat(len(of_pass), 1))
                logits.append(self._resume_with(rows, layer))
        return torch.cat(logits).unflatten(0, (-1, batch))

    def _resume_with(
        self, rows: Float[Tensor, "copies pos d_model"], layer: int
    ) -> Float[Tensor, "copies read d_vocab_out"]:
        """Logits from the clean input of a layer, or of the read-out, plus something else in each copy of the batch."""
        last = self.model.cfg.n_layers - 1
        clean = self.cache[f"blocks.{layer}.hook_resid_pre" if layer <= last else f"blocks.{last}.hook_resid_post"]
        return self.resume(clean.repeat(len(rows) // len(clean), 1, 1) + rows, layer)


_ADDED = ("hook_attn_out", "hook_mlp_out")
"""What a layer adds to the stream."""
