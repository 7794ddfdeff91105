"""Which edges a compiled program has, by its weights; and which of them matter, by a pass of its own in NumPy."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.core.statistics import SHARE_THAT_COUNTS
from interp.heads.edges import EQUAL
from interp.known_answers import KnownAnswer
from interp.known_answers.compiled.program import Program

Name = tuple[str, str]
"""Sender and receiver, under the names of `interp.edges`."""


class ProgramPass:
    """The pass of a compiled program on every test input, in double precision, written from tracr's equations.

    Args:
        answer: The compiled program.
    """

    def __init__(self, answer: KnownAnswer):
        self.task: Any = answer.task
        self.program: Program = self.task.program
        self.batch: Any = inputs_or_sample(self.task, "all", generator=derived_generator(0, "edges"))
        self.weights = {name: np.asarray(array, dtype=np.float64) for name, array in self.program.weights.items()}
        self.real = self.batch.attention_mask.numpy()
        self.n_layers, self.n_heads = self.weights["W_Q"].shape[:2]
        self.written = self._writes({}, None)[1]
        share = (self.real / np.maximum(self.real.sum(0), 1))[..., None]
        self.means = {name: (array * share).sum(0, keepdims=True) for name, array in self.written.items()}

    def edges(self) -> Iterator[Name]:
        """Every sender and receiver."""
        senders = ["embedding"]
        for layer in range(self.n_layers):
            heads = [f"{layer}.{head}" for head in range(self.n_heads)]
            yield from ((sender, f"{head} {letter}") for head in heads for letter in "qkv" for sender in senders)
            senders += heads
            if self.weights["W_in"].shape[2]:
                yield from ((sender, f"{layer} MLP") for sender in senders)
                senders.append(f"{layer} MLP")
        yield from ((sender, "read-out") for sender in senders)

    def is_wired(self, edge: Name) -> bool:
        """Whether the receiver reads a coordinate that the sender writes."""
        return bool((self._writes_to(edge[0]) & self._reads_from(edge[1])).any())

    def matters(self, edge: Name) -> bool:
        """Whether the mean in place of what the sender gives the receiver costs more than counts on some outcome."""
        clean, chance = self.accuracy(None), np.array(self.task.chances)
        threshold = SHARE_THAT_COUNTS * (clean - chance)
        drop = clean - self.accuracy(edge)
        return bool(((drop > threshold + EQUAL) & (clean > chance + EQUAL)).any())

    def accuracy(self, edge: Name | None) -> Float[np.ndarray, " outcome"]:
        """Accuracy on every outcome, with one edge replaced."""
        logits = torch.from_numpy(self._writes(getattr(self, "means", {}), edge)[0]).float()
        rows = logits.gather(1, self.batch.target_positions[..., None].expand(-1, -1, logits.shape[-1]))
        score = self.task.score(rows, self.batch)
        return score.right.double().sum(0).numpy() / np.maximum(score.total.double().sum(0).numpy(), 1e-300)

    def _writes(self, means: Mapping[str, np.ndarray], edge: Name | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Logits, and what each part writes."""
        tokens, weights = self.batch.tokens.numpy(), self.weights
        written = {"embedding": weights["W_E"][tokens] + weights["W_pos"][: tokens.shape[1]]}

        def read(receiver: str) -> np.ndarray:
            """The sum of what was written so far, as one input reads it."""
            parts = dict(written)
            if edge is not None and edge[1] == receiver:
                parts[edge[0]] = np.broadcast_to(means[edge[0]], written["embedding"].shape)
            return sum(parts.values())  # type: ignore[return-value]

        visible = np.broadcast_to(self.real[:, None, :], (len(tokens), tokens.shape[1], tokens.shape[1])).copy()
        if self.program.causal:
            visible &= np.tri(tokens.shape[1], dtype=bool)
        visible |= ~visible.any(-1, keepdims=True) & np.eye(tokens.shape[1], dtype=bool)
        for layer in range(self.n_layers):
            heads = {}
            for head in range(self.n_heads):
                w_q, w_k, w_v, w_o = (weights[f"W_{name}"][layer, head] for name in "QKVO")
                name = f"{layer}.{head}"
                scores = (read(f"{name} q") @ w_q) @ (read(f"{name} k") @ w_k).transpose(0, 2, 1)
                scores = np.where(visible, scores, -np.inf)
                pattern = np.exp(scores - scores.max(-1, keepdims=True))
                heads[name] = (pattern / pattern.sum(-1, keepdims=True)) @ (read(f"{name} v") @ w_v) @ w_o
            written |= heads
            if weights["W_in"].shape[2]:
                hidden = np.maximum(read(f"{layer} MLP") @ weights["W_in"][layer], 0)
                written[f"{layer} MLP"] = hidden @ weights["W_out"][layer]
        return read("read-out") @ weights["W_U"], written

    def _writes_to(self, sender: str) -> Bool[np.ndarray, " d_model"]:
        if sender == "embedding":
            return (self.weights["W_E"] != 0).any(0) | (self.weights["W_pos"] != 0).any(0)
        if sender.endswith("MLP"):
            return (self.weights["W_out"][int(sender.split()[0])] != 0).any(0)
        layer, head = map(int, sender.split("."))
        return (self.weights["W_O"][layer, head] != 0).any(0)

    def _reads_from(self, receiver: str) -> Bool[np.ndarray, " d_model"]:
        if receiver == "read-out":
            return (self.weights["W_U"] != 0).any(1)
        if receiver.endswith("MLP"):
            return (self.weights["W_in"][int(receiver.split()[0])] != 0).any(1)
        name, letter = receiver.split()
        layer, head = map(int, name.split("."))
        return (self.weights[f"W_{letter.upper()}"][layer, head] != 0).any(1)


def planted_pairs(answer: KnownAnswer) -> Iterator[tuple[tuple[int, int], str, str]]:
    """For each head with a selector of variables: its place, and the parts that write its queries and its keys.

    Parts are those of `interp.explain_attention`.
    """
    task: Any = answer.task
    program: Program = task.program
    for selector in program.selectors:
        # `keys predicate queries`: names may have spaces, predicates have none
        names = [*program.variables]
        named = [
            (query, key)
            for key in names
            for query in names
            if selector.selects.startswith(f"{key} ")
            and selector.selects.endswith(f" {query}")
            and len(selector.selects[len(key) : -len(query)].split()) == 1
        ]
        for query, key in named[:1]:
            yield (selector.layer, selector.head), _writer(program, query), _writer(program, key)


def _writer(program: Program, variable: str) -> str:
    """The part that writes a variable."""
    coordinates = list(program.variables[variable])
    for name, writer in (("W_E", "tokens"), ("W_pos", "positions")):
        if len(np.unique(program.weights[name][:, coordinates], axis=0)) > 1:
            return writer
    for layer, (heads, mlp) in enumerate(zip(program.weights["W_O"], program.weights["W_out"], strict=True)):
        for head, matrix in enumerate(heads):
            if matrix[:, coordinates].any():
                return f"{layer}.{head}"
        if mlp[:, coordinates].any():
            return f"{layer} MLP"
    raise AssertionError(f"nothing writes {variable}")
