"""Audit of heads: true verdicts on known answers, invariances, untrained models, other seeds, and the result."""

import re
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.auditing import AuditResult
from interp.auditing.audit import pairs_not_tried
from interp.auditing.interventions import INTERVENTIONS
from interp.auditing.outcomes import judged_outcomes
from interp.auditing.sets import HeadSets
from interp.auditing.verdicts import HEAD_VERDICTS
from interp.known_answers import known_answer, randomise
from interp.known_answers.craft.transforms import permute_heads, random_orders
from interp.known_answers.craft.weights import head_rows, mean_preserving_rotation
from interp.known_answers.dyck.variants import dyck_decoy
from interp.known_answers.lego.variants import loop
from interp.tasks import Lego

ANSWERS = (
    "loop of two",
    "shortcut 1",
    "template same, redundant",
    "template same, cancelled decoys",
    "template copy, zero decoy",
    "template copy, misread",
    "dyck stack, redundant",
)
"""Every verdict and reason, in each task."""
FURTHER = (
    "template same",
    "template copy, redundant",
    "template copy, hidden beside a decoy",
    "dyck balanced among idle heads",
    "dyck stack, constant decoy",
    "dyck uniform, cancelled decoy",
)
SMALL = "template copy, zero decoy"
N = 128


@cache
def answer(name):
    if name == "loop of two":
        return loop(Lego(n_vars=2), torch.Generator().manual_seed(0), untie=True)
    return known_answer(name, 0)


@cache
def audited(name):
    return interp.audit(answer(name).model, answer(name).task, n=N)


@pytest.mark.parametrize("name", [*ANSWERS, *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER)])
def test_the_planted_truth_is_found(name):
    result = audited(name)
    truths = answer(name).heads
    assert {head.place: head.verdict for head in result.heads} == {at: truth.truth for at, truth in truths.items()}
    for head in result.heads:
        truth = truths[head.place]
        assert (head.label if head.label in result.kinds else None) == truth.looks
        assert head.readable == (truth.looks is not None)
        if truth.truth == "redundant":
            assert set(head.partners) == set(truth.partners)
    assert (result.clean == 1).all()
    assert all("is left out" in warning for warning in result.warnings)


def test_the_known_answers_cover_every_verdict_and_reason():
    heads = [head for name in ANSWERS for head in audited(name).heads]
    assert {head.verdict for head in heads} == set(HEAD_VERDICTS) - {"undecided", "marginal"}
    reasons = {head.reason for head in heads}
    assert {"together", "cancelled", "not needed", "needed", "not through its pattern"} <= reasons
    assert "through its pattern" in reasons


def test_cancelled_heads_are_each_others_partners():
    result = audited("template same, cancelled decoys")
    cancelled = {head.place: head.partners for head in result.heads if head.reason == "cancelled"}
    assert len(cancelled) == 2
    assert all(cancelled[partners[0]] == (head,) for head, partners in cancelled.items())


def test_a_head_that_adds_nothing_to_a_costly_set_is_not_redundant(monkeypatch):
    """As if the search had found a pair of backups together with a third head."""
    known = answer("template same, redundant")
    pair = tuple(head for head, one in known.heads.items() if one.truth == "redundant")
    other = next(head for head, one in known.heads.items() if one.truth != "redundant")
    three = tuple(sorted((*pair, other)))
    sets = HeadSets(
        needed_in={other: (three,)},
        harmless={},
        largest_harmless=(),
        smallest_costly=(),
        exact=False,
        n_removals=0,
        n_pairs=0,
    )
    monkeypatch.setattr("interp.auditing.steps.find_sets", lambda *arguments, **options: sets)
    result = interp.audit(known.model, known.task, n=N)
    assert result.sets[0].cost.drop[0] > result.threshold[0]
    assert result.of("redundant") == ()
    assert not result.exact


