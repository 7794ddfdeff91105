"""Ablation of heads: drops, sets, random sets, output formats and error texts."""

import json

import cloudpickle
import numpy as np
import pytest
import torch
from own_models import own_model
from scoring import correct

import interp
from hooks import Transformer
from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.replacements import Zero
from interp.core.randomness import derived_generator
from interp.heads.ablate import _random_sets
from interp.heads.interventions import METHODS
from interp.known_answers import known_answer
from interp.known_answers.lego.variants import loop
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets

N = 300


def lost_by_hand(run, task, heads, n=N):
    """Accuracy and loss with these heads set to zero by hooks, on the sequences that `ablate_heads` draws."""
    batch = task.sample(n, generator=derived_generator(0, "ablate"), split="test")
    hooks = [(f"blocks.{layer}.attn.hook_z", Zero().hook(head=head)) for layer, head in heads]
    with torch.no_grad():
        clean, edited = run.model(batch.tokens), run.model.run_with_hooks(batch.tokens, fwd_hooks=hooks)
    lost = correct(task, clean, batch).double() - correct(task, edited, batch).double()
    losses = [
        torch.nn.functional.cross_entropy(logits_at_targets(x, batch).transpose(1, 2), batch.labels, reduction="none")
        for x in (clean, edited)
    ]
    return lost.numpy(), (losses[1] - losses[0]).double().numpy()


def test_single_heads_equal_ablation_by_hooks(trained, tiny):
    result = interp.ablate_heads(trained.model, tiny, n=N)
    assert result.names == ("0.0", "0.1", "1.0", "1.1")
    for index, chosen in enumerate(result.heads):
        lost, rise = lost_by_hand(trained, tiny, chosen)
        np.testing.assert_allclose(result.drop[index], lost.mean(0), atol=1e-12)
        np.testing.assert_allclose(result.loss_rise[index], rise.mean(0), atol=1e-5)
    assert (result.drop.value.max(0)[1] > 0.1).all()  # the model needs some head for its second variable
    assert ((result.drop.low <= result.drop) & (result.drop <= result.drop.high)).all()
    assert ((result.loss_rise.low <= result.loss_rise) & (result.loss_rise <= result.loss_rise.high)).all()


def test_pairs_and_sets(trained, tiny):
    pairs = interp.ablate_heads(trained.model, tiny, heads="pairs", n=N)
    assert len(pairs.names) == 6
    named = interp.ablate_heads(trained.model, tiny, heads={"both": [(0, 1), (1, 0)]}, n=N)
    at = pairs.heads.index(((0, 1), (1, 0)))
    np.testing.assert_allclose(named.drop[0], pairs.drop[at])
    np.testing.assert_allclose(named.drop[0], lost_by_hand(trained, tiny, [(0, 1), (1, 0)])[0].mean(0), atol=1e-12)


@pytest.mark.parametrize("method", [*METHODS, "association", "manipulation", "current"])
def test_every_method_is_determined_by_its_seed(trained, tiny, method):
    once, again = (interp.ablate_heads(trained.model, tiny, method=method, n=64) for _ in range(2))
    assert np.array_equal(once.drop, again.drop)
    assert once.drop.shape == (4, 2)
    assert np.isfinite(once.loss_rise).all()


def test_replacing_a_pattern_by_itself_costs_nothing(tiny):
    """A head whose pattern is hard-coded keeps its output when its pattern becomes that same map."""
    from hooks import HeadPattern

    model = Transformer(
        interp.config_for(tiny, n_layers=1, d_model=16, n_heads=2, head_patterns=((HeadPattern(kind="uniform"),) * 2,))
    )
    same = interp.ablate_heads(model, tiny, method="uniform", n=64)
    np.testing.assert_allclose(same.loss_rise, 0, atol=1e-6)
    other = interp.ablate_heads(model, tiny, method="current", n=64)
    assert np.abs(other.loss_rise).max() > 1e-3


