"""Indirect objects: sentences, answers, relations, splits, reading."""

import pytest
import torch

import interp
from interp.heads.kinds import relations_of
from interp.tasks import IndirectObject
from interp.tasks.indirect_object.task import OBJECTS, PLACES, TEMPLATES
from interp.tasks.splits import SPLITS

TINY = IndirectObject(n_names=6, templates=("A met B and S spoke to",))


def sampled(task=None, n=300, split="train"):
    return (task or IndirectObject()).sample(n, generator=torch.Generator().manual_seed(0), split=split)


@pytest.mark.parametrize("task", [IndirectObject(), TINY, IndirectObject(n_names=5, templates=TEMPLATES[1:])])
def test_the_task_is_consistent(task):
    interp.check_task(task)


def test_the_answer_is_the_name_that_occurs_once():
    task = IndirectObject()
    batch = sampled()
    shapes = set()
    for row, tokens in enumerate(batch.tokens):
        words = task.vocab.words(tokens)
        assert words[0] == "[BOS]"
        names = [word for word in words if word in task.names]
        assert len(names) == 3
        (answer,) = [name for name in names if names.count(name) == 1]
        assert task.answer_names[batch.labels[row, 0]] == answer
        assert batch.target_positions[row].tolist() == [len(words) - 1]
        assert [words[position] for position in batch.name_positions[row]] == names
        assert names[batch.repeated[row]] == names[2]
        # without the fillers it is a template
        slots = dict(zip(batch.name_positions[row].tolist(), "ABS", strict=True))
        generic = [
            slots.get(position, "PLACE" if word in PLACES else "OBJECT" if word in OBJECTS else word)
            for position, word in enumerate(words)
        ]
        shapes.add(" ".join(generic[1:]))
    assert shapes == set(TEMPLATES)


def test_pairs_of_names_are_in_one_split_and_all_sentences_are_listed():
    pairs = {}
    for split in SPLITS:
        inputs = TINY.every_input(split)
        assert {tuple(row) for row in sampled(TINY, 2000, split).tokens.tolist()} == {
            tuple(row) for row in inputs.tokens.tolist()
        }
        pairs[split] = {tuple(sorted(row)) for row in inputs.names.tolist()}
        assert len(inputs) == 4 * len(pairs[split])  # either order, and either name repeated
    assert sum(map(len, pairs.values())) == len(set().union(*pairs.values())) == 15
    assert len(IndirectObject(n_names=8).every_input("test")) == 4 * 2 * 2 * 4 * 4 * 4
    # every name occurs in training
    assert sampled(n=3000).names.unique().tolist() == list(range(24))


def test_relations_by_a_loop():
    task = IndirectObject(n_names=6)
    batch = sampled(task, n=60)
    relations = task.relations(batch)
    last = task.n_ctx - 1
    for row, tokens in enumerate(batch.tokens):
        words = task.vocab.words(tokens)
        places = {position: word for position, word in enumerate(words) if word in task.names}
        first, second, third = sorted(places)
        subject = [position for position, word in places.items() if word == places[third]]
        (other,) = set(places) - set(subject)
        expected = {
            "duplicate": {(third, subject[0])},
            "subject": {(last, position) for position in subject},
            "indirect_object": {(last, other)},
            "special": {(query, 0) for query in range(len(words))},
        }
        for name, cells in expected.items():
            assert set(map(tuple, relations[name][row].nonzero().tolist())) == cells
        assert other in (first, second)


def test_kinds_of_head():
    task = IndirectObject()
    relations = relations_of(task, sampled(task, 4))
    assert {"previous", "duplicate", "subject", "indirect_object", "broadcast"} <= set(relations)
    # the task's own relation, of names only
    assert relations["duplicate"].sum().item() == 4


def test_strata_and_labels():
    task = IndirectObject()
    batch = sampled(task, 100)
    strata = task.strata(batch)
    assert torch.equal(strata["first name repeated"], ~strata["second name repeated"])
    labels = task.probe_labels(batch)
    assert task.answer_label == "indirect_object"
    assert torch.equal(
        torch.cat([labels["subject"], labels["indirect_object"]], 1).sort(1).values, batch.names.sort(1).values
    )


def test_counterparts_have_the_same_names_in_either_order_and_either_repeated():
    task = IndirectObject()
    batch = sampled(task, 400, "test")
    other = task.counterparts(batch, generator=torch.Generator().manual_seed(1))
    swapped = (other.names != batch.names).any(1)
    assert torch.equal(other.names.sort(1).values, batch.names.sort(1).values)
    for drawn in (swapped, other.repeated[swapped] == 1, other.repeated[~swapped] == 1):
        assert 0.35 < float(drawn.float().mean()) < 0.65
    # nothing but names differs
    places = torch.zeros_like(batch.tokens, dtype=torch.bool).scatter(1, batch.name_positions, True)
    assert torch.equal(batch.tokens[~places], other.tokens[~places])
    for row in range(20):
        read = task.read(task.text(other.tokens[row]))
        assert torch.equal(read.labels[0], other.labels[row])
        assert torch.equal(read.repeated[0], other.repeated[row])


def test_reading_and_writing():
    task = IndirectObject()
    batch = task.read("one day when alice and bob went to the store , bob gave a ring to")
    assert task.answer_names[batch.labels[0, 0]] == "alice"
    tokens = sampled(task, 20).tokens
    assert all(torch.equal(task.read(task.text(row)).tokens[0], row) for row in tokens)


@pytest.mark.parametrize(
    "text",
    [
        "one day when alice and bob went to the store , carol gave a ring to",
        "one day when alice and alice went to the store , alice gave a ring to",
        "one day when alice and bob went to the ring , bob gave a ring to",
        "one day when alice and bob went to the store",
        "one day when alice and bob went to the store , bob gave a ring and",
    ],
)
def test_texts_that_are_no_sentence(text):
    with pytest.raises(ValueError, match="is a sentence of no template; the first one is 'one day when A and B went"):
        IndirectObject().read(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_names": 4}, "n_names is 4"),
        ({"n_names": 27}, "n_names is 27"),
        ({"templates": ()}, "templates is empty or has one of them twice"),
        ({"templates": (TEMPLATES[0],) * 2}, "templates is empty or has one of them twice"),
        ({"templates": ("A B S to", "A and B S to")}, "templates have 4, 5 words; give them the same length"),
        ({"templates": ("A S B to",)}, "must have A, B and S once each, in this order"),
        ({"templates": ("A B to",)}, "must have A, B and S once each, in this order"),
        ({"templates": ("A B S at",)}, "ends with 'at'; it must end with 'to', where the answer is due"),
        ({"templates": ("A B S bob to",)}, "has 'bob'; write A, B, S, PLACE or OBJECT in its place"),
    ],
)
def test_settings_that_are_none(options, words):
    with pytest.raises(ValueError, match=words):
        IndirectObject(**options)
