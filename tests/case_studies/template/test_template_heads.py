"""Heads of template models: dependence on equality, agreement with ablation within models, diagonals of copying."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from case_studies.recipes.template_models import PLAIN
from case_studies.template import heads, reading, solved
from hooks import make_model
from interp import config_for
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.tasks import Template

TASK = Template(templates="aba_abb", train=60)
CLAIMS = {claim.id: claim for claim in heads.CLAIMS}
EVIDENCE = SimpleNamespace(size="quick", seed=0)
SIZES = {"d_model": 32, "n_heads": 4, "d_head": 8, "d_mlp": 16}


def strings(n=80):
    return TASK.sample(n, generator=derived_generator(0, "strings"), split="test").tokens


def uniform(tokens, n_heads):
    pos = tokens.shape[1]
    return torch.full((1, len(tokens), n_heads, pos, pos), 1 / pos)


def test_attention_to_equal_symbols_is_compared_at_the_same_positions():
    tokens = strings()
    equal = (tokens[:, :, None] == tokens[:, None, :]).float()
    patterns = uniform(tokens, 3)
    patterns[0, :, 0] += 0.1 * equal
    patterns[0, :, 1] -= 0.2 * equal
    patterns[0, :, 2, :, 0] = 0.7  # positions alone: the last symbol equals the first one in half of the strings
    more, error = heads.attention_if_equal(patterns, tokens)
    assert more == pytest.approx(np.array([[0.1, -0.2, 0.0]]), abs=1e-6)
    assert error == pytest.approx(np.zeros((1, 3)), abs=1e-6)


def test_its_standard_error_covers_new_strings():
    found = []
    for seed in range(200):
        tokens = TASK.sample(60, generator=derived_generator(seed, "strings"), split="test").tokens
        noise = 0.1 * torch.randn(1, 60, 1, 4, 4, generator=derived_generator(seed, "noise"))
        found.append([part.item() for part in heads.attention_if_equal(noise, tokens)])
    values, errors = np.array(found).T
    assert values.std() == pytest.approx(errors.mean(), rel=0.2)
    assert abs(values.mean()) < 4 * values.std() / len(values) ** 0.5


def test_strings_without_varying_equality_are_refused():
    with pytest.raises(ValueError, match="no two positions hold equal symbols in some strings"):
        heads.attention_if_equal(uniform(strings(), 1), torch.arange(320).reshape(80, 4))


def planted(a):
    """A model whose heads of the first layer have these scalars a."""
    model = make_model(config_for(TASK, "template", qk_identity=True, **SIZES), seed=1)
    with torch.no_grad():
        model.block(0).attention.a.copy_(torch.tensor(a))
    return model


def test_both_signs_of_a_are_found_and_nothing_in_an_untrained_model():
    found = heads.equality_preference(EVIDENCE, planted([0.1, -0.1, 0.0, 0.0]), TASK)
    assert found.signs[0, :2].tolist() == [1, -1]
    assert np.sign(found.preference[0, :2]).tolist() == [1, -1]
    untrained = [make_model(config_for(TASK, "template", **SIZES), seed=seed) for seed in range(8)]
    assert (
        sum(heads.equality_preference(EVIDENCE, model, TASK).signs.any() for model in untrained) <= 2
    )  # 1 of 20 by chance


def test_a_heads_interval_is_corrected_for_all_heads():
    model = planted([0.1, -0.1, 0.0, 0.0])
    found = heads.equality_preference(EVIDENCE, model, TASK)
    n = heads.N_READ["quick"]
    drawn = TASK.sample(n, generator=derived_generator(0, "equality"), split="test")
    with torch.no_grad():
        _, error = heads.attention_if_equal(patterns_on([model], drawn)[:, 0], drawn.tokens)
    assert found.half == pytest.approx(error * stats.t.ppf(1 - 0.025 / 8, n - 2))


def test_solved_models_have_the_accuracy_that_is_asked_for(monkeypatch):
    specs = [
        SimpleNamespace(task=TASK, seed=seed, settings=SimpleNamespace(n_train=n)) for n in (60, 70) for seed in (0, 1)
    ]
    right = dict(zip(map(id, specs), (0.92, 0.5, 0.97, 0.91), strict=True))
    evidence = SimpleNamespace(specs=lambda group: specs, run=lambda spec: SimpleNamespace(model=id(spec)), seed=0)
    monkeypatch.setattr(solved, "evaluate", lambda model, *args, **options: SimpleNamespace(accuracy=[right[model]]))
    models, count = solved.solved(evidence, "group", accuracy=0.9)
    assert [(spec.settings.n_train, spec.seed) for spec, _ in models] == [(70, 0), (70, 1), (60, 0)]
    assert count == 3
    models, count = solved.solved(evidence, "group")
    assert count == 1
    assert [spec.seed for spec, _ in models] == [0, 0]  # the most accurate of the others is shown


def test_the_share_counts_heads_of_either_sign(monkeypatch):
    models = [planted([-0.1] * 4), planted([0.0] * 4), planted([0.1, -0.1, -0.1, 0.0])]
    specs = [SimpleNamespace(task=TASK, seed=seed, settings=SimpleNamespace(n_train=60)) for seed in range(3)]
    monkeypatch.setattr(heads, "solved", lambda evidence, group: (list(zip(specs, models, strict=True)), 3))
    measurement = CLAIMS["heads.same-symbol.identity"].measurement(EVIDENCE)
    assert (measurement.value, measurement.n) == (pytest.approx(2 / 3), 3)
    assert measurement.numbers["first layer: heads that attend more to equal symbols"] == 1
    assert measurement.numbers["first layer: heads that attend less to equal symbols"] == 6
    assert measurement.numbers["first layer: a below 0"] == 6
    assert measurement.numbers["heads"] == 24


def agreement(monkeypatch, sizes, drops):
    """What the claim about agreement measures for models with these dependences and drops, a row per model."""
    specs = [(SimpleNamespace(task=TASK, seed=i, settings=SimpleNamespace(n_train=60)), i) for i in range(len(sizes))]
    monkeypatch.setattr(heads, "solved", lambda evidence, group: (specs, len(specs)))
    more = [np.array(one, dtype=float).reshape(2, -1) for one in sizes]
    lost = [np.array(one, dtype=float)[:, None] for one in drops]
    monkeypatch.setattr(
        heads, "equality_preference", lambda evidence, model, task: SimpleNamespace(preference=more[model])
    )
    monkeypatch.setattr(heads, "ablate_heads", lambda model, *args, **options: SimpleNamespace(drop=lost[model]))
    return CLAIMS["heads.ablation-agrees.plain"].measurement(EVIDENCE)


def test_agreement_is_judged_within_models(monkeypatch):
    """Simpson: in each model the correlation is positive, over all heads together it is negative."""
    sizes = [[1, 2, 3, 4], [-11, 12, -13, 14], [21, 23, 22, 24]]
    drops = [[0.9, 0.91, 0.92, 0.93], [0.5, 0.51, 0.52, 0.53], [0.1, 0.11, 0.12, 0.13]]
    found = agreement(monkeypatch, sizes, drops)
    pooled = stats.spearmanr(np.abs(sizes).ravel(), np.ravel(drops)).statistic
    assert pooled < -0.5 < 0 < found.low
    assert (found.value, found.n) == (pytest.approx((1 + 1 + 0.8) / 3), 3)


def test_models_without_a_needed_head_are_counted_apart(monkeypatch):
    found = agreement(monkeypatch, [[1, 2, 3, 4]] * 3, [[0.0] * 4, [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    assert (found.value, found.n) == (pytest.approx(0), 2)
    assert found.numbers["models in which all heads cost the same"] == 1
    none = agreement(monkeypatch, [[1, 2, 3, 4]], [[0.0] * 4])
    assert (none.value, none.low, none.high, none.numbers["models with a correlation"]) == (0, -1, 1, 0)


def test_a_planted_diagonal_in_a_copying_model_is_found(monkeypatch):
    task = Template(templates="copy", train=40)
    config = config_for(task, "template_copy", d_model=16)
    models = [make_model(config, seed=seed) for seed in (0, 1)]
    attention = models[0].block(0).attention
    with torch.no_grad():
        attention.v.weight.copy_(torch.eye(16)[torch.arange(config.n_heads * config.d_head) % 16])
        attention.o.weight.copy_(attention.v.weight.T)
    settings = SimpleNamespace(n_train=40)
    specs = [(SimpleNamespace(task=task, seed=i, settings=settings, config=config), m) for i, m in enumerate(models)]
    asked = {}

    def found(evidence, group, accuracy):
        asked.update(group=group, accuracy=accuracy)
        return specs, 2

    monkeypatch.setattr(reading, "solved", found)
    claim = next(claim for claim in reading.CLAIMS if claim.id == "diagonals.value-output.copying")
    said = claim.measurement(EVIDENCE)
    assert asked == {"group": f"copy {PLAIN}", "accuracy": 0.9}
    assert said.value == 0.5
    assert said.numbers["the same share before training"] == 0