def test_a_head_that_is_needed_on_an_outcome_left_out_is_undecided(monkeypatch):
    """As if the second variable were too rare to be judged by."""
    known, whole = answer("loop of two"), audited("loop of two")

    def first_only(score, task, wanted, **options):
        return replace(judged_outcomes(score, task, ["#0"], **options), too_few={1: 0.1})

    monkeypatch.setattr("interp.auditing.outcomes.judged_outcomes", first_only)
    result = interp.audit(known.model, known.task, n=N)
    lost = {head.place: head.costs["mean"].drop for head in whole.heads}
    for head in result.heads:
        first, second = lost[head.place]
        if head.reason != "together":  # the first variable is also given by the second
            assert (head.reason == "left out") == (first < 0.1 <= second)
            assert head.needed["mean"] is (True if first >= 0.1 else None if second >= 0.1 else False)
    assert "left out" in {head.reason for head in result.heads}
    assert "perhaps by more on an outcome that is left out for too few sequences" in str(result)


# invariances


def verdicts_of(result, place=lambda head: head):
    return {
        place(head.place): (head.verdict, head.reason, head.label, {place(other) for other in head.partners})
        for head in result.heads
    }


def costs_of(result, field="drop", place=lambda head: head):
    """(intervention, head, outcome), heads in the order of their new places."""
    untried = (np.nan,) * len(result.outcomes)
    heads = sorted(result.heads, key=lambda head: place(head.place))
    return np.array([
        [getattr(head.costs.get(name), field, untried) for head in heads] for name in result.interventions
    ])  # fmt: skip


def moved_to(orders):
    return lambda head: (head[0], list(orders[head[0] % len(orders)]).index(head[1]))


def test_verdicts_follow_permuted_heads():
    known, before = answer("template same, redundant"), audited("template same, redundant")
    model = deepcopy(known.model)
    orders = [list(reversed(range(model.cfg.n_heads)))] * len(model.stored_blocks)
    permute_heads(model, orders)
    after = interp.audit(model, known.task, n=N)
    place = moved_to(orders)
    assert verdicts_of(after) == verdicts_of(before, place)
    these, those = costs_of(after), costs_of(before, place=place)
    wrong = after.interventions.index("wrong_key")  # where it finds no value, rounding decides
    assert np.allclose(these[:wrong], those[:wrong], rtol=0, atol=1e-9, equal_nan=True)
    assert np.allclose(these[wrong:], those[wrong:], rtol=0, atol=0.05, equal_nan=True)


def test_verdicts_do_not_depend_on_basis_and_scale():
    known, before = answer("loop of two"), audited("loop of two")
    turned = randomise(known, torch.Generator().manual_seed(3), rotate=True)
    generator = torch.Generator().manual_seed(3)
    mean_preserving_rotation(known.model.cfg.d_model, generator)
    place = moved_to(random_orders(known.model, generator))
    after = interp.audit(turned.model, turned.task, n=N)
    assert verdicts_of(after) == verdicts_of(before, place)
    # without the value that a head carries all logits are equal, and rounding decides which one is largest
    assert ((costs_of(after) == 0) == (costs_of(before, place=place) == 0)).all()


def test_verdicts_do_not_depend_on_letters():
    known, before = answer("loop of two"), audited("loop of two")
    letters = torch.randperm(26, generator=torch.Generator().manual_seed(5))
    task = replace(known.task, alphabet=tuple(known.task.alphabet[letter] for letter in letters))
    model, first = deepcopy(known.model), known.task.vocab.ids[known.task.alphabet[0]]
    with torch.no_grad():
        model.embed.weight[first : first + 26] = known.model.embed.weight[first : first + 26][letters]
    assert verdicts_of(interp.audit(model, task, n=N)) == verdicts_of(before)


@pytest.mark.parametrize(("name", "tokens"), [("dyck stack, redundant", 10**9), ("template same, redundant", 200)])
def test_results_do_not_depend_on_how_the_batch_is_cut(name, tokens, monkeypatch):
    with_chunks = audited(name)
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", tokens)
    other = interp.audit(answer(name).model, answer(name).task, n=N)
    assert verdicts_of(other) == verdicts_of(with_chunks)
    assert [one.heads for one in other.sets] == [one.heads for one in with_chunks.sets]
    for field in ("drop", "low", "high"):
        assert np.allclose(costs_of(other, field), costs_of(with_chunks, field), rtol=0, atol=1e-9, equal_nan=True)
    for one, same in zip(other.sets, with_chunks.sets, strict=True):
        assert np.allclose(one.cost.drop, same.cost.drop, rtol=0, atol=1e-9)


