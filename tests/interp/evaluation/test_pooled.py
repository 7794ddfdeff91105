"""Examples that are asked several times, or never: pooled shares, their intervals, and what the verbs make of them."""

import dataclasses

import numpy as np
import pytest
import torch
from planted import Padded
from scipy import stats

import interp
from hooks import Transformer
from hooks.interventions.replacements import Zero
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
MISSING = 5
"""Standard deviations of every simulation's band: false alarm below one in a million."""


def clustered(rng, runs, samples, share, within):
    """Beta-binomial answers, (sample, run): each sample has its own rate; `within` is how alike its answers are."""
    asked = rng.integers(4, 17, (samples, runs))
    spread = 1 / within - 1
    rate = rng.beta(share * spread, (1 - share) * spread, (samples, runs))
    return rng.binomial(asked, rate).astype(float), asked.astype(float)


def coverage(low, high, share):
    return ((low <= share) & (share <= high)).mean()


def at_least(level, draws):
    return level - MISSING * (level * (1 - level) / draws) ** 0.5


# one answer per sample


@pytest.mark.parametrize("n", [1, 2, 7, 60, 1000])
def test_asked_once_it_is_the_exact_interval(n):
    counts = np.unique(np.linspace(0, n, 9).astype(int))
    right = (np.arange(n)[:, None] < counts).astype(float)
    share, low, high = pooled_interval(right, np.ones_like(right))
    below, above = proportion_interval(counts, n)
    np.testing.assert_allclose(share, counts / n, atol=1e-15)
    np.testing.assert_allclose(low, below, atol=1e-10)
    np.testing.assert_allclose(high, above, atol=1e-10)
    assert low[0] == 0
    assert high[-1] == 1


def test_samples_that_were_never_asked_change_nothing():
    right, asked = clustered(np.random.default_rng(0), 1, 50, 0.7, 0.3)
    never = np.zeros((30, 1))
    wider = np.concatenate([never, right, never]), np.concatenate([never, asked, never])
    np.testing.assert_allclose(pooled_interval(*wider), pooled_interval(right, asked), rtol=1e-12)


@pytest.mark.parametrize("answer", [0.0, 1.0])
def test_where_all_answers_agree_samples_are_counted_and_not_answers(answer):
    asked = np.array([[3.0], [0.0], [5.0], [2.0], [9.0]])
    share, low, high = pooled_interval(answer * asked, asked)
    below, above = proportion_interval(np.array([4 * int(answer)]), 4)
    assert (share.item(), low.item(), high.item()) == (answer, pytest.approx(below.item()), pytest.approx(above.item()))


def test_answers_that_repeat_are_one():
    """Each sample asked five times with one answer: what one answer each would give."""
    right = (np.arange(80) < 31).astype(float)[:, None]
    np.testing.assert_allclose(
        pooled_interval(5 * right, np.full_like(right, 5)), pooled_interval(right, np.ones_like(right)), rtol=1e-9
    )


def test_independent_answers_count_almost_one_by_one():
    rng, runs = np.random.default_rng(1), 400
    asked = np.full((300, runs), 8.0)
    right = rng.binomial(8, 0.7, asked.shape).astype(float)
    _, low, high = pooled_interval(right, asked)
    below, above = proportion_interval(right.sum(0).astype(int), 2400)
    assert np.median((high - low) / (above - below)) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("within", [0.2, 0.6])
@pytest.mark.parametrize("share", [0.5, 0.85])
def test_covers_the_truth_where_answers_cluster_and_counting_answers_does_not(share, within):
    runs, samples = 4000, 200
    right, asked = clustered(np.random.default_rng(2), runs, samples, share, within)
    pooled, low, high = pooled_interval(right, asked)
    # the variance between samples is estimated: a normal's width with a t distribution covers so much
    promised = 2 * stats.t.cdf(stats.norm.ppf(0.975) * ((samples - 1) / samples) ** 0.5, samples - 1) - 1
    assert coverage(low, high, share) > at_least(promised, runs)
    assert coverage(low, high, share) < 0.97  # and not by covering everything
    naive = proportion_interval(right.sum(0).astype(int), asked.sum(0).astype(int))
    assert coverage(*naive, share) < 0.85
    assert abs(pooled.mean() - share) < MISSING * pooled.std() / runs**0.5


