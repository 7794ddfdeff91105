"""check_task: one broken task for each error, the tasks that pass, and who calls it."""

import re
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from foreign_tasks import DIGITS, AddMod, CountOnes, Echo, RunningMax
from texts import corpus

import interp
from hooks import Transformer
from interp.known_answers.suite import SUITE, known_answer
from interp.tasks import S3, Dyck, Lego, Task, Template, Text, cyclic
from interp.tasks import check as module
from interp.tasks.base import SPLITS
from interp.tasks.template.families import FAMILIES

pytestmark = pytest.mark.usefixtures("as_a_user")


class Good(AddMod):
    """A consistent task whose batches, methods and attributes are replaced below."""

    def sample(self, n, *, generator, split="train"):
        return self.changed(super().sample(n, generator=generator, split=split))

    def changed(self, batch):
        return batch


def broken(base=Good, **members):
    """A task with some members replaced."""
    return type("Broken", (base,), members)()


def with_fields(**make):
    """A task whose batches have some fields replaced by functions of the batch."""
    return broken(changed=lambda _, batch: replace(batch, **{name: of(batch) for name, of in make.items()}))


def refused(task, words):
    with pytest.raises(ValueError, match="^" + re.escape(words)):
        interp.check_task(task)


def test_something_else_than_a_task_is_refused():
    refused("lego", "task is 'lego'; it must be a Task.")
    alike = SimpleNamespace(vocab=DIGITS, targets=("sum",), sample=AddMod().sample, n_ctx=3, describe=dict)
    refused(alike, "task is namespace(vocab=")
    refused(AddMod, "task is <class 'foreign_tasks.AddMod'>; it must be a Task.")


class NoVocab(Task):
    targets = ("sum",)
    sample = AddMod.sample


class NoTargets(Task):
    vocab = DIGITS
    sample = AddMod.sample


class NoSample(Task):
    vocab, targets = DIGITS, ("sum",)


class NoSplit(NoSample):
    def sample(self, n, generator):
        return AddMod().sample(n, generator=generator)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (NoVocab, "NoVocab.vocab is missing; expected: a field, a property or a class attribute."),
        (NoTargets, "NoTargets.targets is missing; expected: a field, a property or a class attribute."),
        (NoSample, "NoSample.sample is missing; expected: a method sample(n, *, generator, split)."),
        (NoSplit, "NoSplit.sample cannot be called: got an unexpected keyword argument 'split'; expected: a method"),
    ],
)
def test_what_a_task_must_define(task, words):
    refused(task(), words)


def test_an_error_inside_a_property_is_not_hidden():
    with pytest.raises(AttributeError, match="has no attribute 'alphabet'"):
        interp.check_task(broken(vocab=property(lambda self: self.alphabet)))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"vocab": ["a", "b"]}, "vocab is a list; expected: an interp.tasks.Vocab."),
        ({"targets": ["sum"]}, "targets is ['sum']; expected: a tuple of names, one at least."),
        ({"targets": "sum"}, "targets is 'sum'; expected: a tuple of names, one at least."),
        ({"targets": ()}, "targets is (); expected: a tuple of names, one at least."),
        ({"outcomes": (1,)}, "outcomes is (1,); expected: a tuple of names, one at least."),
        ({"outcomes": ("a", "a")}, "outcomes is ('a', 'a'); expected: a tuple of different names."),
        ({"d_vocab": 10}, "d_vocab is 10; expected: 9, the number of tokens of its vocab."),
        ({"d_vocab_out": 0}, "d_vocab_out is 0; expected: a positive number."),
        ({"d_vocab_out": 7.0}, "d_vocab_out is 7.0; expected: a positive number."),
        ({"answer_names": ("0", "1")}, "answer_names has 2 names; expected: 9, its d_vocab_out."),
        ({"attention": "masked"}, "attention is 'masked'; expected: 'causal' or 'bidirectional'."),
        ({"chances": (0.5, 0.5)}, "chances is (0.5, 0.5); expected: 1 fractions, one for each outcome."),
        ({"chance": 1.5}, "chances is (1.5,); expected: 1 fractions, one for each outcome."),
        ({"audited_outcomes": ("s",)}, "audited_outcomes has 's'; expected: outcomes: sum."),
        ({"n_ctx": "3"}, "n_ctx is '3'; expected: a positive number."),
        ({"answer_label": "value"}, "answer_label is 'value'; expected: None, or one of label."),
    ],
)
def test_names_and_sizes(members, words):
    refused(broken(**members), f"Broken.{words}")


