"""Known answers: a model with hand-written weights, its task, and the truth about every head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from hooks import Transformer
from hooks.interventions.ablation_engine import Head, every_head
from interp.tasks.base import Task

Truth = Literal["faithful", "misleading", "hidden", "idle", "redundant", "marginal"]
ZERO_ONLY = {"zero": True, "mean": False, "resample": False}
"""`HeadTruth.needed` of a head that writes the same vector at every position: only zero is different."""


@dataclass(frozen=True, kw_only=True)
class HeadTruth:
    """The truth about one head, by construction."""

    truth: Truth
    """`faithful`: acts through its pattern. `misleading`: has the pattern of a kind but does not act through it.
    `hidden`: is needed and acts through the pattern of no kind. `idle`: neither. `redundant`: shares its work with its
    partners: beyond some of them it costs more than the loss that counts, and at least twice what it costs alone.
    `marginal`: removing it costs about as much as counts, between 0.25 and 2 times the loss that does."""
    looks: str | None = None
    """Kind of its pattern, as `classify_heads` labels it; None if it has none."""
    acts_like: str | None = None
    """Kind whose keys get too little of its attention for that label, though no other attention of it does anything."""
    partners: tuple[Head, ...] = ()
    """(layer, head) of the heads that do the same work, or that cancel this one."""
    needed: Mapping[str, bool] | None = None
    """Whether removing it alone costs accuracy, by removal: `zero`, `mean`, `resample`. A head whose output never
    changes may be needed under one and not under another. None where the construction does not determine it."""


@dataclass(frozen=True, kw_only=True)
class KnownAnswer:
    """A model whose algorithm is known, to compare an analysis with."""

    name: str
    """Name in the suite and seed, or the algorithm."""
    model: Transformer
    task: Task
    heads: Mapping[Head, HeadTruth]
    """Every head of every applied layer, by (layer, head)."""
    readable: Mapping[str, int] = field(default_factory=dict)
    """For some targets, the first layer from which on the task's label can be read linearly at the target's position.
    Layer 0 is the embedding's output, layer l + 1 the output of layer l, as in `ProbeResult`."""


def all_heads(model: Transformer, truths: Mapping[Head, HeadTruth]) -> dict[Head, HeadTruth]:
    """The truth about every head of a model; heads without one are idle."""
    idle = HeadTruth(truth="idle")
    return {head: truths.get(head, idle) for head in every_head(model)}


def needed_head(
    looks: str | None, *, layer: int = 0, head: int = 0, acts_like: str | None = None
) -> dict[Head, HeadTruth]:
    """The truth about a head that works: faithful if its pattern has a kind, or acts like one, else hidden."""
    truth: Truth = "faithful" if looks or acts_like else "hidden"
    return {(layer, head): HeadTruth(truth=truth, looks=looks, acts_like=acts_like)}


def unneeded_heads(
    looks: str | None, heads: Sequence[int], *, layer: int = 0, needed: Mapping[str, bool] | None = None
) -> dict[Head, HeadTruth]:
    """The truth about heads that do not act through their pattern: misleading if it has a kind, else idle."""
    return _partners(HeadTruth(truth="misleading" if looks else "idle", looks=looks, needed=needed), heads, layer)


def redundant_heads(looks: str | None, heads: Sequence[int], *, layer: int = 0) -> dict[Head, HeadTruth]:
    """The truth about heads that do the same work."""
    return _partners(HeadTruth(truth="redundant", looks=looks), heads, layer)


def _partners(truth: HeadTruth, heads: Sequence[int], layer: int) -> dict[Head, HeadTruth]:
    """The same truth about several heads of a layer, which are partners."""
    places = [(layer, head) for head in heads]
    truths = {}
    for place in places:
        partners = tuple(partner for partner in places if partner != place)
        truths[place] = replace(truth, partners=partners)
    return truths


def draw(generator: torch.Generator, low: int, high: int) -> int:
    """A random integer from `low` to `high`."""
    return int(torch.randint(low, high + 1, (1,), generator=generator))
