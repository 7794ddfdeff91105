"""Interchanges along differences between class means: any rank, classes without examples, and no direction."""

import numpy as np
import pytest
import torch
from counting import Counter, Counting, binary_codes
from transformer_lens.tools.analysis.interchange import probe_basis

import interp
from hooks import Transformer
from interp.core.activations import class_means, residuals_at_targets
from interp.core.randomness import derived_generator
from interp.probing.directions import Directions, DirectionSums, edited_activations, span_of_differences
from interp.probing.ridge import RIDGE
from interp.tasks import S3, Lego

TASK = Counting()
SIZES = {"n_train": 400, "n_test": 300}
LINE = torch.tensor([[0.0, 1, 2, 5]]).T @ torch.tensor([[1.0, 2, 0, -1, 1]])  # four rows on a line


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_rank_gives_the_basis_of_transformer_lens(seed):
    rows = torch.randn(6, 20, generator=torch.Generator().manual_seed(seed))
    for given in (rows, rows.double(), 100 + rows, rows[:2], rows @ torch.diag(torch.logspace(0, -3, 20))):
        assert torch.equal(span_of_differences(given), probe_basis(given))


@pytest.mark.parametrize(
    ("rows", "rank"),
    [
        (LINE, 1),
        (LINE + 1000, 1),
        (torch.cat([LINE, LINE]), 1),
        (binary_codes(8), 3),
        (torch.eye(3)[[0, 1, 2, 1, 0]], 2),
        (torch.cat([torch.eye(3), torch.ones(1, 3), torch.zeros(1, 3)]), 3),  # more rows than width
        (torch.ones(4, 3), 0),
        (torch.zeros(4, 3), 0),
        (torch.ones(1, 3), 0),
        (7 + 1e-6 * torch.eye(3), 0),  # as after rounding
    ],
)
def test_rank_of_the_differences(rows, rank):
    basis = span_of_differences(rows)
    assert basis.shape == (rows.shape[1], rank)
    assert torch.allclose(basis.T @ basis, torch.eye(rank), atol=1e-5)
    differences = rows - rows[0]
    assert torch.allclose(differences @ basis @ basis.T, differences, atol=1e-4)


@pytest.mark.parametrize("n", [400, 4000])
def test_means_of_equal_activations_span_nothing(n, generator):
    """Sums of equal numbers differ by rounding errors, which are no direction."""
    activations = (3 * torch.randn(64, generator=generator)).expand(1, n, 64)
    for n_classes in (2, 6, 24):
        means = class_means(activations, torch.randint(n_classes, (1, n), generator=generator), n_classes)[0]
        assert span_of_differences(means).shape == (64, 0)


def test_class_means_are_nan_for_classes_without_examples():
    means = class_means(torch.tensor([[[1.0, 0], [3, 0], [5, 7]]]), torch.tensor([[0, 0, 3]]), 5)[0]
    assert torch.equal(means[[0, 3]], torch.tensor([[2.0, 0], [5, 7]]))
    assert means[[1, 2, 4]].isnan().all()


def wide(codes, width=120):
    """Codes in a wider space, so that a random direction hardly reads them."""
    turn = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(1))).Q
    return codes @ turn[: codes.shape[1]]


@pytest.fixture(scope="module")
def counter():
    """Eight counts in three dimensions; after the first token only two of them exist."""
    return Counter(wide(binary_codes(8)), n_ctx=7)


def test_counts_of_fewer_dimensions_than_classes_are_interchanged(counter):
    found = interp.probe(counter, TASK, **SIZES, verify=True)
    assert found.targets == TASK.targets
    testing = TASK.sample(300, generator=derived_generator(0, "probe test"), split="test")
    pairs = (testing.labels[0::2] != testing.labels[1::2]).sum(0).tolist()
    assert found.causal["n"].tolist() == [pairs, pairs]
    # the activation becomes the source's code, so the answer becomes its count
    assert (found.causal["follows"] == 1).all()
    assert found.causal["placebo"].max() < 0.2
    assert all(np.isfinite(values).all() for values in found.causal.values())


