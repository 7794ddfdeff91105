"""Claims of the template study that need no training: gradients at the start, the kernel's error and blocks."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from case_studies.template import copying_start, gradients, kernel_rates, set_regression, template_sets
from case_studies.template.study import STUDY
from case_studies.template.template_sets import TemplateSet
from hooks import make_model
from interp.tasks import Template
from interp.theory.kernels.random_features import MLPKernel, TransformerKernel
from interp.training.configs import config_for

QUICK: Any = SimpleNamespace(size="quick", seed=0)
CLAIMS = {claim.id: claim for claim in STUDY.claims}


def losses(model, task):
    found = []
    for split in ("train", "test"):
        symbols = torch.tensor([task.vocab.ids[name] for name in task.alphabet(split)])
        batch = task.fill(torch.zeros_like(symbols), symbols[:, None])
        found.append(float(task.loss(model(batch.tokens), batch).detach()))
    return np.array(found)


@pytest.mark.parametrize("with_b", [False, True])
def test_relative_speed_is_that_of_a_small_gradient_step(with_b):
    task = Template(templates="copy", train=16, test=12)
    model = make_model(config_for(task, "template_copy", d_model=32, vo_identity=with_b), seed=0).double()
    trained = [part for name, part in model.named_parameters() if not with_b or name.endswith(".b")]
    predicted = gradients.relative_speed(model, task, trained)
    before = losses(model, task)
    step = gradients._gradient(model, task, trained, "train").split([part.numel() for part in trained])
    with torch.no_grad():
        for part, one in zip(trained, step, strict=True):
            part -= 1e-4 * one.view_as(part)
    fall = before - losses(model, task)
    assert fall[0] > 0
    assert predicted == pytest.approx(fall[1] / fall[0], rel=1e-2, abs=1e-4)


def test_only_b_is_trained_with_b():
    task = Template(templates="copy", train=16, test=12)
    model = make_model(config_for(task, "template_copy", d_model=32, vo_identity=True), seed=3)
    b = model.block(0).attention.b
    assert gradients._speed(task, 32, seed=3, with_b=True) == gradients.relative_speed(model, task, [b])


def test_gradient_measures_take_draws_as_units():
    measurement = CLAIMS["copying.gradient-b"].measurement(QUICK)
    assert measurement.n == gradients.DRAWS["quick"]
    assert measurement.low < measurement.value < measurement.high
    slope = CLAIMS["copying.gradient"].measurement(QUICK)
    assert slope.n == gradients.DRAWS["quick"]


def test_slope_of_a_power_law():
    x = [1.0, 2.0, 8.0]
    values = np.array([[c * at**-1.5 for at in x] for c in (1.0, 3.0, 4.0)]) * [[1.0, 1.0, 1.01]]
    assert kernel_rates._slopes(values, x, "n", "error").frame["slope"].mean() == pytest.approx(-1.5, abs=0.01)


def test_spread_within_patterns_is_zero_for_an_exact_kernel_and_not_for_one_that_sees_identity():
    strings = Template(templates="aba_abb", train=8).sample(32, generator=torch.Generator().manual_seed(0))
    tokens = strings.tokens.numpy()
    assert kernel_rates.spread_within(MLPKernel(), tokens) == pytest.approx(0, abs=1e-12)

    class SeesIdentity(MLPKernel):
        def attention(self, x, y=None):
            left, right = (np.asarray(x)[:, 0], np.asarray(x if y is None else y)[:, 0])
            return super().attention(x, y) + 0.01 * np.outer(left, right)

    assert kernel_rates.spread_within(SeesIdentity(), tokens) > 0.01
    assert kernel_rates.spread_within(TransformerKernel(n_draws=64), tokens) > 0


def test_a_kernel_that_sees_identity_does_not_have_the_slope_of_draws(monkeypatch):
    spread = kernel_rates.spread_within
    measurement = CLAIMS["kernel.blocks"].measurement(QUICK)
    monkeypatch.setattr(kernel_rates, "spread_within", lambda kernel, strings: spread(kernel, strings) + 0.1)
    assert CLAIMS["kernel.blocks"].measurement(QUICK).value > -0.3 > measurement.value


def test_error_reads_its_grid(monkeypatch):
    seen = []

    def error(task, n, seed):
        seen.append((task.train, n, seed))
        return (seed % 7 + 1) * n**-1.0 * task.train**-2.0 * (1 + 0.01 * (len(seen) % 2))

    monkeypatch.setattr(kernel_rates, "_error", error)
    assert CLAIMS["kernel.error-n"].measurement(QUICK).value == pytest.approx(-1, abs=0.02)
    assert {train for train, _, _ in seen} == {kernel_rates.FIXED_SYMBOLS}
    seen.clear()
    assert CLAIMS["kernel.error-rho"].measurement(QUICK).value == pytest.approx(-2, abs=0.02)
    assert {n for _, n, _ in seen} == {kernel_rates.FIXED_N["quick"]}
    assert len({seed for _, _, seed in seen}) == kernel_rates.REGRESSIONS["quick"]


def test_theory_claims_need_no_models():
    for name in ("copying.gradient", "copying.gradient-b", "kernel.error-n", "kernel.error-rho", "kernel.blocks"):
        assert not CLAIMS[name].needs
        assert CLAIMS[name].preregistration.when == (
            "after a result" if name == "copying.gradient" else "before any model"
        )


def test_speeds_are_judged_at_the_widest_models(monkeypatch):
    speed = np.array([[8.0, 4.0, 2.0], [-8.8, 4.0, 2.2]])
    monkeypatch.setattr(gradients, "_speeds", lambda evidence, with_b: speed)
    assert CLAIMS["copying.gradient-b"].measurement(QUICK).value == pytest.approx(2.1)
    assert CLAIMS["copying.gradient"].measurement(QUICK).value == pytest.approx(2.1)


def initial_losses(model):
    """Losses on training and unseen symbols."""
    with torch.no_grad():
        return [float(cross_entropy(model.logits(symbols), symbols)) for symbols in copying_start._splits()]


@pytest.mark.parametrize("matrix", copying_start.MATRICES)
def test_the_speed_of_each_matrix_is_that_of_a_small_step(matrix, monkeypatch):
    monkeypatch.setattr(copying_start, "SYMBOLS", 8)
    model = copying_start.initial_model(64, gamma=1.0, seed=0)
    predicted = copying_start.relative_speeds(model)[matrix]
    weights = model.parameters[matrix]
    train, _ = copying_start._splits()
    (step,) = copying_start._gradients(model, [weights], train)
    before = initial_losses(model)
    with torch.no_grad():
        weights -= 1e-2 * step / step.norm()
    falls = [loss - after for loss, after in zip(before, initial_losses(model), strict=True)]
    assert falls[0] > 0
    assert predicted == pytest.approx(falls[1] / falls[0], abs=0.02)


def test_logits_vanish_and_unseen_symbols_do_not_move_as_the_width_grows(monkeypatch):
    monkeypatch.setattr(copying_start, "SYMBOLS", 8)
    models = [copying_start.initial_model(width, gamma=0.0, seed=0) for width in (128, 1024)]
    sizes = [float(model.logits(torch.arange(16)).detach().std()) for model in models]
    assert sizes[1] < sizes[0] / 4  # its variance falls with the square of the width
    speeds = [max(copying_start.relative_speeds(model).values()) for model in models]
    assert 0 < speeds[1] < speeds[0] / 4
    assert "P" not in copying_start.relative_speeds(models[0])  # without positions nothing reads it


def test_the_largest_speed_is_judged_at_the_widest_models(monkeypatch):
    def speeds(model):
        width, gamma, seed = model
        return {"W_V": -gamma, "W_O": 100 / width + gamma / 500 + (seed % 7) * 1e-6}

    monkeypatch.setattr(copying_start, "initial_model", lambda width, *, gamma, seed: (width, gamma, seed))
    monkeypatch.setattr(copying_start, "relative_speeds", speeds)
    measurement = CLAIMS["copying.start"].measurement(QUICK)
    assert measurement.value == pytest.approx(100 / 2048 + 1 / 500, abs=1e-5)
    assert (measurement.n, measurement.numbers["judged: gamma"]) == (copying_start.DRAWS["quick"], 1.0)
    assert CLAIMS["copying.start"].verdict(measurement) == "not reproduced"


def test_template_sets_are_disjoint_and_differ():
    sets = template_sets.template_sets(0, 20)
    assert len({template_set.text for template_set in sets}) == 20
    assert {len(template_set.task.labelled) for template_set in sets} == set(template_sets.COUNTS)
    assert [one.text for one in template_sets.template_sets(0, 5)] == [one.text for one in sets[:5]]


def test_a_random_set_passes_and_a_kernel_that_cannot_see_equality_does_not(monkeypatch):
    monkeypatch.setattr(template_sets, "MOST_REPEATS", template_sets.REPEATS)
    (template_set,) = template_sets.template_sets(5, 1)
    assert template_sets.is_nonsingular(template_set)
    assert template_sets.is_nondegenerate(template_set)
    # Uniform attention reads how often a token occurs, not where: aba and bba... have the same counts
    task = Template(templates=("aabb -> +1", "abab -> -1"), train=64)
    blind = TransformerKernel(beta=0.0, gamma=0.5)
    same = TemplateSet(task=task, kernel=blind, seed=0)
    assert not template_sets.is_nonsingular(same)
    assert not template_sets.is_nondegenerate(same)


def test_permutation_differences():
    matrix = np.array([[[3.0, 1.0, 0.0], [1.0, 2.0, 5.0], [0.0, 5.0, 1.0]]])
    differences = template_sets.permutation_differences(matrix)[0]
    assert differences.tolist() == [6 - 13, 6 - 3, 6 - 6, 6 - 6, 6 - 2]
    noisy = np.random.default_rng(0).normal([1.0, 0.0], 0.1, size=(50, 2))
    assert template_sets.smallest_test(noisy) < 1 < template_sets.smallest_test(noisy[:, :1])


def measured_sets(test):
    claim = CLAIMS["kernel.sets.nonsingular"]
    return replace(claim, measure=partial(template_sets.measure_sets, test=test)).measurement(QUICK)


def test_sets_that_do_not_pass_are_shown_and_may_be_undecided():
    sets = template_sets.template_sets(0, 10)
    names = {template_set.text for template_set in sets[:8]}
    measurement = measured_sets(lambda template_set: template_set.text in names)
    assert (measurement.value, measurement.n, measurement.high) == (0.8, 10, 1)
    assert measurement.low == pytest.approx(0.444, abs=1e-3)
    ((_, rows),) = measurement.tables
    assert {row[0] for row in rows[1:]} == {sets[8].text, sets[9].text}


@pytest.mark.parametrize(
    ("few", "many", "constant", "generalises"),
    [(0.9, 0.4, 1.0, True), (0.3, 0.4, 1.0, False), (0.9, 0.6, 1.0, False), (0.9, 0.6, 1.3, True)],
)
def test_a_regression_generalises_if_its_error_falls_below_half_a_constants(few, many, constant, generalises):
    errors = set_regression.Errors(few=few, many=many, constant=constant)
    assert errors.generalises == generalises


def regression_of_a_network(template_set):
    """What a network's kernel does: it generalises only where fixed tokens tell templates apart."""
    passes = not set_regression.has_wildcards_only(template_set)
    network = set_regression.Errors(few=1.001, many=0.001 if passes else 0.999, constant=1.0)
    return {"transformer": set_regression.Errors(few=0.5, many=0.1, constant=1.0), "network": network}


