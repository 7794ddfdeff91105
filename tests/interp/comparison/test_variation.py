"""Attention variation: planted distances, plain loops, invariances, inputs, output formats and errors."""

import json
import re

import numpy as np
import pytest
import torch
from planted import Padded, Planted, distances_by_loops

import interp
from hooks import Transformer
from interp.comparison.baselines import flat_simplex_distance, one_hot_distance
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


def test_uniform_attention_has_no_variation():
    models = [Transformer(interp.config_for(TASK, "dyck_uniform"), seed=seed) for seed in range(4)]
    result = attention_variation(models, TASK)
    variation = result.variation
    assert variation.value.tolist() == variation.low.tolist() == variation.high.tolist() == [0, 0]
    np.testing.assert_allclose(result.relative_entropy, 1, atol=1e-6)
    np.testing.assert_allclose(result.baseline[-1], 0, atol=1e-5)  # own rows shuffled: uniform stays uniform
    np.testing.assert_allclose(result.entropy, np.log(CAUSAL[1:]).mean(), atol=1e-6)


def test_a_planted_distance_is_found_in_its_layer_and_head_and_nowhere_else():
    cfg = interp.config_for(TASK, "dyck_uniform", n_heads=2)
    plans = [{(1, 0): onto(0)}, {(1, 0): onto(0)}, {(1, 0): onto(2)}]
    result = attention_variation([Planted(cfg, plan, seed=i) for i, plan in enumerate(plans)], TASK)
    # the first of 17 rows sees only itself; the other 16 put their weight on another key, at distance 2
    far = 2 * 16
    np.testing.assert_allclose(result.by_head, [[0, 0], [2 / 3 * far, 0]], atol=1e-5)
    np.testing.assert_allclose(result.variation, [0, far / 3], atol=1e-5)
    np.testing.assert_allclose(result.distance[1], [[0, 0, far / 2], [0, 0, far / 2], [far / 2, far / 2, 0]], atol=1e-5)
    assert (result.distance[0] < 1e-9).all()
    assert result.n == 3
    assert result.n_pairs == 3


def test_entropy_is_per_model_and_over_rows_with_several_keys():
    cfg = interp.config_for(TASK, "dyck_uniform")
    result = attention_variation([Planted(cfg, {(0, 0): onto(0)}), Transformer(cfg, seed=1)], TASK)
    np.testing.assert_allclose(result.relative_of_model, [[0, 1], [1, 1]], atol=1e-6)
    np.testing.assert_allclose(result.relative_entropy, [0.5, 1], atol=1e-6)


def test_baselines_of_a_result_match_their_names():
    result = attention_variation(seeds(3), TASK, n_baseline=3000)
    values = dict(
        zip(result.baselines, zip(result.baseline[:, 0], result.baseline_error[:, 0], strict=True), strict=True)
    )
    assert values["flat simplex"] == (pytest.approx(flat_simplex_distance(CAUSAL)), 0)
    assert values["flat simplex, unmasked"] == (pytest.approx(2 * 16 / 18), 0)
    assert values["one-hot rows"] == (pytest.approx(one_hot_distance(CAUSAL)), 0)
    mean, error = values["flat simplex, simulated"]
    assert 0 < error < 0.03
    assert abs(mean - values["flat simplex"][0]) < 4 * error
    # the expected distance between two independent rows is 2 (E|x|^2 - 1/n)
    rng = np.random.default_rng(0)
    for name, weigh in (("normalised uniforms", rng.uniform), ("softmax of normals", rng.lognormal)):
        weights = [weigh(size=(20_000, n)) for n in CAUSAL]
        norms = [((w / w.sum(1, keepdims=True)) ** 2).sum(1).mean() for w in weights]
        assert abs(values[name][0] - 2 * (np.array(norms) - 1 / CAUSAL).sum()) < 5 * values[name][1]
    np.testing.assert_allclose(result.ratio_to(), result.variation / values["flat simplex"][0])
    np.testing.assert_allclose(result.ratio_to("one-hot rows"), result.variation / values["one-hot rows"][0])


@pytest.mark.parametrize("sizes", [{}, {"n_heads": 2, "n_layers": 3}], ids=["one head", "two heads"])
def test_variation_equals_loops_over_caches(sizes):
    models, prefixes = seeds(5, **sizes), ["(([]", "[]", TASK.staircase()]
    result = attention_variation(models, TASK, prefixes=prefixes)
    cfg = models[0].cfg
    wanted = np.zeros((len(prefixes), cfg.n_layers, cfg.n_heads, 5, 5))
    for index, prefix in enumerate(prefixes):
        tokens = TASK.read(prefix).tokens
        caches = [model.run_with_cache(tokens)[1] for model in models]
        for layer in range(cfg.n_layers):
            patterns = np.stack([cache["pattern", layer][0].detach().double().numpy() for cache in caches])
            wanted[index, layer] = distances_by_loops(patterns)
    np.testing.assert_allclose(result.distance, wanted.mean((0, 2)), atol=1e-10, rtol=0)
    pairs = wanted[..., *np.triu_indices(5, 1)].mean(-1)
    np.testing.assert_allclose(result.by_prefix, pairs.mean(2), atol=1e-10)
    np.testing.assert_allclose(result.by_head, pairs.mean(0), atol=1e-10)
    np.testing.assert_allclose(result.variation, pairs.mean((0, 2)), atol=1e-10)
    assert result.n_tokens.tolist() == [5, 3, 17]
    assert result.prefixes == tuple(prefixes)
    np.testing.assert_allclose(
        result.baseline_by_prefix[0, :, 0], [flat_simplex_distance(np.arange(1, n + 1)) for n in (5, 3, 17)]
    )
    np.testing.assert_allclose(result.baseline, result.baseline_by_prefix.mean(1))