def test_random_sets_have_the_same_size_and_no_named_heads(monkeypatch, tiny):
    model = Transformer(interp.config_for(tiny, n_layers=3, d_model=16, n_heads=4))
    seen = []
    original = AblationEngine.each_edit

    def each_edit(self, sets, replace):
        seen.extend(sets)
        return original(self, sets, replace)

    monkeypatch.setattr(AblationEngine, "each_edit", each_edit)
    sets = {"one": [(0, 0), (1, 1)], "two": [(2, 3)]}
    result = interp.ablate_heads(model, tiny, heads=sets, n=16, n_random=30)
    assert result.random_drop is not None
    assert result.random_drop.shape == (2, 30, 2)
    drawn = seen[2:62]
    assert [len(heads) for heads in drawn] == [2] * 30 + [1] * 30
    assert all(len(set(heads)) == len(heads) for heads in drawn)
    assert not {(0, 0), (1, 1), (2, 3)} & {head for heads in drawn for head in heads}
    assert len({tuple(heads) for heads in drawn}) > 20


def test_association_heads_matter_to_every_variable_but_the_first():
    """In a hand-written loop, against random sets of idle heads: the first variable needs only its own clause."""
    known = loop(Lego(n_vars=3), torch.Generator().manual_seed(0), idle=2)
    kinds = ("association", "manipulation")
    sets = {kind: [head for head, truth in known.heads.items() if truth.looks == kind] for kind in kinds}
    result = interp.ablate_heads(known.model, known.task, heads=sets, n=64, n_random=3)
    assert (result.clean == 1).all()
    mean, spread = result.random_drop.mean(1), result.random_drop.std(1, ddof=1)
    assert (mean == 0).all()
    above = result.drop.low > mean + 5 * spread / 3**0.5
    assert above.tolist() == [[False, True, True], [True, True, True]]
    assert result.drop.value[0, 0] == result.drop.low[0, 0] == 0
    assert abs(result.loss_rise[0, 0]) < 1e-12
    chance = abs(1 - result.drop - known.task.chance) < 5 * (0.25 / 64) ** 0.5
    assert chance.tolist() == above.tolist()


def test_ablation_result_formats(trained, tiny, tmp_path):
    result = interp.ablate_heads(trained.model, tiny, heads={"first": [(0, 0)]}, n=16, n_random=2)
    result.save(tmp_path / "r.json")
    again = interp.heads.AblationResult.load(tmp_path / "r.json")
    assert again.heads == result.heads
    assert np.array_equal(again.drop, result.drop)
    frame = again.to_dataframe()
    assert {"set", "target", "drop", "low", "high", "loss_rise", "random_mean", "random_largest", "n"} <= set(frame)
    assert len(frame) == 2
    assert "random, same size" in str(again)
    assert "first" in again.plot().to_json()
    assert "<svg" in again._repr_html_()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"method": "erase"},
            "method is 'erase'; choose one of zero, mean, resample, counterpart, uniform, random_rows, association",
        ),
        ({"method": "broadcast"}, "kind 'broadcast' relates no query to any key in this task"),
        ({"n": 3}, "n is 3; at least 8 sequences"),
        ({"heads": {"a": [(0, 5)]}}, r"heads\['a'\] has head \(0, 5\); this model has layers 0 to 1 with heads 0 to 1"),
        ({"heads": {"a": [(7, 0)]}}, r"heads\['a'\] has head \(7, 0\)"),
        ({"heads": {"a": []}}, r"heads\['a'\] is \[\]; give at least one head"),
        ({"heads": {"a": [(0, 0), (0, 0)]}}, "give at least one head, each only once"),
        ({"heads": {"a": None}}, r"heads\.a is None; it must be a list"),
        ({"heads": {"a": [(0.5, 0)]}}, r"heads\.a\[0\]\[0\] is 0.5; it must be an integer"),
        ({"heads": {}}, "heads is {}; give 'each', 'pairs', or named sets"),
        ({"heads": "every"}, "heads is 'every'; it must be 'each' or 'pairs' or a mapping"),
    ],
)
def test_errors(trained, tiny, as_a_user, settings, words):
    with pytest.raises(ValueError, match=words):
        interp.ablate_heads(trained.model, tiny, **settings)


