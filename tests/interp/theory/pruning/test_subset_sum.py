"""Subset sums against a brute-force search, and masks of two random matrices against the map they give."""

from itertools import product

import numpy as np
import pytest
import torch
from eq6_targets import unit
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.theory.pruning.subset_sum import MOST_CANDIDATES, mask_pair, nearest_subsets, rows_needed


def brute_force(row, target):
    """The least distance over all 2^n sums."""
    masks = np.array(list(product([0.0, 1.0], repeat=len(row))))
    return float(np.abs(masks @ np.array(row, dtype=float) - target).min())


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_no_subset_is_nearer(n, generator):
    candidates = torch.rand(200 if n < 12 else 40, n, generator=generator, dtype=torch.float64) * 2 - 1
    targets = (
        torch.rand(len(candidates), generator=generator, dtype=torch.float64) * 4 - 2
    )  # some are outside the range of sums
    found = nearest_subsets(candidates, targets)
    assert found.chosen.shape == candidates.shape
    for row, target, error in zip(candidates.tolist(), targets.tolist(), found.error.tolist(), strict=True):
        assert error == pytest.approx(brute_force(row, target), abs=1e-12)


@given(
    st.lists(st.lists(st.integers(-5, 5), min_size=6, max_size=6), min_size=1, max_size=5),
    st.integers(-20, 20),
)
@settings(max_examples=80, deadline=None)
def test_ties_between_subsets(rows, target):
    """With integers, many subsets have the same sum."""
    found = nearest_subsets(torch.tensor(rows, dtype=torch.float64), torch.full((len(rows),), float(target)).double())
    for row, error, total, chosen in zip(rows, found.error, found.total, found.chosen, strict=True):
        assert error.item() == brute_force(row, target)
        assert total.item() == sum(value for value, kept in zip(row, chosen.tolist(), strict=True) if kept)
        assert abs(total.item() - target) == error.item()


def test_the_error_falls_exponentially_with_the_candidates(generator):
    targets = torch.rand(300, generator=generator) * 2 - 1
    medians = []
    for n in (8, 12, 16, 20):
        candidates = torch.rand(300, n, generator=generator) * 2 - 1
        medians.append(float(nearest_subsets(candidates, targets).error.median()))
    assert medians[-1] < 1e-5
    halved = -np.polyfit([8, 12, 16, 20], np.log2(medians), 1)[0]
    assert 0.7 < halved < 1.3  # one more candidate halves the distance, or nearly


def test_rows_are_independent(generator, monkeypatch):
    candidates = torch.rand(30, 9, generator=generator) - 0.5
    targets = torch.rand(30, generator=generator)
    together = nearest_subsets(candidates, targets)
    monkeypatch.setattr("interp.theory.pruning.subset_sum.SUMS_AT_ONCE", 64)
    assert torch.equal(nearest_subsets(candidates, targets).chosen, together.chosen)
    assert torch.equal(nearest_subsets(candidates[7:8], targets[7:8]).chosen, together.chosen[7:8])
    assert len(nearest_subsets(candidates[:0], targets[:0]).error) == 0


def test_invalid_input_is_refused():
    with pytest.raises(ValueError, match=rf"candidates is \(2, 41\) and targets \(2,\); give 1 to {MOST_CANDIDATES}"):
        nearest_subsets(torch.zeros(2, 41), torch.zeros(2))
    with pytest.raises(ValueError, match=r"candidates is \(2, 0\)"):
        nearest_subsets(torch.zeros(2, 0), torch.zeros(2))
    with pytest.raises(ValueError, match=r"(candidates|targets) has a value that is not finite"):
        nearest_subsets(torch.full((2, 3), torch.nan), torch.zeros(2))


def uniform(*shape, generator):
    return 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1


@pytest.mark.parametrize(("between", "slots"), [("nothing", 1), ("relu", 2), ("relu, inputs not negative", 1)])
def test_masked_matrices_compute_the_achieved_map(between, slots, generator):
    first = uniform(rows_needed(3 * slots, 13), 3, generator=generator)
    second, target = uniform(5, len(first), generator=generator), unit(5, 3, generator=generator)
    target[1, 2] = 0
    pair = mask_pair(first, second, target, candidates=13, between=between)
    assert pair.first.sum(1).max() == 1  # each row keeps one entry
    assert pair.first.sum(0).min() > 11 * slots  # entries of the wrong sign are pruned
    assert pair.achieved.shape == (slots, 5, 3)
    assert (pair.achieved[:, 1, 2] == 0).all()
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    if between == "relu, inputs not negative":
        x = x.abs()
    hidden = x @ (first * pair.first).T
    y = (hidden if between == "nothing" else hidden.relu()) @ (second * pair.second).T
    parts = [x] if slots == 1 else [x.relu(), -(-x).relu()]
    torch.testing.assert_close(y, sum(part @ map.T for part, map in zip(parts, pair.achieved, strict=True)))
    assert ((y - x @ target.T).norm(dim=1) <= pair.error(target) * x.norm(dim=1) + 1e-12).all()
    assert pair.error(target) < 0.15


def test_rows_are_assigned_to_inputs_with_large_entries(generator):
    first, second = uniform(60, 3, generator=generator), uniform(1, 60, generator=generator)
    pair = mask_pair(first, second, torch.ones(1, 3), candidates=5, between="nothing")
    assert first[pair.first].abs().min() > 0.7
    pair = mask_pair(first, second, torch.ones(1, 3), candidates=5, between="relu, inputs not negative")
    assert first[pair.first].min() > 0.5


def test_too_few_rows_are_refused(generator):
    first, second = uniform(11, 3, generator=generator), uniform(2, 11, generator=generator)
    with pytest.raises(
        ValueError, match=r"too small: 4 candidates for each of 3 inputs .* need 12 rows, and it has 11"
    ):
        mask_pair(first, second, torch.ones(2, 3), candidates=4, between="nothing")
