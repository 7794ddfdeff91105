"""Every input of a split: exactly what `sample` can draw, each once, in a fixed order; or an error with the count."""

from dataclasses import replace

import pytest
import torch
from foreign_tasks import AddMod
from hypothesis import given, settings
from hypothesis import strategies as st
from packs import write_pack

import interp
from interp.known_answers.compiled.program import read_program
from interp.known_answers.compiled.task import Compiled
from interp.tasks import Dyck, Lego, Template, ready_made
from interp.tasks.dyck.sampling import every_word, number_of_words
from interp.tasks.splits import SPLITS, check_sample_size, sample_split

# Tasks with few inputs, and how many they have in all splits together
TASKS = {
    "LEGO": (Lego(n_vars=2, alphabet="abcd"), 4 * 3 * 2**2 * 2),
    "LEGO in the order of the chain": (Lego(n_vars=3, alphabet="abc", clause_order="chain"), 6 * 2**3),
    "LEGO of one variable": (Lego(n_vars=1, alphabet="abcdefg", group=ready_made("S3")), 7 * 6),
    "compact LEGO": (Lego(n_vars=2, alphabet="abc", sentence_format="compact"), 3 * 2 * 2**2 * 2),
    "templates": (Template(templates=("aba -> +1", "abb -> -1"), train=4, validation=3, test=5), 2 * (12 + 6 + 20)),
    "templates with fewer wildcards": (
        Template(templates=("aa -> a", "ab -> b", "xA -> x"), train=3, validation=2, test=3, cls=True),
        (3 + 6 + 3) + (2 + 2 + 2) + (3 + 6 + 3),
    ),
    "next tokens": (
        Template(templates=("aa -> a", "ab -> a"), form="next_token", train=2, validation=2, test=2),
        3 * 4,
    ),
    "a template that is never drawn": (
        Template(templates=("aa -> +1", "ab -> -1"), train=3, validation=3, test=3, weights=(1.0, 0.0)),
        3 * 3,
    ),
    "prefixes": (Dyck(n_types=2, max_depth=2, length=3), 3 * 8),
    "complete words": (Dyck(n_types=2, max_depth=2, length=4, words="complete"), 3 * (2 + 4 + 4)),
    "words of one length": (Dyck(n_types=1, max_depth=3, length=6, words="complete", min_length=6), 3 * 5),
}


def keys(batch):
    return batch.input_keys()


@pytest.mark.parametrize("name", TASKS)
def test_it_is_what_can_be_sampled(name):
    task, n_inputs = TASKS[name]
    keys_by_split = {split: keys(task.every_input(split)) for split in SPLITS}
    # as many as counted by hand, none twice
    assert sum(map(len, keys_by_split.values())) == n_inputs
    for split, listed in keys_by_split.items():
        assert len(set(listed)) == len(listed)
        # 60 draws for each input: a given one is missed with a probability of e^-60 if all are drawn equally often
        n = 60 * max(1, len(listed))
        try:
            batch = task.sample(n, generator=torch.Generator().manual_seed(0), split=split)
        except ValueError:  # a split that has no inputs
            assert not listed
            continue
        assert set(keys(batch)) == set(listed)
    if task.disjoint_splits:
        assert len(set().union(*keys_by_split.values())) == n_inputs
    # the labels of an input are those with which it is sampled, and the order is fixed
    inputs = task.every_input("test")
    assert keys(task.every_input()) == keys(inputs)
    rows = {key: row for row, key in enumerate(keys(inputs))}
    batch = task.sample(50, generator=torch.Generator().manual_seed(1), split="test")
    same = inputs.select(torch.tensor([rows[key] for key in keys(batch)]))
    is_known = torch.ones(len(task.targets), dtype=torch.bool)
    if name == "prefixes":
        is_known[-1] = False  # the token after a prefix is random
    assert torch.equal(same.labels[:, is_known], batch.labels[:, is_known])
    assert torch.equal(same.target_positions, batch.target_positions)
    interp.check_task(task)


