"""Scores of tasks with several answers, or none, per example."""

import dataclasses

import numpy as np
import pytest
import torch
from counting import Counting, Junk
from planted import Padded
from scoring import per_input

import interp
from hooks import Transformer
from hooks.interventions.replacements import Zero
from interp.core import activations
from interp.core.activations import chunks
from interp.core.randomness import derived_generator
from interp.core.statistics import bootstrap_mean, pooled_interval, proportion_interval
from interp.evaluation import evaluate as evaluation
from interp.evaluation.evaluate import evaluate, held_out, score_batch
from interp.known_answers import uniform_dyck
from interp.tasks import Dyck, Lego

TASKS = {
    "prefixes": Dyck(length=12),
    "complete": Dyck(length=12, words="complete"),
    "late": Dyck(length=12, n_types=3, score_from=5),
}


MORE = {**TASKS, "long": Dyck(length=150), "lego": Lego(n_vars=3)}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_accuracy_is_right_over_total(task):
    model = Transformer(interp.config_for(task, d_model=16), seed=1).eval()
    result = evaluate(model, task, n=150, seed=2)
    batch = task.sample(150, generator=derived_generator(2, "evaluate", "test"), split="test")
    with torch.no_grad():
        logits = model(batch.tokens, **batch.model_inputs())
    right, total = dict.fromkeys(task.outcomes, 0), dict.fromkeys(task.outcomes, 0)
    for row, tokens in enumerate(batch.tokens.tolist()):
        stack = []
        for position, token in enumerate(tokens):
            if token >= 3:
                stack = stack[:-1] if token % 2 == 0 else [*stack, (token - 3) // 2]
            if not stack or token < 3 or position < task.score_from:
                continue
            chances = logits[row, position, 4::2].double().softmax(0)
            hits = {"": int(chances.argmax()) == stack[-1], " 0.8": float(chances[stack[-1]]) > 0.8}
            for ending, hit in hits.items():
                for name in ("all", "hard") if token % 2 == 0 else ("all",):
                    total[name + ending] += 1
                    right[name + ending] += hit
    assert min(total.values()) > 100
    assert result.accuracy.value.tolist() == pytest.approx([right[name] / total[name] for name in task.outcomes])
    assert (result.targets, result.n) == (task.outcomes, 150)
    assert held_out(model, task, batch)[0] == pytest.approx(result.accuracy.value.tolist())
    assert 0 < result.accuracy[0] < 1
    score = score_batch(model, task, batch)
    expected = pooled_interval(*per_input(batch, score.right, score.total))
    np.testing.assert_allclose((result.accuracy.value, result.accuracy.low, result.accuracy.high), expected)


def test_the_interval_of_an_exact_model_counts_words():
    task = Dyck(length=12)
    result = evaluate(uniform_dyck(task).float(), task, n=100)
    assert result.accuracy.value.tolist() == [1.0] * 4
    assert result.accuracy.low == pytest.approx(proportion_interval(np.array([100]), 100)[0].item(), abs=0.01)


@pytest.mark.parametrize("task", MORE.values(), ids=MORE)
def test_the_chunk_size_does_not_change_a_score(task, monkeypatch):
    family = {"d_model": 16, "n_layers": 1, "n_heads": 1}
    model = Transformer(interp.config_for(task, **family), seed=1)
    batch = task.sample(41, generator=torch.Generator().manual_seed(0))
    n_by_pass, forward = [], Transformer.forward
    monkeypatch.setattr(
        Transformer, "forward", lambda self, t, *a, **k: n_by_pass.append(len(t)) or forward(self, t, *a, **k)
    )
    score = score_batch(model, task, batch)
    for n_tokens, sizes in ((16 * task.n_ctx, [16, 16, 9]), (1, [1] * 41)):
        n_by_pass.clear()
        monkeypatch.setitem(activations.TOKENS_PER_FORWARD_PASS, "cpu", n_tokens)
        score_of_parts = score_batch(model, task, batch)
        assert n_by_pass == sizes
        for name in ("right", "total"):
            assert torch.equal(getattr(score_of_parts, name), getattr(score, name))
        torch.testing.assert_close(score_of_parts.loss, score.loss, rtol=1e-5, atol=1e-4)


def padded(left, right):
    """Sentences with padding on both sides, and a bidirectional model."""
    task = Padded(n_vars=3, left=left, right=right)
    return task, Transformer(interp.config_for(Lego(n_vars=3), n_layers=2, n_heads=2, d_model=16, n_ctx=40), seed=1)


def test_padding_does_not_change_scores():
    results = {}
    for sides in ((0, 0), (3, 2)):
        task, model = padded(*sides)
        batch = task.sample(30, generator=torch.Generator().manual_seed(0))
        results[sides] = score_batch(model, task, batch)
    for name in ("right", "loss", "total"):
        torch.testing.assert_close(getattr(results[3, 2], name), getattr(results[0, 0], name), atol=1e-5, rtol=0)
    result, padded_result = (interp.ablate_heads(*padded(*sides)[::-1], n=100) for sides in results)
    np.testing.assert_allclose(result.drop, padded_result.drop, atol=1e-6)
    np.testing.assert_allclose(result.loss_rise, padded_result.loss_rise, atol=1e-5)


def test_chunks_of_long_sequences_are_smaller(monkeypatch):
    sizes = []

    def watch(batch, size):
        sizes.append(size)
        return chunks(batch, size)

    monkeypatch.setattr(evaluation, "chunks", watch)
    for length in (3, 63, 255, 40_000):
        task = Dyck(length=length)
        model = Transformer(interp.config_for(task, "dyck_gpt", d_model=4, d_mlp=4, n_layers=1))
        monkeypatch.setattr(Transformer, "forward", lambda self, t, *a, **k: torch.zeros(*t.shape, self.cfg.d_vocab))
        score_batch(model, task, task.sample(2, generator=torch.Generator().manual_seed(0)))
    assert sizes == [512, 64, 16, 1]


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("method", ["zero", "uniform"])
def test_ablation_drop_is_per_answer(task, method):
    model = Transformer(interp.config_for(task, d_model=16, n_heads=2), seed=1).eval()
    sets = {"one": [(1, 1)], "two": [(0, 0), (1, 0)]}
    result = interp.ablate_heads(model, task, heads=sets, method=method, n=150, n_random=2)  # more than one part
    batch = task.sample(150, generator=derived_generator(0, "ablate"), split="test")
    clean = score_batch(model, task, batch)
    total = clean.total.sum(0)
    assert total.min() > 100
    assert result.clean.tolist() == pytest.approx((clean.right.sum(0) / total).tolist())
    past = torch.ones(batch.tokens.shape[1], batch.tokens.shape[1]).tril()
    allowed = past * (1 if batch.attention_mask is None else batch.attention_mask[:, None, :])
    rows = allowed / allowed.sum(-1, keepdim=True)
    for index, heads in enumerate(sets.values()):

        def to_uniform(pattern, hook, heads=heads):
            pattern = pattern.clone()
            for layer, head in heads:
                if layer == hook.layer():
                    pattern[:, head] = rows
            return pattern

        if method == "zero":
            hooks = [(f"blocks.{layer}.attn.hook_z", Zero().hook(head=head)) for layer, head in heads]
        else:
            hooks = [(f"blocks.{layer}.attn.hook_pattern", to_uniform) for layer in {layer for layer, _ in heads}]
        with torch.no_grad():
            edited = model.run_with_hooks(batch.tokens, fwd_hooks=hooks, **batch.model_inputs())
        score = task.score(edited, batch)
        drop = (clean.right - score.right).sum(0) / total
        rise = (score.loss - clean.loss).sum(0) / total
        assert result.drop.value[index].tolist() == pytest.approx(drop.tolist(), abs=1e-6)
        assert result.loss_rise.value[index].tolist() == pytest.approx(rise.tolist(), abs=1e-4)
        if method == "zero":
            assert float(rise.abs().max()) > 1e-3
        lost = torch.stack([clean.right - score.right, score.loss - clean.loss], 1)
        lost, weight = per_input(batch, lost, clean.total)
        mean, low, high = bootstrap_mean(lost, seed=0, weight=weight)
        # Accuracies have exact intervals of losses and gains, which are wider than those of resamples
        assert (result.drop.low[index] <= np.maximum(low[0], result.clean - 1) + 1e-6).all()
        assert (result.drop.high[index] >= np.minimum(high[0], result.clean) - 1e-6).all()
        assert (result.drop.high[index] - result.drop.low[index] < 2.5 * (high[0] - low[0]) + 0.1).all()
        assert result.loss_rise.low[index] == pytest.approx(low[1], abs=1e-4)
        assert result.loss_rise.high[index] == pytest.approx(high[1], abs=1e-4)
        assert result.drop.value[index] == pytest.approx(mean[0], abs=1e-6)


def test_the_drop_of_random_sets_is_per_answer():
    """With two heads, a random set is the other head, so its drop is that of ablating the other head."""
    task = dataclasses.replace(TASKS["prefixes"], score_from=3)
    model = Transformer(interp.config_for(task, d_model=16, n_layers=1, n_heads=2), seed=1)
    result = interp.ablate_heads(model, task, heads={"first": [(0, 0)]}, n=60, n_random=3)
    second = interp.ablate_heads(model, task, heads={"second": [(0, 1)]}, n=60)
    np.testing.assert_allclose(result.random_drop, np.broadcast_to(second.drop[:, None], (1, 3, 4)), atol=1e-12)
    assert np.abs(second.drop).max() > 0


@pytest.fixture
def shallow():
    task = Dyck(max_depth=1, length=6)
    return task, Transformer(interp.config_for(task, d_model=8, d_mlp=4))


def test_an_outcome_without_answers_has_no_accuracy(shallow):
    task, model = shallow
    result = evaluate(model, task, n=20)
    assert (
        np.isnan([result.accuracy.value, result.accuracy.low, result.accuracy.high]).tolist() == [[True, False] * 2] * 3
    )
    assert "hard  nan" in str(result)
    assert "<svg" in result._repr_html_()


def test_an_outcome_without_answers_has_no_drop(shallow):
    task, model = shallow
    result = interp.ablate_heads(model, task, n=20)
    assert np.isnan(result.drop[:, 0]).all()


def test_a_run_with_an_outcome_without_answers_has_a_table(shallow):
    task, model = shallow
    settings = interp.TrainSettings(steps=1, batch_size=2, eval_every=1, n_eval=10)
    table = interp.train(model, task, settings).to_dataframe()
    assert table["accuracy"].isna().tolist() == table["low"].isna().tolist() == [True, False, True, False]


def test_targets_that_some_examples_do_not_have_are_scored_in_the_others(generator):
    task, junk = Counting(length=5, shortest=2), Junk(length=5, shortest=2)
    model = Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2, init="fan_in")).eval()
    result, same = evaluate(model, task, n=200), evaluate(model, junk, n=200)
    assert result.to_dataframe().equals(same.to_dataframe())
    batch = task.sample(200, generator=derived_generator(0, "evaluate", "test"), split="test")
    with torch.no_grad():
        logits = model(batch.tokens, attention_mask=batch.attention_mask)
    for target in range(5):
        has_target = batch.present[:, target]
        right = int((logits.argmax(-1) == batch.labels)[has_target, target].sum())
        assert result.accuracy.value[target] == right / int(has_target.sum())
        hits = (logits.argmax(-1) == batch.labels)[:, target] & has_target
        _, low, high = pooled_interval(*per_input(batch, hits[:, None], has_target[:, None]))
        assert (result.accuracy.low[target], result.accuracy.high[target]) == pytest.approx(
            (float(low[0]), float(high[0]))
        )
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.labels, reduction="none")
    mean = [float(loss[batch.present[:, target], target].mean()) for target in range(5)]
    assert held_out(model, task, batch)[1] == pytest.approx(mean, rel=1e-5)


def test_a_target_that_no_example_has_has_no_accuracy(generator):
    task = Counting(length=5, shortest=2)
    model = Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2)).eval()
    batch = task.sample(50, generator=generator)
    batch = dataclasses.replace(batch, target_mask=batch.present & (torch.arange(5) < 4))
    accuracy, loss = held_out(model, task, batch)
    assert np.isfinite([accuracy[:4], loss[:4]]).all()
    assert np.isnan([accuracy[4], loss[4]]).all()