def test_the_seed_decides_everything():
    known, first = answer(SMALL), audited(SMALL)
    again, other = (interp.audit(known.model, known.task, n=N, seed=seed) for seed in (0, 1))
    assert again.heads == first.heads
    assert str(again) == str(first)
    assert other.heads != first.heads


def test_the_model_is_not_changed():
    known = answer(SMALL)
    before = deepcopy(known.model.state_dict())
    interp.audit(known.model, known.task, n=N)
    assert all(torch.equal(value, before[name]) for name, value in known.model.state_dict().items())


# models without knowledge


class Shuffled(Lego):
    """LEGO whose labels are those of other sentences."""

    def sample(self, n, *, generator, split="train", n_vars=None):
        batch = super().sample(n, generator=generator, split=split, n_vars=n_vars)
        return replace(batch, labels=batch.labels[torch.randperm(n, generator=generator)])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4))])
def test_untrained_models_have_no_faithful_heads(seed, tiny):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=32, n_heads=4), seed=seed)
    result = interp.audit(model, tiny, n=N, at_chance=True, seed=seed)
    assert result.of("faithful") == result.of("hidden") == result.of("redundant") == ()
    assert "chance" in result.warnings[0]


def test_a_model_that_was_trained_on_noise_has_no_faithful_heads():
    task = Shuffled(n_vars=2, sentence_format="compact")
    model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2))
    settings = interp.TrainSettings(steps=30, warmup_steps=10, learning_rate=4e-3, batch_size=64, n_eval=100)
    interp.train(model, task, settings)
    result = interp.audit(model, task, n=N, at_chance=True)
    assert result.of("faithful") == result.of("hidden") == ()


def test_a_trained_model_has_verdicts(trained, tiny):
    result = interp.audit(trained.model, tiny, n=256)
    assert {head.verdict for head in result.heads} <= set(HEAD_VERDICTS)
    assert result.outcomes == ("#0", "#1")
    assert np.allclose(result.threshold, 0.2 * (result.clean - 0.5))


# other seeds


def test_a_model_agrees_with_itself_in_any_order_of_heads():
    known, found = answer(SMALL), audited(SMALL)
    turned = deepcopy(known.model)
    permute_heads(turned, [list(reversed(range(known.model.cfg.n_heads)))] * len(turned.stored_blocks))
    turned = interp.audit(turned, known.task, n=N)
    same = found.with_other_seeds([found, turned])
    assert (same.n_seeds, [head.seeds_agree for head in same.heads]) == (2, [1.0] * len(same.heads))
    assert str(same).count("[100% of 2 other seeds agree]") == len(same.heads)
    (decoy,) = found.of("misleading")
    changed, (layer, head) = deepcopy(known.model), decoy
    with torch.no_grad():  # idle then
        changed.block(layer).attention.q.weight[head_rows(changed.block(layer), head)] = 0
    mixed = found.with_other_seeds([found, interp.audit(changed, known.task, n=N)])
    agree = {head.place: head.seeds_agree for head in mixed.heads}
    assert all(0 <= one <= 1 for one in agree.values())
    assert agree.pop(decoy) == 0.5
    assert set(agree.values()) == {1.0}
    assert "seeds_agree" in mixed.to_dataframe()


def test_other_seeds_agree_only_on_heads_with_the_same_label():
    """Two decoys: one attends to the top of the stack, the other to the start."""
    same, other = (
        dyck_decoy(torch.Generator().manual_seed(1), work="stack", decoy=decoy) for decoy in ("zero", "start")
    )
    theirs = interp.audit(other.model, same.task, n=N)
    result = interp.audit(same.model, same.task, n=N).with_other_seeds([theirs])
    (decoy,) = result.of("misleading")
    assert theirs.of("misleading") == (decoy,)
    agree = {head.place: head.seeds_agree for head in result.heads}
    assert agree.pop(decoy) == 0
    assert set(agree.values()) == {1.0}


def test_audits_of_other_seeds_must_have_the_same_shape():
    found, other = audited(SMALL), audited("template copy, misread")
    with pytest.raises(
        ValueError, match=r"audits\[1\] has 1 layers of 1 heads, this model 1 layers of 3 heads; pass audits"
    ):
        found.with_other_seeds([found, other])
    with pytest.raises(ValueError, match="audits is empty; pass the audits of models trained from other seeds"):
        found.with_other_seeds([])


