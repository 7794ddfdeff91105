"""In-context lookup: sequences, answers, relations, splits, reading."""

import pytest
import torch

import interp
from interp.heads.kinds import relations_of
from interp.tasks import InContextLookup

TINY = InContextLookup(n_pairs=2, n_keys=3, n_values=3)


def sampled(task=None, n=200, split="train"):
    return (task or InContextLookup()).sample(n, generator=torch.Generator().manual_seed(0), split=split)


@pytest.mark.parametrize("task", [InContextLookup(), TINY, InContextLookup(n_pairs=26, n_keys=26)])
def test_the_task_is_consistent(task):
    interp.check_task(task)


def test_each_query_is_answered_by_the_value_that_followed_its_key():
    task = InContextLookup(n_pairs=5)
    batch = sampled(task)
    for tokens, positions, labels in zip(batch.tokens, batch.target_positions, batch.labels, strict=True):
        words = task.vocab.words(tokens)
        value_of = dict(zip(words[0:10:2], words[1:10:2], strict=True))
        assert len(value_of) == 5
        assert sorted(words[10:]) == sorted(value_of)
        assert positions.tolist() == list(range(10, 15))
        assert [task.answer_names[label] for label in labels] == [value_of[word] for word in words[10:]]


def test_keys_values_and_the_order_of_queries_are_drawn_evenly():
    batch = sampled(InContextLookup(n_pairs=3, n_keys=6, n_values=4), n=6000)
    # five standard deviations of a count, of 6000 draws each
    for column, n_classes in ((0, 6), (4, 6), (1, 4), (5, 4), (6, 6)):
        counts = batch.tokens[:, column].unique(return_counts=True)[1]
        expected = 6000 / n_classes
        assert len(counts) == n_classes
        assert ((counts - expected).abs() < 5 * (expected * (1 - 1 / n_classes)) ** 0.5).all()
    # which of the three pairs the first query asks for
    place = (batch.tokens[:, 0:6:2] == batch.tokens[:, 6:7]).int().argmax(1)
    assert ((place.bincount() - 2000).abs() < 5 * (2000 * 2 / 3) ** 0.5).all()


def test_every_sequence_is_in_one_split_and_all_are_listed():
    inputs = {
        split: {tuple(row) for row in TINY.every_input(split).tokens.tolist()} for split in interp.tasks.base.SPLITS
    }
    assert sum(map(len, inputs.values())) == len(set().union(*inputs.values())) == 3 * 2 * 3**2 * 2
    shares = [len(inputs[split]) / 108 for split in ("validation", "test")]
    assert all(0 < share < 0.3 for share in shares)
    for split, rows in inputs.items():
        assert {tuple(row) for row in sampled(TINY, 2000, split).tokens.tolist()} == rows
    with pytest.raises(ValueError, match=r"InContextLookup has .* inputs in all splits together; at most 131,072"):
        InContextLookup().every_input()


def test_relations_by_a_loop():
    batch = sampled(InContextLookup(n_pairs=3, n_keys=4, n_values=2), n=50)
    relations = InContextLookup().relations(batch)
    n_repeated_values = 0
    for row, tokens in enumerate(batch.tokens.tolist()):
        for query, token in enumerate(tokens):
            same = [key for key in range(query) if tokens[key] == token]
            n_repeated_values += query < 6 and bool(same)
            assert relations["same_token"][row, query].nonzero()[:, 0].tolist() == same
            assert relations["induction"][row, query].nonzero()[:, 0].tolist() == [key + 1 for key in same]
    assert n_repeated_values > 0
    # at the queries the related key has the answer
    at_targets = relations["induction"].float().argmax(2).gather(1, batch.target_positions)
    assert torch.equal(batch.tokens.gather(1, at_targets), batch.labels)


def test_kinds_of_head():
    task = InContextLookup()
    relations = relations_of(task, sampled(task, 4))
    assert {"previous", "association", "induction"} <= set(relations)
    assert torch.equal(relations["induction"], task.relations(sampled(task, 4))["induction"])


def test_reading_and_writing():
    task = InContextLookup(n_pairs=3)
    batch = task.read("a3 f1 c7 c f a")
    assert batch.labels.tolist() == [[7, 1, 3]]
    again = task.read(task.text(batch.tokens[0]))
    assert torch.equal(again.tokens, batch.tokens)
    tokens = sampled(task, 20).tokens
    assert all(torch.equal(task.read(task.text(row)).tokens[0], row) for row in tokens)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a3 f1 c f", "has 6 tokens, not 9; give 3 pairs of a letter and a number, then the same letters"),
        ("a3 1f c7 c f a", "has letters and numbers in another order"),
        ("a3 f1 c7 c f 1", "has letters and numbers in another order"),
        ("a3 f1 c7 c f d", "does not ask for every key once"),
        ("a3 f1 c7 c f f", "does not ask for every key once"),
        ("a3 a1 c7 c a a", "does not ask for every key once"),
        ("a3 f1 c7 ! f a", "unknown token at character 9"),
    ],
)
def test_texts_that_are_no_sequence(text, words):
    with pytest.raises(ValueError, match=words):
        InContextLookup(n_pairs=3).read(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_pairs": 1}, "n_pairs is 1"),
        ({"n_pairs": 5, "n_keys": 4}, "n_pairs is 5, more than the 4 keys; the keys of a sequence are distinct"),
        ({"n_keys": 27}, "n_keys is 27"),
        ({"n_values": 1}, "n_values is 1"),
    ],
)
def test_sizes_that_are_none(options, words):
    with pytest.raises(ValueError, match=words):
        InContextLookup(**options)
