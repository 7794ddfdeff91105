"""Exact replacement of the embedding, heads, MLPs and neurons, in any sets, from one cached pass."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.interventions.ablation_engine import EMBEDDING_POINT, AblationEngine, Head, NewOutput
from hooks.interventions.clean_pass import Net
from hooks.interventions.set_tree import SetTree
from hooks.model.checked_hooks import storing_hooks


@dataclass(frozen=True)
class Mlp:
    """The MLP of a layer, or some of its neurons."""

    layer: int
    neurons: tuple[int, ...] | None = None
    """Neurons after the nonlinearity (`mlp.hook_post`); if None, the whole output (`hook_mlp_out`)."""

    @property
    def hook_point(self) -> str:
        """Where it writes."""
        return f"blocks.{self.layer}.{'hook_mlp_out' if self.neurons is None else 'mlp.hook_post'}"


@dataclass(frozen=True)
class Embedding:
    """The embedding, position embeddings included."""

    hook_point = EMBEDDING_POINT


Part = Head | Mlp | Embedding


def layer_of(member: Part) -> int:
    """The layer of a part; the embedding is read by the first one."""
    if isinstance(member, Embedding):
        return 0
    return member.layer if isinstance(member, Mlp) else member[0]


class PartEngine(AblationEngine):
    """One clean pass on a batch, from which sets of heads, MLPs, neurons and the embedding are replaced together.

    Sets that agree in their first layers share the passes of these; the last edits of a set take one pass, which starts
    at the input of their first layer. Arguments and errors are those of `AblationEngine`.
    """

    def __init__(self, model: Net, tokens: Int[Tensor, "batch pos"], **options: Any):
        super().__init__(model, tokens, patterns=False, **options)

    def each_edit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, sets: Sequence[Sequence[Part]], new_output: NewOutput
    ) -> Iterator[tuple[int, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with the parts of each set replaced together, with the index of the set, in any order.

        What is written instead is computed from what the part writes under the edits of earlier parts.
        """
        members = list(dict.fromkeys(chain(*sets)))
        numbers = dict(zip(members, range(len(members)), strict=True))
        root = SetTree()
        indices_of_set: dict[tuple[Head, ...], list[int]] = {}
        for index, parts in enumerate(sets):
            places = sorted({(layer_of(member), numbers[member]) for member in parts})
            root.add(places)
            indices_of_set.setdefault(tuple(places), []).append(index)
        for index in indices_of_set.get((), []):
            yield index, self.logits
        streams = {layer: self.cache[f"blocks.{layer}.hook_resid_pre"] for layer in root.all_layers()}
        for places, logits in self._sets_under(root, (), streams, members, new_output):
            for index in indices_of_set[places]:
                yield index, logits

    def _sets_under(
        self,
        branch: SetTree,
        earlier: tuple[Head, ...],
        streams: Mapping[int, Float[Tensor, "batch pos d_model"]],
        parts: Sequence[Part],
        new_output: NewOutput,
    ) -> Iterator[tuple[tuple[Head, ...], Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits of the sets of a branch, from the inputs of layers under the edits of earlier ones."""
        for layer, edits in branch.layers.items():
            for numbers, next_branch in edits.items():
                # A single set takes one pass; what several sets go on from is stored
                later_edits = next_branch.only()
                places = [(layer, number) for number in numbers]
                if later_edits is not None:
                    places += [(later, number) for later, members in later_edits.items() for number in members]
                later_layers = () if later_edits is not None else next_branch.all_layers()
                edited = [parts[number] for _, number in places]
                logits, later_streams = self._pass(layer, streams[layer], edited, later_layers, new_output)
                if later_edits is not None or next_branch.is_set:
                    yield (*earlier, *places), logits
                if later_layers:
                    yield from self._sets_under(next_branch, (*earlier, *places), later_streams, parts, new_output)

    @torch.no_grad()
    def _pass(
        self,
        first_layer: int,
        stream: Float[Tensor, "batch pos d_model"],
        parts: Sequence[Part],
        later_layers: Collection[int],
        new_output: NewOutput,
    ) -> tuple[Float[Tensor, "batch read d_vocab_out"], dict[int, Float[Tensor, "batch pos d_model"]]]:
        """Logits from the input of a layer with parts replaced, and the inputs of later layers."""
        # What is replaced at each hook point; None for all of it
        replaced: dict[str, list[int] | None] = {}
        layers = {*later_layers, *map(layer_of, parts)}
        for member in parts:
            point, indices = self._place_of(member)
            known = replaced.get(point, [])
            replaced[point] = None if indices is None or known is None else [*known, *indices]

        def edit(activation: Tensor, hook: Any) -> Tensor:
            new = new_output(hook.name, activation).expand_as(activation)
            indices = replaced[hook.name]
            if indices is None:
                return new
            # Heads and neurons are the third axis
            edited = activation.clone()
            edited[:, :, indices] = new[:, :, indices]
            return edited

        # An edit of the last layer sees all positions, not only those that are read
        in_last = self.model.cfg.n_layers - 1 in layers
        stored: dict[str, Tensor] = {}
        names = {f"blocks.{layer}.hook_resid_pre": layer for layer in later_layers}
        with self.model.hooks([*((point, edit) for point in replaced), *storing_hooks(list(names), stored)]):
            logits = self.resume(stream, first_layer, every_position=in_last)
        return logits, {names[name]: values for name, values in stored.items()}

    def _place_of(self, member: Part) -> tuple[str, tuple[int, ...] | None]:
        """The hook point where a part writes, and its indices there; None for all of it."""
        if isinstance(member, Embedding):
            return member.hook_point, None
        if isinstance(member, Mlp):
            return member.hook_point, member.neurons
        layer, head = member
        return f"blocks.{layer}.{self._output_point}", (head,)
