"""Consistency check of a task."""

from typing import Any, get_args

import torch
from torch import Tensor

from interp.tasks.base import Batch, Score, Split, Task

TOKENS = 100_000
"""Tokens sampled from each split, at most."""
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
    if not isinstance(task, Task):
        raise ValueError(f"task is a {type(task).__name__}; give an object whose class derives from interp.tasks.Task.")
    if _PASSED in vars(task):
        return
    _check_names(task)
    n = min(512, max(16, TOKENS // _positive(task, "n_ctx")))
    batches = {split: _sampled(task, n, split) for split in get_args(Split)}
    for split, batch in batches.items():
        _check_batch(task, batch, f"sample(split={split!r})")
    _check_generator(task, batches["train"])
    _check_splits(task, batches)
    _check_methods(task, batches["train"].select(slice(0, 16)))
    _check_description(task)
    vars(task)[_PASSED] = True


def _check_names(task: Task) -> None:
    for name in ("targets", "outcomes"):
        value = getattr(task, name)
        if not isinstance(value, tuple) or not value or not all(isinstance(one, str) for one in value):
            raise _wrong(task, name, f"is {value!r}", "a tuple of names, one at least")
        if len(set(value)) < len(value):
            raise _wrong(task, name, f"is {value!r}", "a tuple of different names")
    if len(task.vocab) != task.d_vocab:
        raise _wrong(task, "d_vocab", f"is {task.d_vocab}", f"{len(task.vocab)}, the number of tokens of its vocab")
    _positive(task, "d_vocab_out")
    if task.attention not in ("causal", "bidirectional"):
        raise _wrong(task, "attention", f"is {task.attention!r}", "'causal' or 'bidirectional'")
    if len(task.chances) != len(task.outcomes) or not all(0 <= one < 1 for one in task.chances):
        raise _wrong(task, "chances", f"is {task.chances}", f"{len(task.outcomes)} fractions, one for each outcome")


def _positive(task: Task, name: str) -> int:
    value = getattr(task, name)
    if not isinstance(value, int) or value < 1:
        raise _wrong(task, name, f"is {value!r}", "a positive number")
    return value


def _sampled(task: Task, n: int, split: Split, seed: int = 0) -> Batch:
    batch = task.sample(n, generator=torch.Generator().manual_seed(seed), split=split)
    if not isinstance(batch, Batch):
        raise _wrong(task, "sample", f"gives a {type(batch).__name__}", "an interp.tasks.Batch")
    if len(batch) != n:
        raise _wrong(task, f"sample({n}, split={split!r})", f"gives {len(batch)} examples", f"{n}")
    return batch


def _check_batch(task: Task, batch: Batch, where: str) -> None:
    n, pos = batch.tokens.shape
    _in_range(task, where, "tokens", batch.tokens, task.d_vocab, "d_vocab")
    if pos > task.n_ctx:
        raise _wrong(task, where, f"gives examples of {pos} tokens", f"at most {task.n_ctx}, its n_ctx")
    shapes = {"target_positions": (n, len(task.targets)), "labels": (n, len(task.targets))}
    shapes |= {"supervised": (len(task.targets),), "attention_mask": (n, pos), "position_ids": (n, pos)}
    shapes |= {"target_mask": (n, len(task.targets))}
    for name, shape in shapes.items():
        value = getattr(batch, name)
        if value is not None and tuple(value.shape) != shape:
            raise _wrong(task, where, f"gives {name} of shape {tuple(value.shape)}", f"{shape}")
    _in_range(task, where, "target_positions", batch.target_positions, pos, "the number of tokens")
    _in_range(task, where, "labels", batch.labels[batch.present], task.d_vocab_out, "d_vocab_out")
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
        mask = torch.ones_like(batch.tokens) if batch.attention_mask is None else batch.attention_mask.long()
        ids = mask if batch.position_ids is None else batch.position_ids
        for index, row in enumerate(torch.cat([batch.tokens * mask, mask, ids], 1).numpy()):
            if (before := seen.setdefault(row.tobytes(), split)) != split:
                shown = " ".join(task.vocab.words(batch.tokens[index]))
                raise _wrong(
                    task, "sample", f"gives the example '{shown[:80]}' in {before} and in {split}",
                    "disjoint splits; or set disjoint_splits = False if examples may recur",
                )  # fmt: skip


def _check_methods(task: Task, batch: Batch) -> None:
    n, pos = batch.tokens.shape
    for name, relation in task.relations(batch).items():
        if tuple(relation.shape) != (n, pos, pos):
            found = f"gives {name!r} of shape {tuple(relation.shape)}"
            raise _wrong(task, "relations", found, f"(batch, query, key), here {(n, pos, pos)}")
    labels = task.probe_labels(batch)
    if not labels:
        raise _wrong(task, "probe_labels", "gives no label", "one at least")
    for name, values in (*labels.items(), ("control_types", task.control_types(batch))):
        method = "control_types" if name == "control_types" else f"probe_labels, {name!r},"
        if tuple(values.shape) != tuple(batch.labels.shape):
            raise _wrong(
                task, method, f"has the shape {tuple(values.shape)}", f"(batch, target), {tuple(batch.labels.shape)}"
            )
        if name != "control_types" and int(values[batch.present].min()) < 0:
            raise _wrong(task, method, f"has the class {int(values[batch.present].min())}", "classes 0, 1, ...")
    logits = torch.zeros(n, pos, task.d_vocab_out)
    loss = task.loss(logits, batch)
    if loss.shape != () or not bool(loss.isfinite()):
        raise _wrong(task, "loss", f"gives {loss} for logits of zero", "one finite number")
    score: Score = task.score(logits[:, :1].expand(-1, len(task.targets), -1), batch)
    for name in ("right", "loss", "total"):
        if tuple(getattr(score, name).shape) != (n, len(task.outcomes)):
            found = f"gives {name} of shape {tuple(getattr(score, name).shape)}"
            raise _wrong(task, "score", found, f"(batch, outcome), {(n, len(task.outcomes))}")


def _check_description(task: Task) -> None:
    described = task.describe()
    if described.get("task") != task.task_name:
        raise _wrong(task, "describe", f"gives the task {described.get('task')!r}", f"{task.task_name!r}")
    try:
        again = type(task).from_description(described).describe()
    except TypeError as error:
        raise _wrong(task, "from_description", f"fails on the output of describe: {error}", "the same task") from None
    if again != described:
        differs = [name for name in described if again.get(name) != described[name]]
        raise _wrong(task, "from_description", f"gives another {', '.join(differs)}", "the task that was described")


def _wrong(task: Task, what: str, found: str, expected: str) -> ValueError:
    return ValueError(f"{type(task).__name__}.{what} {found}; expected: {expected}.")
