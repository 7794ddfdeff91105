"""The template study: claims, groups of models, rules, measures, and end-to-end runs."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from toys import check_measured, measured

from case_studies.frame.evidence import SIZES
from case_studies.recipes.intervals import t_interval
from case_studies.recipes.template_models import A_AND_B, MIMETIC, PLAIN, SCALES, A, B
from case_studies.template.measures import (
    Scored,
    best_rate,
    by,
    by_n,
    loss_chart,
    loss_over_seeds,
    paper_curves,
    ratio,
    threshold,
)
from case_studies.template.study import STUDY
from hooks import TransformerConfig
from interp.tasks import Template

groups = cache(STUDY.groups)
JUDGES = {claim.id: claim.rule.verdict for claim in STUDY.claims}
SOLVED = {"solved models": 2}
AGREE = {"models with a correlation": 2}
DECIDED = {"seeds where neither does": 0}


def matrices(**verdicts):
    """Numbers of a measurement of N of both tasks."""
    return {f"tasks with a {name} N": count for name, count in verdicts.items()}


def by_length(short, long):
    """Numbers of a measurement of two lengths of majority."""
    return {"mean loss by length": {"2": short, "8": long}}


def scored(loss=1.0, *, n=64, seed=0, rate=1e-3, validation=1.0, right=50):
    return Scored(
        n=n, seed=seed, rate=rate, config=None, task=Template(), loss=loss, right=right, total=100,
        validation=validation, model=None,
    )  # fmt: skip


def test_every_claim_has_a_source_a_statement_and_a_rule():
    for claim in STUDY.claims:
        assert claim.source.startswith(("template paper, ", "ours")), claim.id
        assert claim.statement.endswith("."), claim.id
        assert claim.rule_text.endswith("."), claim.id
        assert "reproduced if" in claim.rule_text, claim.id
        assert claim.quantity, claim.id


@pytest.mark.parametrize("size", SIZES)
def test_every_claim_finds_its_models(size):
    found = groups(size)
    for claim in STUDY.claims:
        if size in claim.sizes:
            needs = [name for name in claim.needs if size == "standard" or "between" not in name]
            assert all(len(found[name]) > 1 for name in needs), (size, claim.id)
    for name, specs in found.items():
        assert len({spec.key for spec in specs}) == len(specs), name


@pytest.mark.parametrize("size", SIZES)
def test_variants_differ_only_in_the_named_field(size):
    found = groups(size)
    added = {A: {"qk_identity": True}, B: {"vo_identity": True}, MIMETIC: {"init": "mimetic"}}
    for variant, fields in added.items():
        plain = {(spec.settings.n_train, spec.seed): spec for spec in found[f"aba-abb {PLAIN}"]}
        for spec in found[f"aba-abb {variant}"]:
            same = plain[spec.settings.n_train, spec.seed]
            assert replace(spec, config=replace(spec.config, **{k: getattr(same.config, k) for k in fields})) == same
            assert all(getattr(spec.config, name) == value for name, value in fields.items())
    for spec in found["aba-abb other rates"]:
        same = plain[spec.settings.n_train, spec.seed]
        assert spec.settings.learning_rate != same.settings.learning_rate
        rate = same.settings.learning_rate
        assert replace(spec, settings=replace(spec.settings, learning_rate=rate)) == same
    for plain_one, both in zip(found[f"majority {PLAIN}"], found[f"majority {A_AND_B}"], strict=True):
        assert replace(both.config, qk_identity=False, vo_identity=False) == plain_one.config
        assert both.settings == plain_one.settings


@pytest.mark.parametrize("size", SIZES)
def test_numbers_of_strings_and_widths_are_on_the_papers_grid(size):
    """Powers of two as in its figures, and at size standard the middle of two where a threshold is read."""
    scale = SCALES[size]
    between = tuple(int(2 ** (power + 0.5)) for power in range(7, 11))
    assert scale.between in ((), between)
    for name in (
        "grid",
        "controlled",
        "mimetic",
        "same_different",
        "programs",
        "majority",
        "copy_widths",
        "copy_grid",
        "networks",
    ):
        sizes = list(getattr(scale, name))
        assert sizes == sorted(set(sizes))
        assert all(one >= 4 and one & (one - 1) == 0 for one in sizes), name


def test_training_alphabets_seeds_and_widths():
    for size in SIZES:
        for specs in groups(size).values():
            assert all(len(spec.task.alphabet("train")) == spec.settings.n_train for spec in specs)
            assert all(spec.settings.weight_decay == 0 for spec in specs)  # it would shrink unseen symbols
    seeds = {spec.seed for spec in groups("quick")[f"aba-abb {A}"]}
    assert len(seeds) == SCALES["quick"].seeds >= 3
    for name in ("copy transformer", "copy + b I", "network one-hot", "aba-abb + b I"):
        assert {spec.seed for spec in groups("standard")[name]} == set(range(5)), name
    widths = {spec.config.d_model for spec in groups("quick")[f"copy {B}"]}
    assert widths == {128, 512, 1024}


@pytest.mark.parametrize(
    ("claim", "measurement", "verdict"),
    [
        ("identity.aba-abb", measured(0.1, 0.05, 0.25, **{"all intervals above a quarter": False}), "reproduced"),
        (
            "identity.aba-abb",
            measured(0.1, 0.05, 0.26, **{"all intervals above a quarter": False}),
            "inconclusive",
        ),
        (
            "identity.aba-abb",
            measured(0.9, 0.5, 1.1, **{"all intervals above a quarter": True}),
            "not reproduced",
        ),
        ("identity.samples.half", measured(4, 3, 5, **DECIDED), "reproduced"),
        ("identity.samples.half", measured(3, 2.9, 4, **DECIDED), "inconclusive"),
        ("identity.samples.half", measured(2, 1.4, 2.6, **DECIDED), "not reproduced"),
        ("identity.saves.half", measured(2, 1.4, 2.6, **DECIDED), "reproduced"),
        ("identity.saves.half", measured(0.5, -0.1, 1.1, **DECIDED), "inconclusive"),
        ("identity.saves.half", measured(1, 0.5, 1.5, **{"seeds where neither does": 1}), "inconclusive"),
        ("identity.samples.half", measured(0, **{"seeds where neither does": 1}), "inconclusive"),
        ("majority.identity", measured(-0.5, -0.9, -0.1), "reproduced"),
        ("majority.identity", measured(-0.5, -0.9, 0.1), "inconclusive"),
        ("majority.longer-is-harder", measured(0.9, 0.2, 1.1, **by_length(0.1, 1.0)), "reproduced"),
        ("majority.longer-is-harder", measured(0.2, 0.1, 0.3, **by_length(0.8, 1.0)), "inconclusive"),  # none learned
        ("identity.b-saves-less", measured(0.5, 0.1, 0.9, **{"variants that learn": 2}), "reproduced"),
        ("identity.b-saves-less", measured(-0.5, -0.9, -0.1, **{"variants that learn": 2}), "not reproduced"),
        ("copying.identity", measured(0.99, 0.9, 1), "reproduced"),
        ("copying.identity", measured(0.99, 0.89, 1), "inconclusive"),
        ("copying.identity", measured(0.5, 0.4, 0.89), "not reproduced"),
        ("copying.fails", measured(0.1, 0, 0.49), "reproduced"),
        ("copying.fails", measured(0.8, 0.7, 0.9), "not reproduced"),
        ("copying.wider-is-worse", measured(0.5, 0.1, 0.9), "reproduced"),
        ("copying.wider-is-worse", measured(-0.5, -0.9, -0.1), "not reproduced"),
        ("networks.one-hot", measured(0.5, 0.47, 0.53), "reproduced"),
        ("networks.one-hot", measured(0.7, 0.61, 0.8), "not reproduced"),
        ("networks.equality", measured(0.99, 0.95, 1), "reproduced"),
        ("networks.shared-embedding", measured(0.7, 0.61, 0.8), "reproduced"),
        ("kernel.aba-abb", measured(0.9, 0.85, 0.94), "not reproduced"),
        ("kernel.matrix", measured(**matrices(singular=0, nonsingular=2)), "reproduced"),
        ("kernel.matrix", measured(**matrices(singular=0, nonsingular=1)), "inconclusive"),
        ("kernel.matrix", measured(**matrices(singular=1, nonsingular=1)), "not reproduced"),
        ("kernel.matrix-mlp", measured(**matrices(singular=2, nonsingular=0)), "reproduced"),
        ("kernel.matrix-mlp", measured(**matrices(singular=1, nonsingular=1)), "not reproduced"),
        ("heads.identity-used", measured(0.4, 0.2, 0.5, **{"solved models": 2}), "reproduced"),
        ("heads.identity-used", measured(0.4, 0.2, 0.5, **{"solved models": 1}), "inconclusive"),
        ("heads.identity-used", measured(0.01, 0, 0.05, **SOLVED), "not reproduced"),
        ("heads.ablation-agrees.plain", measured(0.5, 0.1, 0.9, **SOLVED, **AGREE), "reproduced"),
        ("heads.ablation-agrees.plain", measured(-0.5, -0.9, -0.1, **SOLVED, **AGREE), "not reproduced"),
        (
            "heads.ablation-agrees.plain",
            measured(0.5, 0.1, 0.9, **SOLVED, **{"models with a correlation": 1}),
            "inconclusive",
        ),
        ("heads.same-symbol.plain", measured(0.9, 0.6, 1, **SOLVED), "reproduced"),
        ("heads.same-symbol.identity", measured(0, 0, 0.3, **SOLVED), "not reproduced"),
        ("diagonals.value-output.copying", measured(0.9, 0.6, 1, **SOLVED), "reproduced"),
        ("diagonals.value-output.copying", measured(0.9, 0.6, 1, **{"solved models": 1}), "inconclusive"),
        ("probes.identity", measured(0.6, 0.5, 0.7, **SOLVED, **{"mean after the last layer": 0.99}), "reproduced"),
        ("probes.identity", measured(0.6, 0.5, 0.7, **SOLVED, **{"mean after the last layer": 0.9}), "inconclusive"),
        ("probes.identity", measured(0.9, 0.8, 1, **SOLVED, **{"mean after the last layer": 0.99}), "not reproduced"),
        ("sweeps.depth", measured(-0.5, -0.9, -0.1), "reproduced"),
        ("sweeps.width", measured(-0.5, -0.9, -0.1), "not reproduced"),
        ("sweeps.rate", measured(1.5, 1.1, 1.9), "reproduced"),
    ],
)
def test_verdicts_follow_the_rules(claim, measurement, verdict):
    assert JUDGES[claim](measurement) == verdict


def test_threshold_is_where_the_loss_stays_below():
    rows = [scored(loss, n=n) for n, loss in ((32, 0.2), (64, 0.9), (128, 0.4), (256, 0.1))]
    assert threshold(rows, 0.5, lambda row: row.loss) == (128, True)
    assert threshold(rows, 0.05, lambda row: row.loss) == (512, False)
    assert threshold(list(reversed(rows)), 1.0, lambda row: row.loss) == (32, True)


def test_ratio_is_paired_and_its_interval_widens_with_comparisons():
    plain = [scored(loss, seed=seed) for seed, loss in enumerate((1.0, 2.0, 4.0))]
    modified = [replace(row, loss=row.loss / 8) for row in plain]
    assert ratio(modified, plain).floats() == pytest.approx((0.125, 0.125, 0.125))
    noisy = [replace(row, loss=row.loss * factor) for row, factor in zip(modified, (1, 2, 0.5), strict=True)]
    value, low, high = ratio(noisy, plain).floats()
    wide = ratio(noisy, plain, comparisons=5)
    assert value == pytest.approx(0.125)
    assert wide.low < low < value < high < wide.high


def test_t_interval_equals_scipy():
    from scipy import stats

    values = np.random.default_rng(0).normal(size=5)
    low, high = stats.t.interval(0.95, 4, loc=values.mean(), scale=stats.sem(values))
    assert t_interval(values).floats() == pytest.approx((values.mean(), low, high))


def test_best_rate_is_chosen_on_validation_symbols():
    rows = [
        scored(0.1, seed=0, rate=1e-3, validation=0.9),
        scored(0.8, seed=0, rate=3e-3, validation=0.2),
        scored(0.5, seed=1, rate=1e-3, validation=0.1),
        scored(0.4, seed=1, rate=3e-3, validation=0.3),
    ]
    assert [row.loss for row in best_rate(rows, lambda row: row.n)] == [0.8, 0.5]
    assert [row.seed for row in by(reversed(rows), lambda row: row.rate)[1e-3]] == [0, 1]


def test_charts_show_the_curves_of_the_paper():
    for figure, series in (("aba-abb", PLAIN), ("aba-abb", A), ("programs", A), ("same-different", PLAIN)):
        curve = paper_curves(figure, x="n", y="loss")
        assert series in set(curve["series"]), (figure, series)
    plain = paper_curves("aba-abb", x="n", y="loss")
    at_1024 = plain[(plain["series"] == PLAIN) & (plain["n"] == 1024)]["loss"]
    assert at_1024.item() == pytest.approx(0.125, abs=0.001)
    rows = [scored(0.5 / n * 64, n=n, seed=seed) for n in (64, 128) for seed in (0, 1)]
    assert [row["loss"] for row in loss_over_seeds(by_n(rows), x="n", series="s")] == pytest.approx([0.5, 0.25])
    drawn = json.dumps(loss_chart({PLAIN: rows}, figure="aba-abb", title="t").to_dict())
    assert "strokeDash" in drawn
    assert str(at_1024.item()) in drawn


def _kept(spec):
    wide = isinstance(spec.config, TransformerConfig) and spec.config.d_model > 512
    return spec.seed < 2 and spec.settings.n_train in (128, 512, 1024) and not wide


def _shortened(spec):
    config = spec.config if isinstance(spec.config, TransformerConfig) else replace(spec.config, width=8)
    settings = replace(spec.settings, steps=2, batch_size=4, n_eval=8, eval_every=1)
    return replace(spec, config=config, settings=settings)


@pytest.fixture(scope="module")
def tiny():
    """The study with few models and two training steps each."""

    def few(size):
        return {name: [_shortened(spec) for spec in specs if _kept(spec)] for name, specs in groups(size).items()}

    return replace(STUDY, groups=few)


@pytest.mark.slow
def test_study_runs_on_nearly_untrained_models(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("case_studies.template.measures.N_TEST", {"quick": 20})
    for module in ("reading", "heads"):
        monkeypatch.setattr(f"case_studies.template.{module}.N_READ", {"quick": 30})
    monkeypatch.setattr("case_studies.template.kernel.N", {"quick": 32})
    monkeypatch.setattr("case_studies.template.kernel.REPEATS", {"quick": 4})
    result = tiny.run(folder=tmp_path, n_jobs=1)
    results = check_measured(STUDY, result)
    assert all(found.measurement.charts for found in results.values() if found.measurement)
    assert results["copying.identity"].verdict != "reproduced"
    assert results["heads.identity-used"].verdict == "inconclusive"  # nothing is solved
    assert results["kernel.matrix-mlp"].verdict == "reproduced"  # needs no training
    page = (tmp_path / "template" / "quick" / "report.html").read_text(encoding="utf-8")
    assert all(claim.id in page for claim in STUDY.claims)
    assert "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.long
def test_quick_study_from_the_command_line(tmp_path):
    chosen = [
        word for name in ("identity.aba-abb", "copying", "networks", "kernel", "heads") for word in ("--only", name)
    ]
    command = [str(Path(sys.executable).with_name("interp")), "reproduce", "template", *chosen, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    claims = json.loads((tmp_path / "template" / "quick" / "claims.json").read_text(encoding="utf-8"))["claims"]
    results = {claim["id"]: claim for claim in claims}
    assert results["identity.aba-abb"]["interval"][1] <= 0.25  # at some n a quarter of the plain model's loss
    assert results["copying.identity"]["measured"] >= 0.95
    assert results["kernel.aba-abb"]["measured"] >= 0.95
    assert results["kernel.same-different"]["measured"] >= 0.95
    for name in ("copying.identity", "networks.one-hot", "kernel.matrix", "heads.identity-used"):
        assert results[name]["verdict"] == "reproduced", name
    assert results["kernel.matrix-mlp"]["verdict"] == "by construction"
