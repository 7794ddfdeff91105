"""Exact replacement of what one part of a model gives to one input of another part.

A part (the embedding, a head, an MLP) writes a vector, which the residual stream carries to later inputs: the query,
key and value inputs of each head, the input of each MLP, and the read-out. An edge is one part and one such input.
Replacing an edge gives that input the stream in which the part wrote something else, while all other parts on the way
wrote what they do in the clean pass; norms and weights of the stream on the way are computed anew. What the input's
head or MLP then makes of it is passed on to all later layers, which see the clean stream otherwise.

In blocks that add to the stream (`pre_ln`, `no_norm`) this is the clean stream minus what the part writes plus its
replacement. In other blocks the same rule says what an edge is: through `post_ln` a part reaches later inputs through
all norms between them; behind an MLP without a residual connection (`dyck`, `bare`) it does not reach them at all, and
there is no edge.

The cost is a fraction of a pass per edge: a query, key or value input changes a single head, so each pass resumes at
the output of attention in that layer, and one at an MLP behind it. Many edges are computed as copies of the batch.

Source: path patching (Goldowsky-Dill et al. 2023, arXiv:2304.05969; Wang et al. 2022, arXiv:2211.00593), for the paths
of one edge. Differs: through the norms of `post_ln`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import EMBEDDING_POINT, AblationEngine, NewOutput, part_points
from hooks.interventions.clean_pass import Net
from hooks.model.attention import Context, masked_scores
from hooks.model.layers import take
from hooks.model.transformer import TransformerStack, make_context

TOKENS_PER_CALL = 1 << 14
"""Streams of several edges pass a layer together up to this number of tokens."""
ROUNDING = 8
"""A head's output that changes by at most this many units in the last place is unchanged: its edge has no effect."""

AttentionInput = Literal["query", "key", "value"]
Input = Literal["query", "key", "value", "MLP", "read-out"]
ATTENTION_INPUTS: tuple[AttentionInput, ...] = ("query", "key", "value")
LETTERS = {"query": "q", "key": "k", "value": "v"}


@dataclass(frozen=True)
class Sender:
    """A part that writes to the residual stream.

    >>> print(Sender(-1), Sender(0, 1), Sender(0))
    embedding 0.1 0 MLP
    """

    layer: int
    """Its applied layer; -1 for the embedding, token and position embeddings together."""
    head: int | None = None
    """The head, or None for an MLP and the embedding."""

    def __str__(self) -> str:
        if self.layer < 0:
            return "embedding"
        return f"{self.layer} MLP" if self.head is None else f"{self.layer}.{self.head}"


@dataclass(frozen=True)
class Receiver:
    """An input that reads the residual stream.

    >>> print(Receiver("query", 1, 0), Receiver("MLP", 1), Receiver("read-out", 2))
    1.0 q 1 MLP read-out
    """

    kind: Input
    layer: int
    """Its applied layer; the number of layers for the read-out."""
    head: int | None = None

    def __str__(self) -> str:
        if self.kind == "read-out":
            return "read-out"
        return f"{self.layer} MLP" if self.head is None else f"{self.layer}.{self.head} {LETTERS[self.kind]}"


Edge = tuple[Sender, Receiver]
EMBEDDING = Sender(-1)


def edge_name(sender: Any, receiver: Any) -> str:
    """Name of an edge: `0.1 > 1.0 q`."""
    return f"{sender} > {receiver}"