def test_interchange_in_a_span_worked_by_hand(counter):
    """Means of the classes that occur, projected by least squares."""
    counter = Counter(wide(binary_codes(8)), n_ctx=7, n_layers=2)
    found = interp.probe(counter, TASK, n_train=80, n_test=60, verify=True, seed=5)
    fitting = TASK.sample(80, generator=derived_generator(5, "probe fit"), split="validation")
    testing = TASK.sample(60, generator=derived_generator(5, "probe test"), split="test")
    x, streams = (residuals_at_targets(counter, batch)[1].double().numpy() for batch in (fitting, testing))
    for target in range(7):
        label, wanted = fitting.labels[:, target].numpy(), testing.labels[:, target].numpy()
        means = np.stack([x[target][label == one].mean(0) for one in np.unique(label)])
        differences = (means - means[0]).T
        base, source = streams[target][0::2], streams[target][1::2]
        moved = base + (differences @ np.linalg.lstsq(differences, (source - base).T, rcond=1e-6)[0]).T
        answers = (moved @ counter.codes.double().numpy().T).argmax(-1)
        pairs = wanted[0::2] != wanted[1::2]
        assert found.causal["follows"][1, target] == pytest.approx((answers == wanted[1::2])[pairs].mean())


def test_parts_without_pairs_for_a_target_are_passed_over(counter, monkeypatch):
    """In parts of two examples, about a third of the targets have no pair: as if all examples were one part."""
    whole = interp.probe(counter, TASK, n_train=80, n_test=60, verify=True, seed=5)
    monkeypatch.setattr("interp.probing.directions.CHUNK", 2)
    found = interp.probe(counter, TASK, n_train=80, n_test=60, verify=True, seed=5)
    for name in ("n", "follows", "weights"):
        np.testing.assert_array_equal(found.causal[name], whole.causal[name])


def test_an_interchange_without_a_direction_changes_nothing():
    """All activations are equal, and the answer is always 0."""
    constant = Counter(torch.ones(8, 1) @ wide(binary_codes(2))[:1], n_ctx=7)
    found = interp.probe(constant, TASK, **SIZES, verify=True)
    testing = TASK.sample(300, generator=derived_generator(0, "probe test"), split="test").labels.numpy()
    for target in range(7):
        different = testing[0::2, target] != testing[1::2, target]
        follows = (testing[1::2, target] == 0)[different].mean()  # without any change
        for name in ("follows", "weights", "placebo"):
            assert found.causal[name][:, target] == pytest.approx([follows, follows])
        assert (found.causal["n"][:, target] == different.sum()).all()
    audit = interp.audit_probe(constant, TASK, **SIZES)
    assert {one for row in audit.verdict for one in row} <= {"not readable", "undecided"}
    assert set(np.unique(audit.interchange[np.isfinite(audit.interchange)])) <= {0.0}


def test_a_probe_of_counts_is_audited(counter):
    """The code is used where it can be read and an untrained model cannot read it."""
    found = interp.audit_probe(counter, TASK, n_train=400, n_test=200)
    tested = np.isfinite(found.interchange)
    assert tested[1, 3:].all()
    assert (found.interchange[tested] > 0.9).all()
    assert (found.erasure[tested] > 0.4).all()
    assert {one for row in found.verdict for one in row[3:]} <= {"used", "undecided"}


def test_one_variable_over_s3():
    """At the embedding the activations of all examples are equal."""
    task = Lego(n_vars=1, group=S3)
    model = Transformer(interp.config_for(task, n_layers=2, d_model=32, n_heads=2), seed=1)
    found = interp.probe(model, task, n_train=200, n_test=200, verify=True)
    testing = task.sample(200, generator=derived_generator(0, "probe test"), split="test")
    assert (found.causal["n"] == (testing.labels[0::2] != testing.labels[1::2]).sum().item()).all()
    assert all(np.isfinite(values).all() for values in found.causal.values())


