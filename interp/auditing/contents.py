"""Replace what a head reads at related keys by what it reads at those of other sequences: the attention stays."""

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head
from hooks.interventions.replacements import HeadInputs, Replacement
from interp.core.randomness import derived_generator
from interp.tasks.base import Batch

LARGEST = 512
"""Largest number of related keys of other sequences to draw from."""

Pool = Mapping[tuple[str, int], Float[Tensor, "draw head width"]]
"""Values of a layer's heads at keys that are related under a kind, in reference sequences."""


def values_at_related_keys(
    parts: Iterable[tuple[Batch, slice, AblationEngine]],
    read: Mapping[str, Bool[Tensor, "sample key"]],
    labels: Mapping[Head, str],
    *,
    seed: int,
) -> Pool:
    """Values at keys that are related to some query of their sequence, for each kind and layer that a label needs.

    Args:
        parts: Parts of the reference sequences, each with its rows and a clean run.
        read: Keys of these sequences that are related to some query, for every kind that is a label.
        labels: Kind that each head is labelled with.
        seed: Decides which keys are taken if there are more than `LARGEST`.
    """
    chosen = {}
    for kind in sorted(set(labels.values())):
        places = read[kind].nonzero()
        order = torch.randperm(len(places), generator=derived_generator(seed, "related keys", kind))
        chosen[kind] = torch.zeros_like(read[kind])
        chosen[kind][tuple(places[order[:LARGEST]].T)] = True
    found: dict[tuple[str, int], list[Tensor]] = {}
    for _, rows, engine in parts:
        for layer in sorted({layer for layer, _ in labels}):
            v = engine.heads(layer).v
            for kind in sorted({kind for head, kind in labels.items() if head[0] == layer}):
                found.setdefault((kind, layer), []).append(v[chosen[kind][rows]])
    return {key: torch.cat(values) for key, values in found.items()}


def other_read(
    pool: Pool,
    related: Mapping[str, Bool[Tensor, "batch query key"]],
    labels: Mapping[Head, str],
    drawn: Float[Tensor, "batch key"],
) -> Replacement:
    """Outputs in which the values at related keys are those at related keys of other sequences.

    Args:
        pool: Values to draw from.
        related: Related keys of each query of the batch, for every kind that is a label.
        labels: Kind that each head is labelled with.
        drawn: Random numbers, at least 0 and below 1, that decide which value each key gets.
    """

    def new_outputs(layer: int, clean: HeadInputs) -> Float[Tensor, "batch pos head width"]:
        outputs = clean.z.clone()
        for head, kind in [(head, kind) for (at, head), kind in labels.items() if at == layer]:
            values = pool[kind, layer][:, head].to(clean.v)
            change = values[(drawn * len(values)).long()] - clean.v[:, :, head]
            outputs[:, :, head] += (clean.pattern[:, head] * related[kind]) @ change
        return outputs

    return new_outputs


def random_numbers(part: Batch, seed: int, first: int) -> Float[Tensor, "batch key"]:
    """A random number for each key, at least 0 and below 1.

    Args:
        part: Part of a batch.
        seed: Decides the numbers of a sequence, together with its index in the whole batch.
        first: Index of the part's first sequence in the whole batch.
    """
    n_keys = part.tokens.shape[1]
    return torch.stack(
        [
            torch.rand(n_keys, generator=derived_generator(seed, "other keys", first + index))
            for index in range(len(part))
        ]
    )