TRAIN = "Broken.sample(split='train') "


@pytest.mark.parametrize(
    ("make", "words"),
    [
        ({"tokens": lambda b: b.tokens + 6}, "gives tokens from 6 to 13; expected: 0 to 8 (d_vocab is 9)."),
        ({"tokens": lambda b: b.tokens[:, 0]}, "gives tokens of shape (16,); expected: (batch, pos)."),
        ({"tokens": lambda b: b.tokens * 1.0}, "gives tokens of type torch.float32; expected: torch.int64; add .lo"),
        ({"labels": lambda b: b.labels + 7}, "gives labels from 7 to 13; expected: 0 to 8 (the number of answer_"),
        ({"labels": lambda b: b.labels - 1}, "gives labels from -1 to 5; expected: 0 to 8 (the number of answer_names"),
        ({"labels": lambda b: b.labels[:, 0]}, "gives labels of shape (16,); expected: (16, 1)."),
        ({"labels": lambda b: b.labels.float()}, "gives labels of type torch.float32; expected: torch.int64; add"),
        ({"target_positions": lambda b: b.labels * 0 + 3}, "gives target_positions from 3 to 3; expected: 0 to 2 (the"),
        ({"target_positions": lambda b: b.tokens}, "gives target_positions of shape (16, 3); expected: (16, 1)."),
        ({"supervised": lambda b: torch.tensor([True, True])}, "gives supervised of shape (2,); expected: (1,)."),
        ({"supervised": lambda b: torch.tensor([1])}, "gives supervised of type torch.int64; expected: torch.bool."),
        ({"supervised": lambda b: ~b.supervised}, "gives no supervised target; expected: one at least, else there is"),
        ({"target_mask": lambda b: b.labels < 0}, "gives no supervised target; expected: one at least, else there is"),
        ({"target_mask": lambda b: b.tokens < 5}, "gives target_mask of shape (16, 3); expected: (16, 1)."),
        (
            {"target_mask": lambda b: b.labels < 3, "labels": lambda b: torch.where(b.labels < 3, b.labels, -100)},
            "gives labels of missing targets from -100 to -100; expected: 0 to 8 (0 is simplest",
        ),
        ({"position_ids": lambda b: b.tokens * 0 + 3}, "gives position_ids from 3 to 3; expected: 0 to 2 (n_ctx is"),
        ({"attention_mask": lambda b: b.tokens}, "gives attention_mask of type torch.int64; expected: torch.bool."),
        (
            {"attention_mask": lambda b: b.tokens < 7},
            "has the target 'sum' of example 0 at padding; expected: targets at real tokens; set target_mask where",
        ),
    ],
)  # fmt: skip
def test_batches(make, words):
    refused(with_fields(**make), TRAIN + words)


def test_a_field_of_a_subclass_has_a_row_for_each_example():
    @dataclass(frozen=True, kw_only=True)
    class More(interp.tasks.Batch):
        digits: torch.Tensor

    task = broken(changed=lambda _, batch: More(**vars(batch), digits=torch.arange(7)))
    refused(task, TRAIN + "gives digits of shape (7,); expected: (16,).")


def test_every_split_is_looked_at():
    def sample(self, n, *, generator, split="train"):
        batch = AddMod.sample(self, n, generator=generator, split=split)
        return replace(batch, labels=batch.labels + 9) if split == "test" else batch

    refused(broken(sample=sample), "Broken.sample(split='test') gives labels from 9 to 15; expected: 0 to 8")


