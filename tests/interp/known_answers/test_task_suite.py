"""Known answers of in-context lookup, modular addition and indirect objects: truths by brute force, and the audit."""

from dataclasses import replace

import pytest
import torch
from brute_force import Losses, check_by_brute_force
from sampled import sampled

import interp
from interp.heads.kinds import relations_of
from interp.heads.queries import read_queries
from interp.known_answers import SUITE, TASK_SUITE, task_answer, task_suite

NAMES = list(TASK_SUITE)
PLAIN = ["in-context lookup", "modular addition", "indirect object by name"]
"""An answer of each task."""


@pytest.fixture(scope="module")
def answers():
    """The answers of seed 0 by name. Do not change them."""
    return {name: task_answer(name, 0) for name in NAMES}


def test_the_suite_is_in_order_and_apart_from_that_of_the_studies(answers):
    assert [answer.name for answer in task_suite(0)] == [f"{name}, seed 0" for name in NAMES]
    assert not set(NAMES) & set(SUITE)
    for name in PLAIN:
        weights = answers[name].model.state_dict()
        same, others = (task_answer(name, seed).model.state_dict() for seed in (0, 1))
        assert all(torch.equal(value, same[key]) for key, value in weights.items())
        assert any(
            value.shape != others[key].shape or not torch.equal(value, others[key]) for key, value in weights.items()
        )
    with pytest.raises(
        ValueError, match=r"name is 'induction'\. The suite has in-context lookup, in-context lookup with"
    ):
        task_answer("induction", 0)


@pytest.mark.parametrize("name", NAMES)
def test_every_head_has_a_truth_and_a_pattern_that_is_what_it_looks_like(answers, name):
    answer = answers[name]
    interp.check_task(answer.task)
    batch = answer.task.sample(200, generator=torch.Generator().manual_seed(0), split="test")
    _, cache = answer.model.run_with_cache(batch.tokens)
    read = read_queries(answer.model, batch)
    related_by_kind = relations_of(answer.task, batch)
    shape = answer.model.cfg
    assert set(answer.heads) == {(layer, head) for layer in range(shape.n_layers) for head in range(shape.n_heads)}
    for (layer, head), truth in answer.heads.items():
        assert all(answer.heads[partner].partners == ((layer, head),) for partner in truth.partners)
        if truth.looks is None:
            continue
        related = related_by_kind[truth.looks]
        rows = related.any(-1) & read[:, layer]
        assert rows.any()
        mass = (cache["pattern", layer][:, head] * related).sum(-1)[rows]
        assert mass.min() > 0.99, (name, layer, head)


CASES = [(name, seed) for name in NAMES for seed in range(3)]


@pytest.mark.parametrize(("name", "seed"), sampled(CASES, [(name, 0) for name in PLAIN]))
def test_every_truth_agrees_with_the_removal_of_all_subsets(name, seed):
    check_by_brute_force(Losses(task_answer(name, seed), n=400, seed=seed))


@pytest.mark.parametrize(
    ("name", "kind", "layer"),
    [
        ("in-context lookup", "previous", 0),
        ("in-context lookup", "induction", 1),
        ("modular addition", "operands", 0),
        ("indirect object by place", "duplicate", 0),
        ("indirect object by place", "subject", 1),
        ("indirect object by place", "indirect_object", 2),
    ],
)
def test_a_faithful_head_needs_its_pattern(answers, name, kind, layer):
    answer = answers[name]
    ((_, head),) = [place for place, truth in answer.heads.items() if truth.looks == kind and place[0] == layer]
    batch = answer.task.sample(300, generator=torch.Generator().manual_seed(1), split="test")

    def accuracy(hooks=()):
        with torch.no_grad():
            logits = answer.model.run_with_hooks(batch.tokens, fwd_hooks=list(hooks))
        at_targets = logits.gather(1, batch.target_positions[..., None].expand(-1, -1, logits.shape[-1]))
        return float((at_targets.argmax(-1) == batch.labels).double().mean())

    def uniform(pattern, hook):
        pattern = pattern.clone()
        visible = torch.ones_like(pattern[0, 0])
        if answer.task.attention == "causal":
            visible = visible.tril()
        pattern[:, head] = visible / visible.sum(-1, keepdim=True)
        return pattern

    assert accuracy() == 1
    assert accuracy([(f"blocks.{layer}.attn.hook_pattern", uniform)]) < 0.7


def faults(answer, seed):
    """Heads whose verdict, label or partners are not the planted ones."""
    result = interp.audit(answer.model, answer.task, seed=seed, seconds=None)
    wrong = []
    for head, sentence in zip(result.heads, result.sentences(), strict=True):
        truth = answer.heads[head.place]
        label = None if head.label in ("uniform", "unclassified") else head.label
        partners = head.partners if truth.truth == "redundant" else truth.partners
        if (head.verdict, label, set(partners)) != (truth.truth, truth.looks, set(truth.partners)):
            wrong.append(f"{answer.name}: {truth}. {sentence}")
    return wrong


@pytest.mark.parametrize("name", sampled(NAMES, PLAIN))
def test_every_head_gets_the_true_verdict(answers, name):
    assert not faults(answers[name], 0)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4)])
@pytest.mark.parametrize("name", PLAIN)
def test_of_every_seed(name, seed):
    assert not faults(task_answer(name, seed), seed)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10)])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in PLAIN])
def test_of_every_seed_with_decoys_and_shared_work(name, seed):
    assert not faults(task_answer(name, seed), seed)


def test_a_wrong_truth_is_noticed(answers):
    answer = answers["modular addition"]
    place = next(place for place, truth in answer.heads.items() if truth.truth == "faithful")
    wrong = replace(answer.heads[place], truth="misleading")
    assert len(faults(replace(answer, heads={**answer.heads, place: wrong}), 0)) == 1
