"""Which edges a model with hand-written weights has, by its weights; and what each costs, by a pass written from the
equations of its blocks."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from hooks.model.attention import visible_keys
from hooks.model.layers import activate
from interp.core.statistics import SHARE_THAT_COUNTS, drop_interval
from interp.known_answers import KnownAnswer
from interp.known_answers.craft.weights import LINEAR_EPS
from interp.tasks.base import Batch

Name = tuple[str, str]
"""Sender and receiver, under the names of `interp.edges`."""
Writes = dict[str, Float[Tensor, "batch pos d_model"]]
"""What each part writes."""
ROUNDING = 1e-9
"""A product of weights this small, relative to their norms, is zero: weights are in double precision."""


class KnownAnswerPass:
    """The pass of a known answer on some sequences, with or without one edge; and which edges its weights define.

    A receiver reads a sender if the product of the sender's output directions and the receiver's weights is not zero.
    Of the weights of queries only those count that meet keys, of those of keys those that meet queries, of those of
    values and of hidden units those whose result is written. A norm with a usual eps reads all that is written; with
    a very large one it is linear.

    Args:
        answer: The known answer.
        batch: Sequences, without padding.
        reference: Sequences whose mean replaces what a part writes: where a mean decides a tie, costs depend on it.
    """

    def __init__(self, answer: KnownAnswer, batch: Batch, reference: Batch):
        self.model: Any = answer.model
        self.cfg, self.task, self.batch = self.model.cfg, answer.task, batch
        assert batch.attention_mask is None
        assert self.cfg.block in ("pre_ln", "no_norm", "minimal", "bare", "dyck")
        self.visible = visible_keys(self.cfg, batch.tokens[:1])
        of_reference, _ = self._clean_pass(reference)
        self.means = {name: written.mean(0, keepdim=True) for name, written in of_reference.items()}
        self.clean, logits = self._clean_pass(batch)
        score = self.task.score(self._at_targets(logits), batch)
        self.right, self.total = score.right.double().numpy(), score.total.double().numpy()

    def _clean_pass(self, batch: Batch) -> tuple[Writes, Tensor]:
        """What every part writes, and the logits."""
        point = "blocks.0.hook_resid_pre"
        _, cache = self.model.run_with_cache(batch.tokens, names_filter=point)
        written: Writes = {"embedding": cache[point]}
        logits = self._logits(written, 0, None)
        return written, logits

    # Wiring

    @torch.no_grad()
    def is_wired(self, edge: Name) -> bool:
        """Whether the receiver reads what the sender writes."""
        writes, reads = self._directions(edge[0]), self._weights(edge)
        if reads is None:
            return bool((writes - writes.mean(0)).norm() > ROUNDING)
        if self.cfg.block == "pre_ln":  # the norm before each receiver takes the mean away
            reads = reads - reads.mean(1, keepdim=True)
        return bool((reads @ writes).norm() > ROUNDING * reads.norm() * writes.norm())

    def _directions(self, sender: str) -> Float[Tensor, "d_model direction"]:
        """Directions that a part writes in."""
        if sender == "embedding":
            return self.clean["embedding"].flatten(0, 1).T
        if sender.endswith("MLP"):
            mlp = self.model.block(int(sender.split()[0])).mlp
            return torch.cat([mlp.w_out.weight, mlp.w_out.bias_or_zero.expand(len(mlp.w_out.weight))[:, None]], 1)
        layer, head = _place(sender)
        attention = self.model.blocks[layer].attn
        values = torch.cat([attention.W_V[head], attention.b_V[head][None]])
        directions = (values @ attention.W_O[head]).T
        b = self.model.block(layer).attention.b
        if b is not None:
            directions = torch.cat([directions, b[head] * torch.eye(len(directions)).to(directions)], 1)
        return directions

    def _weights(self, edge: Name) -> Float[Tensor, "unit d_model"] | None:
        """Weights of a receiver on what the sender writes, or None behind a norm that is not linear."""
        sender, receiver = edge
        # Heads write into a norm in these blocks, before any other part reads them
        if self.cfg.block in ("minimal", "dyck") and "." in sender and self.cfg.layer_norm_eps < LINEAR_EPS:
            return None
        if receiver == "read-out":
            return self.model.W_U.T
        if receiver.endswith("MLP"):
            mlp = self.model.block(int(receiver.split()[0])).mlp
            return mlp.w_in.weight[mlp.w_out.weight.norm(dim=0) > 0]
        layer, head = _place(receiver[:-2])
        attention = self.model.blocks[layer].attn
        if receiver.endswith("v"):
            b = self.model.block(layer).attention.b
            weights = (attention.W_V[head] @ attention.W_O[head]).T
            return weights if b is None else weights + b[head] * torch.eye(len(weights)).to(weights)
        # Rows of queries that meet a row of keys, and the reverse
        letter, partner = ("Q", "K") if receiver.endswith("q") else ("K", "Q")
        row_norms = getattr(attention, f"W_{partner}")[head].norm(dim=0)
        bias = getattr(attention, f"b_{partner}")[head].abs()
        weights = getattr(attention, f"W_{letter}")[head].T[row_norms + bias > 0]
        a = self.model.block(layer).attention.a
        return weights if a is None else torch.cat([weights, a[head] * torch.eye(weights.shape[1]).to(weights)])

    # Costs

    def drop(self, edge: Name) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Accuracy lost on every outcome with the mean in place of what the sender gives the receiver, and its 95 %
        interval over sequences."""
        layer = self.cfg.n_layers if edge[1] == "read-out" else _layer_of(edge[1])
        earlier = {name: written for name, written in self.clean.items() if _layer_of(name) < layer}
        logits = self._logits(earlier, layer, edge)
        right = self.task.score(self._at_targets(logits), self.batch).right.double().numpy()
        return drop_interval((self.right - right), self.total)

    @property
    def threshold(self) -> Float[np.ndarray, " outcome"]:
        """Loss of accuracy that counts."""
        clean = self.right.sum(0) / self.total.sum(0)
        return SHARE_THAT_COUNTS * np.maximum(clean - np.array(self.task.chances), 0)

    def _at_targets(self, logits: Tensor) -> Tensor:
        index = self.batch.target_positions[..., None].expand(-1, -1, logits.shape[-1])
        return logits.gather(1, index)

    @torch.no_grad()
    def _logits(self, written: Writes, first: int, edge: Name | None) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits from what the parts before a layer write, to which the parts of later layers are added."""

        def stream(layer: int, receiver: str, *, mid: bool = False) -> Tensor:
            """What a receiver reads, before the norm of `pre_ln`."""
            writes = dict(written)
            if edge is not None and edge[1] == receiver:
                writes[edge[0]] = self.means[edge[0]].expand_as(writes["embedding"])
            return self._stream(writes, layer, mid=mid)

        for layer in range(first, self.cfg.n_layers):
            block, attention = self.model.block(layer), self.model.blocks[layer].attn
            clean = stream(layer, "")
            for head in range(self.cfg.n_heads):
                inputs = {"q": clean, "k": clean, "v": clean}
                if edge is not None and edge[1][:-2] == f"{layer}.{head}":
                    inputs[edge[1][-1]] = stream(layer, edge[1])
                if self.cfg.block == "pre_ln":
                    inputs = {name: _norm(block.norm_1, values) for name, values in inputs.items()}
                written[f"{layer}.{head}"] = self._head(layer, head, block.attention, attention, inputs)
            if block.mlp is not None:
                read = stream(layer, f"{layer} MLP", mid=True)
                read = _norm(block.norm_2, read) if self.cfg.block == "pre_ln" else read
                hidden = activate(F.linear(read, block.mlp.w_in.weight, block.mlp.w_in.bias), self.cfg.activation)
                written[f"{layer} MLP"] = F.linear(hidden, block.mlp.w_out.weight, block.mlp.w_out.bias)
        final = stream(self.cfg.n_layers, "read-out")
        final = _norm(self.model.norm_final, final) if self.cfg.block == "pre_ln" else final
        return final @ self.model.W_U + self.model.b_U

    def _head(self, layer: int, head: int, weights: Any, sites: Any, inputs: dict[str, Tensor]) -> Tensor:
        """What a head writes, from the inputs of its queries, keys and values."""
        v = inputs["v"] @ sites.W_V[head] + sites.b_V[head]
        patterns = self.cfg.patterns_of(layer)
        if patterns and not patterns[head].learned:
            assert patterns[head].kind == "uniform"
            scores = torch.zeros(len(v), v.shape[1], v.shape[1]).to(v)
        else:
            q = inputs["q"] @ sites.W_Q[head] + sites.b_Q[head]
            k = inputs["k"] @ sites.W_K[head] + sites.b_K[head]
            scores = q @ k.mT / weights.scale
            if weights.a is not None:
                scores = scores + weights.a[head] * (inputs["q"] @ inputs["k"].mT)
        pattern = scores.masked_fill(~self.visible, -torch.inf).softmax(-1)
        written = einsum(pattern @ v, sites.W_O[head], "b p e, e d -> b p d")
        b = getattr(weights, "b", None)
        return written if b is None else written + b[head] * (pattern @ inputs["v"])

    def _stream(self, writes: Writes, layer: int, *, mid: bool) -> Tensor:
        """The stream at the input of a layer, or that which its MLP reads."""
        stream = writes["embedding"]
        for index in range(layer + mid):
            block = self.model.block(index)
            heads: Tensor = sum(writes[f"{index}.{head}"] for head in range(self.cfg.n_heads))  # type: ignore[assignment]
            heads = heads + self.model.blocks[index].attn.b_O
            if self.cfg.block in ("pre_ln", "no_norm"):
                stream = stream + heads
            elif self.cfg.block == "dyck":
                stream = stream + _norm(block.norm_1, heads)
            else:
                stream = _norm(block.norm_1, heads) if self.cfg.block == "minimal" else heads
            if block.mlp is not None and not (mid and index == layer):
                mlp = writes[f"{index} MLP"]
                stream = stream + mlp if self.cfg.block in ("pre_ln", "no_norm") else mlp
        return stream


def _norm(module: Any, x: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), module.weight, module.bias, module.eps)


def _place(head: str) -> tuple[int, int]:
    layer, index = head.split(".")
    return int(layer), int(index)


def _layer_of(name: str) -> int:
    """Layer of a head, an MLP or an input of these; -1 for the embedding."""
    return -1 if name == "embedding" else int(name.replace(".", " ").split()[0])