def test_nobody_asked_is_not_a_number():
    right, asked = clustered(np.random.default_rng(3), 3, 20, 0.7, 0.3)
    right[:, 1] = asked[:, 1] = 0
    found = np.array(pooled_interval(right, asked))
    assert np.isnan(found[:, 1]).all()
    assert np.isfinite(found[:, [0, 2]]).all()


def test_many_cells_at_once_are_each_by_itself():
    rng = np.random.default_rng(4)
    right, asked = clustered(rng, 12, 40, 0.6, 0.3)
    right[:, 3], right[:, 5] = 0, asked[:, 5]
    cells = right.reshape(40, 3, 4), asked.reshape(40, 3, 4)
    found = pooled_interval(*cells)
    for row in range(3):
        for column in range(4):
            one = pooled_interval(*(part[:, row, column] for part in cells))
            np.testing.assert_allclose([part[row, column] for part in found], one, rtol=1e-12)


def test_the_order_of_samples_does_not_matter_and_the_interval_holds_the_share():
    rng = np.random.default_rng(5)
    right, asked = clustered(rng, 100, 30, 0.9, 0.5)
    order = rng.permutation(30)
    share, low, high = pooled_interval(right, asked)
    assert ((low <= share) & (share <= high) & (low >= 0) & (high <= 1)).all()
    np.testing.assert_allclose(pooled_interval(right[order], asked[order]), (share, low, high), rtol=1e-9)


# bootstrap of answers per sample


def test_a_weight_of_ones_is_no_weight():
    values = np.random.default_rng(6).normal(size=(40, 2, 3))
    plain = bootstrap_mean(values, seed=0)
    for weight in (np.ones(40), np.ones((40, 3)), np.ones((40, 2, 3))):
        np.testing.assert_allclose(bootstrap_mean(values, seed=0, weight=weight), plain, rtol=1e-12)


def test_a_weighted_bootstrap_is_a_ratio_of_sums_in_every_resample():
    rng = np.random.default_rng(7)
    weight = rng.integers(0, 6, (25, 3)).astype(float)
    values = rng.normal(size=(25, 4, 2, 3)) * weight[:, None, None]
    mean, low, high = bootstrap_mean(values, seed=3, weight=weight, resamples=200, confidence=0.8)
    counts = np.random.default_rng(3).multinomial(25, np.full(25, 1 / 25), size=200)
    for set_, measure, part in np.ndindex(4, 2, 3):
        column, asked = values[:, set_, measure, part], weight[:, part]
        assert mean[set_, measure, part] == pytest.approx(column.sum() / asked.sum())
        drawn = [sum(n * x for n, x in zip(times, column, strict=True)) for times in counts]
        trials = [sum(n * x for n, x in zip(times, asked, strict=True)) for times in counts]
        ends = np.quantile(np.array(drawn) / np.array(trials), [0.1, 0.9])
        assert (low[set_, measure, part], high[set_, measure, part]) == pytest.approx(tuple(ends))


def test_a_weighted_bootstrap_covers_a_clustered_share():
    runs, samples, share = 1500, 200, 0.7
    right, asked = clustered(np.random.default_rng(8), runs, samples, share, 0.4)
    _, low, high = bootstrap_mean(right, seed=0, weight=asked, resamples=500)
    assert at_least(0.94, runs) < coverage(low, high, share) < 0.97


