"""Consistency check of a task."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from textwrap import shorten
from typing import get_args

import torch

from hooks.checks import check_choice, check_text
from hooks.state import restores_state
from hooks.typed import checks_types
from interp.tasks.base import SPLITS, AttentionKind, Batch, Score, Split, Task
from interp.tasks.outputs import (
    check_range,
    checked_answers,
    checked_batch,
    checked_control_types,
    checked_probe_labels,
    fault,
)
from interp.tasks.splits import can_sample, sample_split
from interp.tasks.vocab import Vocab

MOST_TOKENS = 50_000
"""Tokens sampled from each split, at most, if that is more than 16 examples."""
MOST_LOGITS = 1 << 22
"""Logits scored, at most, if that is more than one example."""
_PASSED = "_consistent"
"""Attribute of a task object: the splits with which it has passed, and the report."""


@dataclass(frozen=True, kw_only=True)
class TaskCheck:
    """What a consistent task has; `print` it."""

    description: str
    """The task and its settings."""
    examples: Mapping[str, int]
    """By split: the number of examples that were checked."""
    distinct: Mapping[str, int]
    """By split: the number of distinct inputs among them."""
    disjoint: bool
    """Whether no input may occur in two splits, which was then checked."""
    every_input: Mapping[str, int]
    """For one split: the number of all its inputs, if the task can list them."""
    sizes: Mapping[str, int]
    """d_vocab, d_vocab_out and n_ctx."""
    targets: tuple[str, ...]
    chances: Mapping[str, float]
    """Accuracy of uniform guessing, by outcome."""
    relations: tuple[str, ...]
    """Attention relations, by which heads are classified besides those of position and tokens."""
    probe_labels: tuple[str, ...]
    answer_label: str | None
    """The probe label that equals the answers."""
    strata: tuple[str, ...]
    """Kinds of examples within which an audit measures as well."""

    def __str__(self) -> str:
        splits = []
        for split, n in self.examples.items():
            all_inputs = f" of {self.every_input[split]} inputs in all" if split in self.every_input else ""
            splits.append(f"{split} {n} examples, {self.distinct[split]} distinct{all_inputs}")
        chances = ", ".join(f"{name} {chance:.2g}" for name, chance in self.chances.items())
        lines = {
            "splits": "; ".join(splits),
            "between splits": "no input in two of them"
            if self.disjoint
            else "inputs may recur (disjoint_splits=False)",
            "sizes": ", ".join(f"{name} {size}" for name, size in self.sizes.items()),
            "targets": shorten(", ".join(self.targets), 100, placeholder=" ..."),
            "chance": shorten(chances, 100, placeholder=" ..."),
            "relations": ", ".join(self.relations) or "none: heads are classified by position and tokens only",
            "probe labels": ", ".join(self.probe_labels),
            "answers": self.answer_label or "equal no probe label: probe(verify=True) has nothing to test",
            "strata": ", ".join(self.strata) or "none",
        }
        width = max(map(len, lines))
        return "\n".join(
            [f"consistent: {self.description}", *(f"  {name:<{width}}  {text}" for name, text in lines.items())]
        )


@checks_types
@restores_state
def check_task(task: Task, *, splits: Sequence[str] = SPLITS) -> TaskCheck:
    """Check that a task is consistent: its samples, labels, relations, splits and description.

    `interp.train` and `interp.audit` call it once for each task object.

    Args:
        task: The task.
        splits: Splits that must have examples: an audit needs `validation` and `test`, training all three. Others are
            checked if they can be sampled.

    Returns:
        What was found: examples of each split, sizes, targets, chances, relations and labels.

    Raises:
        ValueError: an object that is not a `Task`; a split that does not exist or cannot be sampled; or an
            inconsistency: the method, its output, and what is expected.

    >>> import interp
    >>> from interp.tasks import Lego
    >>> print(interp.check_task(Lego(n_vars=3)))
    consistent: LEGO: ...
      splits          train 512 examples, ...
      between splits  no input in two of them
    ...
    """
    if not splits:
        raise ValueError(f"splits is empty; give some of {', '.join(SPLITS)}.")
    for split in splits:
        check_choice("splits", split, Split)
    passed: frozenset[str]
    passed, report = vars(task).get(_PASSED, (frozenset(), None))
    if report is not None and passed.issuperset(splits):
        return report
    # what the class defines
    _check_definition(task)
    _check_names(task)
    # of the splits that are not needed, those that can be sampled
    checked_splits: list[Split] = [split for split in SPLITS if split in splits or can_sample(task, split)]
    # a small batch first: n_ctx, which limits the size of the large one, may itself be wrong
    first_split = checked_splits[0]
    _sample(task, 16, first_split)
    # then each split, the generator, and whether splits share examples
    n = min(512, max(16, MOST_TOKENS // _positive(task, "n_ctx")))
    batches: dict[Split, Batch] = {split: _sample(task, n, split) for split in checked_splits}
    for split, batch in batches.items():
        _check_batch(task, batch, f"sample(split={split!r})")
    _check_generator(task, batches[first_split], first_split)
    _check_splits(task, batches)
    listed_split: Split = checked_splits[-1]
    n_inputs = _check_every_input(task, batches[listed_split], listed_split)
    # relations and logits of a whole batch could take gigabytes
    n_scored = min(16, max(1, MOST_LOGITS // (task.n_ctx * task.d_vocab_out)))
    small_batch = batches[first_split].select(slice(0, n_scored))
    _check_relations(task, small_batch)
    _check_strata(task, small_batch)
    _check_probe_labels(task, small_batch)
    _check_scores(task, small_batch)
    # what a curriculum and a manifest need
    _check_lengths(task)
    _check_description(task)
    report = _report(task, batches, small_batch, {} if n_inputs is None else {listed_split: n_inputs})
    vars(task)[_PASSED] = (passed.union(checked_splits), report)
    return report


def _report(
    task: Task, batches: Mapping[Split, Batch], small_batch: Batch, every_input: Mapping[str, int]
) -> TaskCheck:
    """What a task has, after its check."""
    return TaskCheck(
        description=task.description,
        examples={split: len(batch) for split, batch in batches.items()},
        distinct={split: len(set(batch.input_keys())) for split, batch in batches.items()},
        disjoint=task.disjoint_splits,
        every_input=every_input,
        sizes={name: getattr(task, name) for name in ("d_vocab", "d_vocab_out", "n_ctx")},
        targets=tuple(task.targets),
        chances=dict(zip(task.outcomes, task.chances, strict=True)),
        relations=tuple(task.relations(small_batch)),
        probe_labels=tuple(task.probe_labels(small_batch)),
        answer_label=task.answer_label,
        strata=tuple(task.strata(small_batch)),
    )


def _check_definition(task: Task) -> None:
    # attributes without a default
    for name in ("vocab", "targets"):
        if not hasattr(type(task), name) and name not in vars(task):
            raise fault(task, name, "is missing", "a field, a property or a class attribute")
    if not isinstance(task.vocab, Vocab):
        raise fault(task, "vocab", f"is a {type(task.vocab).__name__}", "an interp.tasks.Vocab")
    # its own `sample`, with the arguments of `Task.sample`
    expected = "a method sample(n, *, generator, split)"
    if type(task).sample is Task.sample:
        raise fault(task, "sample", "is missing", expected)
    try:
        signature(task.sample).bind(1, generator=None, split="test")
    except TypeError as error:
        raise fault(task, "sample", f"cannot be called: {error}", expected) from None


def _check_names(task: Task) -> None:
    n_answers = _positive(task, "d_vocab_out")
    # names are distinct, but two answers may look the same
    for name in ("targets", "outcomes", "answer_names"):
        names = getattr(task, name)
        finding = f"is {shorten(repr(names), 80)}"
        if not isinstance(names, tuple) or not names or not all(isinstance(text, str) for text in names):
            raise fault(task, name, finding, "a tuple of names, one at least")
        try:
            check_text(name, names)
        except ValueError as error:
            raise fault(task, name, f"is {shorten(repr(names), 80)} ({error})", "text that can be written") from None
        if name != "answer_names" and len(set(names)) < len(names):
            raise fault(task, name, finding, "a tuple of different names")
    # sizes agree with them; a task with its own `answers` may have one logit for several answers
    if len(task.vocab) != task.d_vocab:
        raise fault(task, "d_vocab", f"is {task.d_vocab}", f"{len(task.vocab)}, the number of tokens of its vocab")
    if type(task).answers is Task.answers and len(task.answer_names) != n_answers:
        raise fault(task, "answer_names", f"has {len(task.answer_names)} names", f"{n_answers}, its d_vocab_out")
    # attention, chances and audited outcomes
    if task.attention not in get_args(AttentionKind):
        raise fault(task, "attention", f"is {task.attention!r}", "'causal' or 'bidirectional'")
    if len(task.chances) != len(task.outcomes) or not all(0 <= chance <= 1 for chance in task.chances):
        raise fault(task, "chances", f"is {task.chances}", f"{len(task.outcomes)} fractions, one for each outcome")
    unknown = [name for name in task.audited_outcomes if name not in task.outcomes]
    if unknown:
        raise fault(task, "audited_outcomes", f"has {unknown[0]!r}", f"outcomes: {', '.join(task.outcomes)}")


def _positive(task: Task, name: str) -> int:
    """An attribute that must be a positive integer."""
    value = getattr(task, name)
    if not isinstance(value, int) or value < 1:
        raise fault(task, name, f"is {value!r}", "a positive number")
    return value


def _sample(task: Task, n: int, split: Split) -> Batch:
    """A batch of n examples, always with the same seed."""
    return sample_split(task, n, generator=torch.Generator().manual_seed(0), split=split)


def _check_batch(task: Task, batch: Batch, method: str) -> None:
    """Check what only training and audits need: lengths, padding and supervision."""
    pos = batch.tokens.shape[1]
    if pos > task.n_ctx:
        raise fault(task, method, f"gives examples of {pos} tokens", f"at most {task.n_ctx}, its n_ctx")
    if batch.position_ids is not None:
        check_range(task, method, "position_ids", batch.position_ids, task.n_ctx, "n_ctx")
    # no target is at padding
    if batch.attention_mask is not None:
        at_padding = ~batch.attention_mask.gather(1, batch.target_positions) & batch.present
        if at_padding.any():
            row, target = at_padding.nonzero()[0].tolist()
            finding = f"has the target {task.targets[target]!r} of example {row} at padding"
            expected = "targets at real tokens; set target_mask where an example has no target"
            raise fault(task, method, finding, expected)
    # some target is supervised
    if not (batch.present & batch.supervised).any():
        raise fault(task, method, "gives no supervised target", "one at least, else there is nothing to learn")


def _check_generator(task: Task, batch: Batch, split: Split) -> None:
    second_tensors = _sample(task, len(batch), split).tensors()
    for name, value in batch.tensors().items():
        if name not in second_tensors or not torch.equal(value, second_tensors[name]):
            expected = "the same examples; draw everything from the generator that it is given"
            raise fault(task, "sample", f"gives other {name} for the same seed", expected)


def _check_splits(task: Task, batches: Mapping[Split, Batch]) -> None:
    if not task.disjoint_splits:
        return
    # the first split in which each input occurs
    split_of: dict[bytes, str] = {}
    for split, batch in batches.items():
        for row, key in enumerate(batch.input_keys()):
            first_split = split_of.setdefault(key, split)
            if first_split != split:
                finding = f"gives {_text(task, batch, row)} in {first_split} and in {split}"
                expected = "disjoint splits; or set disjoint_splits = False if examples may recur"
                raise fault(task, "sample", finding, expected)


def _check_every_input(task: Task, batch: Batch, split: Split) -> int | None:
    """Check the list of inputs of a split, if the task has one, against sampled ones; their number, or None."""
    if not task.lists_inputs:
        return None
    try:
        inputs = task.every_input(split)
    except ValueError:  # too many to list
        return None
    method = f"every_input({split!r})"
    if not isinstance(inputs, Batch):
        raise fault(task, method, f"gives a {type(inputs).__name__}", "an interp.tasks.Batch")
    inputs = checked_batch(task, inputs, method)
    _check_batch(task, inputs, method)
    # the same fields and sizes as sampled examples
    sampled_shapes = {name: tuple(value.shape[1:]) for name, value in batch.tensors().items()}
    for name, value in inputs.tensors().items():
        shape = tuple(value.shape[1:])
        if shape != sampled_shapes.get(name, shape):
            expected = f"{sampled_shapes[name]}, as in sampled examples"
            raise fault(task, method, f"gives {name} of shape {shape} for each example", expected)
    # each input once, and every sampled one
    keys = inputs.input_keys()
    rows: dict[bytes, int] = {}
    for row, key in enumerate(keys):
        if key in rows:
            text = _text(task, inputs, row)
            raise fault(task, method, f"gives {text} twice, as examples {rows[key]} and {row}", "each input once")
        rows[key] = row
    for row, key in enumerate(batch.input_keys()):
        if key not in rows:
            finding = f"lacks {_text(task, batch, row)}, which sample gives"
            raise fault(task, method, finding, "every input that can be sampled")
    return len(inputs)


def _text(task: Task, batch: Batch, row: int) -> str:
    """The tokens of an example, for errors."""
    return f"the example '{' '.join(task.vocab.words(batch.tokens[row]))[:80]}'"


def _check_relations(task: Task, batch: Batch) -> None:
    n, pos = batch.tokens.shape
    for name, relation in task.relations(batch).items():
        if tuple(relation.shape) != (n, pos, pos):
            finding = f"gives {name!r} of shape {tuple(relation.shape)}"
            raise fault(task, "relations", finding, f"(batch, query, key), here {(n, pos, pos)}")
        if relation.dtype != torch.bool:
            raise fault(task, "relations", f"gives {name!r} of type {relation.dtype}", "torch.bool")


def _check_strata(task: Task, batch: Batch) -> None:
    n, n_outcomes = len(batch), len(task.outcomes)
    strata = task.strata(batch)
    if not isinstance(strata, Mapping):
        raise fault(task, "strata", f"gives a {type(strata).__name__}", "a dict of masks by name")
    for name, members in strata.items():
        if tuple(members.shape) not in ((n,), (n, n_outcomes)):
            finding = f"gives {name!r} of shape {tuple(members.shape)}"
            raise fault(task, "strata", finding, f"(batch,) or (batch, outcome), here {(n,)} or {(n, n_outcomes)}")
        if members.dtype != torch.bool:
            raise fault(task, "strata", f"gives {name!r} of type {members.dtype}", "torch.bool")


def _check_probe_labels(task: Task, batch: Batch) -> None:
    labels = checked_probe_labels(task, batch)
    checked_control_types(task, batch)
    if task.answer_label is not None and task.answer_label not in labels:
        raise fault(task, "answer_label", f"is {task.answer_label!r}", f"None, or one of {', '.join(labels)}")


def _check_scores(task: Task, batch: Batch) -> None:
    n, pos = batch.tokens.shape
    # the loss of logits at all positions
    logits = torch.zeros(n, pos, task.d_vocab_out)
    loss = task.loss(logits, batch)
    if loss.shape != () or not bool(loss.isfinite()):
        raise fault(task, "loss", f"gives {loss} for logits of zero", "one finite number")
    # answers and score of logits at the targets
    target_logits = logits[:, :1].expand(-1, len(task.targets), -1)
    checked_answers(task, batch, target_logits)
    score: Score = task.score(target_logits, batch)
    expected = (n, len(task.outcomes))
    for name in ("right", "loss", "total"):
        shape = tuple(getattr(score, name).shape)
        if shape != expected:
            raise fault(task, "score", f"gives {name} of shape {shape}", f"(batch, outcome), here {expected}")
    if not ((score.right >= 0) & (score.right <= score.total)).all():
        raise fault(task, "score", "gives fewer than 0 right answers or more than total", "0 <= right <= total")
    if not score.loss.isfinite().all():
        raise fault(task, "score", "gives a loss that is not finite for logits of zero", "finite numbers")


def _check_lengths(task: Task) -> None:
    if not task.lengths:
        return
    if type(task).sample_length is Task.sample_length:
        raise fault(task, "sample_length", "is missing", "a method, since the task has lengths")
    # two examples of the greatest length
    length = task.lengths[-1]
    method = f"sample_length({length})"
    sampled = task.sample_length(2, length, generator=torch.Generator().manual_seed(0))
    batch = checked_batch(task, sampled, method)
    _check_batch(task, batch, method)
    n_tokens = batch.tokens.shape[1]
    if n_tokens != task.tokens_of_length(length):
        expected = f"{task.tokens_of_length(length)}, as tokens_of_length"
        raise fault(task, method, f"gives examples of {n_tokens} tokens", expected)


def _check_description(task: Task) -> None:
    description = task.describe()
    if not isinstance(description, dict) or description.get("task") != task.task_name:
        finding = f"gives {shorten(repr(description), 80)}"
        raise fault(task, "describe", finding, f"a dict with 'task': {task.task_name!r}")
    # through JSON, as in a manifest
    try:
        stored = json.loads(json.dumps(description))
    except TypeError as error:
        finding = f"gives values that JSON cannot store: {error}"
        raise fault(task, "describe", finding, "numbers, strings, lists") from None
    # and back
    method = "from_description"
    expected = "the same task"
    try:
        second_description = type(task).from_description(stored).describe()
    except (TypeError, KeyError, AttributeError) as error:
        finding = f"fails on the output of describe: {type(error).__name__}: {error}"
        raise fault(task, method, finding, expected) from None
    except (ValueError, OSError) as error:
        if type(task).from_description.__func__ is not Task.from_description.__func__:
            return  # a description may refer to files that are not on this machine
        raise fault(task, method, f"fails on the output of describe: {error}", expected) from None
    if json.loads(json.dumps(second_description)) != stored:
        changed_names = [name for name in stored if second_description.get(name) != description[name]]
        raise fault(task, method, f"gives another {', '.join(changed_names)}", "the task that was described")
