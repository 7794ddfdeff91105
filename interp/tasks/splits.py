"""Splits, and sampling from them with an error that names the split."""

import re
from typing import Literal, Protocol, TypeVar, get_args, runtime_checkable

import torch

from interp.tasks.batch import Batch

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


SampledBatch = TypeVar("SampledBatch", covariant=True)


@runtime_checkable
class HasSplits(Protocol[SampledBatch]):
    """What is sampled: a task."""

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> SampledBatch:
        """Sample n examples of a split."""
        ...


def sample_split(
    task: HasSplits[SampledBatch], n: int, *, generator: torch.Generator, split: Split = "train"
) -> SampledBatch:
    """Sample n examples of a split of a task, as `task.sample`; every analysis samples with it.

    Args:
        task: The task.
        n: Number of examples.
        generator: The only source of randomness.
        split: `train`, `validation` or `test`.

    Raises:
        ValueError: `task.sample` fails or gives no examples; says which split was sampled, and why it failed. A
            ValueError of the task that names the split stays as it is.

    Example:
        >>> from interp.tasks import Lego
        >>> len(sample_split(Lego(n_vars=2), 8, generator=torch.Generator().manual_seed(0), split="test"))
        8
    """
    call = f"{type(task).__name__}.sample({n}, split={split!r})"
    try:
        batch = task.sample(n, generator=generator, split=split)
    except NotImplementedError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and re.search(rf"\b{split}\b", str(error)):
            raise
        reason = f"{type(error).__name__}: {error}".rstrip(". ")
        raise ValueError(f"{call} fails with {reason}. {_if_empty(split)}") from error
    if n and isinstance(batch, Batch) and not len(batch):
        raise ValueError(f"{call} gives no examples. {_if_empty(split)}")
    return batch


def can_sample(task: HasSplits, split: Split) -> bool:
    """Whether an example of a split can be sampled."""
    try:
        sample_split(task, 1, generator=torch.Generator().manual_seed(0), split=split)
    except ValueError:
        return False
    return True


def _if_empty(split: Split) -> str:
    return (
        f"If the {split} split has no examples, give the task some; or let sample draw them from another split, with "
        "disjoint_splits = False."
    )
