"""The LEGO study: arms differ only in what they compare, measures recover known answers, the study runs."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from lego_curves import curve, evidence_of
from scipy import stats
from toys import measured

from case_studies.frame import learned
from case_studies.frame.claims import difference_interval, within
from case_studies.frame.evidence import SIZES, Evidence
from case_studies.lego import (
    cost,
    curves,
    generalisation,
    hardcoded,
    heads,
    loops,
    models,
    pathway_models,
    percolation,
    shortcut,
)
from case_studies.lego.models import ARMS, groups
from case_studies.lego.percolation import straightness
from case_studies.lego.study import STUDY, every_group
from interp.evaluation.extrapolate import first_for_good
from interp.known_answers import lego_loop, lego_shortcut
from interp.tasks import Corpus, Lego, Text
from interp.training.settings import Mimicking


def test_every_claim_is_stated_with_source_and_rule():
    for claim in STUDY.claims:
        assert claim.source.startswith(("LEGO, ", "ours")), claim.id
        assert claim.statement.endswith("."), claim.id
        assert "eproduced if" in claim.rule, claim.id
        assert claim.quantity, claim.id


@pytest.mark.parametrize("size", SIZES)
def test_arms_differ_only_in_what_they_compare(size):
    found = groups(size)
    every = every_group(size)
    assert all(set(claim.needs) <= set(every) for claim in STUDY.claims)
    assert all(
        every[name] for claim in STUDY.claims if size in claim.sizes for name in claim.needs if name not in heads.EVERY
    )
    shared = ("start-mimic", "start-random")  # at some sizes those of `classical-untied`
    keys = [spec.key for name, specs in found.items() if name not in shared for spec in specs]
    assert len(set(keys)) == len(keys)
    for arm in ("classical", "plain", "long"):
        for one, other in zip(found[f"{arm}-untied"], found[f"{arm}-tied"], strict=True):
            assert (one.task, one.seed, one.settings.steps) == (other.task, other.seed, other.settings.steps)
            assert one.config.n_layers == other.config.n_layers
            assert (one.config.tied, other.config.tied) == (False, True)
    for name in ("mimic", "query-key", "pretrained", "symbols"):
        for one, other in zip(found["start-random"], found[f"start-{name}"], strict=False):
            association = {"mimic": "mimic", "query-key": "query_key"}.get(name, "none")
            assert other.task == one.task
            assert other.config == one.config
            assert other.settings == replace(one.settings, association=association)
    for one, other in zip(found["long-stochastic"], found["long-tied"], strict=False):
        low, high = one.settings.depth_range
        assert one.config.n_layers == high
        assert size == "paper" or (low + high) / 2 == other.config.n_layers
        assert replace(one.settings, depth_range=None) == other.settings


def test_arms_have_enough_seeds():
    standard = groups("standard")
    for name in ("plain-untied", "plain-tied"):
        assert len(standard[name]) >= 5, name
    assert min(len(specs) for specs in standard.values()) >= 3


def test_paper_size_has_the_papers_settings():
    found = groups("paper")
    bert, albert = found["plain-untied"][0], found["plain-tied"][0]
    for spec in (bert, albert):
        assert (spec.task.n_vars, spec.task.supervised, spec.task.n_ctx) == (12, tuple(range(6)), 62)
        assert (spec.config.d_model, spec.config.n_heads, spec.config.n_layers, spec.config.d_mlp) == (
            768,
            12,
            12,
            3072,
        )
        assert (spec.config.block, spec.config.head) == ("post_ln", "linear")
        s = spec.settings
        assert (s.steps, s.batch_size, s.n_train, s.learning_rate) == (24_000, 1000, 120_000, 5e-5)
        assert (s.precision, s.decay, s.decay_share, s.association) == ("bfloat16", "cosine", 1.0, "none")
    assert (albert.config.tied, albert.config.d_embedding) == (True, 128)
    assert found["shortcut-random"][0].task.supervised == (0, 1, 2, 3, 4, 11)
    assert found["start-mimic"][0].settings.mimicking.steps == 1000
    assert found["start-pretrained"][0].pretrained == "bert-base-uncased"


def test_the_environment_names_the_folder_of_the_pretrained_bert(monkeypatch):
    monkeypatch.setenv("UNMYOPIC_BERT", "/somewhere/bert")
    assert groups("paper")["start-pretrained"][0].pretrained == "/somewhere/bert"
    assert groups("standard")["start-pretrained"][0].pretrained.task.objective == "masked"


def test_symbols_replace_every_mark_of_the_paper():
    task = ARMS["standard"]["start"].task()
    given = dict(groups("standard")["start-symbols"][0].symbols)
    assert {"=", "+", "-"} <= set(given)
    assert not set(given.values()) & set(task.vocab.ids)


def test_first_for_good_is_the_first_depth_without_a_later_failure():
    holds = np.array([[0, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 1]], dtype=bool)
    found = first_for_good(holds, np.array([3, 5, 8, 9]))
    assert found[[0, 1, 3]].tolist() == [9, 3, 8]
    assert np.isnan(found[2])


def test_straightness_of_a_line_a_bend_and_too_little():
    assert straightness(np.array([0.0, 2, 4, 6, 8])) == pytest.approx((1, 2))
    bent, _ = straightness(np.array([0.0, 1, 8, 8, 8]))
    assert bent < 0.7
    assert straightness(np.array([9.0, 2, 4, 6, np.nan])) == (0, 0)
    assert straightness(np.array([0.0, 3, 3, 3, 3])) == (0, 0)
    assert straightness(np.array([9.0, 2, np.nan, 6, 8, 10])) == pytest.approx((1, 2))  # the root does not count


def test_difference_interval_is_welchs():
    draw = np.random.default_rng(0)
    a, b = draw.normal(1, 1, 5), draw.normal(0, 3, 8)
    mean, low, high = difference_interval(a, b)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert (mean, low, high) == pytest.approx((a.mean() - b.mean(), expected.low, expected.high))
    assert difference_interval(np.ones(3), np.zeros(4)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.02, 0.03, "reproduced"), (-0.2, -0.06, "not reproduced"), (0.06, 0.2, "not reproduced"),
     (-0.06, 0.01, "inconclusive"), (-0.01, 0.06, "inconclusive")],
)  # fmt: skip
def test_within_requires_the_whole_interval(low, high, verdict):
    assert within(measured((low + high) / 2, low, high), margin=0.05) == verdict


def test_contrast_is_over_the_worst_untrained_variable(monkeypatch):
    known, far, near = [1, 1, 0, 0], [1, 1, 0.9, 0.7], [1, 1, 0.5, 0.5]
    found = {
        "plain-tied": [curve([near, far], known, depths=(8, 16)) for _ in range(3)],
        "plain-untied": [curve([near], known, depths=(8,)) for _ in range(3)],
    }
    evidence = evidence_of(monkeypatch, found, generalisation)
    said = generalisation.measure_contrast(evidence, ours=("plain-tied", 2), other=("plain-untied", 1))
    assert said.value == pytest.approx(0.2)
    assert said.numbers["plain-tied, 16 layers"] == pytest.approx(0.7)
    assert generalisation.measure_contrast(evidence, ours=("plain-tied", 1), other=("plain-untied", 1)).value == 0


def test_solved_is_judged_by_the_worst_variable_of_the_worst_seed(monkeypatch):
    found = {"classical-tied": [curve([values], [1] * 3, depths=(2,)) for values in ([1, 1, 1], [1, 0.96, 1])]}
    evidence = evidence_of(monkeypatch, found, generalisation)
    said = generalisation.measure_solved(evidence, group="classical-tied")
    assert (said.value, said.numbers["worst seed"], said.numbers["worst variable"]) == (0.96, 1, "#1")
    low, high = stats.binomtest(960, 1000).proportion_ci(1 - 0.05 / 6)
    assert (said.low, said.high) == pytest.approx((low, high))
    assert said.numbers["seeds that solve every variable"] == 1


def test_robust_is_the_minimum_over_depths(monkeypatch):
    depths = (11, 15, 22, 33)
    found = {
        "long-stochastic": [curve([[1, 0], [0.9, 0], [1, 0], [0.1, 0]], [1, 0], depths=depths)] * 2,
        "long-tied": [curve([[1, 0], [1, 0], [0.4, 0], [0.1, 0]], [1, 0], depths=depths)] * 2,
    }
    said = generalisation.measure_robust(
        evidence_of(monkeypatch, found, generalisation), ours="long-stochastic", other="long-tied"
    )
    assert said.value == pytest.approx(0.5)


def test_the_lead_of_the_last_variable(monkeypatch):
    found = {"shortcut-random": [curve([[1, 0.9, 0.5, 0.6, 0.8]], [1, 1, 0, 0, 1], depths=(2,))] * 3}
    said = shortcut.measure_lead(evidence_of(monkeypatch, found, shortcut), group="shortcut-random")
    assert said.value == pytest.approx(0.25)


@pytest.mark.parametrize(("known", "share"), [(lego_shortcut, 1.0), (lego_loop, 0.0)])
def test_parity_separates_counting_from_following_the_chain(monkeypatch, known, share):
    task = Lego(n_vars=4)
    found = {"shortcut-random": [curve([[1, 1, 1, 1]], [1, 1, 0, 1], depths=(2,))] * 2}
    evidence = evidence_of(monkeypatch, found, shortcut)
    for spec in evidence.groups["shortcut-random"]:
        spec.task = task  # type: ignore[misc]
    monkeypatch.setattr(shortcut, "BROKEN", 200)
    monkeypatch.setattr(Evidence, "run", lambda self, spec: SimpleNamespace(model=known(task)))
    said = shortcut.measure_parity(evidence, group="shortcut-random")
    assert said.value == pytest.approx(share, abs=0.2)
    assert shortcut.judge_parity(said) == ("reproduced" if share else "not reproduced")


def test_parity_is_inconclusive_with_one_seed_that_learned():
    assert shortcut.judge_parity(measured(1.0, 0.9, 1.1, **{"seeds that know the last variable": 1})) == "inconclusive"


def test_a_property_correlated_with_extrapolation_is_found(monkeypatch):
    far = [0.5, 0.6, 0.7, 0.8, 0.9]
    found = {
        "long-tied": [curve([[1, value]], [1, 0], depths=(22,)) for value in far],
        "long-stochastic": [curve([[1, value - 0.1]], [1, 0], depths=(22,)) for value in far],
        "plain-tied": [curve([[1, 0.6]], [1, 0], depths=(16,))],
    }
    evidence = evidence_of(monkeypatch, found, loops)
    accuracies = dict.fromkeys((name, seed) for name, seeds in found.items() for seed in range(len(seeds)))
    monkeypatch.setattr(learned, "lowest_accuracy", lambda evidence, spec: 1 - 0.5 * ((spec.name, spec.seed) in worse))
    worse: set[tuple[str, int]] = set()
    monkeypatch.setitem(
        loops.PROPERTIES, "probes", (lambda evidence, spec, depth: far[spec.seed], "a property", "they have it")
    )
    said = loops.measure_why(evidence, name="probes")
    assert said.value == pytest.approx(1)
    assert said.low > 0.9
    assert said.n == len(accuracies) == 11
    worse = {("long-tied", 0), ("plain-tied", 0)}
    assert loops.measure_why(evidence, name="probes").n == 9
    worse = set(accuracies)
    none = loops.measure_why(evidence, name="probes")
    assert (none.low, none.high) == (-1, 1)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """The study at size standard with models of two layers, trained for two steps."""
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path / "cache"))
    text = " ".join(f"{chr(97 + i % 26)} = {i} + x - ( ) _ > # ;" for i in range(400))
    corpus = Corpus(documents={f"{i}.py": text for i in range(20)})
    monkeypatch.setattr(models, "Text", lambda **settings: Text(corpus=corpus, **settings))
    monkeypatch.setattr(models, "TEXT_STEPS", 2)
    monkeypatch.setattr(pathway_models, "_corpus", lambda size: corpus)
    scale = replace(
        pathway_models.SCALES["standard"],
        sizes={"d_model": 24, "n_layers": 2},
        vocab_size=300,
        lengths=((16, 2), (32, 1)),
        pretraining={"tokens_per_step": 100, "eval_every": 1, "n_eval": 4},
        fine_tuning={"steps": 2, "tokens_per_step": 200, "eval_every": 1, "n_eval": 20},
        seeds=2,
    )
    monkeypatch.setitem(pathway_models.SCALES, "standard", scale)
    monkeypatch.setitem(hardcoded.WINDOWS, "standard", 10)
    monkeypatch.setitem(cost.EFFORT, "standard", cost.EFFORT["quick"])
    arms = {
        name: replace(arm, layers=2, steps=2, curriculum=(), seeds=2, depth_range=arm.depth_range and (1, 2))
        for name, arm in ARMS["standard"].items()
    }
    monkeypatch.setitem(ARMS, "standard", arms)
    config_for = models.config_for
    monkeypatch.setattr(
        models, "config_for", lambda *given, **sizes: config_for(*given, **{**sizes, "d_model": 16, "n_heads": 2})
    )
    settings = models.TrainSettings
    few = {"n_eval": 20, "tokens_per_step": 200, "eval_every": 1, "mimicking": Mimicking(steps=1, batch_size=4)}
    monkeypatch.setattr(models, "TrainSettings", lambda **given: settings(**{**given, **few}))
    monkeypatch.setitem(curves.SENTENCES, "standard", 100)
    monkeypatch.setitem(percolation.EXAMPLES, "standard", (200, 100))
    monkeypatch.setitem(loops.SENTENCES, "standard", 16)


@pytest.mark.slow
def test_the_whole_study_runs_on_untrained_models(tiny, tmp_path):
    result = STUDY.run(size="standard", folder=tmp_path, n_jobs=1)
    for one in result.claims:
        found = one.measurement
        assert found is not None, one.claim.id
        assert found.low <= found.value <= found.high, one.claim.id
    said = {one.claim.id: one for one in result.claims}
    for name in ("beyond.loop", "depth.stochastic", "percolation.linear", "shortcut.parity", "start.pretrained"):
        assert said[name].verdict != "reproduced", name
    assert said["solved.untied"].verdict == "not reproduced"
    assert said["heads.readable"].measurement.numbers["models left out"] == 2 * len(heads.EVERY)
    assert result.page.read_text().count('class="verdict"') >= 2 * len(STUDY.claims)


@pytest.mark.slow
def test_quick_claims_from_the_command_line(tmp_path):
    """The README's command for two claims; only results that do not depend on the seed."""
    command = [str(Path(sys.executable).with_name("interp")), "reproduce", "lego", "--out", str(tmp_path)]
    subprocess.run([*command, "--only", "start.mimic", "--only", "solved.untied"], check=True, timeout=3600)
    said = {claim["id"]: claim for claim in json.loads((tmp_path / "lego/quick/claims.json").read_text())["claims"]}
    assert set(said) == {claim.id for claim in STUDY.claims}
    assert said["solved.untied"]["measured"] > 0.95
    assert said["start.mimic"]["measured"] > 0.1
    assert said["beyond.loop"]["verdict"] == "not measured"
    assert said["shortcut.parity"]["verdict"] == "not measured"
    assert (tmp_path / "lego/quick/report.html").stat().st_size > 50_000