class EdgeEngine(AblationEngine):
    """One clean pass on a batch, from which the replacement of every edge is computed.

    Args:
        model: The model. It is not changed.
        tokens: Token ids.
        read_at: Positions to return logits for; if None, all.
        chosen: Names of edges (`0.1 > 1.0 q`) that `each_receiver` is restricted to; if None, all.
        inputs: Further arguments of the model's forward pass: `attention_mask`, `position_ids`.

    Raises:
        ValueError: a hook of the caller's inside a layer, which replaced edges would not pass, or in the read-out, if
            only some positions are read.
    """

    further_points = ("hook_mlp_out",)
    model: TransformerStack

    def __init__(self, model: Net, tokens: Tensor, *, chosen: Collection[str] | None = None, **options: Any):
        check_no_hooks_in_layers(model)
        super().__init__(model, tokens, **options)
        if model.takes_read_at and self.read_at is not None and not self.narrows:
            raise ValueError(
                "a hook is attached to the read-out, which replaced edges pass at the positions that are read only. "
                "Remove it."
            )
        self._layers = range(model.cfg.n_layers)
        self._reach = [self._find_reach(layer) for layer in self._layers]
        self._chosen = chosen
        self._chosen_senders = None if chosen is None else {name.partition(" > ")[0] for name in chosen}

    written_points = staticmethod(part_points)
    """Hook points of what is written, which takes new outputs."""

    # Which edges there are

    @property
    def senders(self) -> list[Sender]:
        """Every part, in the order in which they are computed."""
        senders = [EMBEDDING]
        for layer in self._layers:
            senders += self._heads(layer)
            if self._has_mlp(layer):
                senders.append(Sender(layer))
        return senders

    @property
    def edges(self) -> list[Edge]:
        """Every edge, or the chosen ones, by the order of receivers."""
        edges: list[Edge] = []
        reaching = [EMBEDDING]
        for layer in self._layers:
            for receiver in self._receivers_of_attention(layer):
                edges += [(sender, receiver) for sender in reaching]
            reach = self._reach[layer]
            to_mlp = [*(reaching if reach.stream_to_mlp else ())]
            to_mlp += self._heads(layer) if reach.attention_to_mlp else []
            if self._has_mlp(layer):
                edges += [(sender, Receiver("MLP", layer)) for sender in to_mlp]
            reaching = self._after_layer(layer, reaching)
        edges += [(sender, Receiver("read-out", len(self._layers))) for sender in reaching]
        if self._chosen is None:
            return edges
        return [edge for edge in edges if edge_name(*edge) in self._chosen]

    def _indices(self, senders: Sequence[Any], receiver: Any) -> list[int]:
        """Indices of the senders with a chosen edge into a receiver."""
        if self._chosen is None:
            return list(range(len(senders)))
        return [index for index, sender in enumerate(senders) if edge_name(sender, receiver) in self._chosen]

    def _chosen_indices(self, senders: Sequence[Any]) -> list[int]:
        """Indices of the senders with a chosen edge into any receiver."""
        if self._chosen_senders is None:
            return list(range(len(senders)))
        return [index for index, sender in enumerate(senders) if str(sender) in self._chosen_senders]

    def _after_layer(self, layer: int, reaching: Sequence[Sender]) -> list[Sender]:
        """The parts that reach past a layer, given those that reach it."""
        reach = self._reach[layer]
        senders = list(reaching) if reach.stream else []
        if reach.attention:
            senders += self._heads(layer)
        return [*senders, Sender(layer)] if self._has_mlp(layer) else senders

    def _receivers_of_attention(self, layer: int) -> list[Receiver]:
        """The inputs of the heads of a layer; a hard-coded head has values only."""
        learned = self._learned_heads(layer)
        receivers = []
        for head in range(self.model.cfg.n_heads):
            inputs = ATTENTION_INPUTS if head in learned else ("value",)
            receivers += [Receiver(name, layer, head) for name in inputs]
        return receivers

    def _heads(self, layer: int) -> list[Sender]:
        return [Sender(layer, head) for head in range(self.model.cfg.n_heads)]

    def _learned_heads(self, layer: int) -> list[int]:
        patterns = self.model.cfg.patterns_of(layer)
        return [head for head in range(self.model.cfg.n_heads) if not patterns or patterns[head].learned]

    def _has_mlp(self, layer: int) -> bool:
        return self._point(layer, "hook_mlp_out") in self.cache

    def _point(self, layer: int, name: str) -> str:
        return f"blocks.{layer}.{name}"

    @torch.no_grad()
    def _find_reach(self, layer: int) -> "Reach":
        """Whether stream and attention reach past a layer, found by changing them at the first sequence."""
        resid = self._clean(layer, "hook_resid_pre")[None, :1]
        generator = torch.Generator().manual_seed(0)
        change = torch.randn(resid.shape, generator=generator, dtype=torch.float32).to(resid)
        attn_out = self.model.attention_output(layer, self._clean(layer, self._output_point)[None])[:, :1]
        streams = torch.cat([resid, resid + change, resid])
        written = torch.cat([attn_out, attn_out, attn_out + change])
        mlp_out = self._clean(layer, "hook_mlp_out")[None, :1].expand_as(streams) if self._has_mlp(layer) else None
        mid, _, post = self._pass_layer(layer, streams, written, mlp_out)
        differs = [not torch.equal(post[0], post[row]) for row in (1, 2)]
        return Reach(stream=differs[0], attention=differs[1], stream_to_mlp=not torch.equal(mid[0], mid[1]))

    @cached_property
    def columns(self) -> dict[Receiver, list[int]]:
        """Index of the edges into each receiver, in the order of senders."""
        columns: dict[Receiver, list[int]] = {}
        for index, (_, receiver) in enumerate(self.edges):
            columns.setdefault(receiver, []).append(index)
        return columns

    # Passes

    def _outputs_instead(self, new_output: NewOutput) -> dict[str, Float[Tensor, "#batch pos *width"]]:
        """What every part writes instead, from what it writes in the clean pass."""
        return {point: new_output(point, self.cache[point]) for point in part_points(self.model)}

    def each_edit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, edges: Sequence[Any], new_output: NewOutput
    ) -> Iterator[tuple[int, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with each edge replaced, with the index of the edge; as `each_receiver`."""
        index_of_edge = {edge: index for index, edge in enumerate(edges)}
        for receiver, senders, logits_by_sender in self.each_receiver(self._outputs_instead(new_output)):
            for sender, logits in zip(senders, logits_by_sender, strict=True):
                yield index_of_edge[sender, receiver], logits

    @torch.no_grad()
    def each_receiver(
        self, new_outputs: Mapping[str, Float[Tensor, "#batch pos *width"]]
    ) -> Iterator[tuple[Receiver, list[Sender], Float[Tensor, "sender batch read d_vocab_out"]]]:
        """Logits with each edge replaced, all edges of one receiver at a time.

        Args:
            new_outputs: What parts write instead, for each hook point: `blocks.0.hook_resid_pre` for the embedding, and
                for each layer what the heads write (`attn.hook_z`, or `attn.hook_result` with b I) and `hook_mlp_out`.
        """
        clean = self._clean(0, "hook_resid_pre")
        # Rows are the clean stream, and that with each sender replaced
        streams = torch.stack([clean, new_outputs[EMBEDDING_POINT].expand_as(clean)])
        senders = [EMBEDDING]
        for layer in self._layers:
            yield from self._into_attention(layer, streams, senders)
            # Each head of the layer becomes a sender; of the last layer, only positions that are read are computed
            attn_outs = self._with_each_head(layer, new_outputs[self._point(layer, self._output_point)])
            resid, attn_outs = self._rows_read(layer, streams), self._rows_read(layer, attn_outs)
            n_heads, n_earlier = len(attn_outs) - 1, len(resid)
            stream_rows = torch.cat([resid, resid[:1].expand(n_heads, *resid.shape[1:])])
            attention_rows = torch.cat([attn_outs[:1].expand_as(resid), attn_outs[1:]])
            reach = self._reach[layer]
            past = [0, *(range(1, n_earlier) if reach.stream else ())]
            past += range(n_earlier, n_earlier + n_heads) if reach.attention else ()
            if not self._has_mlp(layer):
                _, _, posts = self._pass_layer(layer, stream_rows, attention_rows)
                streams = posts[past]
            else:
                # The streams past the layer, whose MLP writes what it does in the clean pass, and what it would write
                clean_mlp, new_mlp = (
                    self._rows_read(layer, activation.expand_as(clean)[None])
                    for activation in (
                        self._clean(layer, "hook_mlp_out"),
                        new_outputs[self._point(layer, "hook_mlp_out")],
                    )
                )
                _, mlp_outs, posts = self._pass_layer(layer, stream_rows, attention_rows, clean_mlp)
                assert mlp_outs is not None
                if not reach.stream_to_mlp:
                    mlp_outs = torch.cat([mlp_outs[:1], mlp_outs[n_earlier:]])
                receiver = Receiver("MLP", layer)
                to_mlp = [*(senders if reach.stream_to_mlp else ()), *self._heads(layer)]
                indices = self._indices(to_mlp, receiver)
                if indices:
                    mlp_outs = mlp_outs[_with_clean(indices)]
                    logits = self._after_mlp(layer, resid[:1], attn_outs[:1], mlp_outs)
                    yield receiver, [to_mlp[index] for index in indices], logits
                _, _, of_new_mlp = self._pass_layer(layer, resid[:1], attn_outs[:1], new_mlp)
                streams = torch.cat([posts[past], of_new_mlp])
            # Senders without a chosen edge are not passed on
            senders = self._after_layer(layer, senders)
            indices = self._chosen_indices(senders)
            streams, senders = streams[_with_clean(indices)], [senders[index] for index in indices]
        receiver = Receiver("read-out", len(self._layers))
        indices = self._indices(senders, receiver)
        if indices:
            yield receiver, [senders[index] for index in indices], self._read_out(streams[_with_clean(indices)][1:])

    def _into_attention(self, layer: int, streams: Tensor, senders: list[Sender]) -> Iterator[Any]:
        """Logits with the edges into the queries, keys and values of a layer's heads replaced."""
        receivers = self._receivers_of_attention(layer)
        if not any(self._indices(senders, receiver) for receiver in receivers):
            return
        outputs = self._heads_with_inputs(layer, streams)
        clean = self._clean(layer, self._output_point)
        clean = self._rows_read(layer, clean.flatten(2)[None])[0].unflatten(2, clean.shape[2:])
        for receiver in receivers:
            indices = self._indices(senders, receiver)
            if not indices:
                continue
            of_head = outputs[receiver.kind][_with_clean(indices)][:, :, :, receiver.head]
            changed = self._differs(of_head)
            logits = self.logits.expand(len(indices), *self.logits.shape).clone()
            rows = changed.nonzero()[:, 0].tolist()
            for start in range(0, len(rows), self.copies_per_pass):
                rows_of_pass = rows[start : start + self.copies_per_pass]
                edited = clean.repeat(len(rows_of_pass), 1, 1, 1, 1)
                edited[:, :, :, receiver.head] = of_head[1:][rows_of_pass]
                logits[rows_of_pass] = self._after_heads(layer, edited)
            yield receiver, [senders[index] for index in indices], logits

    def _after_mlp(self, layer: int, resid: Tensor, attn_out: Tensor, mlp_outs: Tensor) -> Tensor:
        """Logits with other outputs of an MLP, of which the first row is the clean one."""
        rows = self._differs(mlp_outs).nonzero()[:, 0].tolist()
        logits = self.logits.expand(len(mlp_outs) - 1, *self.logits.shape).clone()
        for start in range(0, len(rows), self.copies_per_pass):
            rows_of_pass = rows[start : start + self.copies_per_pass]
            changed = mlp_outs[1:][rows_of_pass]
            _, _, posts = self._pass_layer(layer, resid.expand_as(changed), attn_out.expand_as(changed), changed)
            logits[rows_of_pass] = self._from_layer(layer + 1, posts)
        return logits

    def _with_each_head(self, layer: int, new_heads: Tensor) -> Float[Tensor, "row batch pos d_model"]:
        """Attention outputs of a layer: the clean one, and that with each head's output replaced."""
        clean = self._clean(layer, self._output_point)
        rows = clean.repeat(1 + self.model.cfg.n_heads, 1, 1, 1, 1)
        for head in range(self.model.cfg.n_heads):
            rows[1 + head, :, :, head] = new_heads[:, :, head]
        return torch.cat([self.model.attention_output(layer, outputs) for outputs in rows.split(self._per_call)])

    def _pass_layer(
        self, layer: int, streams: Tensor, attn_outs: Tensor, mlp_outs: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """The stream that the MLP reads, what the MLP makes of it, and the stream after the layer.

        Args:
            layer: The layer.
            streams: Inputs of the layer (row, batch, pos, d_model).
            attn_outs: Outputs of attention.
            mlp_outs: What the MLP writes instead, one row for all or one each; if None, what it makes of its input.
        """
        block, sites = self.model.block(layer), self.model.blocks[layer]
        batches = []
        for start in range(0, len(streams), self._per_call):
            rows = slice(start, start + self._per_call)
            shape = streams[rows].shape
            stored: dict[str, Tensor] = {}
            held = None if mlp_outs is None else mlp_outs.expand(len(streams), *shape[1:])[rows].flatten(0, 1)

            def hold(activation: Tensor, hook: Any, stored: Any = stored, held: Any = held) -> Tensor:
                stored["mlp_out"] = activation
                return activation if held is None else held

            def store(activation: Tensor, hook: Any, stored: Any = stored) -> None:
                stored["mid"] = activation

            hooks: list[Any] = []
            if self._has_mlp(layer):
                hooks = [(self._point(layer, "hook_resid_mid"), store), (self._point(layer, "hook_mlp_out"), hold)]
            with self.model.hooks(hooks):
                post = block.write(streams[rows].flatten(0, 1), attn_outs[rows].flatten(0, 1), sites)
            activations = (stored.get("mid", post), stored.get("mlp_out", post), post)
            batches.append([activation.unflatten(0, shape[:2]) for activation in activations])
        mid, mlp_out, post = (torch.cat(parts) for parts in zip(*batches, strict=True))
        return mid, mlp_out if self._has_mlp(layer) else None, post

    def _after_heads(self, layer: int, outputs: Float[Tensor, "row batch query head width"]) -> Tensor:
        """Logits from outputs of the heads next to the clean input of a layer; at the last layer at positions read."""
        resid = self._clean(layer, "hook_resid_pre")
        if layer == self._layers[-1]:
            attn_outs = self.model.attention_output(layer, outputs)
            resid = self._rows_read(layer, resid[None]).expand_as(attn_outs)
            block, sites = self.model.block(layer), self.model.blocks[layer]
            posts = block.write(resid.flatten(0, 1), attn_outs.flatten(0, 1), sites)
            return self._read_out(posts.unflatten(0, attn_outs.shape[:2]))
        rows = resid.expand(len(outputs), *resid.shape).flatten(0, 1)
        return self.resume(rows, layer, z=outputs.flatten(0, 1)).unflatten(0, outputs.shape[:2])

    def _from_layer(self, layer: int, streams: Float[Tensor, "row batch pos d_model"]) -> Tensor:
        """Logits from inputs of a layer; of the read-out at positions read."""
        if layer == len(self._layers):
            return self._read_out(streams)
        return self.resume(streams.flatten(0, 1), layer).unflatten(0, streams.shape[:2])

    def _read_out(self, streams: Float[Tensor, "row batch read d_model"]) -> Tensor:
        return self.model.read_out(streams.flatten(0, 1)).unflatten(0, streams.shape[:2])

    # Heads

    def _heads_with_inputs(self, layer: int, streams: Tensor) -> dict[str, Float[Tensor, "row batch query head width"]]:
        """Outputs of the heads of a layer with queries, keys or values from each of some streams, the clean one first.

        Hard-coded heads have outputs with other values only.
        """
        outputs: dict[str, list[Tensor]] = {name: [] for name in ATTENTION_INPUTS}
        block, context = self.model.block(layer), self._context(layer)
        clean = block.read(streams[0], self.model.blocks[layer])
        for rows in streams.split(self._per_call):
            inputs = block.read(rows.flatten(0, 1), self.model.blocks[layer]).unflatten(0, rows.shape[:2])
            for name in ATTENTION_INPUTS:
                outputs[name].append(self._head_outputs(layer, clean, inputs, name, context))
        by_input = {name: torch.cat(parts) for name, parts in outputs.items()}
        if len(self._learned_heads(layer)) < self.model.cfg.n_heads:
            by_input["value"] = self._with_hardcoded_heads(layer, streams, by_input["value"])
        return by_input

    def _head_outputs(
        self, layer: int, clean: Tensor, inputs: Tensor, changed: AttentionInput, context: Context
    ) -> Float[Tensor, "row batch query head width"]:
        """Outputs of learned heads, with one of their inputs from the rows, and the clean ones at the others."""
        attention: Any = self.model.block(layer).attention
        if not attention.learned:
            clean_outputs = self._clean(layer, self._output_point)
            n_queries = inputs.shape[2] if context.queries is None else context.queries.shape[1]
            return inputs.new_zeros(*inputs.shape[:2], n_queries, *clean_outputs.shape[2:])
        reads = {name: inputs if name == changed else clean[None] for name in ATTENTION_INPUTS}
        for_queries = reads["query"]
        if context.queries is not None:
            for_queries = torch.stack([take(row, context.queries) for row in for_queries])
        n_heads = attention.n_query_heads
        q = attention.q(for_queries).unflatten(-1, (n_heads, -1)).transpose(2, 3)
        k = attention.k(reads["key"]).unflatten(-1, (n_heads, -1)).transpose(2, 3)
        v = attention.v(reads["value"]).unflatten(-1, (attention.n_heads, -1)).transpose(2, 3)
        scores = (q / attention.scale) @ k.mT
        if attention.a is not None:
            scores = scores + attention.a[:, None, None] * (for_queries @ reads["key"].mT)[:, :, None]
        pattern = masked_scores(scores, context).softmax(-1)
        outputs = (pattern @ v[:, :, :n_heads]).transpose(2, 3)
        if attention.b is not None:
            outputs = einsum(outputs, self.model.blocks[layer].attn.W_O, "n b q h e, h e d -> n b q h d")
            mixed = (pattern @ reads["value"][:, :, None]).transpose(2, 3)
            outputs = outputs + mixed * attention.b[:, None]
        missing = attention.n_heads - n_heads
        if missing:
            outputs = torch.cat([outputs, outputs.new_zeros(*outputs.shape[:3], missing, outputs.shape[-1])], 3)
        return outputs.expand(len(inputs), *outputs.shape[1:])

    def _with_hardcoded_heads(self, layer: int, streams: Tensor, outputs: Tensor) -> Tensor:
        """Outputs of heads with other values, those of hard-coded heads computed by the model's own attention."""
        block, sites = self.model.block(layer), self.model.blocks[layer]
        hardcoded = [head for head in range(self.model.cfg.n_heads) if head not in self._learned_heads(layer)]
        outputs = outputs.clone()
        for index, stream in enumerate(streams):
            stored: dict[str, Tensor] = {}

            def store(activation: Tensor, hook: Any, stored: Any = stored) -> None:
                stored["outputs"] = activation

            with self.model.hooks([(self._point(layer, self._output_point), store)]):
                block.attention(block.read(stream, sites), self._context(layer), sites.attn)
            outputs[index][:, :, hardcoded] = stored["outputs"][:, :, hardcoded]
        return outputs

    def _differs(self, outputs: Float[Tensor, "row batch query width"]) -> Bool[Tensor, " sender"]:
        """Whether an output changes with each sender replaced, by more than rounding; the first row is clean."""
        clean = outputs[:1]
        tolerance = ROUNDING * torch.finfo(clean.dtype).eps * clean.abs().amax()
        return (outputs[1:] - clean).abs().amax((1, 2, 3)) > tolerance

    # Sizes and clean activations

    def _clean(self, layer: int, name: str) -> Tensor:
        return self.cache[self._point(layer, name)]

    def _context(self, layer: int) -> Context:
        """The masks of a layer, whose queries in the last layer are the positions that are read."""
        tokens = self.tokens
        context = make_context(
            self.model.cfg, tokens, self.inputs.get("attention_mask"), tokens.shape[1], tokens.device
        )
        if layer == self._layers[-1] and self.read_at is not None:
            return context.at_queries(self.read_at)
        return context

    def _rows_read(
        self, layer: int, rows: Float[Tensor, "row batch pos width"]
    ) -> Float[Tensor, "row batch read width"]:
        """Rows at all positions; of the last layer, at those that are read."""
        if self.read_at is None or layer != self._layers[-1]:
            return rows
        return torch.stack([take(row, self.read_at) for row in rows])

    @property
    def _per_call(self) -> int:
        return max(1, TOKENS_PER_CALL // self.tokens.numel())


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What reaches past a layer besides its MLP, whose output is held."""

    stream: bool
    """The input of the layer."""
    attention: bool
    """The output of attention."""
    stream_to_mlp: bool
    """Whether the MLP reads the input of the layer, and not only the output of attention."""
    attention_to_mlp: bool = True
    """Whether the MLP reads the output of attention, as it does not in layers of parallel attention and MLP."""


def _with_clean(indices: Sequence[int]) -> list[int]:
    """Rows of some senders, after that of the clean pass."""
    return [0, *(1 + index for index in indices)]


def check_no_hooks_in_layers(model: Net) -> None:
    """Refuse hooks inside layers.

    Raises:
        ValueError: a hook point or module of a layer with a hook.
    """
    for kind, place in model.hooked_in_layers():
        raise ValueError(f"a {kind} is attached to {place}, which replaced edges do not pass. Remove it.")
