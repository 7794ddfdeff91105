"""The causal graph of a compiled program: its variables, the parts that compute them, and where they are stored."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.algorithms.algorithm import NOTHING, Algorithm, Variable
from interp.core.interchange import Site
from interp.known_answers.compiled.program import Program
from interp.known_answers.compiled.task import Compiled, CompiledBatch
from interp.tasks.base import Task, logits_at_targets

SCALE = 10**6
"""Numbers are counted in units of 1 / SCALE."""
NEAR = 0.01
"""Largest distance of a coordinate from 0 or 1 in a one-hot value, and of two logits that count as equal."""
Codes = Int[Tensor, "batch pos"]
Compute = Callable[..., Codes]


def compiled_program(task: Task) -> Algorithm:
    """The graph of a compiled program: each variable has a value at each position, computed by one head or MLP.

    Tokens and positions are given. A one-hot variable is the index of its value, or one more if none is set; a number
    is rounded to 1e-6. Other values of a one-hot variable, such as the mean of several, which an intervention can
    cause, are numbered as they occur. Where two answers are equally likely the graph says nothing.

    Source: tracr, Lindner et al. 2023 (arXiv:2301.05062): every variable has its own coordinates of the stream.
    """
    task = Compiled.require(task, "compiled_program is for compiled programs.")
    graph = _Graph(task.program)
    variables = tuple(graph.variable(name) for name in graph.order)
    read = graph.read_by(np.abs(task.program.weights["W_U"]).sum(1))
    unembed = _tensor(task.program.weights["W_U"][graph.rows(read)])

    def answers(batch: CompiledBatch, *values: Codes) -> Int[Tensor, "batch target"]:
        known = dict(zip(graph.order, values, strict=True))
        logits = graph.stream(read, [known[name] for name in read]) @ unembed
        logits = logits_at_targets(logits.float(), batch)
        said = batch.present
        if not task.program.numerical:
            first, second = logits.topk(2).values.unbind(-1)
            said = said & (first - second > NEAR)
        return torch.where(said, task.answers(logits), NOTHING)

    return Algorithm(name=task.program.name, variables=variables, answers=answers)


def compiled_sites(task: Task) -> dict[str, Site]:
    """Site of each variable of `compiled_program`: what writes it, and its coordinates."""
    task = Compiled.require(task, "compiled_sites is for compiled programs.")
    graph = _Graph(task.program)
    return {name: graph.site(name) for name in graph.order}


class _Graph:
    """Variables of a program in the order in which they are written, and what each reads."""

    def __init__(self, program: Program):
        self.program, self.weights = program, program.weights
        self.coordinates = program.variables
        self.writers: dict[str, tuple[str, int]] = {}
        for name, at in self.coordinates.items():
            if (writer := self._writer(list(at))) is not None:
                self.writers[name] = writer
        self.others: dict[str, dict[tuple[int, ...], int]] = {name: {} for name in self.writers}
        """Values that are not one-hot, in units of 1 / SCALE, with their numbers."""
        self.constants = [at for name, some in self.coordinates.items() if name not in self.writers for at in some]
        rank = {"embed": 0, "attn": 1, "mlp": 2}
        self.order = sorted(self.writers, key=lambda name: (self.writers[name][1], rank[self.writers[name][0]]))

    def _writer(self, at: list[int]) -> tuple[str, int] | None:
        """The kind of part that writes some coordinates, and its layer; None for constants."""
        if any(len(np.unique(self.weights[name][:, at], axis=0)) > 1 for name in ("W_E", "W_pos")):
            return "embed", -1
        for layer, (heads, mlp) in enumerate(zip(self.weights["W_O"], self.weights["W_out"], strict=True)):
            if heads[:, :, at].any():
                return "attn", layer
            if mlp[:, at].any():
                return "mlp", layer
        return None

    def site(self, name: str) -> Site:
        kind, layer = self.writers[name]
        coordinates = tuple(self.coordinates[name])
        return (
            Site("attn_out", layer, coordinates=coordinates)
            if kind == "attn"
            else Site("resid", layer + 1, coordinates=coordinates)
        )

    def variable(self, name: str) -> Variable:
        kind, layer = self.writers[name]
        if kind == "embed":
            return Variable(name=name, compute=self._embedded(name), given=True, per_position=True)
        of, compute = self._attended(name, layer) if kind == "attn" else self._mapped(name, layer)
        return Variable(name=name, of=of, compute=compute, per_position=True)

    def read_by(self, weights: Float[np.ndarray, " d_model"]) -> tuple[str, ...]:
        """Variables of which some coordinate has weight."""
        return tuple(name for name in self.order if weights[list(self.coordinates[name])].any())

    def stream(self, names: Sequence[str], values: Sequence[Codes]) -> Float[Tensor, "batch pos coordinate"]:
        """The coordinates of all constants and of these variables."""
        at = self.constants
        parts = [_tensor(self.weights["W_E"][0, at] + self.weights["W_pos"][0, at]).expand(*values[0].shape, -1)]
        for name, value in zip(names, values, strict=True):
            n = len(self.coordinates[name])
            if self._one_hot(name):
                by_code = torch.cat([torch.eye(n + 1)[:, :-1].double(), self._others(name)])
                parts.append(by_code[torch.where(value < len(by_code), value, n).clamp_min(0)])
            else:
                parts.append(value[..., None].double() / SCALE)
        return torch.cat(parts, -1)

    def rows(self, names: Sequence[str]) -> list[int]:
        """The coordinates of `stream`."""
        return [*self.constants, *(at for name in names for at in self.coordinates[name])]

    def _others(self, name: str) -> Float[Tensor, "value coordinate"]:
        found = list(self.others[name])
        return torch.tensor(found, dtype=torch.float64).view(len(found), len(self.coordinates[name])) / SCALE

    def _one_hot(self, name: str) -> bool:
        return ":" in self.program.residual[self.coordinates[name][0]]

    def _codes(self, name: str, own: Float[Tensor, "batch pos coordinate"]) -> Codes:
        if not self._one_hot(name):
            return (own[..., 0] * SCALE).round().long()
        code = torch.where(own.amax(-1) > 0.5, own.argmax(-1), own.shape[-1])
        other = ((own - own.round()).abs() >= NEAR).any(-1) | (own.round().sum(-1) > 1)
        if other.any():
            found, index = (own[other] * SCALE).round().long().unique(dim=0, return_inverse=True)
            numbers = [self.others[name].setdefault(tuple(one), len(self.others[name])) for one in found.tolist()]
            code[other] = torch.tensor(numbers)[index] + own.shape[-1] + 1
        return code

    def _embedded(self, name: str) -> Compute:
        at = list(self.coordinates[name])
        embed, positions = _tensor(self.weights["W_E"][:, at]), _tensor(self.weights["W_pos"][:, at])
        return lambda batch: self._codes(name, embed[batch.tokens] + positions[: batch.tokens.shape[1]])

    def _mapped(self, name: str, layer: int) -> tuple[tuple[str, ...], Compute]:
        at = list(self.coordinates[name])
        units = np.abs(self.weights["W_out"][layer][:, at]).any(1)
        w_in = self.weights["W_in"][layer][:, units]
        of = self.read_by(np.abs(w_in).sum(1))
        inside, outside = _tensor(w_in[self.rows(of)]), _tensor(self.weights["W_out"][layer][units][:, at])

        def compute(_: CompiledBatch, *values: Codes) -> Codes:
            return self._codes(name, (self.stream(of, values) @ inside).relu() @ outside)

        return of, compute

    def _attended(self, name: str, layer: int) -> tuple[tuple[str, ...], Compute]:
        at, heads = list(self.coordinates[name]), self.weights["W_O"][layer]
        chosen = [index for index in range(len(heads)) if heads[index][:, at].any()]
        parts = {kind: self.weights[f"W_{kind}"][layer][chosen] for kind in "QKV"}
        of = self.read_by(np.sum([np.abs(one).sum((0, 2)) for one in parts.values()], axis=0))
        query, key, value = (_tensor(one[:, self.rows(of)]) for one in parts.values())
        out = _tensor(heads[chosen][:, :, at])

        def compute(batch: CompiledBatch, *values: Codes) -> Codes:
            stream = self.stream(of, values)[:, None]
            scores = (stream @ query) @ (stream @ key).transpose(-1, -2)
            pattern = scores.masked_fill(~self._visible(batch), -torch.inf).softmax(-1)
            return self._codes(name, (pattern @ (stream @ value) @ out).sum(1))

        return of, compute

    def _visible(self, batch: CompiledBatch) -> Bool[Tensor, "#batch 1 #query key"]:
        pos = batch.tokens.shape[1]
        seen = torch.ones(1, 1, 1, pos, dtype=torch.bool)
        if batch.attention_mask is not None:
            seen = batch.attention_mask[:, None, None]
        return seen & torch.ones(pos, pos, dtype=torch.bool).tril() if self.program.causal else seen


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).clone()
