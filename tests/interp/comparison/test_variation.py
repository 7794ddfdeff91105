"""How far apart models look: known distances, closed forms, loops, and intervals that hold what they say."""

import json
import re
from itertools import combinations

import numpy as np
import pytest
import torch
from planted import Padded, Planted

import interp
from hooks import Transformer
from interp.comparison import baselines as random_rows
from interp.comparison.distances import bootstrap_pairs, pair_distances
from interp.comparison.variation import attention_variation
from interp.tasks import Dyck, Lego

TASK = Dyck()
CAUSAL = np.arange(1, 18)


def seeds(n, task=TASK, **sizes):
    return [Transformer(interp.config_for(task, **sizes), seed=seed) for seed in range(n)]


def onto(key):
    """A pattern with all weight on one key (the query itself before that)."""

    def make(batch, allowed):
        pattern = torch.zeros(allowed.shape)
        pattern[..., key] = 1
        return torch.where(allowed[..., key, None], pattern, torch.eye(allowed.shape[-1]))

    return make


def flat_rows(rng, n, length=17):
    weights = rng.exponential(size=(n, 1, length, length)) * np.tri(length)
    return weights / weights.sum(-1, keepdims=True)


def by_loops(patterns):
    """Squared Frobenius distance of every two models, written out."""
    models, heads = patterns.shape[:2]
    found = np.zeros((heads, models, models))
    for head in range(heads):
        for i in range(models):
            for j in range(models):
                found[head, i, j] = ((patterns[i, head] - patterns[j, head]) ** 2).sum()
    return found


# planted


def test_models_that_all_look_evenly_do_not_vary():
    models = [Transformer(interp.config_for(TASK, "dyck_uniform"), seed=seed) for seed in range(4)]
    result = attention_variation(models, TASK)
    assert result.variation.tolist() == result.low.tolist() == result.high.tolist() == [0, 0]
    np.testing.assert_allclose(result.relative_entropy, 1, atol=1e-6)
    np.testing.assert_allclose(result.baseline[-1], 0, atol=1e-5)  # own rows shuffled: uniform stays uniform
    np.testing.assert_allclose(result.entropy, np.log(CAUSAL[1:]).mean(), atol=1e-6)


def test_a_planted_distance_is_found_in_its_layer_and_head_and_nowhere_else():
    cfg = interp.config_for(TASK, "dyck_uniform", n_heads=2)
    plans = [{(1, 0): onto(0)}, {(1, 0): onto(0)}, {(1, 0): onto(2)}]
    result = attention_variation([Planted(cfg, plan, seed=i) for i, plan in enumerate(plans)], TASK)
    # of 17 rows the first is alone with itself; the other 16 put their weight on another key, which is 2 apart
    far = 2 * 16
    np.testing.assert_allclose(result.by_head, [[0, 0], [2 / 3 * far, 0]], atol=1e-5)
    np.testing.assert_allclose(result.variation, [0, far / 3], atol=1e-5)
    np.testing.assert_allclose(result.distance[1], [[0, 0, far / 2], [0, 0, far / 2], [far / 2, far / 2, 0]], atol=1e-5)
    assert (result.distance[0] < 1e-9).all()
    assert result.n == 3
    assert result.n_pairs == 3


def test_entropy_is_told_of_each_model_and_only_where_there_is_a_choice():
    cfg = interp.config_for(TASK, "dyck_uniform")
    result = attention_variation([Planted(cfg, {(0, 0): onto(0)}), Transformer(cfg, seed=1)], TASK)
    np.testing.assert_allclose(result.relative_of_model, [[0, 1], [1, 1]], atol=1e-6)
    np.testing.assert_allclose(result.relative_entropy, [0.5, 1], atol=1e-6)


# null and closed forms


