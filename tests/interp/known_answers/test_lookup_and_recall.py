"""Models that look letters up or recall earlier tokens: the truth about every head by brute force over all subsets."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from brute_force import MARGIN, Losses, check_by_brute_force
from known_truth import check_labels
from sampled import sampled

import interp
from interp.heads.kinds import known_kinds
from interp.known_answers import known_answer
from interp.known_answers.lookup.task import Lookup
from interp.known_answers.recall.task import Recall
from interp.known_answers.suite import LOOKUP_ANSWERS, RECALL_ANSWERS

LOOKUP_NAMES = [f"lookup {name}" for name in LOOKUP_ANSWERS]
RECALL_NAMES = [f"recall {name}" for name in RECALL_ANSWERS]
CASES = [(name, seed) for name in (*LOOKUP_NAMES, *RECALL_NAMES) for seed in range(3)]
CHOSEN = [(name, 0) for name in LOOKUP_NAMES if "unreadable" not in name] + [
    ("lookup two share unequally, unreadable", 0),
    ("recall duplicate with decoys", 0),
    ("recall first token with a decoy", 0),
    ("recall whether repeated", 0),
]
SEEDS = sampled(range(3), [0])
SAME_IN_EVERY_SEQUENCE = ("previous", "first_token")
"""Kinds whose keys are the same in every sequence, so that the pattern of another one changes nothing."""


def of_another_sequence(pattern):
    return pattern.roll(1, 0)


def uniform(pattern):
    visible = torch.ones_like(pattern).tril()
    return visible / visible.sum(-1, keepdim=True)


def decisive(place, losses):
    """Outcomes on which a head costs more than the loss that counts."""
    return losses.of[frozenset([place])] > 1 + MARGIN


@pytest.mark.parametrize(("name", "seed"), sampled(CASES, CHOSEN))
def test_every_truth_agrees_with_the_removal_of_all_subsets(name, seed):
    answer = known_answer(name, seed)
    losses = Losses(answer, seed=seed)
    check_by_brute_force(losses)
    for place, truth in answer.heads.items():
        if truth.truth != "faithful":
            continue
        # On one outcome the head is needed, and so are its pattern and the pattern of this sequence
        needed = decisive(place, losses)
        assert (needed & (losses.with_hook(place, uniform) > 1 + MARGIN)).any(), (answer.name, place)
        if truth.looks not in SAME_IN_EVERY_SEQUENCE:
            exchanged = losses.with_hook(place, of_another_sequence)
            assert (needed & (exchanged > 1 + MARGIN)).any(), (answer.name, place)


@pytest.mark.parametrize("name", [*LOOKUP_NAMES, *RECALL_NAMES])
def test_patterns_are_what_they_look_like_where_they_are_read(name):
    answer = known_answer(name, 0)
    task = answer.task
    batch = task.sample(200, generator=torch.Generator().manual_seed(0))
    _, cache = answer.model.run_with_cache(batch.tokens)
    related_keys = related_by_kind(task, batch)
    for (layer, head), truth in answer.heads.items():
        pattern = cache["pattern", layer][:, head]
        for kind, related in related_keys.items():
            rows = related.any(-1)
            mass = float((pattern * related).sum(-1)[rows].mean())
            if kind == truth.looks:
                assert mass > 0.99, (answer.name, layer, head, kind, mass)
            elif truth.looks is None and kind != "previous":
                assert mass < 0.6, (answer.name, layer, head, kind, mass)


# Kinds of sequences with repeats are labelled where they are registered
LABELLED = [*LOOKUP_NAMES, *(RECALL_NAMES if {"induction", "duplicate", "first_token"} <= set(known_kinds()) else [])]


@pytest.mark.parametrize("seed", SEEDS[:2])
@pytest.mark.parametrize("name", sampled(LABELLED, ["lookup mixed outcomes", "lookup reroute, unreadable"]))
def test_heads_are_labelled_as_they_look(name, seed):
    answer = known_answer(name, seed)
    check_labels(answer, n=64)


def related_by_kind(task, batch):
    """Related keys of the queries that are read, by kind; of `previous` at all queries."""
    n, pos = batch.tokens.shape
    is_target = torch.zeros(n, pos, dtype=torch.bool).scatter(1, batch.target_positions, True)[..., None]
    previous = torch.eye(pos, dtype=torch.bool).roll(-1, 1).tril().expand(n, -1, -1)
    if isinstance(task, Lookup):
        return {"association": task.relations(batch)["same_token"] & is_target}
    duplicate = (batch.tokens[:, :, None] == batch.tokens[:, None, :]).tril(-1)
    first = torch.zeros_like(duplicate)
    first[:, :, 0] = True
    related = {
        "previous": previous,
        "duplicate": duplicate & is_target,
        "induction": duplicate.roll(1, 2).tril() & is_target,
    }
    # Other heads rest at the first token, where it is nothing that is read
    return related | ({"first_token": first & is_target} if task.question == "first" else {})


# what is special about single models


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pattern_of_another_sequence_will_do_where_any_key_does_but_a_uniform_one_will_not(seed):
    answer = known_answer("lookup any key", seed)
    losses = Losses(answer, n=500, seed=seed)
    (place,) = [head for head, truth in answer.heads.items() if truth.truth == "misleading"]
    assert losses.with_hook(place, of_another_sequence).max() == 0
    assert losses.with_hook(place, uniform).max() > 1 + MARGIN
    # One key drawn among all statements, of which two thirds say something else

    def wrong_key(pattern):
        drawn = torch.randint(1, 1 + answer.task.statements, pattern.shape[:2], generator=torch.Generator())
        return torch.nn.functional.one_hot(drawn, pattern.shape[-1]).to(pattern)

    assert losses.with_hook(place, wrong_key).max() > 1 + MARGIN


@pytest.mark.parametrize("seed", SEEDS)
def test_mixed_outcomes_need_the_head_on_one_and_its_pattern_on_the_other(seed):
    answer = known_answer("lookup mixed outcomes", seed)
    losses = Losses(answer, n=500, seed=seed)
    (place,) = [head for head, truth in answer.heads.items() if truth.truth == "misleading"]
    without, with_uniform = losses.of[frozenset([place])], losses.with_hook(place, uniform)
    exchanged = losses.with_hook(place, of_another_sequence)
    assert without[0] > 1 + MARGIN
    assert with_uniform[0] == exchanged[0] == 0
    assert without[1] == 0
    assert with_uniform[1] > 1 + MARGIN
    assert exchanged[1] > 1 + MARGIN


@pytest.mark.parametrize("name", ["lookup ties", "lookup ties, unreadable"])
@pytest.mark.parametrize("seed", SEEDS)
def test_all_logits_are_exactly_equal_with_a_uniform_pattern(name, seed):
    answer = known_answer(name, seed)
    losses = Losses(answer, n=500, seed=seed)
    (place,) = [head for head, truth in answer.heads.items() if truth.truth in ("faithful", "hidden")]
    prefix = f"blocks.{place[0]}.attn.hook_"
    batch = losses.batch
    edits = {"pattern": lambda pattern: uniform(pattern[:, place[1]]), "z": lambda z: torch.zeros_like(z[:, :, 0])}
    for point, new in edits.items():
        index = (slice(None), place[1]) if point == "pattern" else (slice(None), slice(None), place[1])

        def edit(activation, hook, new=new, index=index):
            edited = activation.clone()
            edited[index] = new(activation)
            return edited

        with torch.no_grad():
            logits = answer.model.run_with_hooks(batch.tokens, fwd_hooks=[(prefix + point, edit)])
        at_target = logits[:, -1]
        assert (at_target == at_target[:, :1]).all(), (point, at_target[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_head_that_reroutes_can_go_with_or_without_the_head_that_is_needed(seed):
    answer = known_answer("lookup reroute", seed)
    losses = Losses(answer, n=500, seed=seed)
    truths = {truth.truth: head for head, truth in answer.heads.items()}
    needed, reroutes = truths["faithful"], truths["misleading"]
    assert losses.alone(needed) > 2
    assert losses.alone(reroutes) == 0
    assert losses.of[frozenset([needed, reroutes])].max() == 0


# the brute force notices wrong truths


@pytest.mark.parametrize(
    "name", ["lookup faint backup", "lookup two share unequally", "lookup an eighth of the queries"]
)
def test_a_wrong_truth_is_noticed(name):
    answer = known_answer(name, 0)
    losses = Losses(answer, n=500)
    check_by_brute_force(losses)
    truths = ("faithful", "misleading", "hidden", "idle", "redundant", "marginal")
    for truth, (head, right) in product(truths, answer.heads.items()):
        # A head that is not needed and one that is needed, but not through its pattern, differ in what they look like
        if truth in (right.truth, "misleading") or right.truth == "idle":
            continue
        losses.answer = replace(answer, heads={**answer.heads, head: replace(right, truth=truth)})
        with pytest.raises(AssertionError):
            check_by_brute_force(losses)


# tasks


def test_tasks_are_consistent():
    for name in (*LOOKUP_NAMES, *RECALL_NAMES):
        interp.check_task(known_answer(name, 0).task)


def test_lookup_raises_on_options_that_do_not_fit():
    with pytest.raises(ValueError, match="statements is 11; it must be from 1, the number of queries, to 10"):
        Lookup(statements=11)
    with pytest.raises(ValueError, match="statements is 6, no multiple of values 4"):
        Lookup(balanced=True)
    with pytest.raises(ValueError, match="levels has 3 rows; give one, or one for each of 1 queries"):
        Lookup(levels=((1.0,),) * 3)
    with pytest.raises(ValueError, match="active is 7; it needs so many statements"):
        Lookup(active=7)
    with pytest.raises(ValueError, match="named_stratum needs rare letters"):
        Lookup(named_stratum=True)


def test_recall_raises_on_options_that_do_not_fit():
    with pytest.raises(ValueError, match="letters is 1; two or more"):
        Recall(letters=1)
    with pytest.raises(ValueError, match="length is 4; 8 or more"):
        Recall(length=4)


def test_sequences_repeat_by_chance_but_the_last_letter_occurs_once_before():
    task = Recall(question="follows", letters=20, length=16)
    batch = task.sample(500, generator=torch.Generator().manual_seed(0))
    before, last = batch.tokens[:, :-1], batch.tokens[:, -1:]
    assert ((before == last).sum(1) == 1).all()
    place = (before == last).int().argmax(1, keepdim=True)
    assert torch.equal(batch.tokens.gather(1, place + 1) - task.marks, batch.labels)
    has_repeat = [len(set(row)) < len(row) for row in before.tolist()]
    assert sum(has_repeat) > 400