# evaluation


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_evaluation_is_right_over_asked(task):
    model = Transformer(interp.config_for(task, d_model=16), seed=1).eval()
    result = evaluate(model, task, n=150, seed=2)
    batch = task.sample(150, generator=derived_generator(2, "evaluate", "test"), split="test")
    with torch.no_grad():
        logits = model(batch.tokens, **batch.model_inputs())
    right, asked = dict.fromkeys(task.outcomes, 0), dict.fromkeys(task.outcomes, 0)
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
                    asked[name + ending] += 1
                    right[name + ending] += hit
    assert min(asked.values()) > 100
    assert result.accuracy.tolist() == pytest.approx([right[name] / asked[name] for name in task.outcomes])
    assert (result.targets, result.n) == (task.outcomes, 150)
    assert held_out(model, task, batch)[0] == pytest.approx(result.accuracy.tolist())
    assert 0 < result.accuracy[0] < 1
    score = score_batch(model, task, batch)
    expected = pooled_interval(score.right.double().numpy(), score.total.double().numpy())
    np.testing.assert_allclose((result.accuracy, result.low, result.high), expected)


def test_the_exact_model_is_right_and_its_interval_counts_words():
    task = Dyck(length=12)
    result = evaluate(uniform_dyck(task).float(), task, n=100)
    assert result.accuracy.tolist() == [1.0] * 4
    assert result.low == pytest.approx(proportion_interval(np.array([100]), 100)[0].item(), abs=0.01)


@pytest.mark.parametrize("task", MORE.values(), ids=MORE)
def test_parts_do_not_change_a_score(task, monkeypatch):
    family = {"d_model": 16, "n_layers": 1, "n_heads": 1}
    model = Transformer(interp.config_for(task, **family), seed=1)
    batch = task.sample(41, generator=torch.Generator().manual_seed(0))
    seen, forward = [], Transformer.forward
    monkeypatch.setattr(
        Transformer, "forward", lambda self, t, *a, **k: seen.append(len(t)) or forward(self, t, *a, **k)
    )
    whole = score_batch(model, task, batch)
    assert seen == [41]
    for chunk, sizes in ((16, {False: [16, 16, 9], True: [6] * 6 + [5]}), (1, {False: [1] * 41, True: [1] * 41})):
        seen.clear()
        monkeypatch.setattr(evaluation, "CHUNK", chunk)
        parts = score_batch(model, task, batch)
        assert seen == sizes[task.n_ctx > evaluation.SHORT]
        for name in ("right", "total"):
            assert torch.equal(getattr(parts, name), getattr(whole, name))
        torch.testing.assert_close(parts.loss, whole.loss, rtol=1e-5, atol=1e-4)


def padded(left, right):
    """The same sentences with padding around them; an encoder would look at it."""
    task = Padded(n_vars=3, left=left, right=right)
    return task, Transformer(interp.config_for(Lego(n_vars=3), n_layers=2, n_heads=2, d_model=16, n_ctx=40), seed=1)


def test_padding_is_not_looked_at():
    found = {}
    for sides in ((0, 0), (3, 2)):
        task, model = padded(*sides)
        batch = task.sample(30, generator=torch.Generator().manual_seed(0))
        found[sides] = score_batch(model, task, batch)
    for name in ("right", "loss", "total"):
        torch.testing.assert_close(getattr(found[3, 2], name), getattr(found[0, 0], name), atol=1e-5, rtol=0)
    one, other = (interp.ablate_heads(*padded(*sides)[::-1], n=100) for sides in found)
    np.testing.assert_allclose(one.drop, other.drop, atol=1e-6)
    np.testing.assert_allclose(one.loss_rise, other.loss_rise, atol=1e-5)


def test_long_sequences_come_fewer_at_a_time(monkeypatch):
    seen = []

    def watch(batch, size):
        seen.append(size)
        return chunks(batch, size)

    monkeypatch.setattr(evaluation, "chunks", watch)
    for length in (3, 63, 255, 40_000):
        task = Dyck(length=length)
        model = Transformer(interp.config_for(task, "dyck_gpt", d_model=4, d_mlp=4, n_layers=1))
        monkeypatch.setattr(Transformer, "forward", lambda self, t, *a, **k: torch.zeros(*t.shape, self.cfg.d_vocab))
        score_batch(model, task, task.sample(2, generator=torch.Generator().manual_seed(0)))
    assert seen == [512, 512, 128, 1]


