"""Controls of probes: classes of the control task, quantile of shuffled labels, and placebos of interchanges."""

import numpy as np
import pytest
import torch
from transformer_lens.tools.analysis import interchange

import interp
from hooks import Transformer
from interp.probing import directions
from interp.probing.directions import Directions
from interp.probing.labels import control_labels

CLASSES = 6


def controls(types, labels, draws, *, seed=0):
    """Control labels of a single target, of examples to fit on and to score on: (draw, example) each."""
    present = [torch.ones(len(part), 1, dtype=torch.bool) for part in types]
    columns = [part[:, None] for part in types], [part[:, None] for part in labels]
    fitting, testing = control_labels(*columns, present, int(torch.cat(labels).max()) + 1, draws, seed)
    return fitting[0], testing[0]


def test_control_labels_have_one_class_per_input_type():
    types = [torch.arange(200), torch.arange(100, 300)]
    labels = [torch.arange(200) % CLASSES] * 2
    fitting, testing = controls(types, labels, 3)
    assert fitting.shape == testing.shape == (3, 200)
    assert torch.equal(fitting[:, 100:], testing[:, :100])  # the same types
    assert not torch.equal(fitting[0], fitting[1])


@pytest.mark.parametrize("shares", [(0.95, 0.05), (0.5, 0.5), (0.1, 0.0, 0.6, 0.3)])
@pytest.mark.parametrize("n_types", [20, 37, 400])
def test_classes_of_the_control_task_are_as_frequent_as_in_the_label(shares, n_types):
    """A class differs by two types at most, at the two ends of its segment, and by one more at the start."""
    n = 4000
    label = torch.arange(len(shares)).repeat_interleave((torch.tensor(shares) * n).round().long())
    types = torch.arange(n) % n_types
    control = torch.cat(controls([types[: n // 2], types[n // 2 :]], [label[::2], label[1::2]], 50), 1)
    counts = torch.stack([draw.bincount(minlength=len(shares)) for draw in control]).double()
    assert ((counts / n - torch.tensor(shares)).abs() <= 3 / n_types).all()
    # over draws, each type has each class with the probability of that class: five standard deviations of 50 draws
    of_types = torch.nn.functional.one_hot(control[:, :n_types].long(), len(shares)).double().mean((0, 1))
    assert ((of_types - torch.tensor(shares)).abs() <= 5 * (0.25 / 50 / n_types) ** 0.5 + 1e-9).all()


def test_a_target_has_the_classes_of_its_own_label():
    types = torch.arange(300)[:, None].expand(-1, 2)
    labels = torch.stack([torch.arange(300) % 2, torch.arange(300) // 285], 1)
    present = torch.ones(300, 2, dtype=torch.bool)
    present[:20, 0] = False
    fitting, _ = control_labels([types, types], [labels, labels], [present, present], 2, 40, 0)
    shares = [fitting[target][:, present[:, target]].double().mean(1) for target in range(2)]
    assert (shares[0] - 0.5).abs().max() < 0.01
    assert (shares[1] - 0.05).abs().max() < 0.01


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
    basis_of = interchange.random_basis

    def spied(width, rank, seed):
        drawn.append((width, rank))
        return basis_of(width, rank, seed)

    monkeypatch.setattr(interchange, "random_basis", spied)
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
