"""Which models a claim of the Dyck study is measured on, and its readings of their attention, on planted models."""

import numpy as np
import pytest
import torch
from planted_models import planted
from scipy import stats

from case_studies.dyck import balance, last_layers, learning, measures, prefixes, variation
from case_studies.dyck.measures import KEPT, chosen
from case_studies.dyck.study import STUDY
from hooks import Transformer
from interp import config_for
from interp.comparison.variation import attention_variation
from interp.known_answers import balanced_dyck, stack_dyck
from interp.tasks import Dyck

TASK = Dyck(n_types=2, max_depth=3, length=16)
CLAIMS = {claim.id: claim for claim in STUDY.claims}
FAILED: set[int] = set()


@pytest.fixture(autouse=True)
def pretended_learning(monkeypatch):
    FAILED.clear()
    torch.set_num_threads(1)
    monkeypatch.setattr(measures, "has_learned", lambda evidence, spec: spec.seed not in FAILED)
    for module in (balance, last_layers, prefixes, variation):
        monkeypatch.setattr(module, "excluded_models", lambda evidence, groups: [])
    monkeypatch.setattr(measures, "N_SEQUENCES", {"quick": 4})
    monkeypatch.setattr(measures, "N_HELD_OUT", {"quick": 20})
    monkeypatch.setattr(balance, "N_SEQUENCES", {"quick": 4})


def random_models(n, first=0):
    config = config_for(TASK, "dyck_gpt", d_model=16, d_mlp=16)
    return [Transformer(config, seed=seed) for seed in range(first, first + n)]


def judged(claim, given, task=TASK):
    measured = CLAIMS[claim].measurement(planted(task, given))
    return measured, CLAIMS[claim].verdict(measured)


def test_models_that_have_not_learned_are_excluded():
    models = random_models(6)
    FAILED.update({1, 4})
    one = chosen(planted(TASK, {"gpt": models}), "gpt")
    assert [spec.seed for spec in one.specs] == [0, 2, 3, 5]
    assert one.models == [models[0], models[2], models[3], models[5]]
    assert one.learned == 4


def test_all_models_are_shown_if_too_few_have_learned():
    FAILED.update({1, 4, 5})
    one = chosen(planted(TASK, {"gpt": random_models(6)}), "gpt")
    assert (len(one.specs), len(one.models), one.learned) == (6, 6, 3)


def test_pairs_are_kept_only_if_both_have_learned(monkeypatch):
    evidence = planted(TASK, {"a": random_models(6), "b": random_models(6, first=6)})
    treated = evidence.specs("b")
    monkeypatch.setattr(measures, "has_learned", lambda _, spec: spec is not treated[2])
    assert [spec.seed for spec in chosen(evidence, "a", "b").specs] == [0, 1, 3, 4, 5]
    assert [spec.seed for spec in chosen(evidence, "b", "a").specs] == [0, 1, 3, 4, 5]
    assert len(chosen(evidence, "a").specs) == 6


def test_variation_of_the_last_layer_is_relative_to_each_baseline():
    models = random_models(6)
    direct = attention_variation(models, TASK, prefixes=TASK.staircase())
    causal, square = (direct.ratio_to(name)[-1] for name in ("flat simplex", "flat simplex, unmasked"))
    measured, _ = judged("variation.no-positions.last-layer", {"gpt": models})
    assert measured.value == pytest.approx(causal)
    shuffled = measured.numbers["ratio to own rows, keys shuffled"]
    assert shuffled == pytest.approx(direct.ratio_to("own rows, keys shuffled")[-1])
    assert (measured.n, measured.numbers[KEPT]) == (6, 6)
    close, _ = judged("variation.no-positions.close", {"gpt": models})
    assert close.value == pytest.approx(square)
    assert close.low < close.value < close.high
    # Both claims have both ratios; 12 brackets and the start token are 13 keys
    for claim in (measured, close):
        assert claim.numbers["ratio to random causal rows"] == pytest.approx(causal)
        assert claim.numbers["ratio to random square matrices"] == pytest.approx(square)
        assert claim.numbers["variation of random square matrices"] == pytest.approx(2 * 12 / 14)