# the result


@pytest.mark.parametrize("name", ["template same, redundant", SMALL])
def test_a_result_is_saved_and_loaded(name, tmp_path):
    result = audited(name)
    result.save(tmp_path / "audit.json")
    loaded = AuditResult.load(tmp_path / "audit.json")
    assert (loaded.heads, loaded.sets) == (result.heads, result.sets)
    for field in ("clean", "threshold"):
        assert np.array_equal(getattr(loaded, field), getattr(result, field))
    assert str(loaded) == str(result)


def test_a_row_per_head():
    result = audited("dyck stack, redundant")
    table = result.to_dataframe()
    wanted = {"layer", "head", "verdict", "reason", "partners", "label", "kind", "score", "outcome", "n", "moved"}
    assert wanted <= set(table)
    assert {f"{name}{end}" for name in INTERVENTIONS for end in ("", "_low", "_high")} <= set(table)
    assert "seeds_agree" not in table
    assert list(zip(table["layer"], table["head"], strict=True)) == [head.place for head in result.heads]
    assert (table["mean"] <= table["mean_high"]).all()
    assert (table["n"] == N).all()


def test_heads_by_verdict():
    result = audited("dyck stack, redundant")
    every = [head for verdict in HEAD_VERDICTS for head in result.of(verdict)]
    assert sorted(every) == [head.place for head in result.heads]
    with pytest.raises(ValueError, match="verdict is 'good'; choose one of faithful"):
        result.of("good")


def test_the_cost_is_that_of_the_worst_outcome():
    result = audited("loop of two")
    values, outcomes = result.cost("mean")
    for head, value, outcome in zip(result.heads, values, outcomes, strict=True):
        at, cost = result.outcomes.index(outcome), head.costs["mean"]
        assert value.tolist() == [cost.drop[at], cost.low[at], cost.high[at]]
        assert (np.array(cost.drop) / result.threshold).max() == cost.drop[at] / result.threshold[at]
    with pytest.raises(ValueError, match="intervention is 'prune'; choose one of zero, mean"):
        result.cost("prune")


def test_printed_audit():
    result = audited("dyck stack, redundant")
    *rows, counts, judged, sets = str(result).split("\n")
    assert len(rows) == len(result.heads)
    assert all(row.startswith(head.verdict) for row, head in zip(rows, result.heads, strict=True))
    assert "2 redundant" in counts
    assert f"{N} sequences, level 0.01 (Bonferroni)" in counts
    assert judged.startswith("judged by accuracy on hard 1.00")
    assert "a loss of more than 0." in judged
    removable = "every set of heads was tried: at most 2 of 3 heads can be removed together"
    assert re.fullmatch(rf"{removable}, which costs 0\.00 \[-0\.0\d, 0\.0\d\] on hard", sets)


def test_audits_are_drawn_and_reported(tmp_path):
    from interp.view.figures import chart_html

    result = audited("dyck stack, redundant")
    drawn = chart_html(result.plot())
    assert "<svg" in drawn
    assert all(head.verdict in drawn for head in result.heads)
    notebook = result._repr_html_()
    cards, table = notebook.split("<details><summary>table of all numbers")
    assert cards.count("<li>") == len(result.heads)
    assert "<table" not in cards
    assert "<table" in table
    page = interp.report([result], tmp_path / "page.html", title="Is it true?").read_text()
    assert "Audit of heads" in page
    for head, sentence in zip(result.heads, result.sentences(), strict=True):
        sentence = sentence.removeprefix(f"{head.layer}.{head.head} ").split(" (")[0]
        assert sentence in page
        assert sentence[1:] in cards


def test_an_audit_says_that_not_every_pair_was_tried():
    assert pairs_not_tried(45, 10) == ()
    assert pairs_not_tried(0, 1) == ()
    (warning,) = pairs_not_tried(1128, 96)
    assert warning == (
        "the search for sets removed 1,128 of 4,560 pairs of heads: all of the 48 heads with the largest effects, and "
        "those with a needed head. Of two idle heads outside these, each may do the work of the other."
    )