@pytest.mark.parametrize("sizes", [CAUSAL, np.full(9, 9), np.array([0, 3, 0, 5])], ids=["causal", "square", "padded"])
def test_closed_forms_are_what_drawing_gives(sizes):
    def one_hot(rng, shape):
        weights = np.zeros(shape)
        starts = np.cumsum(sizes[sizes > 0]) - sizes[sizes > 0]
        chosen = starts + (rng.random((*shape[:-1], len(starts))) * sizes[sizes > 0]).astype(int)
        np.put_along_axis(weights, chosen, 1, -1)
        return weights

    flat = random_rows.DRAWN["flat simplex, simulated"]
    for draw, exact in ((flat, random_rows.flat_simplex_distance), (one_hot, random_rows.one_hot_distance)):
        mean, error = random_rows.simulated_distance(draw, sizes, n=4000, generator=np.random.default_rng(0))
        assert 0 < error < 0.02 * mean
        assert abs(mean - exact(sizes)) < 4 * error


def test_the_formulas_are_the_papers_and_the_plain_ones():
    assert random_rows.flat_simplex_distance(CAUSAL) == pytest.approx(sum(2 * (i - 1) / (i * (i + 1)) for i in CAUSAL))
    assert random_rows.flat_simplex_distance(CAUSAL) == pytest.approx(3.10, abs=0.005)
    assert random_rows.one_hot_distance(CAUSAL) == pytest.approx(sum(2 * (1 - 1 / i) for i in CAUSAL))


def test_a_simulation_holds_when_drawn_in_parts(monkeypatch):
    flat = random_rows.DRAWN["flat simplex, simulated"]
    monkeypatch.setattr(random_rows, "MAX_DRAWN", 700)
    mean, error = random_rows.simulated_distance(flat, CAUSAL, n=2001, generator=np.random.default_rng(0))
    assert abs(mean - random_rows.flat_simplex_distance(CAUSAL)) < 4 * error


def test_shuffling_keys_gives_what_the_closed_form_says():
    rng = np.random.default_rng(0)
    patterns = flat_rows(rng, 3, length=7) ** 3
    patterns /= patterns.sum(-1, keepdims=True)
    exact = random_rows.shuffled_distance(torch.from_numpy(patterns), np.arange(1, 8))
    drawn = []
    for _ in range(1500):
        shuffled = patterns.copy()
        for model in shuffled[:, 0]:
            for query in range(7):
                rng.shuffle(model[query, : query + 1])
        drawn.append(pair_distances(torch.from_numpy(shuffled))[0].sum() / 6)
    assert abs(np.mean(drawn) - exact[0]) < 4 * np.std(drawn) / 1500**0.5
    assert exact[0] > 1.5 * random_rows.flat_simplex_distance(np.arange(1, 8))  # there was something to find


def test_flat_random_patterns_are_as_far_apart_as_the_baseline():
    distance = pair_distances(torch.from_numpy(flat_rows(np.random.default_rng(0), 150)))[0]
    upper = distance[np.triu_indices(150, 1)]
    variation = 2 * flat_rows(np.random.default_rng(1), 4000).var(0).sum()
    assert upper.mean() == pytest.approx(random_rows.flat_simplex_distance(CAUSAL), rel=0.02)
    assert variation == pytest.approx(random_rows.flat_simplex_distance(CAUSAL), rel=0.01)


def test_every_baseline_of_a_result_is_the_one_of_its_name():
    result = attention_variation(seeds(3), TASK, n_baseline=3000)
    values = dict(
        zip(result.baselines, zip(result.baseline[:, 0], result.baseline_error[:, 0], strict=True), strict=True)
    )
    assert values["flat simplex"] == (pytest.approx(random_rows.flat_simplex_distance(CAUSAL)), 0)
    assert values["flat simplex, unmasked"] == (pytest.approx(2 * 16 / 18), 0)
    assert values["one-hot rows"] == (pytest.approx(random_rows.one_hot_distance(CAUSAL)), 0)
    mean, error = values["flat simplex, simulated"]
    assert 0 < error < 0.03
    assert abs(mean - values["flat simplex"][0]) < 4 * error
    # two independent rows lie 2 (E|x|^2 - 1/n) apart
    rng = np.random.default_rng(0)
    for name, weigh in (("normalised uniforms", rng.uniform), ("softmax of normals", rng.lognormal)):
        weights = [weigh(size=(20_000, n)) for n in CAUSAL]
        norms = [((w / w.sum(1, keepdims=True)) ** 2).sum(1).mean() for w in weights]
        assert abs(values[name][0] - 2 * (np.array(norms) - 1 / CAUSAL).sum()) < 5 * values[name][1]
    np.testing.assert_allclose(result.ratio_to(), result.variation / values["flat simplex"][0])
    np.testing.assert_allclose(result.ratio_to("one-hot rows"), result.variation / values["one-hot rows"][0])