# ablation


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("method", ["zero", "uniform"])
def test_ablation_loses_right_answers_per_answer_asked(task, method):
    model = Transformer(interp.config_for(task, d_model=16, n_heads=2), seed=1).eval()
    sets = {"one": [(1, 1)], "two": [(0, 0), (1, 0)]}
    found = interp.ablate_heads(model, task, heads=sets, method=method, n=150, n_random=2)  # more than one part
    batch = task.sample(150, generator=derived_generator(0, "ablate"), split="test")
    clean = score_batch(model, task, batch)
    asked = clean.total.sum(0)
    assert asked.min() > 100
    assert found.clean.tolist() == pytest.approx((clean.right.sum(0) / asked).tolist())
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
        drop = (clean.right - score.right).sum(0) / asked
        rise = (score.loss - clean.loss).sum(0) / asked
        assert found.drop[index].tolist() == pytest.approx(drop.tolist(), abs=1e-6)
        assert found.loss_rise[index].tolist() == pytest.approx(rise.tolist(), abs=1e-4)
        if method == "zero":
            assert float(rise.abs().max()) > 1e-3
        lost = torch.stack([clean.right - score.right, score.loss - clean.loss], 1).double().numpy()
        mean, low, high = bootstrap_mean(lost, seed=0, weight=clean.total.double().numpy())
        assert found.low[index] == pytest.approx(low[0], abs=1e-5)
        assert found.high[index] == pytest.approx(high[0], abs=1e-5)
        assert found.loss_low[index] == pytest.approx(low[1], abs=1e-4)
        assert found.loss_high[index] == pytest.approx(high[1], abs=1e-4)
        assert found.drop[index] == pytest.approx(mean[0], abs=1e-6)


def test_random_sets_lose_per_answer_asked_too():
    """Where the random sets are all the other heads, their loss is that of taking those out by name."""
    task = dataclasses.replace(TASKS["prefixes"], score_from=3)
    model = Transformer(interp.config_for(task, d_model=16, n_layers=1, n_heads=2), seed=1)
    found = interp.ablate_heads(model, task, heads={"first": [(0, 0)]}, n=60, n_random=3)
    other = interp.ablate_heads(model, task, heads={"second": [(0, 1)]}, n=60)
    np.testing.assert_allclose(found.random_drop, np.broadcast_to(other.drop[:, None], (1, 3, 4)), atol=1e-12)
    assert np.abs(other.drop).max() > 0


# an outcome that is never asked: brackets one deep have nothing open after a closer


@pytest.fixture
def shallow():
    task = Dyck(max_depth=1, length=6)
    return task, Transformer(interp.config_for(task, d_model=8, d_mlp=4))


def test_an_outcome_that_is_never_asked_has_no_accuracy(shallow):
    task, model = shallow
    result = evaluate(model, task, n=20)
    assert np.isnan([result.accuracy, result.low, result.high]).tolist() == [[True, False] * 2] * 3
    assert "hard  nan" in str(result)
    assert "<svg" in result._repr_html_()


def test_an_outcome_that_is_never_asked_loses_nothing_that_could_be_told(shallow):
    task, model = shallow
    found = interp.ablate_heads(model, task, n=20)
    assert np.isnan(found.drop[:, 0]).all()


def test_a_run_with_an_outcome_that_is_never_asked_has_a_table(shallow):
    task, model = shallow
    settings = interp.TrainSettings(steps=1, batch_size=2, eval_every=1, n_eval=10)
    table = interp.train(model, task, settings).to_dataframe()
    assert table["accuracy"].isna().tolist() == table["low"].isna().tolist() == [True, False, True, False]
