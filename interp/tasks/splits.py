"""Splits, and sampling from them with an error that names the split; or all inputs of a split."""

import re
from typing import Any, Literal, Protocol, TypeVar, cast, get_args, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.checks import check_choice, check_number
from interp.tasks.batch import Batch
from interp.tasks.outputs import checked_batch, fault

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
EveryInput = Literal["all"]
"""In place of a number of examples: every input of a split, each once."""
ALL: EveryInput = "all"
MOST_INPUTS = 2**17
"""Number of inputs up to which tasks list them: with 32 tokens each, 32 MiB of token ids, and about the number of
sequences that an audit of a small model processes in ten minutes on two cores."""


SampledBatch = TypeVar("SampledBatch", covariant=True)


@runtime_checkable
class HasSplits(Protocol[SampledBatch]):
    """What is sampled: a task."""

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> SampledBatch:
        """Sample n examples of a split."""
        ...


def check_sample_size(name: str, n: object, *, low: int = 0) -> None:
    """Check that an argument is a number of examples, or "all".

    Args:
        name: Name of the argument.
        n: Its value.
        low: The smallest number.

    Raises:
        ValueError: neither; names the argument, its value and the two choices.
    """
    if n == ALL:
        return
    if isinstance(n, str):
        raise ValueError(f"{name} is {n!r}; give a number of examples, or {ALL!r} for every input of the task.")
    check_number(name, n, integer=True, low=low)


def check_few_inputs(task: object, n_inputs: int, *, where: str = "") -> None:
    """Check that inputs are few enough to be listed; tasks call it before they list any.

    Args:
        task: The task, whose class is named.
        n_inputs: Number of inputs.
        where: What has that number, if it is not the split that is asked for: "in all splits together".

    Raises:
        ValueError: more than `MOST_INPUTS`.
    """
    if n_inputs > MOST_INPUTS:
        place = f" {where}" if where else ""
        raise ValueError(
            f"{type(task).__name__} has {n_inputs:,} inputs{place}; at most {MOST_INPUTS:,} are listed. Give a number "
            f"n in place of {ALL!r}, or a task with fewer inputs."
        )


def rows_of_split(n_rows: int, split: Split) -> Int[Tensor, " row"]:
    """Rows of a table of inputs that belong to a split, by a fixed permutation of them.

    Three quarters are for training, one eighth each for validation and test.

    Args:
        n_rows: Number of rows; with 8 or more, every split has some.
        split: The split.
    """
    eighth = torch.randperm(n_rows, generator=torch.Generator().manual_seed(0)) % 8
    of_split = {"train": eighth > 1, "validation": eighth == 0, "test": eighth == 1}[split]
    return of_split.nonzero()[:, 0]


def sample_split(
    task: HasSplits[SampledBatch], n: int | EveryInput, *, generator: torch.Generator, split: Split = "train"
) -> SampledBatch:
    """Sample n examples of a split of a task, as `task.sample`, and check them; every analysis samples with it.

    Args:
        task: The task.
        n: Number of examples; "all" for every input of the split, each once, as `task.every_input`.
        generator: The only source of randomness. Without effect if n is "all".
        split: `train`, `validation` or `test`.

    Raises:
        ValueError: `task.sample` fails or gives another number of examples; says which split was sampled, and why it
            failed. A ValueError of the task that names the split stays as it is. Examples that do not fit the task,
            such as labels that are no answers (`checked_batch`). n is "all", and the task cannot list its inputs, or
            the split has none.

    Example:
        >>> from interp.tasks import Lego
        >>> generator = torch.Generator().manual_seed(0)
        >>> len(sample_split(Lego(n_vars=2), 8, generator=generator, split="test"))
        8
        >>> len(sample_split(Lego(n_vars=2), "all", generator=generator, split="test"))
        632
    """
    if isinstance(n, str):
        check_sample_size("n", n)
        return cast(SampledBatch, every_input_of_split(task, split))
    drawn: Any = _drawn(task, n, generator, split)
    batch = checked_batch(task, drawn, f"sample(split={split!r})")
    if len(batch) != n:
        raise fault(task, f"sample({n}, split={split!r})", f"gives {len(batch)} examples", f"{n}")
    return batch


def _drawn(task: HasSplits[SampledBatch], n: int, generator: torch.Generator, split: Split) -> SampledBatch:
    """n examples of a split, not checked."""
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


def every_input_of_split(task: object, split: Split) -> Batch:
    """Every input of a split, each once, as `task.every_input`.

    Raises:
        ValueError: the task cannot list its inputs, or the split has none.
    """
    name = type(task).__name__
    check_choice("split", split, Split)
    list_inputs = getattr(task, "every_input", None)
    if list_inputs is None:
        raise ValueError(f"{name} has no every_input, so its inputs cannot be listed; give a number n.")
    batch = list_inputs(split)
    if not len(batch):
        raise ValueError(f"{name}.every_input({split!r}) gives no inputs. {_if_empty(split)}")
    return checked_batch(task, batch, f"every_input({split!r})")


def can_sample(task: HasSplits, split: Split) -> bool:
    """Whether an example of a split can be sampled."""
    try:
        _drawn(task, 1, torch.Generator().manual_seed(0), split)
    except ValueError:
        return False
    return True


def _if_empty(split: Split) -> str:
    return (
        f"If the {split} split has no examples, give the task some; or let sample draw them from another split, with "
        "disjoint_splits = False."
    )
