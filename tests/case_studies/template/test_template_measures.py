"""Measures of the template study: units, grids of n, and the paper's numbers."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from case_studies.recipes.intervals import t_interval
from case_studies.recipes.template_models import PLAIN, A, B
from case_studies.template import copying, efficiency, kernel, networks
from case_studies.template.measures import Scored, paper_curves
from case_studies.template.models import between
from case_studies.template.study import STUDY
from interp.tasks import Template
from interp.theory.kernels.random_features import TransformerKernel
from interp.theory.kernels.template_matrix import template_matrix

CLAIMS = {claim.id: claim for claim in STUDY.claims}
QUICK = SimpleNamespace(size="quick", seed=0)


def scored(loss=1.0, *, n=64, seed=0, right=50):
    return Scored(
        n=n, seed=seed, rate=1e-3, config=None, task=Template(), loss=loss, right=right, total=100, validation=1.0,
        model=None,
    )  # fmt: skip


def losses_of_two_seeds(crossing):
    """Plain models of two seeds whose loss is below one half from n = `crossing` on, on doublings and half-steps."""
    grid = (64, 91, 128, 181, 256, 362, 512, 1024)
    return [scored(0.1 if n >= crossing else 0.9, n=n, seed=seed) for n in grid for seed in (0, 1)]


def savings(monkeypatch, plain, modified, *, between=None):
    """The doublings of n that a I saves with these models."""
    found = {f"aba-abb {PLAIN}": plain, f"aba-abb {A}": modified} | (between or {})
    monkeypatch.setattr(efficiency, "scores", lambda evidence, name: found.get(name, []))
    return CLAIMS["identity.saves.half"].measurement(QUICK)


def test_equal_savings_have_the_interval_of_the_grid_at_the_threshold(monkeypatch):
    on = [row for row in losses_of_two_seeds(256) if row.n in (64, 128, 256, 512, 1024)]
    early = [row for row in losses_of_two_seeds(128) if row.n in (64, 128, 256, 512, 1024)]
    doublings = savings(monkeypatch, on, early)
    assert doublings.value == 1
    assert doublings.high - doublings.value == pytest.approx(12.706 * 1 / 24**0.5, rel=1e-3)
    both = savings(monkeypatch, losses_of_two_seeds(256), losses_of_two_seeds(128))
    assert both.high - both.value == pytest.approx((doublings.high - 1) / 2, rel=0.02)


def test_models_between_doublings_move_the_threshold(monkeypatch):
    plain = [row for row in losses_of_two_seeds(181) if row.n != 181]
    modified = losses_of_two_seeds(128)
    assert savings(monkeypatch, plain, modified).value == 1
    half = {between(PLAIN): [row for row in losses_of_two_seeds(181) if row.n == 181]}
    assert savings(monkeypatch, plain, modified, between=half).value == pytest.approx(0.5, abs=0.01)


def test_step_below_a_threshold():
    rows = [scored(n=n) for n in (64, 128, 181, 256)]
    assert efficiency.step_below(256, rows) == pytest.approx(0.5, abs=0.01)
    assert efficiency.step_below(128, rows) == 1
    assert efficiency.step_below(64, rows) == 1
    assert efficiency.step_below(512, rows) == 1  # never reached


def test_the_papers_numbers_are_those_of_its_curves():
    printed = {claim.id: claim.paper for claim in STUDY.claims}
    curve = paper_curves("aba-abb", x="n", y="loss").set_index(["series", "n"])["loss"]
    assert printed["identity.aba-abb"] == (f"n = 512: {curve[PLAIN, 512]:.3f} without, {curve[A, 512]:.2g} with")
    wide = paper_curves("copy", x="n", y="error").set_index(["series", "n"])["error"]
    errors = f"error {wide['width 512', 128]:.2f} at width 512, {wide['width 1024', 128]:.1f} at 1024"
    assert printed["copying.fails"] == f"128 symbols: {errors}"


def test_version_1_of_the_paper_is_cited():
    """Its theorems on real labels are 4.4 to 4.7, on symbols 5.1 and 5.2, on networks I.2; it has 24 figures."""
    allowed = {"Theorem": {"4.4", "5.1", "5.2", "I.2"}, "Lemma": {"4.5", "4.6", "4.7"}, "Remark": {"I.6"}}
    allowed["Figure"] = {"1", "2", "3", "4", "5a", "5b", "7", "16", "21", "22", "24"}
    for claim in STUDY.claims:
        for kind, number in re.findall(r"(Theorem|Lemma|Remark|Figure) ([A-Z0-9]+(?:\.\d+)?[ab]?)", claim.source):
            assert number in allowed[kind], (claim.id, kind, number)


def test_the_toolkit_cites_version_1_too():
    """Definitions are 3.1 to 3.3 and 4.2 there, in version 2 they begin with 2.1."""
    allowed = {"Section 2", "Section 3", "Definition 3.1", "Definition 3.3", "Definition 4.2", "Theorem 5.2"}
    allowed |= {"Eq. 3", "Claim E.2", "Figure 7"}
    root = Path(__file__).parents[3]
    citation = re.compile(
        r"template paper(?: \(arXiv:2310\.09753\))?,? ((?:Section|Definition|Theorem|Eq\.|Claim|Figure) [A-Z]?[.\d]*\d)"
    )
    cited = {
        number
        for folder in ("hooks", "interp")
        for path in (root / folder).rglob("*.py")
        for number in citation.findall(path.read_text(encoding="utf-8"))
    }
    assert "Section 2" in cited
    assert cited <= allowed


def copied(right, *, width, seed, n=128):
    return replace(scored(right=right, n=n, seed=seed), config=SimpleNamespace(d_model=width))


def test_copying_has_models_as_units(monkeypatch):
    b = SimpleNamespace(sum=lambda: torch.tensor(3.0))
    model = SimpleNamespace(block=lambda layer: SimpleNamespace(attention=SimpleNamespace(b=b)))
    rows = {
        f"copy {PLAIN}": [copied(0, width=width, seed=seed) for width in (64, 128) for seed in range(3)],
        f"copy {B}": [copied(right, width=64, seed=seed) for seed, right in enumerate((90, 95, 100))]
        + [copied(100, width=128, seed=seed) for seed in range(3)]
        + [copied(7, width=128, seed=0, n=512)],
        f"copy {B}, same rate": [copied(1, width=64, seed=seed) for seed in range(3)],
    }
    rows = {name: [replace(row, model=model) for row in part] for name, part in rows.items()}
    monkeypatch.setattr(copying, "scores", lambda evidence, name, each_symbol: rows[name])
    worst = CLAIMS["copying.identity"].measurement(QUICK)
    assert (worst.value, worst.n, worst.unit) == (pytest.approx(0.95), 3, "models")
    assert worst.low == pytest.approx(0.95 - 4.303 * 0.05 / 3**0.5, abs=1e-3)
    assert worst.high == 1  # cut
    assert worst.numbers["judged: width"] == 64
    every = dict(worst.tables)["Every model"]
    assert [B, "128", "0", "0.9", "[0.8238, 0.951]", "100"] in [row[:6] for row in every]
    widest = CLAIMS["copying.fails"].measurement(QUICK)
    assert (widest.value, widest.low, widest.numbers["judged: width"]) == (0, 0, 128)
    assert 0 < widest.high < 0.02  # equal accuracies have the width of one symbol


def test_networks_have_models_as_units(monkeypatch):
    rows = [scored(n=n, seed=seed, right=right) for n, part in ((512, (90, 90, 90)), (2048, (50, 55, 60)))
            for seed, right in enumerate(part)]  # fmt: skip
    monkeypatch.setattr(networks, "scores", lambda evidence, name: rows)
    measurement = CLAIMS["networks.one-hot"].measurement(QUICK)
    assert (measurement.value, measurement.n) == (pytest.approx(0.55), 3)
    assert measurement.high - measurement.value == pytest.approx(4.303 * 0.05 / 3**0.5, abs=1e-3)


def test_kernel_regression_has_draws_as_units(monkeypatch):
    monkeypatch.setattr(kernel, "N", {"quick": 40})
    measurement = CLAIMS["kernel.mlp"].measurement(QUICK)
    assert (measurement.n, measurement.unit) == (kernel.DRAWS, "draws of strings and kernel")
    draws = dict(measurement.tables)["Every draw and setting"][1:]
    assert {row[0] for row in draws} == {"0", "1", "2", "3", "4"}
    chosen = np.array([float(row[7]) for row in draws if row[1] == "yes"])
    assert len({row[4] for row in draws if row[2] == "MLP, relu" and row[3] == "0.001"}) >= kernel.DRAWS - 1
    assert (measurement.value, measurement.low) == pytest.approx(t_interval(chosen).floats()[:2], abs=2e-3)


@pytest.mark.parametrize(("beta", "verdict"), [(4.0, "nonsingular"), (1e-3, "singular"), (0.25, "undecided")], ids=str)
def test_a_random_kernel_can_have_a_singular_matrix(beta, verdict):
    task = Template(templates="aba_abb", train=60)
    one = template_matrix(task, TransformerKernel(beta=beta, activation="relu"), repeats=32)
    if verdict == "undecided":  # an interval from below 0 to above the margin
        margin = 2 * kernel.NEGLIGIBLE * one.eigenvalues[-1]
        smallest = replace(one.smallest, low=-margin, high=margin)
        one = replace(one, verdict="undecided", smallest=smallest)
    assert kernel.singularity(one) == verdict