def test_a_probe_of_a_model_on_a_device_gives_the_same_numbers(pretended, tiny):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=16, n_heads=2)).eval()
    sizes = {"n_train": 60, "n_test": 40}
    here = interp.probe(model, tiny, **sizes, verify=True), interp.audit_probe(model, tiny, **sizes)
    model.to(pretended)
    there = interp.probe(model, tiny, **sizes, verify=True), interp.audit_probe(model, tiny, **sizes)
    for one, other in zip(here, there, strict=True):
        assert one.to_dataframe().equals(other.to_dataframe())


def test_a_class_without_examples_adds_no_direction():
    """Two classes differ along the second axis; the third has no examples, and the probe's weights of it are 0."""
    nan, zero = torch.full((1, 3), torch.nan), torch.zeros(1, 3)
    means, weights = torch.tensor([[1.0, 1, 0], [1, -1, 0]]), torch.tensor([[1.0, 0, 1], [1, 0, -1]])
    cell = Directions(means=torch.cat([means, nan]), weights=torch.cat([weights, zero]), centre=torch.full((3,), 9.0))
    base, source = torch.zeros(2, 3), torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    edits = edited_activations(cell, base, source, seed=0)
    assert torch.allclose(edits["interchange"](), torch.tensor([[0.0, 2, 0], [0, 5, 0]]), atol=1e-6)
    assert torch.allclose(edits["weights"](), torch.tensor([[0.0, 0, 3], [0, 0, 6]]), atol=1e-6)
    assert torch.allclose(edits["erasure"](), torch.tensor([[0.0, 9, 0], [0, 9, 0]]), atol=1e-5)
    for placebo, length in (("placebo", torch.tensor([2.0, 5])), ("erasure placebo", torch.tensor([9.0, 9]))):
        assert torch.allclose(edits[placebo]().norm(dim=1), length, atol=1e-4)


@pytest.mark.parametrize("blocks", [1, 2])
def test_directions_are_those_of_the_examples_with_the_target(blocks, generator):
    activations = torch.randn(2, 3, 60, 5, generator=generator)
    labels = torch.randint(3, (60, 3), generator=generator)
    present = torch.rand(60, 3, generator=generator) < torch.tensor([1.0, 0.5, 0.5])
    sums = DirectionSums(labels, present, 4)
    for rows in (slice(0, 60),) if blocks == 1 else (slice(0, 23), slice(23, 60)):
        sums.add(rows, activations[:, :, rows])
    found = sums.directions()
    assert set(found) == {(layer, target) for layer in range(2) for target in range(3)}
    for (layer, target), cell in found.items():
        here = present[:, target]
        x, y = activations[layer, target][here].double().numpy(), labels[here, target].numpy()
        assert cell.centre.numpy() == pytest.approx(x.mean(0), abs=1e-5)
        for label in range(3):
            assert cell.means[label].numpy() == pytest.approx(x[y == label].mean(0), abs=1e-5)
        assert cell.means[3].isnan().all()
        centred = x - x.mean(0)
        gram = centred.T @ centred
        penalised = gram + RIDGE * gram.diagonal().mean() * np.eye(5)
        weights = np.linalg.solve(penalised, centred.T @ np.eye(4)[y]).T
        assert cell.weights.numpy() == pytest.approx(weights, abs=1e-5)


def test_a_hook_where_the_pass_resumes_is_refused(tiny):
    model = Transformer(interp.config_for(tiny, n_layers=1, d_model=16, n_heads=2))
    model.add_hook("blocks.0.hook_resid_pre", lambda value, hook: value * 2)
    with pytest.raises(
        ValueError, match=r"attached to blocks.0.hook_resid_pre, .* act twice.* attach it to hook_embed"
    ):
        interp.probe(model, tiny, verify=True, n_train=100, n_test=40)
    interp.probe(model, tiny, n_train=100, n_test=40)
