"""Heads at the bars for a label: the lower end of the score's interval, and uniformity above that of fresh models."""

import pytest
import torch
from planted import Padded, Planted, ideal_map

import interp
from interp.heads.classify import classify_heads
from interp.heads.kinds import relations_of

TASK = Padded(n_vars=4)
CFG = interp.config_for(TASK, n_layers=1, n_heads=2, d_model=32)


def previous_in(share):
    """Attention to the previous token in the first sequences, uniform in the others."""

    def make(batch, allowed):
        ideal = ideal_map(relations_of(TASK, batch, ["previous"])["previous"], allowed)
        even = ideal_map(torch.zeros_like(allowed), allowed)
        chosen = torch.arange(len(allowed)) < share * len(allowed)
        return torch.where(chosen[:, None, None], ideal, even)

    return make


def nearly_uniform(uniformity):
    """Uniform attention, mixed with attention to the first key."""

    def make(batch, allowed):
        even = ideal_map(torch.zeros_like(allowed), allowed)
        first = torch.zeros_like(even)
        first[..., 0] = 1
        return uniformity * even + (1 - uniformity) * first

    return make


@pytest.mark.parametrize(("share", "label"), [(0.5, "unclassified"), (0.75, "previous"), (1.0, "previous")])
def test_the_lower_end_of_the_interval_must_reach_the_least_score(share, label):
    """Of 16 sequences 8 or 12 score 1, the others 0: 0.5 +- 0.28 and 0.75 +- 0.24."""
    result = classify_heads(Planted(CFG, {(0, 1): previous_in(share)}), TASK, n=16, untrained=Planted(CFG, {}, seed=1))
    kind = result.kinds.index("previous")
    assert result.score[0, 1, kind] == pytest.approx(share, abs=1e-5)
    half = {0.5: 2.1314 * (4 / 15) ** 0.5 / 4, 0.75: 2.1314 * 0.2**0.5 / 4, 1.0: 0.0}[share]
    assert result.score.low[0, 1, kind] == pytest.approx(share - half, abs=1e-4)
    assert result.label[0][1] == label


@pytest.mark.parametrize(("of_fresh", "label"), [(0.85, "uniform"), (0.95, "unclassified")])
def test_a_uniform_head_must_exceed_fresh_models_by_a_tenth(of_fresh, label):
    both = [(0, 0), (0, 1)]
    fresh = Planted(CFG, dict.fromkeys(both, nearly_uniform(of_fresh)), seed=1)
    model = Planted(CFG, {(0, 0): nearly_uniform(0.5), (0, 1): nearly_uniform(1.0)})
    result = classify_heads(model, TASK, n=16, untrained=fresh)
    assert result.uniformity[0].tolist() == pytest.approx([0.5, 1.0], abs=1e-5)
    assert result.label[0][1] == label