def test_an_unlearned_model_does_not_enter_the_variation():
    models = [*random_models(5), stack_dyck(TASK)]
    FAILED.add(5)
    with pytest.raises(ValueError, match="model"):  # of another shape, it would be refused
        attention_variation(models, TASK)
    measured, _ = judged("variation.no-positions.last-layer", {"gpt": models})
    assert measured.n == 5


def test_the_cell_furthest_from_random_and_the_lowest_decide(monkeypatch):
    monkeypatch.setattr(variation, "GRID", [(2, 3, 2), (2, 4, 2)])
    names = [variation.grid_name(*cell) for cell in variation.GRID]
    evidence = planted(TASK, {names[0]: random_models(4), names[1]: random_models(4, first=9)}, size="standard")
    direct = [
        attention_variation(evidence.models(name), TASK, seed=evidence.seed).ratio_to("flat simplex")[-1]
        for name in names
    ]
    measured = CLAIMS["variation.table-1"].measurement(evidence)
    assert measured.value == pytest.approx(max(direct, key=lambda ratio: abs(np.log(ratio))))
    assert measured.numbers[variation.LOWEST] == pytest.approx(min(direct))
    assert measured.numbers["highest ratio of a cell"] == pytest.approx(max(direct))


def test_learning_is_judged_by_the_mean_of_all_seeds(monkeypatch):
    monkeypatch.setattr(learning, "has_learned", lambda evidence, spec: spec.seed != 0)
    monkeypatch.setattr(learning, "excluded_models", lambda evidence, groups: [("Excluded", [["seed"], [0]])])
    monkeypatch.setattr(learning, "N_HELD_OUT", {"quick": 20})
    good = [stack_dyck(TASK) for _ in range(8)]
    measured, verdict = judged("learned.prefixes", {"gpt-prefixes": good})
    assert (verdict, measured.value) == ("reproduced", 1.0)
    assert measured.low < 1 == measured.high  # equal seeds have an interval, cut at 1
    assert measured.numbers["seeds that have not learned (below 0.9)"] == 1
    assert [title for title, _ in measured.tables][-1] == "Excluded"
    bad = random_models(3)
    measured, verdict = judged("learned.prefixes", {"gpt-prefixes": bad})
    assert verdict == "not reproduced"
    assert measured.numbers["seeds below 0.97"] == 3


@pytest.fixture
def few_resamples(monkeypatch):
    bootstrap = stats.bootstrap
    monkeypatch.setattr(stats, "bootstrap", lambda *data, **options: bootstrap(*data, **options | {"n_resamples": 99}))


@pytest.mark.usefixtures("few_resamples")
def test_correlation_and_change_are_measured_on_models_that_learned():
    task = Dyck(n_types=2, max_depth=2, length=12)
    plain = [balanced_dyck(task, attention="uneven", imbalance=0.02 * seed, seed=seed) for seed in range(6)]
    treated = [balanced_dyck(task, attention="uneven", seed=seed) for seed in range(6)]
    FAILED.add(5)
    given = {"minimal-words-closers": plain, "minimal-words-closers-contrastive": treated}
    measured, verdict = judged("contrastive.words.violation", given, task)
    assert (verdict, measured.n, measured.numbers[KEPT]) == ("reproduced", 5, 5)
    measured, _ = judged("prefixes.balance-within", {"minimal-prefixes-closers": plain}, task)
    rows = {tuple(row[:2]): row for row in measured.tables[0][1]}
    by_likeliest = rows["violation", "hard accuracy at 450"]
    assert f"the correlation is {by_likeliest[2]} {by_likeliest[3]}." in measured.note
    assert f"{measured.value:+.2f}" == rows["violation", "accuracy at 450"][2]
    measured, _ = judged("balance.length.within", {"minimal-words-closers-many": plain}, task)
    assert (measured.n, measured.numbers[KEPT]) == (5, 5)
    FAILED.update({3, 4})
    measured, verdict = judged("contrastive.words.violation", given, task)
    assert (verdict, measured.n, measured.numbers[KEPT]) == ("inconclusive", 6, 3)
