"""Splits that cannot be sampled: every function names the split and says what to do."""

import re

import pytest
import torch
from foreign_tasks import AddMod

import interp
from hooks import Transformer
from interp.tasks.splits import sample_split

SPLITS = ("train", "validation", "test")
ADVICE = "split has no examples, give the task some; or let sample draw them from another split"


class Empty(AddMod):
    """A task with an empty split."""

    empty = "train"

    def sample(self, n, *, generator, split="train"):
        n_examples = 0 if split == self.empty else 49
        torch.randint(n_examples, (n,), generator=generator)  # what a user writes, to draw rows of a table
        return super().sample(n, generator=generator, split=split)


def empty(split):
    return type("Empty", (Empty,), {"empty": split})()


def failing(error):
    """A task whose test split raises an error."""

    class Failing(AddMod):
        def sample(self, n, *, generator, split="train"):
            if split == "test":
                raise error
            return super().sample(n, generator=generator, split=split)

    return Failing()


@pytest.fixture
def model():
    return Transformer(interp.config_for(AddMod(), n_layers=1, d_model=8, n_heads=2)).eval()


VERBS = {
    "train": lambda model, task: interp.train(model, task, interp.TrainSettings(steps=1, batch_size=4, n_eval=8)),
    "check_task": lambda model, task: interp.check_task(task),
    "audit": lambda model, task: interp.audit(model, task, n=32, at_chance=True),
    "classify_heads": lambda model, task: interp.classify_heads(model, task, n=32),
    "ablate_heads": lambda model, task: interp.ablate_heads(model, task, n=32, method="mean"),
    "keep_heads": lambda model, task: interp.keep_heads(model, task, n=32),
    "logit_lens": lambda model, task: interp.logit_lens(model, task, n=32),
    "logit_attribution": lambda model, task: interp.logit_attribution(model, task, n=32),
    "edges": lambda model, task: interp.edges(model, task, n=32),
    "patch": lambda model, task: interp.patch(model, task, n=32),
    "probe": lambda model, task: interp.probe(model, task, n_train=40, n_test=40),
    "audit_probe": lambda model, task: interp.audit_probe(model, task, n_train=40, n_test=40),
    "evaluate": lambda model, task: interp.evaluate(model, task, n=32),
}
NEEDS_TRAIN = ("train", "check_task")
NEEDS_VALIDATION = (*NEEDS_TRAIN, "audit", "ablate_heads", "edges", "probe", "audit_probe")


def refusals():
    for verb in VERBS:
        for split in SPLITS:
            needed = {"train": verb in NEEDS_TRAIN, "validation": verb in NEEDS_VALIDATION, "test": True}
            if needed[split]:
                yield pytest.param(verb, split, id=f"{verb} {split}")


@pytest.mark.parametrize(("verb", "split"), list(refusals()))
def test_every_function_names_the_empty_split(model, verb, split):
    words = rf"Empty\.sample\(\d+, split='{split}'\) fails with RuntimeError: random_ expects .*If the {split} {ADVICE}"
    with pytest.raises(ValueError, match=words):
        VERBS[verb](model, empty(split))


def test_an_audit_needs_no_training_examples(model):
    task = empty("train")
    interp.audit(model, task, n=32, at_chance=True)
    with pytest.raises(ValueError, match="split='train'"):
        interp.check_task(task)  # which the audit has not checked
    interp.check_task(task, splits=("test",))


def test_splits_to_check():
    with pytest.raises(ValueError, match=r"splits is 'held out'; choose one of train, validation, test\."):
        interp.check_task(AddMod(), splits=("held out",))
    with pytest.raises(ValueError, match=r"splits is empty; give some of train, validation, test\."):
        interp.check_task(AddMod(), splits=())


class TooSmall(Exception):
    """An error of a user's own."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            TooSmall("only 3 left."),
            "Failing.sample(9, split='test') fails with TooSmall: only 3 left. If the test",
        ),
        (KeyError("a"), "Failing.sample(9, split='test') fails with KeyError: 'a'. If the test split"),
        (
            ValueError("high <= 0"),
            "Failing.sample(9, split='test') fails with ValueError: high <= 0. If the test",
        ),
        (ValueError("split 'test' has 3 rows."), "split 'test' has 3 rows."),
    ],
)
def test_an_error_of_the_users_own_names_the_split(error, words):
    with pytest.raises(ValueError, match="^" + re.escape(words)) as raised:
        sample_split(failing(error), 9, generator=torch.Generator(), split="test")
    assert error in (raised.value, raised.value.__cause__)


def test_a_batch_without_examples():
    class NoRows(AddMod):
        def sample(self, n, *, generator, split="train"):
            return super().sample(n, generator=generator, split=split).select(slice(0))

    with pytest.raises(ValueError, match=r"NoRows.sample\(5, split='train'\) gives no examples. If the train split"):
        sample_split(NoRows(), 5, generator=torch.Generator())
    assert len(sample_split(NoRows(), 0, generator=torch.Generator())) == 0
