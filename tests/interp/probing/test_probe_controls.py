"""Controls of probes: classes of the control task, quantile of shuffled labels, and placebos of interchanges."""

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.probing import directions
from interp.probing.directions import Directions
from interp.probing.scoring import control_labels

CLASSES = 6


def test_control_labels_have_all_classes_and_one_per_input_type():
    types = [torch.arange(200)[:, None], torch.arange(100, 300)[:, None]]
    present = [torch.ones_like(part, dtype=torch.bool) for part in types]
    fitting, testing = control_labels(types, present, CLASSES, 3, seed=0)
    assert fitting.shape == testing.shape == (1, 3, 200)
    assert torch.equal(fitting[..., 100:], testing[..., :100])  # the same types
    every = torch.cat([fitting, testing[..., 100:]], -1)[0]
    for draw in every:
        # 300 types, a sixth each: five standard deviations
        counts = torch.bincount(draw, minlength=CLASSES)
        assert len(counts) == CLASSES
        assert (counts - 50).abs().max() < 5 * (300 * 5 / 36) ** 0.5
    assert not torch.equal(every[0], every[1])


def test_summaries_of_the_draws(tiny, monkeypatch):
    """Scores of 20 draws are 0, 0.01, ... 0.19: their 97.5 % quantile is at 18.525."""

    def planted(inputs, labels, **_):
        for one in inputs:
            list(one)
        shapes = [(3, *part[0].shape[:2]) for part in labels]
        return [np.broadcast_to(np.arange(shape[-1]) / 100 + 0.5 * (shape[-1] == 1), shape) for shape in shapes]

    monkeypatch.setattr("interp.probing.probe.score_ridge", planted)
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=8, n_heads=2))
    result = interp.probe(model, tiny, n_train=20, n_test=8)
    np.testing.assert_allclose(result.shuffled_high, 0.18525)
    np.testing.assert_allclose(result.shuffled, 0.095)
    np.testing.assert_allclose(result.control, 0.095)
    np.testing.assert_allclose(result.accuracy, 0.5)
    assert result.accuracy.half_width == pytest.approx((0.842988 - 0.157012) / 2, abs=1e-5)  # 4 of 8, exact
    with pytest.raises(ValueError, match="n_train is 19 for 2 classes; give at least 20"):
        interp.probe(model, tiny, n_train=19, n_test=8)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_placebo_has_the_rank_and_the_distance_of_the_interchange(n_classes, monkeypatch):
    drawn = []
    basis_of = directions.random_basis

    def spied(width, rank, seed):
        drawn.append((width, rank))
        return basis_of(width, rank, seed)

    monkeypatch.setattr(directions, "random_basis", spied)
    generator = torch.Generator().manual_seed(0)
    means, weights = torch.randn(2, n_classes, 16, generator=generator)
    base, source = torch.randn(2, 30, 16, generator=generator)
    along = Directions(means=means, weights=weights, centre=torch.zeros(16))
    edits = {name: make() - base for name, make in directions.edited_activations(along, base, source, 3).items()}
    assert drawn == [(16, n_classes - 1)]
    moved = {name: edit.norm(dim=-1) for name, edit in edits.items()}
    torch.testing.assert_close(moved["placebo"], moved["interchange"])
    torch.testing.assert_close(moved["erasure placebo"], moved["erasure"])
    assert (moved["interchange"] > 0.01).all()
    for name in ("interchange", "placebo"):
        assert torch.linalg.matrix_rank(edits[name], rtol=1e-4) == n_classes - 1
    cosine = (edits["placebo"] * edits["interchange"]).sum(-1) / moved["interchange"].square()
    assert cosine.abs().mean() < 0.9  # in other directions
