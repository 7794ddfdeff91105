"""The Dyck study: claims, groups of models, rules, and end-to-end runs."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from toys import check_measured, measured

from case_studies.dyck import balance
from case_studies.dyck.constructions import EVERY_SHORT
from case_studies.dyck.measures import KEPT
from case_studies.dyck.models import SEEDS
from case_studies.dyck.necessity import BALANCED
from case_studies.dyck.prefixes import CURRENT, FIRST
from case_studies.dyck.proposition import DISTANCE
from case_studies.dyck.pruning import WIDEST_ERROR, WIDEST_ORDER
from case_studies.dyck.pruning_blocks import SLOPE_END
from case_studies.dyck.study import STUDY
from case_studies.dyck.variation import LOWEST
from case_studies.frame.evidence import SIZES
from case_studies.recipes.intervals import correlation
from interp.training.settings import TrainSettings

groups = cache(STUDY.groups)
JUDGES = {claim.id: claim.verdict for claim in STUDY.claims}
VIOLATION = "largest violation of a balanced model"
IN_ORDER = "least share of positions in order"
SHARED = {
    "largest difference of a shared matrix": 0.0,
    "entries kept in one mask only": 0,
    "largest error against the own target": 0.001,
}


def kept(*values, n=8, **numbers):
    """A measurement on models all of which have learned."""
    return measured(*values, n=n, **numbers, **{KEPT: n})


def test_every_claim_has_a_source_a_statement_and_a_rule():
    for claim in STUDY.claims:
        assert claim.source.startswith(("bounded Dyck, ", "ours: bounded Dyck, ", "ours, after bounded Dyck, ")), (
            claim.id
        )
        assert claim.statement.endswith("."), claim.id
        assert claim.rule_text.endswith("."), claim.id
        assert claim.paper is None  # no printed number could be verified


@pytest.mark.parametrize("size", SIZES)
def test_every_claim_finds_its_models(size):
    found = groups(size)
    for claim in STUDY.claims:
        if size in claim.sizes:
            assert all(len(found[name]) > 1 for name in claim.needs), (size, claim.id)
    for name, specs in found.items():
        assert len({spec.key for spec in specs}) == len(specs), name
        assert len({json.dumps(replace(spec, seed=0).description) for spec in specs}) <= 1, name


def test_treated_models_differ_only_in_the_contrastive_weight():
    for size in SIZES:
        found = groups(size)
        for group in balance.SETTINGS.values():
            for plain, treated in zip(found[group], found[f"{group}-contrastive"], strict=True):
                assert (plain.settings.contrastive, treated.settings.contrastive) == (0.0, 0.3)
                assert replace(treated, settings=replace(treated.settings, contrastive=0.0)) == plain


def test_number_of_seeds():
    assert SEEDS["quick"]["gpt"] == SEEDS["quick"]["minimal"] == 8
    assert SEEDS["standard"]["gpt"] == 30
    assert len(groups("quick")["gpt-linear"]) == 8
    assert len(groups("standard")["minimal-words-closers-many"]) == 120


@pytest.mark.parametrize("size", SIZES)
def test_further_seeds_have_the_settings_of_the_first_ones(size):
    few, many = (groups(size)[name] for name in ("minimal-words-closers", "minimal-words-closers-many"))
    assert [spec.key for spec in many[: len(few)]] == [spec.key for spec in few]


@pytest.mark.parametrize(
    ("claim", "measurement", "verdict"),
    [
        ("learned.no-positions", measured(0.98, 0.97, 0.99), "reproduced"),
        ("learned.no-positions", measured(0.98, 0.96, 0.99), "inconclusive"),
        ("learned.no-positions", measured(0.9, 0.85, 0.96), "not reproduced"),
        ("uniform.learned", measured(0.98, 0.97, 0.99), "reproduced"),
        ("variation.no-positions.last-layer", kept(1.7, 1.4, 2.1), "reproduced"),
        ("variation.no-positions.last-layer", kept(1.2, 0.9, 1.5), "inconclusive"),
        ("variation.linear-positions.last-layer", kept(0.8, 0.7, 0.9), "not reproduced"),
        ("variation.no-positions.last-layer", measured(1.7, 1.4, 2.1, **{KEPT: 3}), "inconclusive"),
        ("variation.no-positions.close", kept(1.0, 0.76, 1.3), "reproduced"),
        ("variation.no-positions.close", kept(1.0, 0.74, 1.3), "inconclusive"),
        ("variation.linear-positions.close", kept(1.0, 0.76, 1.34), "inconclusive"),
        ("variation.linear-positions.close", kept(3.0, 2.5, 3.6), "not reproduced"),
        ("uniformity.three-layers.first-layer", kept(0.95, 0.9, 1.0), "reproduced"),
        ("uniformity.three-layers.first-layer", kept(0.8, 0.7, 0.89), "not reproduced"),
        ("uniformity.three-layers.first-layer", kept(0.9, 0.89, 0.95), "inconclusive"),
        ("variation.table-1", kept(5.0, 2.3, 7.0, **{LOWEST: 2.9}), "reproduced"),
        ("variation.table-1", kept(5.0, 2.3, 7.0, **{LOWEST: 0.9}), "not reproduced"),
        ("variation.table-1", kept(5.0, 0.9, 7.0, **{LOWEST: 2.9}), "inconclusive"),
        ("variation.table-1", measured(1.0, 0.8, 1.2, **{KEPT: 3, LOWEST: 1.0}), "inconclusive"),
        ("variation.minimal-first-layer", kept(0.5, 0.2, 0.9), "reproduced"),
        ("variation.minimal-first-layer", kept(0.9, 0.2, 1.1), "inconclusive"),
        ("variation.minimal-first-layer", kept(2.0, 1.2, 3.1), "not reproduced"),
        ("variation.minimal-first-layer", measured(0.5, 0.2, 0.9, **{KEPT: 0}), "inconclusive"),
        ("prefixes.variation", kept(2.2, 1.9, 2.5), "reproduced"),
        ("prefixes.variation", kept(1.0, 0.8, 1.2), "inconclusive"),
        ("prefixes.variation", kept(0.8, 0.6, 0.9), "not reproduced"),
        ("prefixes.variation-linear", kept(2.2, 1.9, 2.5), "reproduced"),
        ("prefixes.minimal-varies-little", kept(0.02, 0.01, 0.04), "reproduced"),
        ("prefixes.longer", kept(12.0, 11.0, 14.0), "reproduced"),
        ("prefixes.longer-relative", kept(1.7, 1.6, 1.8), "reproduced"),
        ("prefixes.longer-relative", kept(0.9, 0.8, 0.99), "not reproduced"),
        ("prefixes.kinds-explain", kept(0.5, 0.2, 0.9), "reproduced"),
        ("prefixes.kinds-explain", kept(2.3, 1.9, 2.7), "not reproduced"),
        ("prefixes.current-or-first", kept(0.2, 0.1, 0.4, **{CURRENT: 2, FIRST: 2}), "reproduced"),
        ("prefixes.current-or-first", kept(0.9, 0.8, 1.0, **{CURRENT: 27, FIRST: 1}), "not reproduced"),
        ("prefixes.current-or-first", kept(0.9, 0.8, 1.0, **{CURRENT: 1, FIRST: 27}), "not reproduced"),
        ("prefixes.current-or-first", measured(1.0, 0.4, 1.0, **{KEPT: 3, CURRENT: 2, FIRST: 2}), "inconclusive"),
        ("heads.not-stack-like.minimal", kept(0.6, 0.51, 0.7), "reproduced"),
        ("heads.not-stack-like.minimal", kept(0.6, 0.49, 0.7), "inconclusive"),
        ("heads.not-stack-like.minimal", kept(0.2, 0.1, 0.4), "not reproduced"),
        ("misleading.stack-like", kept(0.2, 0.06, 0.4), "reproduced"),
        ("misleading.stack-like", kept(0.0, 0.0, 0.04), "not reproduced"),
        ("misleading.stack-like", kept(0.0, 0.0, 0.1), "inconclusive"),
        ("eq6.learned", measured(0.99, 0.98, 1.0), "reproduced"),
        ("eq6.not-interpretable", kept(0.0, -0.1, 0.1), "reproduced"),
        ("eq6.not-interpretable", kept(0.3, 0.2, 0.4), "not reproduced"),
        ("proposition-1.independent", measured(0.0, **{DISTANCE: 2.2}), "reproduced"),
        ("proposition-1.independent", measured(1e-7, **{DISTANCE: 2.2}), "not reproduced"),
        ("proposition-1.independent", measured(0.0, **{DISTANCE: 0.9}), "not reproduced"),
        ("heads.stack-like-matters-no-more", kept(0.0, -0.1, 0.04), "reproduced"),
        ("heads.stack-like-matters-no-more", kept(0.1, 0.06, 0.2), "not reproduced"),
        ("heads.stack-like-matters-no-more", kept(0.1, 0.0, 0.2), "inconclusive"),
        ("balance.length.within", kept(-0.5, -0.8, -0.1), "reproduced"),
        ("balance.length.within", kept(-0.5, -0.8, 0.1), "inconclusive"),
        ("balance.length.within", kept(-0.1, -0.3, 0.1, n=1000), "inconclusive"),
        ("balance.length.within", kept(0.5, 0.1, 0.8), "not reproduced"),
        ("prefixes.balance-within", kept(-0.5, -0.8, -0.1), "not reproduced"),
        ("prefixes.balance-within", kept(-0.1, -0.3, 0.1, n=1000), "inconclusive"),
        ("prefixes.balance-within", kept(0.1, 0.05, 0.3), "reproduced"),
        ("contrastive.words.violation", kept(-0.1, -0.2, -0.05), "reproduced"),
        ("contrastive.words.violation", kept(0.1, 0.05, 0.2), "not reproduced"),
        ("contrastive.words.length", kept(0.1, 0.05, 0.2), "reproduced"),
        ("contrastive.words.length", kept(0.1, -0.05, 0.2), "inconclusive"),
        ("balance.length.within", measured(-0.5, -0.8, -0.1, **{KEPT: 3}), "inconclusive"),
        ("contrastive.words.length", measured(0.1, 0.05, 0.2, **{KEPT: 3}), "inconclusive"),
        ("corollary-1.uniform", measured(1e-11), "reproduced"),
        ("corollary-1.uniform", measured(1e-9), "not reproduced"),
        ("theorem-1.balanced", measured(1.0, **{VIOLATION: 1e-13, EVERY_SHORT: 1.0}), "reproduced"),
        ("theorem-1.balanced", measured(1.0, **{VIOLATION: 1e-13, EVERY_SHORT: 0.9999}), "not reproduced"),
        ("theorem-1.balanced", measured(0.999, **{VIOLATION: 1e-13, EVERY_SHORT: 1.0}), "not reproduced"),
        ("theorem-1.balanced", measured(1.0, **{VIOLATION: 1e-11, EVERY_SHORT: 1.0}), "not reproduced"),
        ("theorem-1.necessary", measured(1.0, 0.9, 1.0, **{BALANCED: 0}), "reproduced"),
        ("theorem-1.necessary", measured(0.99, 0.9, 1.0, **{BALANCED: 0}), "not reproduced"),
        ("theorem-1.necessary", measured(1.0, 0.9, 1.0, **{BALANCED: 1}), "not reproduced"),
        ("theorem-1.rate", measured(-1.0, -1.2, -0.8), "reproduced"),
        ("theorem-1.rate", measured(-1.0, -1.3, -0.8), "inconclusive"),
        ("theorem-1.rate", measured(-0.5, -0.7, -0.4), "not reproduced"),
        ("pruning.linear", measured(0.05, 0.04, 0.06, **{SLOPE_END: -0.51}), "reproduced"),
        ("pruning.linear", measured(0.05, -0.01, 0.1, **{SLOPE_END: -0.51}), "inconclusive"),
        ("pruning.linear", measured(-0.05, -0.06, -0.04, **{SLOPE_END: -0.51}), "not reproduced"),
        ("pruning.linear", measured(0.05, 0.04, 0.06, **{SLOPE_END: -0.49}), "not reproduced"),
        ("pruning.transformer.one", measured(0.01, **{IN_ORDER: 1.0}), "reproduced"),
        ("pruning.transformer.one", measured(0.0101, **{IN_ORDER: 1.0}), "not reproduced"),
        ("pruning.transformer.one", measured(0.001, **{IN_ORDER: 0.9999}), "not reproduced"),
        (
            "pruning.transformer.two",
            measured(-0.8, -0.9, -0.6, **{WIDEST_ERROR: 0.01, WIDEST_ORDER: 1.0}),
            "reproduced",
        ),
        (
            "pruning.transformer.two",
            measured(-0.8, -0.9, -0.6, **{WIDEST_ERROR: 0.001, WIDEST_ORDER: 0.9999}),
            "not reproduced",
        ),
        ("pruning.shared.one", measured(0.2, **{**SHARED, "largest error against the own target": 0.02}), "reproduced"),
        ("pruning.shared.one", measured(0.19, **SHARED), "not reproduced"),
        (
            "pruning.shared.one",
            measured(9, **{**SHARED, "largest error against the own target": 0.03}),
            "not reproduced",
        ),
        ("pruning.shared.one", measured(9, **{**SHARED, "entries kept in one mask only": 1}), "not reproduced"),
        (
            "pruning.shared.one",
            measured(9, **{**SHARED, "largest difference of a shared matrix": 1e-9}),
            "not reproduced",
        ),
    ],
)
def test_verdicts_follow_the_rules(claim, measurement, verdict):
    assert JUDGES[claim](measurement) == verdict


def test_rank_correlation_of_monotonic_and_random_data():
    x = np.arange(12.0)
    assert correlation(x, np.ones_like(x), seed=0).floats() == (0, -1, 1)
    for n, bar in ((5, 0), (10, 0.9), (40, 0.995)):  # never a point
        value, low, high = correlation(np.arange(n), np.arange(n) ** 3, seed=0).floats()
        assert value == pytest.approx(1)
        assert bar < low < 1 == high
    low = float(correlation(np.arange(10), np.arange(10), seed=0).low)
    assert correlation(np.arange(10), -np.arange(10), seed=0).floats() == pytest.approx((-1, -1, -low))
    assert correlation(np.arange(4), np.arange(4), seed=0).low < 0.2
    noise = np.random.default_rng(0).normal(size=12)
    value, low, high = correlation(x, noise, seed=0).floats()
    assert low < value < high
    assert low < 0 < high


@pytest.fixture(scope="module")
def tiny():
    """The study with three seeds and three training steps per group."""

    def few(size):
        settings = TrainSettings(steps=3, batch_size=4, learning_rate=1e-3, n_eval=10)
        return {
            name: [
                replace(spec, settings=replace(settings, contrastive=spec.settings.contrastive)) for spec in specs[:3]
            ]
            for name, specs in groups(size).items()
        }

    return replace(STUDY, groups=few)


@pytest.mark.slow
def test_study_runs_on_nearly_untrained_models(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("case_studies.dyck.measures.N_SEQUENCES", {"quick": 3})
    monkeypatch.setattr("case_studies.dyck.measures.N_HELD_OUT", {"quick": 30})
    monkeypatch.setattr("case_studies.dyck.heads.N_CLASSIFY", {"quick": 8})
    monkeypatch.setattr("case_studies.dyck.heads.N_ABLATE", {"quick": 8})
    monkeypatch.setattr("case_studies.dyck.necessity.LENGTHS", (250, 1000, 2000))
    for name, small in (
        ("PER_WEIGHT", 8),
        ("SHARED_WIDTHS", (8,)),
        ("WIDTHS", {"quick": (6, 8)}),
        ("N_SEQUENCES", {"quick": 8}),
    ):
        monkeypatch.setattr(f"case_studies.dyck.pruning.{name}", small)
    monkeypatch.setattr("case_studies.dyck.pruning_blocks.DRAWS", 2)
    monkeypatch.setattr("case_studies.dyck.pruning_blocks.CANDIDATES", (6, 9))
    monkeypatch.setattr("case_studies.dyck.constructions.SHORT", {"quick": {2: 4, 3: 4}})
    result = tiny.run(folder=tmp_path, n_jobs=1)
    results = check_measured(STUDY, result)
    assert results["learned.no-positions"].label == "not reproduced"
    assert results["variation.no-positions.last-layer"].label == "inconclusive"
    assert results["uniform.learned"].label == "not reproduced"
    assert results["corollary-1.uniform"].label == "by construction"
    assert results["theorem-1.balanced"].label == "by construction"
    assert results["theorem-1.necessary"].label == "by construction"
    assert results["proposition-1.independent"].label == "by construction"
    assert results["heads.not-stack-like.minimal"].measurement.numbers[KEPT] == 0
    assert results["heads.not-stack-like.minimal"].label == "inconclusive"
    assert results["pruning.shared.one"].measurement.numbers["largest difference of a shared matrix"] == 0
    page = result.page.read_text()
    assert page.index('id="picture"') < page.index('id="verdicts"')
    assert page.count('class="verdict"') >= len(STUDY.claims)
    assert len(list((result.page.parent / "claims").iterdir())) == len(STUDY.claims)
    stored = json.loads((result.page.parent / "claims.json").read_text())
    assert [claim["id"] for claim in stored["claims"]] == [claim.id for claim in STUDY.claims]
    assert {"study", "size", "manifest", "claims"} <= set(stored)


@pytest.mark.long
def test_quick_study_from_the_command_line(tmp_path):
    """The command of the README; checks only the verdicts that do not depend on the seeds."""
    command = [str(Path(sys.executable).with_name("interp")), "reproduce", "dyck", "--out", str(tmp_path)]
    subprocess.run(command, check=True, timeout=3600)
    stored = json.loads((tmp_path / "dyck/quick/claims.json").read_text())
    results = {claim["id"]: claim for claim in stored["claims"]}
    for claim in STUDY.claims:
        measured_verdicts = ("reproduced", "not reproduced", "inconclusive", "by construction")
        assert results[claim.id]["verdict"] in (measured_verdicts if "quick" in claim.sizes else ("not measured",))
        assert (results[claim.id]["n"] is not None) == ("quick" in claim.sizes)
        assert (results[claim.id]["interval"] is not None) == ("quick" in claim.sizes)
    for name in ("learned.no-positions", "learned.linear-positions"):
        assert results[name]["verdict"] == "reproduced"
        assert results[name]["n"] == 8
        assert results[name]["numbers"]["worst seed"] >= 0.98
    for name in (
        "corollary-1.uniform",
        "proposition-1.independent",
        "theorem-1.balanced",
        "theorem-1.necessary",
        "theorem-1.rate",
        "contrastive.words.violation",
        "contrastive.words.length",
        *(
            claim.id
            for claim in STUDY.claims
            if claim.id.startswith("pruning.")
            and claim.id.endswith((".linear", ".mlp", ".attention", "transformer.one"))
        ),
    ):
        assert results[name]["verdict"] in ("reproduced", "by construction"), results[name]
    for name in ("pruning.shared.one", "pruning.shared.two"):  # trained weights, and so the error, depend on the CPU;
        numbers = results[name]["numbers"]  # test_dyck_shared.py requires the verdict for fixed weights
        assert results[name]["measured"] > 1, results[name]
        assert numbers["largest difference of a shared matrix"] == 0, results[name]
        assert numbers["entries kept in one mask only"] == 0, results[name]
        assert numbers["largest error against the own target"] < 0.01 * results[name]["measured"], results[name]
    assert sum(path.stat().st_size for path in (tmp_path / "dyck/quick").rglob("*.html")) > 100_000
