"""Labels that tasks give: refused with their name and what to do, or read as the classes that occur."""

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.tasks import Batch, Task, Vocab

pytestmark = pytest.mark.usefixtures("as_a_user")

SIZES: Any = {"n_train": 400, "n_test": 200}


class Letters(Task):
    """Six random letters; the label is a function of the batch, by default the last letter."""

    vocab: ClassVar = Vocab(tuple("abcdefgh"))
    targets: ClassVar = ("last",)
    disjoint_splits: ClassVar = False

    def sample(self, n, *, generator, split="train"):
        tokens = torch.randint(8, (n, 6), generator=generator)
        positions, supervised = torch.full((n, 1), 5), torch.tensor([True])
        batch = Batch(tokens=tokens, target_positions=positions, labels=tokens[:, -1:], supervised=supervised)
        return self.changed(batch)

    def changed(self, batch):
        return batch


MODEL = Transformer(interp.config_for(Letters(), n_layers=1, n_heads=2, d_model=16), seed=0)


def labelled(label, **labels):
    """A task with a probe label "x", and others."""
    functions = {"x": label, **labels}
    members = {"probe_labels": lambda _, batch: {name: function(batch) for name, function in functions.items()}}
    return type("Mine", (Letters,), members)()


DOORS = {
    "check_task": interp.check_task,
    "probe": lambda task: interp.probe(MODEL, task, **SIZES),
    "logistic": lambda task: interp.probe(MODEL, task, **SIZES, solver="logistic"),
    "verify": lambda task: interp.probe(MODEL, task, **SIZES, verify=True),
    "audit_probe": lambda task: interp.audit_probe(MODEL, task, **SIZES),
}
MASK = "set target_mask of the batch to False where an example has no label"
CLASSES = "expected: classes 0, 1, ... as integers"
NOT_A_TENSOR = "expected: a tensor (batch, target), here "
REFUSED = {
    "halves": (lambda b: b.labels / 2, f"has the type torch.float32; {CLASSES}; number the distinct values"),
    "thirds": (lambda b: b.labels.double() / 3, f"has the type torch.float64; {CLASSES}; number the distinct"),
    "whole floats": (lambda b: b.labels.half(), f"has the type torch.float16; {CLASSES}; add .long() to whole"),
    "with gradient": (lambda b: (b.labels * 1.0).requires_grad_(), f"has the type torch.float32; {CLASSES}"),
    "NaN": (lambda b: b.labels / (b.labels > 3), f"type torch.float32; {CLASSES}; some are not finite: {MASK}"),
    "complex": (lambda b: b.labels * 1j, f"has the type torch.complex64; {CLASSES}."),
    "ignored": (lambda b: torch.where(b.labels > 3, -100, b.labels), f"has the class -100; {CLASSES}; {MASK}."),
    "sentinel": (lambda b: b.labels - 1, f"has the class -1; {CLASSES}; {MASK}."),
    "smallest": (lambda b: torch.where(b.labels > 0, 1, -(2**63)), f"has the class -9223372036854775808; {CLASSES}"),
    "no target axis": (lambda b: b.labels[:, 0], "has the shape "),
    "two targets": (lambda b: b.labels.expand(-1, 2), "has the shape "),
    "too few": (lambda b: b.labels[1:], "has the shape "),
    "a list": (lambda b: b.labels.tolist(), f"is a list; {NOT_A_TENSOR}"),
    "strings": (lambda b: [["a"] for _ in b.tokens], f"is a list; {NOT_A_TENSOR}"),
    "an array": (lambda b: b.labels.numpy(), f"is a ndarray; {NOT_A_TENSOR}"),
    "another device": (lambda b: b.labels.to("meta"), "gives values on the device meta, layout torch.strided; exp"),
    "sparse": (lambda b: b.labels.to_sparse(), "on the device cpu, layout torch.sparse_coo; expected: dense tensors"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_class_is_refused_at_every_door(kind):
    label, words = REFUSED[kind]
    for door in DOORS.values():
        with pytest.raises(ValueError, match=r"^Mine\.probe_labels, 'x', ") as error:
            door(labelled(label))
        assert words in str(error.value)


@pytest.mark.parametrize("door", ["check_task", "verify", "audit_probe"])
def test_other_labels_are_looked_at_too(door):
    task = labelled(lambda b: b.labels, weight=lambda b: b.labels * 0.5)
    with pytest.raises(ValueError, match=r"^Mine\.probe_labels, 'weight', has the type torch\.float32"):
        DOORS[door](task)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"probe_labels": lambda _, b: [b.labels]}, "probe_labels gives a list; expected: a dict of labels by name."),
        ({"probe_labels": lambda _, b: {}}, "probe_labels gives no label; expected: one at least."),
        ({"probe_labels": lambda _, b: {0: b.labels}}, "probe_labels, 0, has a name that is no string; exp"),
        ({"control_types": lambda _, b: b.tokens[:, 0]}, "control_types has the shape (400,); expected: (b"),
        ({"control_types": lambda _, b: b.labels * 0.5}, "control_types has the type torch.float32; expec"),
    ],
)  # fmt: skip
def test_what_is_not_by_name_or_not_by_target(members, words):
    task = type("Mine", (Letters,), members)()
    with pytest.raises(ValueError, match=r"^Mine\.") as error:
        interp.probe(MODEL, task, **SIZES)
    assert str(error.value).startswith(f"Mine.{words}")