def test_labels_and_logits_disagree():
    words = "gives labels from 0 to 6; expected: 0 to 4 (the number of answer_names is 5)."
    refused(broken(d_vocab_out=5), TRAIN + words)


def test_examples_longer_than_n_ctx():
    refused(broken(n_ctx=2), TRAIN + "gives examples of 3 tokens; expected: at most 2, its n_ctx.")


def test_a_sample_that_is_no_batch_or_of_another_size():
    words = "Broken.sample(split='train') gives a Tensor; expected: an interp.tasks.Batch."
    refused(broken(n_ctx=3, changed=lambda _, batch: batch.tokens), words)
    task = broken(n_ctx=3, changed=lambda _, batch: batch.select(slice(0, 5)))
    refused(task, "Broken.sample(16, split='train') gives 5 examples; expected: 16.")


def test_a_sample_that_ignores_its_generator():
    def changed(self, batch):
        return batch.select(torch.randperm(len(batch)))

    refused(broken(changed=changed), "Broken.sample gives other tokens for the same seed; expected: the same examples;")
    task = with_fields(labels=lambda b: torch.randint(7, b.labels.shape))
    refused(task, "Broken.sample gives other labels for the same seed; expected: the same examples; draw everything")


def test_overlapping_splits():
    def sample(self, n, *, generator, split="train"):
        return AddMod.sample(self, n, generator=generator, split="train" if split == "test" else split)

    words = "' in train and in test; expected: disjoint splits; or set disjoint_splits = False if examples may recur."
    with pytest.raises(ValueError, match=rf"^Broken.sample gives the example '\d \d ={re.escape(words)}"):
        interp.check_task(broken(sample=sample))
    interp.check_task(broken(sample=sample, disjoint_splits=False))


def test_the_same_example_with_more_padding_overlaps():
    def sample(self, n, *, generator, split="train"):
        batch = AddMod.sample(self, n, generator=generator)
        offset = {"train": 0, "validation": 1, "test": 2}[split]
        tokens = torch.nn.functional.pad(batch.tokens, (0, offset), value=DIGITS.ids["_"])
        return replace(batch, tokens=tokens, attention_mask=tokens != DIGITS.ids["_"])

    with pytest.raises(ValueError, match=r"gives the example '\d \d = _' in train and in validation"):
        interp.check_task(broken(sample=sample, n_ctx=5))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (
            {"relations": lambda _, b: {"same": b.tokens > 0}},
            "relations gives 'same' of shape (16, 3); expected: (batch, query, key), here (16, 3, 3).",
        ),
        (
            {"relations": lambda _, b: {"same": b.tokens[:, None].expand(-1, 3, -1)}},
            "relations gives 'same' of type torch.int64; expected: torch.bool.",
        ),
        ({"probe_labels": lambda _, b: {}}, "probe_labels gives no label; expected: one at least."),
        (
            {"probe_labels": lambda _, b: {"first": b.tokens}},
            "probe_labels, 'first', has the shape (16, 3); expected: (batch, target), here (16, 1).",
        ),
        (
            {"probe_labels": lambda _, b: {"first": b.labels * 1.0}},
            "probe_labels, 'first', has the type torch.float32; expected: classes 0, 1, ... as integers; add .long()",
        ),
        (
            {"probe_labels": lambda _, b: {"first": b.labels * 0 - 1}},
            "probe_labels, 'first', has the class -1; expected: classes 0, 1, ...",
        ),
        (
            {"control_types": lambda _, b: b.labels[:, 0]},
            "control_types has the shape (16,); expected: (batch, target), here (16, 1).",
        ),
        ({"loss": lambda _, logits, b: logits.sum((1, 2))}, "loss gives tensor([0., 0., 0., 0., 0., 0., 0., 0., 0., 0"),
        ({"loss": lambda _, logits, b: logits.sum() / 0}, "loss gives nan for logits of zero; expected: one finite"),
        (
            {"answers": lambda _, logits: logits},
            "answers has the shape (16, 1, 9); expected: (batch, target), here (16, 1).",
        ),
    ],
)
def test_methods(members, words):
    refused(broken(**members), f"Broken.{words}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: replace(s, total=s.total[:, 0]), "gives total of shape (16,); expected: (batch, outcome), here"),
        (lambda s: replace(s, right=s.total + 1), "gives fewer than 0 right answers or more than total; expected: 0"),
        (lambda s: replace(s, right=s.total - 2), "gives fewer than 0 right answers or more than total; expected: 0"),
        (lambda s: replace(s, loss=s.loss / 0), "gives a loss that is not finite for logits of zero; expected: finite"),
    ],
)  # fmt: skip
def test_scores(change, words):
    task = broken(score=lambda self, logits, batch: change(Task.score(self, logits, batch)))
    refused(task, f"Broken.score {words}")


