"""The LEGO study: arms differ only in what they compare, measures recover known answers, the study runs."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from lego_curves import curve, evidence_of
from scipy import stats
from toys import measured

from case_studies.frame.evidence import SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.lego import (
    cost,
    curves,
    generalisation,
    loops,
    models,
    pathway_models,
    percolation,
    plateau,
    shortcut,
    starts,
)
from case_studies.lego.models import ARMS, FURTHER, groups
from case_studies.lego.percolation import straightness
from case_studies.lego.study import STUDY, every_group
from case_studies.recipes import learned
from case_studies.recipes.seeds import more_seeds
from interp.core.intervals import Interval
from interp.evaluation.extrapolate import first_for_good
from interp.known_answers import lego_loop, lego_shortcut
from interp.tasks import Corpus, Lego, Text
from interp.training.settings import Mimicking


def claim(name):
    return next(claim for claim in STUDY.claims if claim.id == name)


def test_every_claim_is_stated_with_source_and_rule():
    for claim in STUDY.claims:
        assert claim.source.startswith(("LEGO, ", "ours")), claim.id
        assert claim.statement.endswith("."), claim.id
        assert "reproduced if" in claim.rule_text, claim.id
        assert claim.quantity, claim.id


@pytest.mark.parametrize("size", SIZES)
def test_arms_differ_only_in_what_they_compare(size):
    found = groups(size)
    every = every_group(size)
    assert all(set(claim.needs) <= set(every) for claim in STUDY.claims)
    assert all(every[name] for claim in STUDY.claims if size in claim.sizes for name in claim.needs)
    shared = ("start-mimic", "start-random")  # at some sizes those of `classical-untied`
    shared += ("plain-mimic", "plain-random")  # at some sizes those of `plain-untied`
    shared += ("mimic-first",) if size == "standard" else ("spare-untied", "spare-tied", "mimic-last")
    if size == "paper":
        shared += ("pretrained",)
    shared += tuple(map(more_seeds, FURTHER))
    keys = [spec.key for name, specs in found.items() if name not in shared for spec in specs]
    assert len(set(keys)) == len(keys)
    for arm in ("classical", "plain", "spare", "long"):
        assert size != "quick" or not found[f"{arm}-tied"]
        for one, other in zip(found[f"{arm}-untied"], found[f"{arm}-tied"], strict=size != "quick"):
            assert (one.task, one.seed) == (other.task, other.seed)
            assert arm == "classical" or one.settings.steps == other.settings.steps  # no claim compares these two
            assert one.config.n_layers == other.config.n_layers
            assert (one.config.tied, other.config.tied) == (False, True)
    for name in ("mimic", "pretrained", "symbols"):
        for one, other in zip(found["start-random"], found[f"start-{name}"], strict=False):
            association = "mimic" if name == "mimic" else "none"
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
    for name in ("plain-untied", "plain-tied", "long-untied", "long-tied", "long-stochastic"):
        assert len(standard[name]) >= 8, name
    for name in (
        "spare-untied",
        "spare-tied",
        "mimic-last",
        *(more_seeds(f"long-{name}") for name in ("tied", "stochastic")),
    ):
        assert len(standard[name]) >= 12, name
    assert min(len(specs) for specs in standard.values()) >= 3


@pytest.mark.parametrize("size", ["standard", "paper"])
def test_spare_arms_have_layers_for_every_variable_of_a_loop_or_are_the_papers(size):
    found = groups(size)
    for name in ("untied", "tied"):
        for spare, plain in zip(found[f"spare-{name}"], found[f"plain-{name}"], strict=False):
            assert spare.task == plain.task
            if size == "paper":
                assert spare.key == plain.key
            else:
                assert spare.config == replace(plain.config, n_layers=12)
                assert spare.config.n_layers > 2 * (spare.task.n_vars - 1)  # two layers per variable


@pytest.mark.parametrize("size", ["standard", "paper"])
def test_the_shortcut_and_its_control_differ_in_one_trained_variable(size):
    found = groups(size)
    arms = [("mimic-last", "mimic-first", "mimic")]
    if size == "paper":
        arms.append(("shortcut-random", "plain-untied", "none"))
    for arm, control, association in arms:
        for last, first in zip(found[arm], found[control], strict=False):
            n = last.task.n_vars
            assert (last.task.supervised, first.task.supervised) == ((0, 1, 2, 3, 4, n - 1), (0, 1, 2, 3, 4, 5))
            assert (last.config, last.settings, last.seed) == (first.config, first.settings, first.seed)
            assert last.settings.association == association


def test_tied_models_of_every_variable_are_trained_twice_as_long():
    found = groups("standard")
    steps = {name: {spec.settings.steps for spec in found[f"classical-{name}"]} for name in ("untied", "tied")}
    assert steps == {"untied": {1600}, "tied": {3200}}
    assert found["group-s3"][0].settings.steps == 4000


def test_pretrained_models_are_seeds_of_the_one_that_is_fine_tuned():
    found = groups("standard")
    first, *others = found["pretrained"]
    assert found["start-pretrained"][0].pretrained.key == first.key
    assert [spec.seed for spec in others] == [1, 2]
    assert groups("paper")["pretrained"] == groups("paper")["start-pretrained"][:1]


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


@pytest.mark.parametrize(("variable", "difference"), [("worst", 0.2), ("first", 0.4), ("second", 0.2)])
def test_contrast_is_over_one_untrained_variable(monkeypatch, variable, difference):
    known, far, near = [1, 1, 0, 0], [1, 1, 0.9, 0.7], [1, 1, 0.5, 0.5]
    found = {
        "plain-tied": [curve([near, far], known, depths=(8, 16)) for _ in range(3)],
        "plain-untied": [curve([near], known, depths=(8,)) for _ in range(3)],
    }
    evidence = evidence_of(monkeypatch, found, generalisation)

    def measure(arm):
        options = {"arm": arm, "reference": ("plain-untied", 1), "variable": variable}
        measure = partial(generalisation.measure_contrast, **options)
        judged = generalisation.contrast_judge(*options.values())
        return replace(claim("beyond.loop-plain"), measure=measure, judged=judged).measurement(evidence)

    said = measure(("plain-tied", 2))
    assert said.value == pytest.approx(difference)
    assert said.low < said.value < said.high
    name = f"mean {variable}, plain-tied at 2 times the plain depth"
    assert said.numbers[name] == pytest.approx(0.5 + difference)
    assert said.tables[0][1][1][1:6] == ["16", "0", "0.9", "0.7", "0.7"]
    assert measure(("plain-tied", 1)).value == 0


def test_two_depths_of_the_same_models_are_paired(monkeypatch):
    rows = [([1, 1, 0.5], [1, 1, 0.6]), ([1, 1, 0.7], [1, 1, 0.8]), ([1, 1, 0.3], [1, 1, 0.4])]
    found = {"long-tied": [curve(list(both), [1, 1, 0], depths=(11, 22)) for both in rows]}
    said = claim("beyond.turns").measurement(evidence_of(monkeypatch, found, generalisation))
    assert (said.value, said.n, said.unit) == (pytest.approx(0.1), 3, "seeds an arm")
    assert said.low > 0.09  # the seeds differ by far more than that


def test_solved_is_judged_by_the_worst_variable_of_the_worst_seed(monkeypatch):
    found = {"classical-tied": [curve([values], [1] * 3, depths=(2,)) for values in ([1, 1, 1], [1, 0.96, 1])]}
    evidence = evidence_of(monkeypatch, found, generalisation)
    said = claim("solved.tied").measurement(evidence)
    assert (said.value, said.numbers["judged: seed"], said.numbers["judged: worst variable"]) == (0.96, 1, "#1")
    low, high = stats.binomtest(960, 1000).proportion_ci(1 - 0.05 / 6)
    assert (said.low, said.high) == pytest.approx((low, high))
    assert said.numbers["seeds that solve every variable"] == 1


def test_the_last_variable_leads_if_it_is_learned_before_the_one_that_it_refers_to(monkeypatch):
    found = {"start-random": [curve([[1, 0.9, 1, 1]], [1] * 4, depths=(2,))] * 3}
    evidence = evidence_of(monkeypatch, found, shortcut)
    for spec in evidence.groups["start-random"]:
        spec.settings = SimpleNamespace(n_eval=1000, eval_every=100)  # type: ignore[misc]
    histories = {
        "shortcut": [[1, 0.7, 0.5, 0.5], [1, 0.9, 0.5, 0.9], [1, 0.9, 1, 1]],  # all are learned in the end
        "chain": [[1, 0.7, 0.5, 0.5], [1, 0.9, 0.9, 0.5], [1, 0.9, 1, 1]],
    }
    for name, lead in (("shortcut", 0.4 / 3), ("chain", -0.4 / 3)):
        records = [{"accuracy": accuracy} for accuracy in histories[name]]
        monkeypatch.setattr(Evidence, "history", lambda self, spec, records=records: records)
        said = claim("shortcut.last-first").measurement(evidence)
        assert said.value == pytest.approx(lead)
        assert claim("shortcut.last-first").verdict(said) == ("reproduced" if lead > 0 else "not reproduced")


def test_the_control_compares_variables_that_neither_arm_trains(monkeypatch):
    ours, other = [1, 1, 1, 0.4, 0.6, 1], [1, 1, 1, 1, 0.9, 0.3]
    found = {
        "mimic-last": [curve([ours], [1, 1, 1, 0, 0, 1], depths=(2,))] * 3,
        "mimic-first": [curve([other], [1, 1, 1, 1, 0, 0], depths=(2,))] * 2,
    }
    evidence = evidence_of(monkeypatch, found, shortcut)
    said = claim("shortcut.control").measurement(evidence)
    assert said.value == pytest.approx(-0.3)
    assert said.numbers["variables"] == ["#4"]
    stated = claim("shortcut.control")
    assert stated.verdict(said) == "not reproduced"
    assert stated.verdict(replace(said, value=0, low=-0.04, high=0.04)) == "reproduced"
    unknown = {**said.numbers, shortcut.CONTROL: 0.59}
    assert stated.verdict(replace(said, numbers=unknown)) == "inconclusive"  # the control has nothing to lose


@pytest.mark.parametrize(("remaining", "counting"), [([1.0, 0.9, 0.4, 0.0], 0.5), ([0.1] * 12, 0), ([0.9] * 12, 1)])
def test_models_that_count_are_counted(monkeypatch, remaining, counting):
    known = pd.DataFrame({shortcut.REMAINING: remaining, shortcut.KNOWN_BY: True})
    unknown_model = pd.DataFrame({shortcut.REMAINING: [np.nan], shortcut.KNOWN_BY: False})
    parity = Readings(frame=pd.concat([known, unknown_model]), numbers={shortcut.KNOWING: len(remaining)})
    monkeypatch.setattr(shortcut, "measure_parity", lambda evidence, group: parity)
    said = claim("shortcut.prevented").measurement(SimpleNamespace(seed=0))
    assert (said.value, said.n, said.numbers["models that count"]) == (counting, len(remaining), counting * said.n)
    verdict = {0.5: "inconclusive", 0: "reproduced", 1: "not reproduced"}[counting]
    assert claim("shortcut.prevented").verdict(said) == verdict
    unknown = {**said.numbers, shortcut.KNOWING: 1}
    assert claim("shortcut.prevented").verdict(replace(said, numbers=unknown)) == "inconclusive"


def test_a_shortcut_degrades_what_the_control_extrapolates_to():
    stated = claim("shortcut.degrades")
    for low, high, verdict in ((-0.4, -0.1, "reproduced"), (0.1, 0.2, "not reproduced"), (-0.1, 0.1, "inconclusive")):
        said = measured((low + high) / 2, low, high, **{shortcut.CONTROL: 0.7})
        assert stated.verdict(said) == verdict
    assert stated.verdict(measured(-0.2, -0.4, -0.1, **{shortcut.CONTROL: 0.55})) == "inconclusive"


def test_symbols_are_undecided_while_nothing_is_learned():
    for mean, verdict in ((0.66, "inconclusive"), (0.95, "reproduced")):
        said = measured(0.0, -0.02, 0.02, **{"mean accuracy, start-pretrained": mean})
        assert claim("start.symbols").verdict(said) == verdict


def test_association_heads_are_counted_over_models(monkeypatch):
    found = [classified(score) for score in (0.5, 0.6, 0.7)]
    monkeypatch.setattr(starts, "labels_of", lambda evidence, spec, task: (found[spec.seed], classified(0.1), None))
    monkeypatch.setattr(starts, "gallery", lambda *given, **named: {"mark": "line"})
    groups = {"pretrained": tuple(map(seed_only, range(3)))}
    evidence = Evidence(size="standard", seed=0, groups=groups, folder=Path())  # type: ignore[arg-type]
    said = claim("start.association").measurement(evidence)
    assert (said.value, said.n, said.unit) == (pytest.approx(0.5), 3, "models")
    half = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert (said.low, said.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert said.numbers["heads labelled association"] == 3
    stated = claim("start.association")
    assert stated.verdict(replace(said, low=0.31)) == "reproduced"
    assert stated.verdict(said) == "inconclusive"
    assert stated.verdict(replace(said, value=0, low=-0.1, high=0.1)) == "not reproduced"


def seed_only(seed):
    return SimpleNamespace(seed=seed)


def classified(score):
    """Heads of one layer and two heads, one with this association score."""
    label = "association" if score >= 0.3 else "unclassified"
    scores = np.array([[[score, 0.0], [0.05, 0.4]]])
    scores = Interval(value=scores, low=scores, high=scores, n=100)
    return SimpleNamespace(kinds=("association", "manipulation"), score=scores, label=[[label, "manipulation"]])


def test_models_that_have_not_learned_are_excluded_from_percolation(monkeypatch):
    straight, bent = np.array([0.0, 2, 4, 6, 8]), np.array([0.0, 1, 8, 8, 8])
    layers = {("long-tied", 0): straight, ("long-tied", 1): straight, ("long-tied", 2): bent}
    layers |= {("long-untied", seed): bent for seed in range(3)}
    evidence = evidence_of(monkeypatch, {name: [None] * 3 for name in ("long-tied", "long-untied")}, percolation)
    monkeypatch.setattr(percolation, "_map", lambda evidence, group: {"mark": "rect"})
    monkeypatch.setattr(percolation, "probe_layers", lambda evidence, spec: layers[spec.name, spec.seed])
    monkeypatch.setattr(
        learned, "lowest_accuracy", lambda evidence, spec: 0.5 if (spec.name, spec.seed) in worse else 1
    )
    worse = {("long-tied", 2)}
    said = claim("percolation.linear").measurement(evidence)
    assert said.value == pytest.approx(1 - straightness(bent)[0])
    assert (said.n, said.numbers["models, long-tied"]) == (2, 2)
    assert said.low < said.value < said.high
    assert said.tables[1][0].startswith("Excluded: 1")
    worse = set(layers)
    said = claim("percolation.linear").measurement(evidence)
    assert claim("percolation.linear").verdict(said) == "inconclusive"


@pytest.mark.parametrize(("known", "share"), [(lego_shortcut, 1.0), (lego_loop, 0.0)])
def test_parity_separates_counting_from_following_the_chain(monkeypatch, known, share):
    task = Lego(n_vars=4)
    found = {"shortcut-random": [curve([[1, 1, 1, 1]], [1, 1, 0, 1], depths=(2,))] * 2}
    evidence = evidence_of(monkeypatch, found, shortcut)
    for spec in evidence.groups["shortcut-random"]:
        spec.task = task  # type: ignore[misc]
    monkeypatch.setattr(shortcut, "BROKEN", 200)
    monkeypatch.setattr(Evidence, "run", lambda self, spec: SimpleNamespace(model=known(task)))
    said = claim("shortcut.parity").measurement(evidence)
    assert said.value == pytest.approx(share, abs=0.2)
    assert said.low < said.value < said.high
    assert claim("shortcut.parity").verdict(said) == ("reproduced" if share else "not reproduced")


def test_parity_is_inconclusive_with_one_seed_that_learned():
    for name in ("shortcut.parity", "shortcut.mimic-parity"):
        for seeds, verdict in ((1, "inconclusive"), (2, "reproduced")):
            said = measured(1.0, 0.9, 1.1, **{"seeds that know the last variable": seeds})
            assert claim(name).verdict(said) == verdict


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
    _, words = loops.PROPERTIES["heads"]
    monkeypatch.setitem(loops.PROPERTIES, "heads", (lambda evidence, spec, depth: far[spec.seed], words))
    said = claim("loop.heads").measurement(evidence)
    assert said.value == pytest.approx(1)
    assert 0.9 < said.low < said.high
    assert said.n == len(accuracies) == 11
    worse = {("long-tied", 0), ("plain-tied", 0)}
    assert claim("loop.heads").measurement(evidence).n == 9
    worse = set(accuracies)
    none = claim("loop.heads").measurement(evidence)
    assert (none.low, none.high) == (-1, 1)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """The study at size standard with models of two layers, trained for two steps."""
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path / "cache"))
    text = " ".join(f"{chr(97 + i % 26)} = {i} + x - ( ) _ > # ;" for i in range(400))
    corpus = Corpus(documents={f"{i}.py": text for i in range(20)})
    monkeypatch.setattr(models, "Text", lambda **settings: Text(corpus=corpus, **settings))
    monkeypatch.setattr(models, "TEXT_STEPS", 2)
    monkeypatch.setattr(models, "TEXT_SEEDS", 2)
    monkeypatch.setattr(models, "chain_models", lambda seeds, **named: models._specs("standard", "start", **named))
    monkeypatch.setattr(models, "FURTHER", dict.fromkeys(models.FURTHER, 2))
    monkeypatch.setattr(pathway_models, "_corpus", lambda size: corpus)
    scale = replace(
        pathway_models.SCALES["standard"],
        sizes={"d_model": 24, "n_layers": 2},
        vocab_size=300,
        lengths=((16, 2), (32, 1)),
        pretraining={"tokens_per_step": 100, "eval_every": 1, "n_eval": 4},
        seeds=2,
    )
    monkeypatch.setitem(pathway_models.SCALES, "standard", scale)
    monkeypatch.setitem(plateau.WINDOWS, "standard", 10)
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
    # those of real weights, which not every machine has, are tested with weights of their own
    names = [claim.id for claim in STUDY.claims if claim.packs is None]
    result = STUDY.run(size="standard", folder=tmp_path, n_jobs=1, only=names)
    for one in result.claims:
        found = one.measurement
        assert (found is not None) == ("standard" in one.claim.sizes and one.claim.id in names), one.claim.id
        assert found is None or found.low <= found.value <= found.high, one.claim.id
    said = {one.claim.id: one for one in result.claims}
    for name in ("beyond.loop", "depth.stochastic", "percolation.linear", "shortcut.parity", "start.pretrained"):
        assert said[name].verdict != "reproduced", name
    assert said["solved.untied"].verdict == "not reproduced"
    assert result.page.read_text().count('class="verdict"') >= len(STUDY.claims)


@pytest.mark.long
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
    assert sum(path.stat().st_size for path in (tmp_path / "lego/quick").rglob("*.html")) > 50_000
