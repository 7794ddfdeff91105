"""Claims of the template study that need no training: gradients at the start, the kernel's error and blocks."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from case_studies.template import gradients, kernel_rates
from case_studies.template.study import STUDY
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
    found = gradients.measure_b(QUICK)
    assert found.n == gradients.DRAWS["quick"]
    assert found.low < found.value < found.high
    slope = gradients.measure_plain(QUICK)
    assert slope.n == gradients.DRAWS["quick"]


def test_slope_of_a_power_law():
    x = [1.0, 2.0, 8.0]
    values = np.array([[c * at**-1.5 for at in x] for c in (1.0, 3.0, 4.0)]) * [[1.0, 1.0, 1.01]]
    assert kernel_rates._slopes(values, x, "n", "error", "draws").value == pytest.approx(-1.5, abs=0.01)


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
    found = kernel_rates.measure_blocks(QUICK)
    monkeypatch.setattr(kernel_rates, "spread_within", lambda kernel, strings: spread(kernel, strings) + 0.1)
    assert kernel_rates.measure_blocks(QUICK).value > -0.3 > found.value


def test_error_reads_its_grid(monkeypatch):
    seen = []

    def error(task, n, seed):
        seen.append((task.train, n, seed))
        return (seed % 7 + 1) * n**-1.0 * task.train**-2.0 * (1 + 0.01 * (len(seen) % 2))

    monkeypatch.setattr(kernel_rates, "_error", error)
    assert kernel_rates.measure_error(QUICK, grid="n").value == pytest.approx(-1, abs=0.02)
    assert {train for train, _, _ in seen} == {kernel_rates.FIXED_SYMBOLS}
    seen.clear()
    assert kernel_rates.measure_error(QUICK, grid="rho").value == pytest.approx(-2, abs=0.02)
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
    assert gradients.measure_b(QUICK).value == pytest.approx(2.1)
    assert gradients.measure_plain(QUICK).value == pytest.approx(2.1)
