"""Consistency check of a task."""

import json
from inspect import signature
from textwrap import shorten
from typing import Any, get_args

import torch
from torch import Tensor

from interp.tasks.base import IS_A_TASK, AttentionKind, Batch, Score, Split, Task
from interp.tasks.vocab import Vocab

TOKENS = 50_000
"""Tokens sampled from each split, at most, if that is more than 16 examples."""
LOGITS = 1 << 22
"""Logits scored, at most, if that is more than one example."""
_PASSED = "_consistent"
"""Marks a task object that passed."""


def check_task(task: Task) -> None:
    """Check that a task is consistent: what it samples, its labels, its relations, its splits and its description.

    `interp.train` and `interp.audit` call it once for each task object.

    Args:
        task: The task.

    Raises:
        ValueError: an object that is no `Task`, or an inconsistency: which method gave what, and what was expected.
    """
    Task.require(task, IS_A_TASK)
    if _PASSED in vars(task):
        return
    _check_definition(task)
    _check_names(task)
    _check_shapes(task, _sampled(task, 16, "train"), "sample(split='train')")
    n = min(512, max(16, TOKENS // _positive(task, "n_ctx")))
    batches = {split: _sampled(task, n, split) for split in get_args(Split)}
    for split, batch in batches.items():
        _check_batch(task, batch, f"sample(split={split!r})")
    _check_generator(task, batches["train"])
    _check_splits(task, batches)
    few = batches["train"].select(slice(0, min(16, max(1, LOGITS // (task.n_ctx * task.d_vocab_out)))))
    _check_relations(task, few)
    _check_probe_labels(task, few)
    _check_scores(task, few)
    _check_lengths(task)
    _check_description(task)
    vars(task)[_PASSED] = True


def _check_definition(task: Task) -> None:
    for name in ("vocab", "targets"):
        if not hasattr(type(task), name) and name not in vars(task):
            raise _wrong(task, name, "is missing", "a field, a property or a class attribute")
    if not isinstance(task.vocab, Vocab):
        raise _wrong(task, "vocab", f"is a {type(task.vocab).__name__}", "an interp.tasks.Vocab")
    if type(task).sample is Task.sample:
        raise _wrong(task, "sample", "is missing", "a method sample(n, *, generator, split)")
    try:
        signature(task.sample).bind(1, generator=None, split="test")
    except TypeError as error:
        raise _wrong(task, "sample", f"cannot be called: {error}", "a method sample(n, *, generator, split)") from None


def _check_names(task: Task) -> None:
    answers = _positive(task, "d_vocab_out")
    for name in ("targets", "outcomes", "answer_names"):
        value = getattr(task, name)
        if not isinstance(value, tuple) or not value or not all(isinstance(one, str) for one in value):
            raise _wrong(task, name, f"is {shorten(repr(value), 80)}", "a tuple of names, one at least")
        if name != "answer_names" and len(set(value)) < len(value):
            raise _wrong(task, name, f"is {shorten(repr(value), 80)}", "a tuple of different names")
    if len(task.vocab) != task.d_vocab:
        raise _wrong(task, "d_vocab", f"is {task.d_vocab}", f"{len(task.vocab)}, the number of tokens of its vocab")
    if type(task).answers is Task.answers and len(task.answer_names) != answers:
        raise _wrong(task, "answer_names", f"has {len(task.answer_names)} names", f"{answers}, its d_vocab_out")
    if task.attention not in get_args(AttentionKind):
        raise _wrong(task, "attention", f"is {task.attention!r}", "'causal' or 'bidirectional'")
    if len(task.chances) != len(task.outcomes) or not all(0 <= one <= 1 for one in task.chances):
        raise _wrong(task, "chances", f"is {task.chances}", f"{len(task.outcomes)} fractions, one for each outcome")
    if unknown := [name for name in task.audited_outcomes if name not in task.outcomes]:
        raise _wrong(task, "audited_outcomes", f"has {unknown[0]!r}", f"outcomes: {', '.join(task.outcomes)}")


def _positive(task: Task, name: str) -> int:
    value = getattr(task, name)
    if not isinstance(value, int) or value < 1:
        raise _wrong(task, name, f"is {value!r}", "a positive number")
    return value


def _sampled(task: Task, n: int, split: Split) -> Batch:
    batch = task.sample(n, generator=torch.Generator().manual_seed(0), split=split)
    if not isinstance(batch, Batch):
        raise _wrong(task, "sample", f"gives a {type(batch).__name__}", "an interp.tasks.Batch")
    if len(batch) != n:
        raise _wrong(task, f"sample({n}, split={split!r})", f"gives {len(batch)} examples", f"{n}")
    return batch


def _check_batch(task: Task, batch: Batch, where: str) -> None:
    _check_shapes(task, batch, where)
    pos = batch.tokens.shape[1]
    if pos > task.n_ctx:
        raise _wrong(task, where, f"gives examples of {pos} tokens", f"at most {task.n_ctx}, its n_ctx")
    _in_range(task, where, "tokens", batch.tokens, task.d_vocab, "d_vocab")
    _in_range(task, where, "target_positions", batch.target_positions, pos, "the number of tokens")
    answers = len(task.answer_names)
    _in_range(task, where, "labels", batch.labels[batch.present], answers, "the number of answer_names")
    _in_range(
        task,
        where,
        "labels of missing targets",
        batch.labels[~batch.present],
        answers,
        "0 is simplest; the number of answer_names",
    )
    if batch.position_ids is not None:
        _in_range(task, where, "position_ids", batch.position_ids, task.n_ctx, "n_ctx")
    if batch.attention_mask is not None:
        padding = ~batch.attention_mask.gather(1, batch.target_positions) & batch.present
        if padding.any():
            row, target = padding.nonzero()[0].tolist()
            found = f"has the target {task.targets[target]!r} of example {row} at padding"
            raise _wrong(task, where, found, "targets at real tokens; set target_mask where an example has no target")
    if not (batch.present & batch.supervised).any():
        raise _wrong(task, where, "gives no supervised target", "one at least, else there is nothing to learn")


def _check_shapes(task: Task, batch: Batch, where: str) -> None:
    if batch.tokens.ndim != 2:
        raise _wrong(task, where, f"gives tokens of shape {tuple(batch.tokens.shape)}", "(batch, pos)")
    n, pos = batch.tokens.shape
    per_token, per_target = (n, pos), (n, len(task.targets))
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "tokens": (per_token, torch.int64),
        "target_positions": (per_target, torch.int64),
        "labels": (per_target, torch.int64),
        "supervised": (per_target[1:], torch.bool),
        "position_ids": (per_token, torch.int64),
        "attention_mask": (per_token, torch.bool),
        "target_mask": (per_target, torch.bool),
    }
    for name, value in _tensors(batch).items():
        shape, dtype = expected.get(name, ((n, *value.shape[1:]), value.dtype))
        if tuple(value.shape) != shape:
            raise _wrong(task, where, f"gives {name} of shape {tuple(value.shape)}", f"{shape}")
        if value.dtype != dtype:
            raise _wrong(task, where, f"gives {name} of type {value.dtype}", f"{dtype}")


def _in_range(task: Task, where: str, name: str, values: Tensor, end: int, meaning: str) -> None:
    if not values.numel():
        return
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= end:
        raise _wrong(task, where, f"gives {name} from {low} to {high}", f"0 to {end - 1} ({meaning} is {end})")


def _tensors(batch: Batch) -> dict[str, Tensor]:
    return {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}


def _check_generator(task: Task, batch: Batch) -> None:
    first, again = _tensors(batch), _tensors(_sampled(task, len(batch), "train"))
    for name, value in first.items():
        if name not in again or not torch.equal(value, again[name]):
            raise _wrong(
                task, "sample", f"gives other {name} for the same seed",
                "the same examples; draw everything from the generator that it is given",
            )  # fmt: skip


def _check_splits(task: Task, batches: dict[Any, Batch]) -> None:
    if not task.disjoint_splits:
        return
    seen: dict[bytes, str] = {}
    for split, batch in batches.items():
        for index, key in enumerate(batch.input_keys()):
            if (before := seen.setdefault(key, split)) != split:
                shown = " ".join(task.vocab.words(batch.tokens[index]))
                raise _wrong(
                    task, "sample", f"gives the example '{shown[:80]}' in {before} and in {split}",
                    "disjoint splits; or set disjoint_splits = False if examples may recur",
                )  # fmt: skip


def _check_relations(task: Task, batch: Batch) -> None:
    n, pos = batch.tokens.shape
    for name, relation in task.relations(batch).items():
        if tuple(relation.shape) != (n, pos, pos):
            found = f"gives {name!r} of shape {tuple(relation.shape)}"
            raise _wrong(task, "relations", found, f"(batch, query, key), here {(n, pos, pos)}")
        if relation.dtype != torch.bool:
            raise _wrong(task, "relations", f"gives {name!r} of type {relation.dtype}", "torch.bool")


def _check_probe_labels(task: Task, batch: Batch) -> None:
    labels = task.probe_labels(batch)
    if not labels:
        raise _wrong(task, "probe_labels", "gives no label", "one at least")
    for name, values in labels.items():
        _check_per_target(task, f"probe_labels, {name!r},", values, batch)
        if (lowest := int(values.masked_fill(~batch.present, 0).min())) < 0:
            raise _wrong(task, f"probe_labels, {name!r},", f"has the class {lowest}", "classes 0, 1, ...")
    _check_per_target(task, "control_types", task.control_types(batch), batch)
    if task.answer_label is not None and task.answer_label not in labels:
        raise _wrong(task, "answer_label", f"is {task.answer_label!r}", f"None, or one of {', '.join(labels)}")


def _check_per_target(task: Task, method: str, values: Tensor, batch: Batch) -> None:
    expected = tuple(batch.labels.shape)
    if tuple(values.shape) != expected:
        raise _wrong(task, method, f"has the shape {tuple(values.shape)}", f"(batch, target), here {expected}")
    if values.dtype != torch.int64:
        raise _wrong(task, method, f"has the type {values.dtype}", "torch.int64")


def _check_scores(task: Task, batch: Batch) -> None:
    n, pos = batch.tokens.shape
    logits = torch.zeros(n, pos, task.d_vocab_out)
    loss = task.loss(logits, batch)
    if loss.shape != () or not bool(loss.isfinite()):
        raise _wrong(task, "loss", f"gives {loss} for logits of zero", "one finite number")
    at_targets = logits[:, :1].expand(-1, len(task.targets), -1)
    _check_per_target(task, "answers", task.answers(at_targets), batch)
    score: Score = task.score(at_targets, batch)
    for name in ("right", "loss", "total"):
        if tuple(getattr(score, name).shape) != (n, len(task.outcomes)):
            found = f"gives {name} of shape {tuple(getattr(score, name).shape)}"
            raise _wrong(task, "score", found, f"(batch, outcome), here {(n, len(task.outcomes))}")
    if not ((score.right >= 0) & (score.right <= score.total)).all():
        raise _wrong(task, "score", "gives fewer than 0 right answers or more than total", "0 <= right <= total")
    if not score.loss.isfinite().all():
        raise _wrong(task, "score", "gives a loss that is not finite for logits of zero", "finite numbers")


def _check_lengths(task: Task) -> None:
    if not task.lengths:
        return
    if type(task).sample_length is Task.sample_length:
        raise _wrong(task, "sample_length", "is missing", "a method, since the task has lengths")
    length = task.lengths[-1]
    batch = task.sample_length(2, length, generator=torch.Generator().manual_seed(0))
    _check_batch(task, batch, f"sample_length({length})")
    if batch.tokens.shape[1] != task.tokens_of_length(length):
        found = f"gives examples of {batch.tokens.shape[1]} tokens"
        raise _wrong(task, f"sample_length({length})", found, f"{task.tokens_of_length(length)}, as tokens_of_length")


def _check_description(task: Task) -> None:
    described = task.describe()
    if not isinstance(described, dict) or described.get("task") != task.task_name:
        raise _wrong(
            task, "describe", f"gives {shorten(repr(described), 80)}", f"a dict with 'task': {task.task_name!r}"
        )
    try:
        stored = json.loads(json.dumps(described))
    except TypeError as error:
        raise _wrong(task, "describe", f"gives values that JSON cannot hold: {error}", "numbers, text, lists") from None
    try:
        again = type(task).from_description(stored).describe()
    except (TypeError, KeyError, AttributeError) as error:
        found = f"fails on the output of describe: {type(error).__name__}: {error}"
        raise _wrong(task, "from_description", found, "the same task") from None
    except (ValueError, OSError) as error:
        if type(task).from_description.__func__ is not Task.from_description.__func__:
            return  # a description may refer to files that are not here
        raise _wrong(task, "from_description", f"fails on the output of describe: {error}", "the same task") from None
    if json.loads(json.dumps(again)) != stored:
        differs = [name for name in stored if again.get(name) != described[name]]
        raise _wrong(task, "from_description", f"gives another {', '.join(differs)}", "the task that was described")


def _wrong(task: Task, what: str, found: str, expected: str) -> ValueError:
    return ValueError(f"{type(task).__name__}.{what} {found}; expected: {expected}.")