# independent computation


@pytest.mark.parametrize("block", [1, 50, 2_000_000])
def test_one_gram_matrix_is_the_double_loop(block, monkeypatch):
    monkeypatch.setattr("interp.comparison.distances.BLOCK", block)
    full = torch.rand(7, 3, 11, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    one_looks_ahead = full.tril()
    one_looks_ahead[4, 1, 2, 9] = 0.5
    for patterns in (full, full.tril(), one_looks_ahead, full[:, :, :4], full[..., :4]):
        before = patterns.clone()
        np.testing.assert_allclose(pair_distances(patterns), by_loops(patterns.numpy()), atol=1e-10, rtol=0)
        assert torch.equal(patterns, before)


def test_models_that_hardly_differ_are_told_apart():
    generator = torch.Generator().manual_seed(0)
    shared = torch.rand(1, 1, 40, 40, dtype=torch.float64, generator=generator).softmax(-1)
    nudges = 1e-7 * torch.randn(5, 1, 40, 40, dtype=torch.float64, generator=generator)
    np.testing.assert_allclose(
        pair_distances(100 * shared + nudges), by_loops((100 * shared + nudges).numpy()), rtol=1e-6
    )


@pytest.mark.parametrize("sizes", [{}, {"n_heads": 2, "n_layers": 3}], ids=["one head", "two heads"])
def test_a_result_is_the_loops_over_caches(sizes):
    models, prefixes = seeds(5, **sizes), ["(([]", "[]", TASK.staircase()]
    result = attention_variation(models, TASK, prefixes=prefixes)
    cfg = models[0].cfg
    wanted = np.zeros((len(prefixes), cfg.n_layers, cfg.n_heads, 5, 5))
    for index, prefix in enumerate(prefixes):
        tokens = TASK.read(prefix).tokens
        caches = [model.run_with_cache(tokens)[1] for model in models]
        for layer in range(cfg.n_layers):
            patterns = np.stack([cache["pattern", layer][0].detach().double().numpy() for cache in caches])
            wanted[index, layer] = by_loops(patterns)
    np.testing.assert_allclose(result.distance, wanted.mean((0, 2)), atol=1e-10, rtol=0)
    pairs = wanted[..., *np.triu_indices(5, 1)].mean(-1)
    np.testing.assert_allclose(result.by_prefix, pairs.mean(2), atol=1e-10)
    np.testing.assert_allclose(result.by_head, pairs.mean(0), atol=1e-10)
    np.testing.assert_allclose(result.variation, pairs.mean((0, 2)), atol=1e-10)
    assert result.n_tokens.tolist() == [5, 3, 17]
    assert result.prefixes == tuple(prefixes)
    np.testing.assert_allclose(
        result.baseline_by_prefix[0, :, 0], [random_rows.flat_simplex_distance(np.arange(1, n + 1)) for n in (5, 3, 17)]
    )
    np.testing.assert_allclose(result.baseline, result.baseline_by_prefix.mean(1))


# invariance


def test_the_order_of_models_does_not_matter():
    models = seeds(4)
    one, other = attention_variation(models, TASK), attention_variation([models[i] for i in (2, 0, 3, 1)], TASK)
    np.testing.assert_allclose(one.variation, other.variation)
    np.testing.assert_allclose(one.distance[:, [2, 0, 3, 1]][:, :, [2, 0, 3, 1]], other.distance, atol=1e-12)


def test_what_is_laid_on_all_patterns_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    patterns, shift = (torch.rand(n, 2, 6, 6, dtype=torch.float64, generator=generator) for n in (4, 1))
    np.testing.assert_allclose(pair_distances(patterns), pair_distances(patterns + shift), atol=1e-12)


def test_modes_gradients_and_seeds():
    models = seeds(3)
    for model in models:
        model.train()
    first, again = (attention_variation(models, TASK, n_sampled=2, seed=1) for _ in range(2))
    other = attention_variation(models, TASK, n_sampled=2, seed=2)
    assert not any(model.training for model in models)
    assert all(parameter.grad is None for model in models for parameter in model.parameters())
    assert str(first) == str(again)
    assert (first.baseline == again.baseline).all()
    assert first.prefixes == again.prefixes != other.prefixes


# what models are shown


def test_the_probe_prefix_is_the_default_and_sampled_ones_are_added():
    models = seeds(2)
    assert attention_variation(models, TASK).prefixes == (TASK.staircase(),)
    assert len(attention_variation(models, TASK, n_sampled=3).prefixes) == 3
    both = attention_variation(models, TASK, prefixes="(([", n_sampled=2)
    assert both.prefixes[0] == "((["
    assert both.n_tokens.tolist() == [4, 29, 29]


def test_a_sampled_example_is_the_same_as_its_text():
    models = seeds(3)
    sampled = attention_variation(models, TASK, n_sampled=2)
    written = attention_variation(models, TASK, prefixes=sampled.prefixes)
    np.testing.assert_allclose(sampled.by_prefix, written.by_prefix, rtol=1e-4)
    np.testing.assert_allclose(sampled.entropy, written.entropy, rtol=1e-5)


def test_padding_counts_nowhere():
    task = Dyck(words="complete", length=12)
    models = seeds(3, task)
    sampled = attention_variation(models, task, n_sampled=6)
    assert len(set(sampled.n_tokens.tolist())) > 1  # there was padding
    written = attention_variation(models, task, prefixes=sampled.prefixes)
    np.testing.assert_allclose(sampled.by_prefix, written.by_prefix, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(sampled.baseline_by_prefix, written.baseline_by_prefix, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(sampled.relative_entropy, written.relative_entropy, rtol=1e-4)


def test_other_tasks_and_runs(tiny):
    model, other = seeds(2, tiny)
    result = attention_variation([interp.training.TrainingRun(model=model, history=(), manifest={}), other], tiny)
    square = np.full(tiny.n_ctx, tiny.n_ctx)
    assert result.baseline[0, 0] == pytest.approx(random_rows.flat_simplex_distance(square))
    assert result.baseline[0, 0] == result.baseline[2, 0]  # nothing is masked anyway
    again = attention_variation([model, other], tiny, prefixes=result.prefixes)
    np.testing.assert_allclose(result.variation, again.variation)


# intervals


def coverage(draw, truth, n, repeats=200):
    """How often intervals over models, and over pairs, hold the truth."""
    over_models = over_pairs = 0
    rng = np.random.default_rng(0)
    for repeat in range(repeats):
        distance = pair_distances(torch.from_numpy(draw(rng, n)))[0]
        _, low, high = bootstrap_pairs(distance, seed=repeat, resamples=500)
        over_models += low <= truth <= high
        pairs = distance[np.triu_indices(n, 1)]
        low, high = np.quantile(rng.choice(pairs, (500, len(pairs))).mean(1), [0.025, 0.975])
        over_pairs += low <= truth <= high
    return over_models / repeats, over_pairs / repeats


def test_the_interval_holds_the_truth_as_often_as_it_says_and_one_over_pairs_does_not():
    over_models, over_pairs = coverage(flat_rows, random_rows.flat_simplex_distance(CAUSAL), 15)
    band = 3 * (0.95 * 0.05 / 200) ** 0.5
    assert 0.95 - band - 0.02 <= over_models <= 0.95 + band  # percentile intervals are a little short
    assert over_pairs < 0.7


def test_the_bootstrap_is_the_one_written_out():
    rng = np.random.default_rng(0)
    distance = pair_distances(torch.from_numpy(flat_rows(rng, 6)))
    mean, low, high = bootstrap_pairs(distance, seed=3, resamples=200)
    figures = []
    for counts in np.random.default_rng(3).multinomial(6, np.full(6, 1 / 6), size=200):
        drawn = np.repeat(np.arange(6), counts)
        pairs = [distance[0, i, j] for i, j in combinations(drawn, 2) if i != j]
        figures.append(np.mean(pairs))
    np.testing.assert_allclose([low[0], high[0]], np.quantile(figures, [0.025, 0.975]))
    np.testing.assert_allclose(mean[0], distance[0][np.triu_indices(6, 1)].mean())


def test_resamples_of_one_model_are_passed_over_and_two_models_have_no_interval():
    three = 1.0 - np.eye(3)
    assert [float(part) for part in bootstrap_pairs(three, seed=0)] == [1, 1, 1]
    mean, low, high = bootstrap_pairs(1.0 - np.eye(2), seed=0)
    assert mean == 1
    assert np.isnan(low)
    assert np.isnan(high)


# what is said


def test_a_result_prints_tabulates_plots_saves_and_reports(tmp_path):
    for n in (2, 4):
        result = attention_variation(seeds(n), TASK)
        text = str(result)
        assert f"{n} models, {n * (n - 1) // 2} pairs, 1 prefix of 17 tokens" in text
        assert ("no interval" in text) == (n == 2)
        frame = result.to_dataframe()
        assert frame["variation"].tolist() == result.variation.tolist()
        assert set(result.baselines) < set(frame.columns)
        chart = result.plot().to_json()
        assert "dashed: flat simplex" in chart
        assert "null" not in json.dumps(json.loads(chart)["datasets"])
        html = result._repr_html_()
        assert "<svg" in html
        assert "nan" not in re.sub("<[^>]*>", " ", html).lower().split()
        result.save(tmp_path / "variation.json")
        again = interp.comparison.VariationResult.load(tmp_path / "variation.json")
        assert str(again) == text
        np.testing.assert_array_equal(again.distance, result.distance)
        np.testing.assert_array_equal(again.low, result.low)
        page = interp.report([result], tmp_path / "page.html", title="t").read_text(encoding="utf-8")
        assert "How far apart models look" in page
        assert "[nan" not in page
        assert f"{result.variation[1]:.3f}" in page


def error(match, models, task=TASK, **settings):
    with pytest.raises(ValueError, match=match):
        attention_variation(models, task, **settings)


def test_errors_say_what_and_what_to_do(as_a_user):
    two = seeds(2)
    error(r"models is a single model.*list of two or more", two[0])
    error(r"models holds 1; .*two or more\. Train another seed", two[:1])
    error(r"models holds 0", [])
    error(r"models\[2\] is models\[0\] again.*Pass each model once", [*two, two[0]])
    error(r"models\[1\] is a str; pass a hooks.Transformer or a TrainingRun", [two[0], "run"])
    deep = seeds(1, n_layers=3)
    error(r"models\[2\] has 3 layers, 1 heads, causal attention, models\[0\] has 2 layers.*Compare", [*two, *deep])
    error(r"models\[1\] has 2 layers, 2 heads", [two[0], *seeds(1, n_heads=2)])
    both_ways = Transformer(interp.config_for(TASK, attention="bidirectional"))
    error(r"models\[1\] has .* bidirectional attention", [two[0], both_ways])
    error(r"models\[0\] knows 7 tokens, the task has 9; pass the task", two, Dyck(n_types=3))
    error(r"prefixes is empty and n_sampled 0.*Give one", two, prefixes=[])
    error(r"prefixes holds '', a single token", two, prefixes=["(", ""])
    error(r"text is not in the language: at bracket 1", two, prefixes="(]")
    error(r"n_sampled is -1", two, n_sampled=-1)
    error(r"n_baseline 1 and", two, n_baseline=1)
    error(r"resamples 0; choose", two, resamples=0)
    with torch.no_grad():
        two[1].blocks[0].attn.W_Q[:] = torch.nan
        for parameter in two[1].parameters():
            parameter.fill_(torch.nan)
    error(r"models\[1\] has an attention pattern that is not finite\. Did its training diverge", two)
    padded = Padded(n_vars=3)
    error(r"the sentence has 1 tokens", seeds(2, Lego(n_vars=3)), Lego(n_vars=3), prefixes="a")
    error(r"clauses|tokens", seeds(2, padded), padded, prefixes="a")
    with pytest.raises(ValueError, match=r"baseline is 'flat'; choose one of: flat simplex; "):
        attention_variation(seeds(2), TASK).ratio_to("flat")