def test_lengths():
    refused(broken(lengths=range(2, 4)), "Broken.sample_length is missing; expected: a method, since the task has")

    def sample_length(self, n, length, *, generator):
        return self.sample(n, generator=generator)

    words = "Broken.sample_length(4) gives examples of 3 tokens; expected: 4, as tokens_of_length."
    refused(broken(n_ctx=4, lengths=range(2, 5), sample_length=sample_length), words)
    interp.check_task(broken(n_ctx=3, lengths=range(2, 4), sample_length=sample_length))


@dataclass(frozen=True, kw_only=True)
class Set(Good):
    """A task with a field."""

    values: object = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Positive(Good):
    """A task that refuses some settings."""

    size: int = 1

    def __post_init__(self):
        if self.size < 1:
            raise ValueError(f"size is {self.size}")


def test_descriptions():
    refused(
        broken(describe=lambda _: {"n": 1}), "Broken.describe gives {'n': 1}; expected: a dict with 'task': 'broken'"
    )
    refused(
        broken(describe=lambda _: {"task": "lego"}), "Broken.describe gives {'task': 'lego'}; expected: a dict with"
    )
    refused(broken(describe=lambda _: None), "Broken.describe gives None; expected: a dict with 'task': 'broken'.")
    refused(
        broken(describe=lambda _: {"task": "broken", "v": torch.ones(1)}),
        "Broken.describe gives values that JSON cannot store: Object of type Tensor is not JSON serializable; ",
    )
    refused(Set(values={1, 2}), "the field 'values' of Set has a set, which a manifest cannot store; use numbers, ")
    refused(
        Set(values={1: 2}), "the field 'values' of Set has a dict, which a manifest cannot store; use numbers, strings,"
    )
    refused(Set(values=torch.ones(2)), "the field 'values' of Set has a Tensor, which a manifest")
    interp.check_task(Set(values={"a": (1, (2.5, None)), "b": [True, "x"]}))


def test_descriptions_that_give_another_task():
    fails = classmethod(lambda cls, values: cls(size=values["size"]))
    refused(
        broken(from_description=fails),
        "Broken.from_description fails on the output of describe: KeyError: 'size'; expected: the same task.",
    )
    changed_task = broken(base=Positive, from_description=classmethod(lambda cls, values: cls(size=5)))
    refused(changed_task, "Broken.from_description gives another size; expected: the task that was described.")
    stores = broken(base=Positive, describe=lambda _: {"task": "broken", "size": -1})
    refused(stores, "Broken.from_description fails on the output of describe: size is -1; expected: the same task.")


def test_a_description_of_files_that_are_not_here_is_no_error():
    def gone(cls, values):
        raise FileNotFoundError("the corpus is on another machine")

    interp.check_task(broken(from_description=classmethod(gone)))


def ours():
    yield from (Lego(n_vars=v, sentence_format=f) for v in (1, 2, 5) for f in ("paper", "compact"))
    yield from (Lego(n_vars=3, group=group, clause_order="chain", n_supervised=2) for group in (S3, cyclic(3)))
    yield from (Dyck(words=words, length=length) for words in ("prefixes", "complete") for length in (4, 28))
    yield from (Dyck(n_types=1, max_depth=1), Dyck(words="complete", min_length=8, length=8, loss_on="closers"))
    for family in FAMILIES:
        for form, cls in (("real", None), ("symbolic", False), ("symbolic", True), ("next_token", None)):
            try:
                yield Template(templates=family, form=form, cls=cls)
            except ValueError:  # a form that the labels of the family do not have
                continue
    yield from (AddMod(), RunningMax(n_ctx=4), CountOnes(), Echo())