def test_the_order_of_models_does_not_matter():
    models = seeds(4)
    one, other = attention_variation(models, TASK), attention_variation([models[i] for i in (2, 0, 3, 1)], TASK)
    np.testing.assert_allclose(one.variation, other.variation)
    np.testing.assert_allclose(one.distance[:, [2, 0, 3, 1]][:, :, [2, 0, 3, 1]], other.distance, atol=1e-12)


def test_modes_gradients_and_seeds():
    models = seeds(3)
    for model in models:
        model.train()
    first, again = (attention_variation(models, TASK, n_sampled=2, seed=1) for _ in range(2))
    other = attention_variation(models, TASK, n_sampled=2, seed=2)
    assert all(model.training for model in models)
    assert all(parameter.grad is None for model in models for parameter in model.parameters())
    assert str(first) == str(again)
    assert (first.baseline == again.baseline).all()
    assert first.prefixes == again.prefixes != other.prefixes


def test_the_probe_prefix_is_the_default_and_samples_are_added():
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


def test_padding_is_ignored():
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
    assert result.baseline[0, 0] == pytest.approx(flat_simplex_distance(square))
    assert result.baseline[0, 0] == result.baseline[2, 0]  # nothing is masked anyway
    again = attention_variation([model, other], tiny, prefixes=result.prefixes)
    np.testing.assert_allclose(result.variation, again.variation)


def test_formats_of_a_result(tmp_path):
    for n in (2, 4):
        result = attention_variation(seeds(n), TASK)
        text = str(result)
        assert f"{n} models, {n * (n - 1) // 2} pairs, 1 prefix of 17 tokens" in text
        assert ("no interval" in text) == (n == 2)
        frame = result.to_dataframe()
        assert frame["variation"].tolist() == result.variation.value.tolist()
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
        np.testing.assert_array_equal(again.variation.low, result.variation.low)
        page = interp.report([result], tmp_path / "page.html", title="t").read_text(encoding="utf-8")
        assert "Attention variation between models" in page
        assert "[nan" not in page
        assert f"{result.variation[1]:.3f}" in page


def error(match, models, task=TASK, **settings):
    with pytest.raises(ValueError, match=match):
        attention_variation(models, task, **settings)


def test_error_texts(as_a_user):
    two = seeds(2)
    error(r"^models is Transformer.*; it must be a list", two[0])
    error(r"models has length 1; .*two or more models\. Train another seed", two[:1])
    error(r"models has length 0", [])
    error(r"models\[2\] is models\[0\] again.*Pass each model once", [*two, two[0]])
    error(r"models\[1\] is 'run'; it must be a TransformerStack or .* or a TrainingRun", [two[0], "run"])
    deep = seeds(1, n_layers=3)
    error(r"models\[2\] has 3 layers, 1 heads, causal attention, models\[0\] has 2 layers.*Compare", [*two, *deep])
    error(r"models\[1\] has 2 layers, 2 heads", [two[0], *seeds(1, n_heads=2)])
    both_ways = Transformer(interp.config_for(TASK, attention="bidirectional"))
    error(r"models\[1\] has .* bidirectional attention", [two[0], both_ways])
    error(r"the task has d_vocab 9, the model 7: it cannot read such sequences", two, Dyck(n_types=3))
    error(r"prefixes is empty and n_sampled is 0.*pass one", two, prefixes=[])
    error(r"prefixes has '', which is a single token", two, prefixes=["(", ""])
    error(r"text is not in the language: at bracket 1", two, prefixes="(]")
    error(r"n_sampled is -1", two, n_sampled=-1)
    error(r"n_baseline 1 and", two, n_baseline=1)
    error(r"resamples 0; choose", two, resamples=0)
    with torch.no_grad():
        for block in two[1].weights:
            block.attention.q.weight *= 1e25
            block.attention.k.weight *= 1e25
    error(r"models\[1\] has an attention pattern that is not finite\. Did its training diverge", two)
    padded = Padded(n_vars=3)
    error(r"the sentence has 1 tokens", seeds(2, Lego(n_vars=3)), Lego(n_vars=3), prefixes="a")
    error(r"clauses|tokens", seeds(2, padded), padded, prefixes="a")
    with pytest.raises(ValueError, match=r"baseline is 'flat'; choose one of: flat simplex; "):
        attention_variation(seeds(2), TASK).ratio_to("flat")


def test_two_models_have_no_interval():
    result = attention_variation(seeds(2), TASK, prefixes=["((", "[("])
    for interval in (result.variation, result.entropy, result.relative_entropy):
        assert np.isnan([interval.low, interval.high]).all()
    assert np.isfinite(result.entropy).all()
    three = attention_variation(seeds(3), TASK, prefixes=["((", "[("])
    assert (three.entropy.low < three.entropy.high).all()
