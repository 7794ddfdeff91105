"""Known answers: a model with hand-written weights, its task, and the truth about every head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from hooks import Transformer
from hooks.interventions.ablation_engine import Head, every_head
from interp.tasks.base import Task

Truth = Literal["faithful", "misleading", "hidden", "idle", "redundant"]


@dataclass(frozen=True, kw_only=True)
class HeadTruth:
    """The truth about one head, by construction."""

    truth: Truth
    """`faithful`: acts through its pattern. `misleading`: has the pattern of a kind but does not act through it.
    `hidden`: is needed and has the pattern of no kind. `idle`: neither. `redundant`: can be removed alone, but not
    together with its partners."""
    looks: str | None = None
    """Kind of its pattern, as `classify_heads` labels it; None if it has none."""
    partners: tuple[Head, ...] = ()
    """(layer, head) of the heads that do the same work, or that cancel this one."""
    needed: Mapping[str, bool] | None = None
    """Whether removing it alone costs accuracy, by removal: `zero`, `mean`, `resample`. A head whose output never
    changes may be needed under one and not under another. None where the construction does not determine it."""


@dataclass(frozen=True, kw_only=True)
class KnownAnswer:
    """A model whose algorithm is known, to compare an analysis with."""

    name: str
    """Algorithm, additions, and sizes."""
    model: Transformer
    task: Task
    heads: Mapping[Head, HeadTruth]
    """Every head of every applied layer, by (layer, head)."""
    readable: Mapping[str, int] = field(default_factory=dict)
    """For some targets, the first layer from which on the task's label can be read linearly at the target's position.
    Layer 0 is the embedding's output, layer l + 1 the output of layer l, as in `ProbeResult`."""


def all_heads(model: Transformer, known: Mapping[Head, HeadTruth]) -> dict[Head, HeadTruth]:
    """The truth about every head of a model; heads that are not given are idle."""
    idle = HeadTruth(truth="idle")
    return {head: known.get(head, idle) for head in every_head(model)}


def group_truth(
    truth: Literal["misleading", "idle", "redundant"], looks: str | None, heads: Sequence[int], *, layer: int = 0
) -> dict[Head, HeadTruth]:
    """The same truth about several heads of a layer, each other's partners."""
    places = [(layer, head) for head in heads]
    return {
        place: HeadTruth(truth=truth, looks=looks, partners=tuple(other for other in places if other != place))
        for place in places
    }


def draw(generator: torch.Generator, low: int, high: int) -> int:
    """A random integer from `low` to `high`."""
    return int(torch.randint(low, high + 1, (1,), generator=generator))
