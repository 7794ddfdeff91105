"""Checks of what a task gives: batches, probe labels and input types. Every function that reads these calls them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.batch import Batch

AnyBatch = TypeVar("AnyBatch", bound=Batch)

CLASSES = "classes 0, 1, ... as integers"
_INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64}


def fault(task: Any, method: str, finding: str, expected: str) -> ValueError:
    """The error for something that a task gives: the method, its output, and what is expected."""
    return ValueError(f"{type(task).__name__}.{method} {finding}; expected: {expected}.")


def checked_batch(
    task: Any, batch: AnyBatch, method: str, *, n: int | None = None, n_targets: int | None = None
) -> AnyBatch:
    """Check a batch against the vocab, targets and answers of its task.

    Args:
        task: The task that it is of.
        batch: Examples.
        method: The call that gave it, for errors.
        n: Number of examples that were asked for; default: any.
        n_targets: Number of targets; default: that of the task.

    Returns:
        The batch, with 64-bit integers in place of other integers. Labels may also be boolean.

    Raises:
        ValueError: another number of examples, a field of another shape or type, on another device, or with values out
            of range.
    """
    if not isinstance(batch, Batch):
        raise fault(task, method, f"gives a {type(batch).__name__}", "an interp.tasks.Batch")
    if n is not None and len(batch) != n:
        raise fault(task, method, f"gives {len(batch)} examples", f"{n}")
    batch = _with_shapes_and_types(task, batch, method, len(task.targets) if n_targets is None else n_targets)
    n_answers = len(task.answer_names)
    if batch.target_mask is None:
        _check_labels(task, method, batch.labels, n_answers)
    else:
        # labels of missing targets index the logits too
        _check_labels(task, method, batch.labels[batch.target_mask], n_answers)
        missing_labels = batch.labels[~batch.target_mask]
        missing_meaning = "0 is simplest; the number of answer_names"
        check_range(task, method, "labels of missing targets", missing_labels, n_answers, missing_meaning)
    check_range(task, method, "tokens", batch.tokens, task.d_vocab, "d_vocab")
    n_tokens = batch.tokens.shape[1]
    check_range(task, method, "target_positions", batch.target_positions, n_tokens, "the number of tokens")
    return batch


def checked_probe_labels(task: Any, batch: Batch) -> dict[str, Int[Tensor, "batch target"]]:
    """The probe labels of a batch, checked: `task.probe_labels(batch)` as 64-bit integers.

    Raises:
        ValueError: labels that are not a class, 0, 1, ..., for every target of every example; names the label.
    """
    labels = task.probe_labels(batch)
    if not isinstance(labels, Mapping):
        raise fault(task, "probe_labels", f"gives a {type(labels).__name__}", "a dict of labels by name")
    if not labels:
        raise fault(task, "probe_labels", "gives no label", "one at least")
    checked = {}
    for name, values in labels.items():
        method = f"probe_labels, {name!r},"
        if not isinstance(name, str):
            raise fault(task, method, "has a name that is no string", "labels by name")
        classes = _per_target(task, method, values, batch, CLASSES, booleans=True)
        # a missing target may have any
        if batch.target_mask is not None:
            classes = classes.masked_fill(~batch.target_mask, 0)
        if classes.numel() and int(classes.min()) < 0:
            raise fault(task, method, f"has the class {int(classes.min())}", f"{CLASSES}; {_MASK_ADVICE}")
        checked[name] = classes
    return checked


def checked_control_types(task: Any, batch: Batch) -> Int[Tensor, "batch target"]:
    """The input types of a batch, checked: `task.control_types(batch)` as 64-bit integers.

    Raises:
        ValueError: another shape or type.
    """
    return _per_target(task, "control_types", task.control_types(batch), batch, "integers, one for each type")


def checked_answers(task: Any, batch: Batch, target_logits: Tensor) -> Int[Tensor, "batch target"]:
    """The answers to a batch, checked: `task.answers(target_logits)` as 64-bit integers.

    Raises:
        ValueError: another shape or type.
    """
    return _per_target(task, "answers", task.answers(target_logits), batch, "integers, as labels")


_MASK_ADVICE = "set target_mask of the batch to False where an example has no label"


def _per_target(
    task: Any, method: str, values: object, batch: Batch, expected: str, *, booleans: bool = False
) -> Int[Tensor, "batch target"]:
    shape = tuple(batch.labels.shape)
    if not isinstance(values, Tensor):
        raise fault(task, method, f"is a {type(values).__name__}", f"a tensor (batch, target), here {shape}")
    if tuple(values.shape) != shape:
        raise fault(task, method, f"has the shape {tuple(values.shape)}", f"(batch, target), here {shape}")
    _check_in_memory(task, method, "values", values)
    if values.dtype not in _INTEGERS and not (booleans and values.dtype == torch.bool):
        raise fault(task, method, f"has the type {values.dtype}", f"{expected}{_advice_for(values)}")
    return values.long()


def _advice_for(values: Tensor) -> str:
    """How to make integers of other values."""
    if not values.dtype.is_floating_point or values.is_quantized:
        return ""
    if not values.isfinite().all():
        return f"; some are not finite: {_MASK_ADVICE}"
    is_whole = bool((values == values.round()).all())
    return "; add .long() to whole numbers" if is_whole else "; number the distinct values, or bins of them"


def _with_shapes_and_types(task: Any, batch: AnyBatch, method: str, n_targets: int) -> AnyBatch:
    """The batch with 64-bit integers; shapes and types are checked."""
    if not isinstance(batch.tokens, Tensor) or batch.tokens.ndim != 2:
        finding = f"of shape {tuple(batch.tokens.shape)}" if isinstance(batch.tokens, Tensor) else "without a shape"
        raise fault(task, method, f"gives tokens {finding}", "(batch, pos)")
    n, pos = batch.tokens.shape
    per_token, per_target = (n, pos), (n, n_targets)
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "tokens": (per_token, torch.int64),
        "target_positions": (per_target, torch.int64),
        "labels": (per_target, torch.int64),
        "supervised": (per_target[1:], torch.bool),
        "position_ids": (per_token, torch.int64),
        "attention_mask": (per_token, torch.bool),
        "target_mask": (per_target, torch.bool),
    }
    for name in expected:
        value = getattr(batch, name)
        is_optional = name in ("position_ids", "attention_mask", "target_mask")
        if not isinstance(value, Tensor) and not (is_optional and value is None):
            raise fault(task, method, f"gives {name} as a {type(value).__name__}", "a tensor")
    converted = {}
    for name, value in batch.tensors().items():
        # fields that a subclass adds have a row for every example
        shape, dtype = expected.get(name, ((n, *value.shape[1:]), value.dtype))
        if tuple(value.shape) != shape:
            raise fault(task, method, f"gives {name} of shape {tuple(value.shape)}", f"{shape}")
        _check_in_memory(task, method, name, value)
        if value.dtype == dtype:
            continue
        is_integer = value.dtype in _INTEGERS or (name == "labels" and value.dtype == torch.bool)
        if dtype != torch.int64 or not is_integer:
            raise fault(task, method, f"gives {name} of type {value.dtype}", f"{dtype}{_advice_for(value)}")
        converted[name] = value.long()
    return replace(batch, **converted) if converted else batch


def _check_in_memory(task: Any, method: str, name: str, values: Tensor) -> None:
    if values.device.type != "cpu" or values.layout != torch.strided:
        finding = f"gives {name} on the device {values.device}, layout {values.layout}"
        raise fault(task, method, finding, "dense tensors on the CPU; functions move examples to the model's device")


def _check_labels(task: Any, method: str, labels: Int[Tensor, "*_"], n_answers: int) -> None:
    """Check the range of labels; negative ones are meant as missing."""
    meaning = "the number of answer_names"
    if labels.numel() and int(labels.min()) < 0:
        finding, expected = _out_of_range("labels", labels, n_answers, meaning)
        raise fault(task, method, finding, f"{expected}; {_MASK_ADVICE}")
    check_range(task, method, "labels", labels, n_answers, meaning)


def check_range(task: Any, method: str, name: str, values: Int[Tensor, "*_"], end: int, meaning: str) -> None:
    """Check that values are from 0 to `end` - 1.

    Raises:
        ValueError: the range of the values, and what the end is.
    """
    if not values.numel():
        return
    low, high = values.aminmax()
    if int(low) < 0 or int(high) >= end:
        raise fault(task, method, *_out_of_range(name, values, end, meaning))


def _out_of_range(name: str, values: Int[Tensor, "*_"], end: int, meaning: str) -> tuple[str, str]:
    """What was found and what is expected."""
    low, high = (int(value) for value in values.aminmax())
    return f"gives {name} from {low} to {high}", f"0 to {end - 1} ({meaning} is {end})"
