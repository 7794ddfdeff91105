"""What a known answer is: a model, its task, and the truth about each of its heads and each of its variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hooks import Transformer
from hooks.interventions.ablation_engine import Head
from interp.tasks.base import Task

Truth = Literal["faithful", "misleading", "hidden", "idle", "redundant"]


@dataclass(frozen=True, kw_only=True)
class HeadTruth:
    """What is true of one head by construction."""

    truth: Truth
    """`faithful`: acts through the pattern that it shows. `misleading`: shows a readable pattern and does nothing.
    `hidden`: shows no readable pattern and is needed. `idle`: neither. `redundant`: can go alone, not with its
    partners."""
    looks: str | None = None
    """The kind that its pattern shows, as `classify_heads` calls it; None where it shows none."""
    partners: tuple[Head, ...] = ()
    """(layer, head) of the heads that do the same work."""


@dataclass(frozen=True, kw_only=True)
class KnownAnswer:
    """A model whose algorithm is known, as data that an analysis can be held against."""

    name: str
    """What was planted and how it was randomised."""
    model: Transformer
    task: Task
    heads: Mapping[Head, HeadTruth]
    """Every head of every applied layer, by (layer, head)."""
    readable: Mapping[str, int] = field(default_factory=dict)
    """For targets that have such a layer: from which layer on the task's own label is linearly readable where the
    target is read; 0 is the embedding's output, l + 1 what leaves layer l, as in `ProbeResult`."""
