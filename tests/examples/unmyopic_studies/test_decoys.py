"""Unused readable heads that attention mass finds: the bar, ties, and an interval over models."""

from pathlib import Path

import numpy as np
import pytest
from tool_studies.approximations import claims, decoys
from tool_studies.approximations.decoys import HeadScores, decoy_share
from tool_studies.approximations.estimates import MASS
from tool_studies.approximations.scores import DECOY, ModelScores

from case_studies.frame.evidence import Evidence
from case_studies.frame.packs import Packs


def model_scores(kinds, values):
    """A model with a head of each kind: n needed, i idle, d unused and readable, u unknown."""
    kinds = np.array(list(kinds))
    return ModelScores(
        family="",
        name="",
        scores={MASS: np.array(values, dtype=float)},
        needed=np.isin(kinds, ("n", "u")),
        decided=kinds != "u",
        idle=kinds == "i",
        causes={DECOY: kinds == "d"},
    )


def heads_of(*models):
    return HeadScores.of_models([model_scores(*model) for model in models], MASS)


def test_the_bar_best_separates_needed_from_idle_heads():
    """At 0.6 three of four needed heads are found and one of four idle ones; no bar has a larger difference."""
    heads = heads_of(("nnnn", [1, 0.9, 0.6, 0.1]), ("iiii", [1, 0.5, 0.3, 0.2]), ("ddd", [1, 0.6, 0.55]))
    assert heads.bar() == 0.6
    differences = []
    for bar in (1, 0.9, 0.6, 0.55, 0.5, 0.3, 0.2, 0.1):
        differences.append((heads.share[heads.needed] >= bar).mean() - (heads.share[heads.idle] >= bar).mean())
    even = np.ones(3)
    np.testing.assert_allclose(heads.found_at(heads.needed, even) - heads.found_at(heads.idle, even), differences)
    assert decoy_share(heads, seed=0).value == pytest.approx(2 / 3)


def test_heads_with_the_same_score_are_on_one_side_of_the_bar():
    heads = heads_of(("nid", [1, 1, 1]), ("nid", [1, 1, 0.5]))
    assert heads.last_of_ties.tolist() == [4, 5]
    assert heads.bar() == 1
    assert heads.decoys_found(np.ones(2)) == 0.5


def test_scores_are_shares_of_their_model_and_unknown_heads_decide_no_bar():
    heads = heads_of(("nid", [10, 1, 9]), ("uid", [0.1, 1, 0.2]))
    assert sorted(heads.share[heads.decoy]) == [0.2, 0.9]
    assert heads.needed.sum() == 1


def test_models_are_the_units_and_the_bar_is_chosen_again():
    """Many heads of few models have the interval of few units; a bar that depends on one model widens it too."""
    models = [("n" + "i" * 20 + "d" * 20, [1, *[0.1] * 20, *[value] * 20]) for value in (1, 1, 1, 0.05)]
    heads = heads_of(*models)
    interval = decoy_share(heads, seed=0)
    assert (interval.n, float(interval.value)) == (4, 0.75)
    assert (interval.low, interval.high) == (pytest.approx(0.25), 1)  # of 80 heads as units: 0.64 to 0.84
    # Of these two models one has its decoys between its needed and its idle head, so that the bar decides on them
    split = heads_of(("nid", [1, 0.1, 0.6]), ("nid", [0.5, 1, 0.5]))
    assert float(decoy_share(split, seed=0).low) == 0
    without = decoy_share(heads_of(("ni", [1, 0])), seed=0)
    assert (*without.floats(), without.n) == (0, 0, 1, 0)


def test_the_measurement_shows_the_bar(monkeypatch):
    models = [model_scores("nnid", [1, 0.5, 0.2, 0.7]), model_scores("nid", [1, 0.3, 0.1])]
    monkeypatch.setattr(decoys, "known_scores", lambda size, seed: models)
    (claim,) = (claim for claim in claims.claims(Packs()) if claim.id == "pattern.attention")
    measurement = claim.measurement(Evidence(size="quick", seed=0, groups={}, folder=Path()))
    assert (measurement.value, measurement.n, measurement.unit) == (0.5, 2, "models")
    expected = {"heads": 2, "bar": 0.5, "share of needed heads found": 1.0, "share of idle heads found": 0.0}
    assert measurement.numbers == expected
    ((_, rows),) = measurement.tables
    assert rows[1] == ["best", "0.5", "1", "0", "0.5", "[0, 1]", "2"]
    assert [row[0] for row in rows[2:]] == [f"{percentile} % of the idle heads" for percentile in (80, 90, 95, 99)]
