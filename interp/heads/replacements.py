"""What stands in for a head: nothing, a mean, another sequence's output, or its values under another pattern.

Whatever is drawn at random is drawn for each sequence by itself, so that results do not depend on how a batch is cut.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import HeadInputs, Net, Replacement, handed_on
from interp.core.randomness import derived_generator
from interp.core.verbs import visible_keys
from interp.heads.kinds import known_kinds, relations_of
from interp.tasks.base import Batch, Task

REMOVALS = ("zero", "mean", "resample")
PATTERNS = ("uniform", "random_rows")
METHODS = (*REMOVALS, *PATTERNS)
"""Beside these, any registered kind: the pattern becomes that relation's ideal map."""
N_REFERENCE = 256

ReplacementOf = Callable[[slice], Replacement]
"""The replacement for a part of the batch."""


def replacements(method: str, model: Net, task: Task, batch: Batch, *, seed: int) -> ReplacementOf:
    """Prepare a method for a batch.

    Args:
        method: One of `METHODS`, or a registered kind.
        model: Whose heads.
        task: Where the batch is from, and references come from.
        batch: All the sequences that heads will be replaced on.
        seed: Decides references, which of them stands for which sequence, and random rows.

    Raises:
        ValueError: an unknown method, or a kind that this task does not have.
    """
    if method == "zero":
        return lambda part: lambda layer, clean: torch.zeros_like(clean.z)
    if method in REMOVALS:
        return _of_reference(method, model, task, batch, seed)
    if method not in METHODS and method not in known_kinds():
        raise ValueError(f"method is {method!r}; choose one of {', '.join((*METHODS, *known_kinds()))}.")
    # of the whole batch: a part of it may well lack the relation
    related = None if method in METHODS else relations_of(task, batch, [method])[method]

    def mixed(part: slice) -> Replacement:
        here = batch.select(part)
        allowed = visible_keys(model, here.tokens, here.attention_mask)
        weight = allowed.double()
        if related is not None:
            weight = (related[part] & allowed).double()
        elif method == "random_rows":
            weight = random_weights(allowed, seed, part.start)
        pattern = normalised(weight, allowed)
        return lambda layer, clean: mix(pattern[:, None], clean)

    return mixed


def _of_reference(method: str, model: Net, task: Task, batch: Batch, seed: int) -> ReplacementOf:
    reference = _reference(method, model, task, seed)
    if method == "mean":
        return lambda part: lambda layer, clean: reference[layer].expand_as(clean.z)
    rows = torch.randint(N_REFERENCE, (len(batch),), generator=derived_generator(seed, "replacement"))
    return lambda part: lambda layer, clean: reference[layer][rows[part]]


@torch.no_grad()
def _reference(method: str, model: Net, task: Task, seed: int) -> list[Float[Tensor, "sample pos head width"]]:
    """What each layer's heads hand on for other sequences, or its mean over those with a token at the position."""
    batch = task.sample(N_REFERENCE, generator=derived_generator(seed, "reference"), split="validation")
    inputs: dict[str, Any] = batch.model_inputs()
    names = [f"blocks.{layer}.{handed_on(model.cfg)}" for layer in range(model.cfg.n_layers)]
    _, cache = model.run_with_cache(batch.tokens, **inputs, names_filter=names)
    if method == "resample":
        return [cache[name] for name in names]
    real = torch.ones_like(batch.tokens) if batch.attention_mask is None else batch.attention_mask
    share = (real.double() / real.sum(0).clamp_min(1))[..., None, None]
    return [(cache[name] * share.to(cache[name])).sum(0, keepdim=True) for name in names]


def random_weights(allowed: Bool[Tensor, "batch query key"], seed: int, first: int) -> Float[Tensor, "batch query key"]:
    """Rows that, normalised, are drawn from the flat simplex over the keys a query may see.

    Args:
        allowed: Those keys.
        seed: With its place in the whole batch, decides each sequence's rows.
        first: Place of the first sequence.
    """
    drawn = [
        torch.empty(allowed.shape[1:]).exponential_(generator=derived_generator(seed, "random rows", first + index))
        for index in range(len(allowed))
    ]
    return torch.stack(drawn).double() * allowed


def normalised(
    weight: Float[Tensor, "batch query key"], allowed: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "batch query key"]:
    """Rows that sum to one; uniform over the keys a query may see where there is no weight."""
    weight = torch.where(weight.sum(-1, keepdim=True) > 0, weight, allowed.double())
    return weight / weight.sum(-1, keepdim=True)


def mix(pattern: Float[Tensor, "batch #head query key"], clean: HeadInputs) -> Float[Tensor, "batch pos head width"]:
    """What heads hand on when they mix their values by this pattern."""
    return (pattern.to(clean.v) @ clean.v.transpose(1, 2)).transpose(1, 2)
