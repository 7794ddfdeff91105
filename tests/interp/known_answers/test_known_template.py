"""Hand-written template models: accuracy on unseen symbols, and the truth about each head."""

import pytest
import torch
from sampled import sampled

import interp
from interp.known_answers.suite import TEMPLATE_ANSWERS
from interp.known_answers.template.copy import copied_from, template_copy
from interp.known_answers.template.same import same_registers, symbol_vectors, template_same
from interp.tasks import Template

PAIR = ("aa -> +1", "ab -> -1")
FAMILIES = [
    PAIR,
    ("aba -> +1", "abb -> -1"),
    ("aabb -> +1", "abab -> -1"),
    ("aaab -> -1", "aabb -> 0.5", "abcd -> 2"),
    "majority",
    "match_to_sample",
]


def small(templates, **options):
    return Template(templates=templates, train=20, validation=16, test=12, **options)


def accuracy(model, task, **options):
    return interp.evaluate(model, task, n=150, **options).accuracy[0]


# same and different


@pytest.mark.parametrize("templates", FAMILIES)
def test_same_and_different_are_distinguished_for_any_symbols(templates):
    task = small(templates)
    model = template_same(task)
    for split in ("train", "validation", "test"):
        batch = task.sample(60, generator=torch.Generator().manual_seed(0), split=split)
        answer = model(batch.tokens)[:, -1, 0]
        assert torch.allclose(answer, batch.values[:, 0].double(), atol=1e-9)


@pytest.mark.parametrize("seed", sampled(range(3), [0]))
def test_accuracy_with_many_symbols_and_any_seed(seed):
    task = Template(templates=PAIR)  # 456 symbols
    assert accuracy(template_same(task, seed=seed), task) == 1


def test_without_a_the_model_is_at_chance():
    task = small(FAMILIES[1])
    model = template_same(task)
    attention = model.block(0).attention
    symbols = slice(0, 64)
    assert not attention.q.weight[:, symbols].any()
    assert not attention.k.weight[:, symbols].any()
    with torch.no_grad():
        attention.a.zero_()
    assert abs(accuracy(model, task) - task.chance) < 0.15


def test_gathering_from_the_previous_token():
    task = small(FAMILIES[1])
    assert accuracy(template_same(task, gather="previous"), task) == 1
    with pytest.raises(ValueError, match="do not determine its label"):
        template_same(small("match_to_sample"), gather="previous")


def test_same_raises_on_other_tasks(as_a_user):
    with pytest.raises(ValueError, match="form='symbolic'"):
        template_same(small(("ab -> a",)))
    with pytest.raises(ValueError, match="fixed tokens X"):
        template_same(small(("aXa -> 1", "aXb -> -1")))
    with pytest.raises(ValueError, match="gather is 'all'"):
        template_same(small(PAIR), gather="all")


def test_symbol_vectors_are_distinct():
    vectors = symbol_vectors(500)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(500).double())
    assert vectors.sum(1).abs().max() < 1e-12
    assert (vectors @ vectors.T - torch.eye(500)).max() < 0.8


# copying


COPIES = [("ab -> a",), ("ab -> b",), ("aba -> b",), ("abcd -> a",), ("aab -> a", "abc -> b")]
OPTIONS = [(False, False), (False, True), (True, False), (True, True)]
PAIRWISE = [(templates, *OPTIONS[index % 4]) for index, templates in enumerate(COPIES)]


@pytest.mark.parametrize(
    ("templates", "cls", "relative"),
    sampled([(templates, *options) for templates in COPIES for options in OPTIONS], PAIRWISE),
)
def test_unseen_symbols_are_copied(templates, cls, relative):
    task = small(templates, cls=cls)
    model = template_copy(task, relative=relative)
    assert accuracy(model, task) == 1
    with torch.no_grad():
        model.block(0).attention.b.zero_()
    assert accuracy(model, task) < 0.2


def test_the_head_writes_only_the_attended_symbol():
    model = template_copy(small(("aba -> b",)))
    assert not model.block(0).attention.v.weight.any()
    assert not model.block(0).attention.o.weight.any()


def test_copy_raises_on_other_tasks(as_a_user):
    for templates in (("aba -> b", "aab -> b"), PAIR):
        with pytest.raises(ValueError, match="no place where every template has its label"):
            copied_from(small(templates))


# what is said of heads


def test_the_generator_determines_the_answer():
    first, again, another = (TEMPLATE_ANSWERS["same"](torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert first.name == again.name
    assert first.task == again.task
    for weight, same_weight in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(weight, same_weight)
    assert first.task != another.task


def test_the_label_is_readable_from_the_stated_layer():
    answer = TEMPLATE_ANSWERS["same"](torch.Generator().manual_seed(0))
    batch, stream = answer.task.sample(40, generator=torch.Generator().manual_seed(0)), same_registers(answer.task)
    _, cache = answer.model.run_with_cache(batch.tokens)
    before, after = (cache["resid_post", layer][:, -1] for layer in range(2))
    computed = slice(stream["symbol"].stop, stream["scrap"].start)
    assert answer.readable == {"label": 2}
    assert torch.allclose(before[:, computed], before[:1, computed].expand_as(before[:, computed]))
    assert torch.allclose(after[:, stream["answer"]], batch.values.double())