def test_the_drop_of_a_random_set_is_that_of_its_heads(trained, tiny):
    """With three of four heads named, the fourth is the only random set."""
    sets = {"a": [(0, 0)], "b": [(0, 1)], "c": [(1, 0)]}
    result = interp.ablate_heads(trained.model, tiny, heads=sets, n=N, n_random=2)
    lost, rise = lost_by_hand(trained, tiny, [(1, 1)])
    np.testing.assert_allclose(result.random_drop, np.broadcast_to(lost.mean(0), (3, 2, 2)), atol=1e-12)
    assert np.abs(lost.mean(0) - rise.mean(0)).max() > 0.01  # accuracy, not loss


def test_random_sets_of_two_named_sets_are_drawn_apart(tiny):
    model = Transformer(interp.config_for(tiny, n_layers=3, d_model=16, n_heads=4))
    drawn = _random_sets(model, {"one": [(0, 0)], "two": [(1, 1)]}, 20, seed=0)
    assert drawn[:20] != drawn[20:]
    assert drawn == _random_sets(model, {"one": [(0, 0)], "two": [(1, 1)]}, 20, seed=0)
    assert drawn[:20] != _random_sets(model, {"one": [(0, 0)], "two": [(1, 1)]}, 20, seed=1)[:20]


def test_eight_sequences_are_enough(trained, tiny):
    assert interp.ablate_heads(trained.model, tiny, heads={"a": [(0, 0)]}, n=8).n == 8
    with pytest.raises(ValueError, match="n is 7; at least 8"):
        interp.ablate_heads(trained.model, tiny, n=7)


def as_in_json(result):
    return json.dumps(result.to_dict(), sort_keys=True)


@pytest.mark.parametrize(
    "options", [{"heads": "pairs", "n_random": 2}, {"method": "association"}, {"method": "resample"}]
)
def test_numbers_do_not_depend_on_the_number_of_processes(trained, tiny, monkeypatch, options):
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", 100)
    torch.set_num_threads(1)
    alone = interp.ablate_heads(trained.model, tiny, n=60, **options)
    calls = []

    def in_this_process(calls_of_verb, *, n_jobs):
        calls.extend(calls_of_verb)
        sent = [cloudpickle.loads(cloudpickle.dumps(call)) for call in calls_of_verb]
        return [function(*arguments) for function, arguments in reversed(sent)]

    monkeypatch.setattr("interp.heads.experiment.in_processes", in_this_process)
    for n_jobs in (2, 3):
        calls.clear()
        result = interp.ablate_heads(trained.model, tiny, n=60, n_jobs=n_jobs, **options)
        assert as_in_json(result) == as_in_json(alone)
        # All sequences are in some call, and a call has about as many as the others
        sizes = [last - first for _, (_, _, _, (first, last)) in calls]
        assert len(sizes) == n_jobs
        assert sum(sizes) == alone.n
        assert max(sizes) < 2 * min(sizes)


@pytest.mark.slow
def test_an_ablation_is_the_same_in_processes(trained, tiny):
    results = [interp.ablate_heads(trained.model, tiny, n=N, n_jobs=n_jobs) for n_jobs in (1, 2)]
    assert len({as_in_json(result) for result in results}) == 1


def test_errors_of_processes(trained, tiny):
    with pytest.raises(ValueError, match="n_jobs is 0"):
        interp.ablate_heads(trained.model, tiny, n_jobs=0)
    with pytest.raises(ValueError, match="n_jobs is 2, but a wrapped model cannot be sent to other processes"):
        interp.ablate_heads(own_model(trained.model), tiny, n_jobs=2)


def test_a_head_that_costs_nothing_may_cost_what_so_few_sequences_cannot_show():
    """No answer of 200 is lost: a true loss of 1.8 % would give that once in 40 times."""
    answer = known_answer("template copy, zero decoy", seed=0)
    result = interp.ablate_heads(answer.model, answer.task, heads={"idle": [(0, 0)]}, n=200)
    assert result.drop.value.item() == 0
    n_inputs = int(np.ravel(result.drop.n)[0])
    assert result.drop.low.item() == 0  # accuracy was 1 and cannot rise
    assert (1 - result.drop.high.item()) ** n_inputs == pytest.approx(0.0125, rel=1e-3)
