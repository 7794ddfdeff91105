"""Models with only k of their heads: planted sets, figures by hand, orders, output formats and error texts."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch

import interp
from hooks.interventions.replacements import Zero
from interp.core.randomness import derived_generator
from interp.heads import keep
from interp.heads.keep import KeepResult
from interp.known_answers import known_answer
from interp.tasks.base import logits_at_targets

PLANTED = ("dyck stack", "template copy", "template same")
LOOPS = ("loop Z2 0", "loop S3 1")
"""Models of 20 and 15 heads, which orders search for longer."""


def needed(known):
    return {head for head, truth in known.heads.items() if truth.truth in ("faithful", "hidden")}


@pytest.mark.parametrize("name", [*PLANTED, *(pytest.param(name, marks=pytest.mark.slow) for name in LOOPS)])
def test_the_planted_heads_are_found_and_no_others(name):
    known = known_answer(name, 0)
    result = interp.keep_heads(known.model, known.task, n=256, n_random=2)
    assert set(result.sufficient) == needed(known)
    audited = [known.task.outcomes.index(outcome) for outcome in known.task.audited_outcomes]
    np.testing.assert_array_equal(result.sufficient_performs[audited], result.clean[audited])
    n_sufficient = len(result.sufficient)
    for order in range(2):
        assert set(result.kept[order][n_sufficient]) == needed(known)
        assert result.performs.value[order, n_sufficient - 1][audited].mean() < result.clean[audited].mean()
        assert result.replicates[order, n_sufficient] == 1


def test_the_planted_heads_of_several_layers_are_found():
    known = known_answer("loop S3 1", 0)
    result = interp.keep_heads(known.model, known.task, orders=["ablation"], n=64, n_random=2)
    assert set(result.sufficient) == set(result.kept[0][5]) == needed(known)
    assert result.replicates[0, 5] == 1
    assert result.area[0] > max(result.area[1:])
    assert len(set(result.kept[1:])) > 1


def by_hand(model, task, kept, n):
    """Accuracy and agreement with the whole model, heads at zero, on the second half of the sequences."""
    batch = task.sample(n, generator=derived_generator(0, "keep heads"), split="test").select(slice(n // 2, None))
    heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    hooks = [
        (f"blocks.{layer}.attn.hook_z", Zero().hook(head=head)) for layer, head in heads if (layer, head) not in kept
    ]
    with torch.no_grad():
        whole = logits_at_targets(model(batch.tokens), batch).argmax(-1)
        part = logits_at_targets(model.run_with_hooks(batch.tokens, fwd_hooks=hooks), batch).argmax(-1)
    return (part == batch.labels).double().mean(0).numpy(), float((part == whole).double().mean())


def test_figures_are_those_of_hooks(trained, tiny):
    found = interp.keep_heads(trained.model, tiny, orders=["ablation", "greedy", "exact"], method="zero", n=200)
    assert found.orders[:3] == ("ablation", "greedy", "exact")
    assert found.performs.shape == (11, 5, 2)
    for order in (0, 2, 4):
        for k, kept in enumerate(found.kept[order]):
            assert len(kept) == k
            performs, replicates = by_hand(trained.model, tiny, kept, 200)
            np.testing.assert_allclose(found.performs[order, k], performs, atol=1e-12)
            assert found.replicates[order, k] == pytest.approx(replicates)
    assert ((found.performs.low <= found.performs) & (found.performs <= found.performs.high)).all()
    assert (found.performs[:, -1] == found.clean).all()
    assert (found.replicates[:, -1] == 1).all()
    values = found.performs.value[0].mean(-1)
    assert found.area[0] == pytest.approx(((values[1:] + values[:-1]) / 2).mean())


def test_orders_choose_by_loss_on_the_first_half(trained, tiny):
    model, n = trained.model, 120
    batch = tiny.sample(n, generator=derived_generator(0, "keep heads"), split="test").select(slice(0, n // 2))

    def loss(kept):
        hooks = [
            (f"blocks.{layer}.attn.hook_z", Zero().hook(head=head))
            for layer in range(2) for head in range(2) if (layer, head) not in kept
        ]  # fmt: skip
        with torch.no_grad():
            logits = logits_at_targets(model.run_with_hooks(batch.tokens, fwd_hooks=hooks), batch)
        return float(torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.labels))

    heads = [(layer, head) for layer in range(2) for head in range(2)]
    found = interp.keep_heads(model, tiny, orders=["ablation", "greedy", "exact"], method="zero", n=n, n_random=0)
    kept = dict(zip(found.orders, found.kept, strict=True))
    for k in range(5):
        assert kept["exact"][k] == min(combinations(heads, k), key=loss)
    worst = sorted(heads, key=lambda head: -loss([one for one in heads if one != head]))
    assert [set(one) for one in kept["ablation"]] == [set(worst[:k]) for k in range(5)]
    left = heads
    for k in (3, 2, 1):
        left = min(combinations(left, k), key=loss)
        assert kept["greedy"][k] == left


def test_the_same_seed_gives_the_same_result(trained, tiny):
    once, again = (interp.keep_heads(trained.model, tiny, n=64, seed=3) for _ in range(2))
    assert once.kept == again.kept
    np.testing.assert_array_equal(once.performs, again.performs)


def test_output_formats(trained, tiny, tmp_path):
    found = interp.keep_heads(trained.model, tiny, n=64, n_random=3)
    found.save(tmp_path / "found.json")
    loaded = KeepResult.load(tmp_path / "found.json")
    assert str(loaded) == str(found)
    assert loaded.kept == found.kept
    assert loaded.sufficient == found.sufficient
    table = found.to_dataframe()
    assert len(table) == 5 * 5 * 2
    assert {"order", "k", "outcome", "performs", "replicates"} <= set(table.columns)
    shown = json.dumps(found.plot().to_dict())
    assert "3 random orders" in shown
    assert "replicates" in shown
    assert "sufficient" in str(found)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"orders": "best"}, "orders is 'best'"),
        ({"orders": []}, "orders is empty; give one or several of ablation, greedy, exact"),
        ({"method": "remove"}, "method is 'remove'"),
        ({"n": 4}, "n is 4"),
        ({"n_random": -1}, "n_random is -1"),
    ],
)
def test_bad_input(trained, tiny, more, text):
    with pytest.raises(ValueError, match=text):
        interp.keep_heads(trained.model, tiny, **more)


def test_exact_is_for_few_heads():
    known = known_answer("loop Z2 0", 0)
    with pytest.raises(ValueError, match="orders has 'exact', but the model has 20 heads"):
        interp.keep_heads(known.model, known.task, orders=["exact"])


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        (("ablation", "greedy"), r"2 heads in the orders ablation, greedy are 5 sets of heads, at most .* minutes"),
        (("greedy",), r"greedy are 3 sets .*orders=\['ablation'\], which takes one set a head"),
        (("exact",), r"exact are 4 sets .* Give a smaller n"),
    ],
)
def test_many_sets_of_heads_say_how_long_they_take(orders, words, monkeypatch, request):
    known = known_answer("template copy", 0)
    before = interp.keep_heads(known.model, known.task, orders=orders, n=32, n_random=1)
    monkeypatch.setattr(keep, "MANY_SETS", 2)
    with pytest.warns(UserWarning, match=words) as caught:
        result = interp.keep_heads(known.model, known.task, orders=orders, n=32, n_random=1)
    if not request.config.getoption("--jaxtyping-packages"):  # whose wrappers are callers too
        assert [warning.filename for warning in caught] == [__file__]
    assert result == before
