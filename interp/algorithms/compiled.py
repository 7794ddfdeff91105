"""The causal graph of a compiled program: its variables, the heads and MLPs that compute them, and where they are."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.typed import checks_types
from interp.algorithms.algorithm import NO_ANSWER, Algorithm, Variable
from interp.core.interchange import Site
from interp.known_answers.compiled.program import Program
from interp.known_answers.compiled.task import Compiled, CompiledBatch
from interp.tasks.base import Task, logits_at_targets

SCALE = 10**6
"""Numbers are counted in units of 1 / SCALE."""
TOLERANCE = 0.01
"""Largest distance of a coordinate from 0 or 1 in a one-hot value, and of two logits that count as equal."""
Codes = Int[Tensor, "batch pos"]
Compute = Callable[..., Codes]


@checks_types
def compiled_program(task: Task) -> Algorithm:
    """The graph of a compiled program: each variable has a value at each position, computed by one head or MLP.

    Tokens and positions are inputs. The value of a one-hot variable is its index, or one more if none is set; a number
    is rounded to 1e-6. Other values of a one-hot variable, such as the mean of several, which an intervention can
    cause, are numbered as they occur. Where two answers are equally likely the graph predicts nothing.

    Source: tracr, Lindner et al. 2023 (arXiv:2301.05062): every variable has its own coordinates of the stream.
    """
    task = Compiled.require(task, "compiled_program is for compiled programs.")
    graph = _Graph(task.program)
    unembed = task.program.weights["W_U"]
    parents = graph.parents(np.abs(unembed).sum(1))
    unembed = _tensor(unembed[graph.stream_coordinates(parents)])

    def answers(batch: CompiledBatch, *values: Codes) -> Int[Tensor, "batch target"]:
        by_name = dict(zip(graph.order, values, strict=True))
        logits = graph.stream(parents, [by_name[name] for name in parents]) @ unembed
        logits = logits_at_targets(logits.float(), batch)
        answered = batch.present
        if not task.program.numerical:
            first, second = logits.topk(2).values.unbind(-1)
            answered = answered & (first - second > TOLERANCE)
        return torch.where(answered, task.answers(logits), NO_ANSWER)

    variables = tuple(graph.variable(name) for name in graph.order)
    return Algorithm(name=task.program.name, variables=variables, answers=answers)


@checks_types
def compiled_sites(task: Task) -> dict[str, Site]:
    """Site of each variable of `compiled_program`: what writes it, and its coordinates."""
    task = Compiled.require(task, "compiled_sites is for compiled programs.")
    graph = _Graph(task.program)
    return {name: graph.site(name) for name in graph.order}


class _Graph:
    """Variables of a program in the order in which they are written, and what each is computed from."""

    def __init__(self, program: Program):
        self.program, self.weights = program, program.weights
        self.coordinates = {name: list(coordinates) for name, coordinates in program.variables.items()}
        self.writers: dict[str, tuple[str, int]] = {}
        self.constants: list[int] = []
        for name, coordinates in self.coordinates.items():
            writer = self._writer(coordinates)
            if writer is None:
                self.constants += coordinates
            else:
                self.writers[name] = writer
        self.mixtures: dict[str, dict[tuple[int, ...], int]] = {name: {} for name in self.writers}
        """Values of one-hot variables that are not one-hot, in units of 1 / SCALE, with their numbers."""
        rank = {"embed": 0, "attn": 1, "mlp": 2}
        self.order = sorted(self.writers, key=lambda name: (self.writers[name][1], rank[self.writers[name][0]]))

    def _writer(self, coordinates: list[int]) -> tuple[str, int] | None:
        """The kind of component that writes some coordinates, and its layer; None for constants."""
        for name in ("W_E", "W_pos"):
            n_values = len(np.unique(self.weights[name][:, coordinates], axis=0))
            if n_values > 1:
                return "embed", -1
        for layer, (heads, mlp) in enumerate(zip(self.weights["W_O"], self.weights["W_out"], strict=True)):
            if heads[:, :, coordinates].any():
                return "attn", layer
            if mlp[:, coordinates].any():
                return "mlp", layer
        return None

    def site(self, name: str) -> Site:
        kind, layer = self.writers[name]
        coordinates = tuple(self.coordinates[name])
        if kind == "attn":
            return Site("attn_out", layer, coordinates=coordinates)
        return Site("resid", layer + 1, coordinates=coordinates)

    def variable(self, name: str) -> Variable:
        kind, layer = self.writers[name]
        if kind == "embed":
            return Variable(name=name, compute=self._embedded(name), is_input=True, per_position=True)
        if kind == "attn":
            parents, compute = self._attended(name, layer)
        else:
            parents, compute = self._mapped(name, layer)
        return Variable(name=name, parents=parents, compute=compute, per_position=True)

    def parents(self, weights: Float[np.ndarray, " d_model"]) -> tuple[str, ...]:
        """Variables of which some coordinate has weight."""
        return tuple(name for name in self.order if weights[self.coordinates[name]].any())

    def stream(self, names: Sequence[str], values: Sequence[Codes]) -> Float[Tensor, "batch pos coordinate"]:
        """The coordinates of all constants and of these variables."""
        constants = self.weights["W_E"][0, self.constants] + self.weights["W_pos"][0, self.constants]
        blocks = [_tensor(constants).expand(*values[0].shape, -1)]
        for name, value in zip(names, values, strict=True):
            # A one-hot value: its row, that of zeros, or a mixture.
            if self._one_hot(name):
                n = len(self.coordinates[name])
                mixtures = torch.tensor(list(self.mixtures[name]), dtype=torch.float64).view(-1, n) / SCALE
                by_code = torch.cat([torch.eye(n + 1)[:, :-1].double(), mixtures])
                blocks.append(by_code[torch.where(value < len(by_code), value, n).clamp_min(0)])
            else:
                blocks.append(value[..., None].double() / SCALE)
        return torch.cat(blocks, -1)

    def stream_coordinates(self, names: Sequence[str]) -> list[int]:
        """Which coordinates `stream` returns."""
        return self.constants + [index for name in names for index in self.coordinates[name]]

    def _one_hot(self, name: str) -> bool:
        return ":" in self.program.residual[self.coordinates[name][0]]

    def _codes(self, name: str, activations: Float[Tensor, "batch pos coordinate"]) -> Codes:
        """Values of a variable from its coordinates."""
        if not self._one_hot(name):
            return (activations[..., 0] * SCALE).round().long()
        n = activations.shape[-1]
        code = torch.where(activations.amax(-1) > 0.5, activations.argmax(-1), n)
        # Values that are neither one-hot nor zero get the next numbers.
        rounded = activations.round()
        mixed = ((activations - rounded).abs() >= TOLERANCE).any(-1) | (rounded.sum(-1) > 1)
        if mixed.any():
            distinct, index = (activations[mixed] * SCALE).round().long().unique(dim=0, return_inverse=True)
            numbers = self.mixtures[name]
            codes = [numbers.setdefault(tuple(value), len(numbers)) for value in distinct.tolist()]
            code[mixed] = torch.tensor(codes)[index] + n + 1
        return code

    def _embedded(self, name: str) -> Compute:
        coordinates = self.coordinates[name]
        embed, positions = (_tensor(self.weights[weight][:, coordinates]) for weight in ("W_E", "W_pos"))
        return lambda batch: self._codes(name, embed[batch.tokens] + positions[: batch.tokens.shape[1]])

    def _mapped(self, name: str, layer: int) -> tuple[tuple[str, ...], Compute]:
        """Parents of a variable that an MLP writes, and its function."""
        coordinates = self.coordinates[name]
        # The units that write the variable, and the variables that they read.
        units = np.abs(self.weights["W_out"][layer][:, coordinates]).any(1)
        w_in = self.weights["W_in"][layer][:, units]
        parents = self.parents(np.abs(w_in).sum(1))
        w_in = _tensor(w_in[self.stream_coordinates(parents)])
        w_out = _tensor(self.weights["W_out"][layer][units][:, coordinates])

        def compute(_: CompiledBatch, *values: Codes) -> Codes:
            return self._codes(name, (self.stream(parents, values) @ w_in).relu() @ w_out)

        return parents, compute

    def _attended(self, name: str, layer: int) -> tuple[tuple[str, ...], Compute]:
        """Parents of a variable that heads write, and its function."""
        # The heads that write the variable, and the variables that they read.
        coordinates = self.coordinates[name]
        w_o = self.weights["W_O"][layer]
        heads = [index for index in range(len(w_o)) if w_o[index][:, coordinates].any()]
        qkv = [self.weights[f"W_{kind}"][layer][heads] for kind in "QKV"]
        weight_of_coordinates = np.sum([np.abs(weight).sum((0, 2)) for weight in qkv], axis=0)
        parents = self.parents(weight_of_coordinates)
        # Their weights on the coordinates of these variables.
        stream_coordinates = self.stream_coordinates(parents)
        w_q, w_k, w_v = (_tensor(weight[:, stream_coordinates]) for weight in qkv)
        w_o = _tensor(w_o[heads][:, :, coordinates])

        def compute(batch: CompiledBatch, *values: Codes) -> Codes:
            stream = self.stream(parents, values)[:, None]
            scores = (stream @ w_q) @ (stream @ w_k).transpose(-1, -2)
            pattern = scores.masked_fill(~self._visible(batch), -torch.inf).softmax(-1)
            return self._codes(name, (pattern @ (stream @ w_v) @ w_o).sum(1))

        return parents, compute

    def _visible(self, batch: CompiledBatch) -> Bool[Tensor, "#batch 1 #query key"]:
        pos = batch.tokens.shape[1]
        visible = torch.ones(1, 1, 1, pos, dtype=torch.bool)
        if batch.attention_mask is not None:
            visible = batch.attention_mask[:, None, None]
        if self.program.causal:
            visible = visible & torch.ones(pos, pos, dtype=torch.bool).tril()
        return visible


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).clone()