def test_all_of_our_tasks_pass():
    tasks = list(ours())
    assert len(tasks) > 30
    for task in tasks:
        interp.check_task(task)


@pytest.mark.parametrize("more", [{}, {"objective": "masked"}, {"objective": "masked", "next_sentence": True}])
def test_text_passes(more, tmp_path, monkeypatch):
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path))
    task = Text(corpus=corpus(), n_ctx=20, vocab_size=300, **more)
    interp.check_task(task)
    interp.check_task(Text(corpus=corpus(), n_ctx=20, tokenizer=task.vocab.engine, **more))


def test_tasks_of_known_answers_pass():
    for name in list(SUITE)[::6]:
        interp.check_task(known_answer(name, seed=0).task)


@pytest.fixture
def counted(monkeypatch):
    """Every task object whose batches were checked."""
    checked, real = [], module._check_names
    monkeypatch.setattr(module, "_check_names", lambda task: (checked.append(task), real(task)))
    return checked


def test_train_and_audit_check_each_object_once(counted):
    task = Lego(n_vars=2, sentence_format="compact")
    model = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=2))
    settings = interp.TrainSettings(steps=1, batch_size=4, warmup_steps=1, n_eval=8)
    interp.audit(model, task, n=32, at_chance=True)
    assert counted == [task]
    for _ in range(2):
        interp.train(model, task, settings)
    assert counted == [task]
    interp.train(model, replace(task), settings)
    assert len(counted) == 2


def test_train_and_audit_refuse_an_inconsistent_task():
    task = broken(changed=lambda _, batch: replace(batch, labels=batch.labels + 9))
    model = Transformer(interp.config_for(AddMod(), n_layers=1, d_model=8, n_heads=2))
    for verb in (interp.train, interp.audit):
        with pytest.raises(ValueError, match=r"Broken.sample\(split='train'\) gives labels from 9 to 15"):
            verb(model, task)
    with pytest.raises(ValueError, match="task is 'lego'; it must be a Task"):
        interp.audit(model, "lego")


@pytest.mark.parametrize(
    "task", [Lego(n_vars=2), Dyck(), Template(templates="aba_abb")], ids=lambda task: task.task_name
)
def test_what_is_read_must_be_a_text(task):
    with pytest.raises(ValueError, match="text is 5; it must be a string"):
        task.read(5)


def test_a_consistent_task_is_described():
    task = Lego(n_vars=2, sentence_format="compact")
    report = interp.check_task(task)
    inputs = [set(task.sample(512, generator=torch.Generator().manual_seed(0), split=s).input_keys()) for s in SPLITS]
    assert report.examples == dict.fromkeys(SPLITS, 512)
    assert report.distinct == dict(zip(SPLITS, map(len, inputs), strict=True))
    assert report.every_input == {"test": len(task.every_input("test"))}
    assert report.sizes == {"d_vocab": task.d_vocab, "d_vocab_out": 2, "n_ctx": task.n_ctx}
    assert report.targets == ("#0", "#1")
    assert report.chances == {"#0": 0.5, "#1": 0.5}
    assert "same_token" in report.relations
    assert (report.probe_labels, report.answer_label) == (("value", "operation"), "value")
    assert report.strata == ("answer +1", "answer -1")
    text = str(report)
    assert text.startswith(f"consistent: {task.description}\n  splits ")
    assert (
        f"test 512 examples, {report.distinct['test']} distinct of {report.every_input['test']} inputs in all" in text
    )
    assert "between splits  no input in two of them" in text
    # once per object, then the same report
    assert interp.check_task(task) is report
    other = interp.check_task(AddMod())
    assert "relations" in str(other)
    assert "inputs may recur" in str(interp.check_task(Dyck(n_types=1, max_depth=2, length=4)))
