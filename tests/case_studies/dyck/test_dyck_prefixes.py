"""Claims about models trained on prefixes: longer prefixes, the two kinds, minimal first layers, on planted data."""

import numpy as np
import pytest
import torch
from planted_models import planted

from case_studies.dyck import measures, prefixes
from case_studies.dyck.prefixes import (
    CURRENT,
    FIRST,
    OnTwoPrefixes,
    attention_on_ends,
    difference_of,
    distance_within,
    mean_distances,
    ratio_of,
)
from case_studies.dyck.study import STUDY
from hooks import Transformer
from interp import config_for
from interp.comparison.variation import attention_variation
from interp.tasks import Dyck

TASK = Dyck(n_types=2, max_depth=3, length=16)
CLAIMS = {claim.id: claim for claim in STUDY.claims}


@pytest.fixture(autouse=True)
def pretended_learning(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(measures, "has_learned", lambda evidence, spec: True)
    monkeypatch.setattr(prefixes, "excluded_models", lambda evidence, groups: [])


def random_models(n, scale=1.0):
    models = [Transformer(config_for(TASK, "dyck_gpt", d_model=16, d_mlp=16), seed=seed) for seed in range(n)]
    with torch.no_grad():
        for model in models:
            model.block(1).attention.q.weight.mul_(scale)
    return models


def judged(claim, given):
    measured = CLAIMS[claim].measurement(planted(TASK, given))
    return measured, CLAIMS[claim].verdict(measured)


def distances_of(patterns):
    """Squared distances between patterns of models."""
    flat = patterns.reshape(len(patterns), -1)
    return np.square(flat[:, None] - flat).sum(-1)


@pytest.mark.parametrize(("claim", "relative"), [("prefixes.longer", False), ("prefixes.longer-relative", True)])
def test_longer_prefixes_are_compared_for_the_same_models(claim, relative):
    models = random_models(5, scale=20.0)
    measured, _ = judged(claim, {"gpt-prefixes": models})
    short = attention_variation(models, TASK, prefixes=TASK.staircase())
    long = attention_variation(models, TASK, prefixes=TASK.staircase(repeat=3))
    if relative:
        assert measured.value == pytest.approx(long.ratio_to()[-1] / short.ratio_to()[-1])
    else:
        assert measured.value == pytest.approx(long.variation[-1] - short.variation[-1])
        assert measured.low > 0  # a sum over more rows
    assert measured.low <= measured.value <= measured.high


def test_a_ratio_is_paired_by_model():
    generator = np.random.default_rng(0)
    short = distances_of(generator.normal(size=(12, 4)) * generator.uniform(0.1, 3, size=(12, 1)))
    distances = OnTwoPrefixes(short=short, long=3 * short, short_baseline=2.0, long_baseline=4.0)
    ratio = ratio_of(distances, seed=0)
    assert ratio.floats() == pytest.approx((1.5, 1.5, 1.5))  # resamples of the same models on both
    difference = difference_of(distances, seed=0)
    assert float(difference) == pytest.approx(2 * short.sum() / (12 * 11))
    assert difference.low < float(difference) < difference.high


def test_attention_on_the_ends_counts_queries_that_see_a_third_token():
    patterns = np.zeros((1, 4, 4))
    patterns[0, 0, 0] = patterns[0, 1, 0] = 1.0  # rows that do not count
    patterns[0, 2] = [0.1, 0.2, 0.7, 0.0]
    patterns[0, 3] = [0.3, 0.2, 0.2, 0.3]
    current, first = attention_on_ends(patterns)
    assert current == pytest.approx([0.5])
    assert first == pytest.approx([0.2])


def plant_attention(monkeypatch, shares):
    """The last layer of model i has this share of every row on the current and on the first token."""

    def patterns(models, batch):
        keys = batch.tokens.shape[1]
        planted_patterns = torch.zeros(2, len(models), 1, 1, keys, keys)
        for index, (current, first) in enumerate(shares):
            planted_patterns[-1, index, 0, 0] += current * torch.eye(keys)
            planted_patterns[-1, index, 0, 0, :, 0] += first
        return planted_patterns

    monkeypatch.setattr(prefixes, "patterns_on", patterns)


@pytest.mark.parametrize(
    ("shares", "counts", "verdict"),
    [
        ([(0.3, 0.2), (0.6, 0.4), (0.1, 0.8), (0.2, 0.3)], (2, 2), "reproduced"),
        ([(0.9, 0.1), (0.6, 0.4), (0.1, 0.8), (0.3, 0.2)], (3, 1), "not reproduced"),
        ([(0.4, 0.3)] * 4, (4, 0), "not reproduced"),
    ],
)
def test_models_are_counted_by_the_token_they_attend_to_more(monkeypatch, shares, counts, verdict):
    plant_attention(monkeypatch, shares)
    measured, found = judged("prefixes.current-or-first", {"gpt-prefixes": random_models(len(shares))})
    assert (measured.numbers[CURRENT], measured.numbers[FIRST]) == counts
    assert measured.value == counts[0] / len(shares)
    assert found == verdict


def two_kinds(spread):
    """Distances of 12 models of two kinds, which are 10 apart in one coordinate, and that spread within a kind."""
    kind = np.arange(12) < 6
    points = np.random.default_rng(1).normal(scale=spread, size=(12, 3))
    points[kind, 0] += 10
    return distances_of(points), kind


def test_distances_within_and_between_kinds():
    distance, kind = two_kinds(spread=0.1)
    between, within = mean_distances(distance, kind, np.ones(12))
    assert between == pytest.approx(distance[:6, 6:].mean())
    assert within == pytest.approx(np.r_[distance[:6, :6].ravel(), distance[6:, 6:].ravel()].sum() / 60)
    assert between > 90 > 1 > within
    interval = distance_within(distance, kind, seed=0)
    assert float(interval) == pytest.approx(within)
    assert interval.low < float(interval) < interval.high < 1
    # A model that counts twice is not compared with itself
    counts = np.zeros(12)
    counts[[0, 6]] = 2
    assert mean_distances(distance, kind, counts) == (pytest.approx(distance[0, 6]), None)
    alone = distance_within(distance[:2, :2], np.array([True, False]), seed=0)
    assert alone.floats() == (0.0, 0.0, distance[0, 1])
    one_pair = distance_within(distance[:3, :3], np.array([True, True, False]), seed=0)
    assert one_pair.floats() == (distance[0, 1], 0.0, distance[:3, :3].max())


@pytest.mark.parametrize(("far", "verdict"), [(True, "reproduced"), (False, "not reproduced")])
def test_two_kinds_explain_the_variation_only_if_each_is_alike(monkeypatch, far, verdict):
    models = random_models(4)
    shares = [(0.9, 0.0), (0.8, 0.0), (0.0, 0.9), (0.0, 0.8)]
    plant_attention(monkeypatch, shares)
    result = attention_variation(models, TASK)
    kind = np.array([True, True, False, False])
    uneven = np.add.outer(np.arange(4), np.arange(4)) / 60 + 0.95
    near, distant = 0.1 * uneven, 40 * uneven
    distance = np.where(kind[:, None] == kind, near if far else distant, distant)
    np.fill_diagonal(distance, 0)
    object.__setattr__(result, "distance", np.stack([distance, distance]))
    monkeypatch.setattr(prefixes, "attention_variation", lambda *_, **__: result)
    measured, found = judged("prefixes.kinds-explain", {"gpt-prefixes": models})
    assert found == verdict
    assert measured.numbers["distance between models of different kinds"] == pytest.approx(40, rel=0.1)
    base = result.baseline[result.baselines.index("flat simplex")][-1]
    assert measured.value == pytest.approx((0.1 if far else 40) / base, rel=0.1)


def test_minimal_layers_are_compared_with_standard_ones_on_prefixes():
    minimal_config = config_for(TASK, "dyck_minimal")
    minimal = [Transformer(minimal_config, seed=seed) for seed in range(4)]
    given = {"gpt-prefixes": random_models(4, scale=20.0), "minimal-prefixes-closers": minimal}
    measured, verdict = judged("prefixes.minimal-varies-little", given)
    direct = [attention_variation(models, TASK).variation[-1] for models in given.values()]
    assert measured.value == pytest.approx(direct[1] / direct[0])
    assert verdict == "reproduced"
    with torch.no_grad():
        for model in minimal:
            model.block(0).attention.q.weight.mul_(1e5)
    given = {"gpt-prefixes": random_models(4, scale=0.01), "minimal-prefixes-closers": minimal}
    assert judged("prefixes.minimal-varies-little", given)[1] == "not reproduced"