def test_sets_of_wildcards_only_are_judged_apart(monkeypatch):
    monkeypatch.setattr(set_regression, "SETS", {"quick": 80})
    kinds = [set_regression.has_wildcards_only(template_set) for template_set in template_sets.template_sets(0, 80)]
    assert 10 < sum(kinds) < 60
    claim = CLAIMS["kernel.sets.regression"]
    monkeypatch.setattr(set_regression, "errors_of", regression_of_a_network)
    measurement = CLAIMS["kernel.sets.regression"].measurement(QUICK)
    assert (measurement.value, measurement.numbers["sets, wildcards only"]) == (1, sum(kinds))
    assert measurement.numbers[set_regression.NETWORK_ON["wildcards only"]] == 0
    assert measurement.numbers[set_regression.NETWORK_ON["with fixed tokens"]] == 1
    assert claim.verdict(measurement) == "reproduced"

    # A network's kernel in place of the set's own fails on sets of wildcards only
    def network_twice(template_set):
        errors = regression_of_a_network(template_set)
        return {"transformer": errors["network"], "network": errors["network"]}

    monkeypatch.setattr(set_regression, "errors_of", network_twice)
    assert claim.verdict(CLAIMS["kernel.sets.regression"].measurement(QUICK)) == "not reproduced"


def test_a_networks_kernel_does_not_generalise_without_fixed_tokens(monkeypatch):
    """With fixed tokens it does, so the sets are judged apart."""
    monkeypatch.setattr(set_regression, "N_FEW", 32)
    monkeypatch.setattr(set_regression, "N_MANY", 256)
    monkeypatch.setattr(set_regression, "FEATURES", 128)
    kernel = TransformerKernel(beta=4.0, activation="cosine")
    for templates, network_generalises in ((("aab -> +1", "aba -> -1"), False), (("aaX -> +1", "aYa -> -1"), True)):
        template_set = TemplateSet(task=Template(templates=templates, train=1024), kernel=kernel, seed=0)
        errors = set_regression.errors_of(template_set)
        assert errors["transformer"].generalises
        assert errors["network"].generalises == network_generalises