@settings(max_examples=25)
@given(n_types=st.integers(1, 3), max_depth=st.integers(1, 4), length=st.integers(1, 6), complete=st.booleans())
def test_words_are_counted(n_types, max_depth, length, complete):
    count = number_of_words(n_types, max_depth, length, complete=complete)
    if count:
        assert len(every_word(n_types, max_depth, length, complete=complete)) == count


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Lego(n_vars=3), "Lego has 748,800 inputs in all splits together; at most 131,072 are listed. Give a number n"),
        (Dyck(), "Dyck has [0-9,]+ inputs; at most"),
        (Template(test=300), "Template has 179,400 inputs; at most"),
        (AddMod(), r"AddMod cannot list its inputs: define every_input\(split\), which .*, or give a number n"),
    ],
)
def test_too_many_inputs_or_none_defined(task, words):
    for list_inputs in (task.every_input, lambda: sample_split(task, "all", generator=torch.Generator(), split="test")):
        with pytest.raises(ValueError, match=words):
            list_inputs()


@pytest.mark.usefixtures("as_a_user")
def test_a_number_of_examples_or_all():
    task = TASKS["LEGO"][0]
    batch = sample_split(task, "all", generator=torch.Generator(), split="validation")
    assert keys(batch) == keys(task.every_input("validation"))
    for n in ("every", "ALL"):
        with pytest.raises(ValueError, match=rf"n is '{n}'; give a number of examples, or 'all' for every input"):
            sample_split(task, n, generator=torch.Generator())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="m is 3; it must be at least 8"):
        check_sample_size("m", 3, low=8)
    for choice in ("all", 8):
        check_sample_size("m", choice, low=8)
    with pytest.raises(ValueError, match="split is 'held out'; choose one of train"):
        sample_split(task, "all", generator=torch.Generator(), split="held out")  # type: ignore[arg-type]


def test_a_split_without_inputs():
    class NoTest(Lego):
        def every_input(self, split="test"):
            return super().every_input(split).select(slice(0))

    with pytest.raises(ValueError, match=r"NoTest.every_input\('test'\) gives no inputs. If the test split has no"):
        sample_split(NoTest(n_vars=2), "all", generator=torch.Generator(), split="test")


def test_another_sample_does_not_inherit_the_list():
    class Swapped(Lego):
        def sample(self, n, **options):
            return super().sample(n, **options)

    class Listed(Swapped):
        every_input = Lego.every_input

    assert [task(n_vars=2).lists_inputs for task in (Lego, Swapped, Listed)] == [True, False, True]
    with pytest.raises(ValueError, match="Swapped cannot list its inputs"):
        Swapped(n_vars=2).every_input()


def repeated(batch):
    return batch.select(torch.tensor([0, 1, 0]))


def truncated(batch):
    return batch.select(slice(1, None))


def widened(batch):
    return replace(batch, letters=torch.cat([batch.letters, batch.letters], 1))


def shifted(batch):
    return replace(batch, labels=batch.labels + 7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (repeated, r"gives the example '\[BOS\] .*' twice, as examples 0 and 2; expected: each input once"),
        (truncated, r"lacks the example '\[BOS\] .*', which sample gives; expected: every input that can be"),
        (widened, r"gives letters of shape \(4,\) for each example; expected: \(2,\), as in sampled"),
        (shifted, "gives labels from 7 to 8; expected: 0 to 1"),
        (lambda batch: batch.tokens, r"gives a Tensor; expected: an interp.tasks.Batch"),
    ],
)
def test_check_task_checks_the_list(change, words):
    class Changed(Lego):
        def every_input(self, split="test"):
            return change(super().every_input(split))

    with pytest.raises(ValueError, match=rf"Changed.every_input\('test'\) {words}"):
        interp.check_task(Changed(n_vars=2, alphabet="abcd"))


def test_examples_of_a_compiled_program(tmp_path):
    program = read_program(write_pack(tmp_path, n=60, some=40))
    task = Compiled(program)
    # of equal examples the first, in the order of the program
    for split in SPLITS:
        inputs = task.every_input(split)
        assert keys(inputs) == list(dict.fromkeys(keys(task.examples(task.pools[split]))))
        assert torch.equal(inputs.labels, task.examples(inputs.example).labels)
    assert len(task.every_input("test")) < len(task.pools["test"])
    interp.check_task(task, splits=("test",))