def same(first, second):
    """Whether two results of a probe are equal to the last digit."""
    for field in fields(first):
        values: list[Any] = [getattr(result, field.name) for result in (first, second)]
        if field.name == "accuracy":
            values = [(value.value.tolist(), value.low.tolist(), value.high.tolist()) for value in values]
        elif field.name == "causal":
            values = [{name: array.tolist() for name, array in (value or {}).items()} for value in values]
        if not np.array_equal(*values) if isinstance(values[0], np.ndarray) else values[0] != values[1]:
            return False
    return str(first) == str(second) and first.to_dataframe().equals(second.to_dataframe())


CODES = {
    "7 x + 3": lambda label: 7 * label + 3,
    "large": lambda label: label * 10**15,
    "squares": lambda label: label.square(),
    **{
        str(dtype).removeprefix("torch."): lambda label, dtype=dtype: label.to(dtype)
        for dtype in (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    },
}


@pytest.fixture(scope="module")
def plain():
    task = labelled(lambda b: b.labels)
    return {"ridge": interp.probe(MODEL, task, **SIZES), "audit": interp.audit_probe(MODEL, task, **SIZES)}


@pytest.mark.parametrize("code", CODES)
def test_classes_are_those_that_occur(code, plain):
    """Another coding of the same classes gives the same probes, controls, selectivity and table."""
    task = labelled(lambda b: CODES[code](b.labels))
    result = interp.probe(MODEL, task, **SIZES)
    assert same(result, plain["ridge"])
    assert result.selectivity.tolist() == plain["ridge"].selectivity.tolist()


def test_an_audit_of_classes_with_gaps(plain):
    audit = interp.audit_probe(MODEL, labelled(lambda b: 7 * b.labels + 3), **SIZES)
    assert str(audit) == str(plain["audit"])
    assert audit.p.tolist() == plain["audit"].p.tolist()


def test_classes_with_gaps_of_the_other_solver():
    results = [
        interp.probe(MODEL, labelled(label), n_train=100, n_test=50, solver="logistic")
        for label in (lambda b: b.labels // 4, lambda b: 50 - 11 * (1 - b.labels // 4))
    ]
    assert same(*results)


def test_booleans_are_two_classes():
    results = [
        interp.probe(MODEL, labelled(label), **SIZES) for label in (lambda b: b.labels > 3, lambda b: b.labels // 4)
    ]
    assert same(*results)


def test_examples_needed_are_those_of_the_classes_that_occur():
    with pytest.raises(ValueError, match="n_train is 70 for 8 classes; give at least 80"):
        interp.probe(MODEL, labelled(lambda b: 7 * b.labels + 3), n_train=70)
    with pytest.raises(ValueError, match=r"'x' has a single class at every target \(7 in all 100 examples at last\)"):
        interp.probe(MODEL, labelled(lambda b: b.labels * 0 + 7), n_train=100, n_test=50)


def unreadable(share):
    """A label that is independent of the tokens that a probe could read: of a hash of all of them."""
    weights = torch.tensor([7919, 104729, 1299709, 15485863, 179424673, 32452843])

    def label(batch):
        mixed = (batch.tokens + 1).mul(weights).sum(1).square() % 1000003
        return (mixed < share * 1000003).long()[:, None]

    return label


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_the_selectivity_of_an_unreadable_label_is_about_0(share):
    """Over ten seeds, within five standard errors of a mean of shares that differ from the control's by chance."""
    n_test = 300
    selectivity = []
    for seed in range(10):
        result = interp.probe(MODEL, labelled(unreadable(share)), n_train=600, n_test=n_test, seed=seed)
        selectivity.append(result.selectivity)
        assert "majority class" in str(result)
        assert result.majority == pytest.approx(max(share, 1 - share), abs=5 * (share * (1 - share) / n_test) ** 0.5)
    mean = np.mean(selectivity)
    assert abs(mean) < 5 * (share * (1 - share) / n_test / 10) ** 0.5


TYPE = "expected: torch.int64"
FIELDS = {
    "float tokens": ({"tokens": lambda b: b.tokens.float()}, f"gives tokens of type torch.float32; {TYPE}; add"),
    "boolean tokens": ({"tokens": lambda b: b.tokens > 3}, f"gives tokens of type torch.bool; {TYPE}."),
    "tokens as a list": ({"tokens": lambda b: b.tokens.tolist()}, "gives tokens without a shape; expected: (b"),
    "float labels": ({"labels": lambda b: b.labels / 3 + 0.1}, f"gives labels of type torch.float32; {TYPE}; numb"),
    "ignored labels": (
        {"labels": lambda b: torch.where(b.labels < 8, -100, b.labels)},
        f"gives labels from -100 to -100; expected: 0 to 7 (the number of answer_names is 8); {MASK}.",
    ),
    "labels of no answer": ({"labels": lambda b: b.labels + 8}, "; expected: 0 to 7 (the number of answer_names is"),
    "labels of one axis": ({"labels": lambda b: b.labels[:, 0]}, "gives labels of shape ("),
    "float positions": ({"target_positions": lambda b: b.labels * 0 + 5.0}, f"of type torch.float32; {TYPE}"),
    "positions past the end": ({"target_positions": lambda b: b.labels * 0 + 6}, "gives target_positions from 6 to 6"),
    "mask of integers": ({"attention_mask": lambda b: b.tokens * 0 + 1}, "gives attention_mask of type torch.int64"),
    "mask as a list": ({"target_mask": lambda b: [[True]] * len(b.labels)}, "gives target_mask as a list; expected: a"),
}  # fmt: skip
VERBS = {
    "evaluate": lambda task: interp.evaluate(MODEL, task, n=64),
    "probe": lambda task: interp.probe(MODEL, task, **SIZES),
    "classify_heads": lambda task: interp.classify_heads(MODEL, task, n=64),
    "ablate_heads": lambda task: interp.ablate_heads(MODEL, task, n=64),
    "audit": lambda task: interp.audit(MODEL, task, n=256),
    "show_attention": lambda task: interp.show_attention(MODEL, task, examples=2),
}


def with_fields(**functions):
    def changed(_, batch):
        return replace(batch, **{name: function(batch) for name, function in functions.items()})

    return type("Mine", (Letters,), {"changed": changed, "n_ctx": 6})()


@pytest.mark.parametrize("kind", FIELDS)
def test_batches_are_looked_at_by_every_verb(kind):
    functions, words = FIELDS[kind]
    for verb in VERBS.values():
        with pytest.raises(ValueError, match=r"^Mine\.sample\(split='\w+'\) ") as error:
            verb(with_fields(**functions))
        assert words in str(error.value)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int16])
def test_other_integers_give_the_same_results(dtype):
    functions: dict[str, Any] = {name: lambda b, name=name: getattr(b, name).to(dtype) for name in ("tokens", "labels")}
    functions["target_positions"] = lambda b: b.target_positions.to(dtype)
    task = with_fields(**functions)
    interp.check_task(task)
    for verb in ("evaluate", "classify_heads"):
        assert str(VERBS[verb](task)) == str(VERBS[verb](Letters()))
