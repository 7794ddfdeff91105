"""Subsets found by meeting in the middle are the nearest there are: checked against trying all."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.theory.pruning.subset_sum import MOST_CANDIDATES, nearest_subsets


def by_trying_all(row, target):
    """The least distance of any of the 2^n sums."""
    masks = np.array(list(product([0.0, 1.0], repeat=len(row))))
    return float(np.abs(masks @ np.array(row, dtype=float) - target).min())


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_no_subset_comes_nearer(n, generator):
    candidates = torch.rand(200 if n < 12 else 40, n, generator=generator, dtype=torch.float64) * 2 - 1
    targets = torch.rand(len(candidates), generator=generator, dtype=torch.float64) * 4 - 2  # some are out of reach
    found = nearest_subsets(candidates, targets)
    assert found.chosen.shape == candidates.shape
    for row, target, error in zip(candidates.tolist(), targets.tolist(), found.error.tolist(), strict=True):
        assert error == pytest.approx(by_trying_all(row, target), abs=1e-12)


@given(
    st.lists(st.lists(st.integers(-5, 5), min_size=6, max_size=6), min_size=1, max_size=5),
    st.integers(-20, 20),
)
@settings(max_examples=80, deadline=None)
def test_sums_that_tie_are_found_too(rows, target):
    """Whole numbers: many subsets have one sum, and equal sums stand side by side."""
    found = nearest_subsets(torch.tensor(rows, dtype=torch.float64), torch.full((len(rows),), float(target)).double())
    for row, error, total, chosen in zip(rows, found.error, found.total, found.chosen, strict=True):
        assert error.item() == by_trying_all(row, target)
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
    assert 0.7 < halved < 1.3  # a candidate more halves the distance, or nearly


def test_rows_do_not_depend_on_their_neighbours(generator, monkeypatch):
    candidates = torch.rand(30, 9, generator=generator) - 0.5
    targets = torch.rand(30, generator=generator)
    together = nearest_subsets(candidates, targets)
    monkeypatch.setattr("interp.theory.pruning.subset_sum.SUMS_AT_ONCE", 64)
    assert torch.equal(nearest_subsets(candidates, targets).chosen, together.chosen)
    assert torch.equal(nearest_subsets(candidates[7:8], targets[7:8]).chosen, together.chosen[7:8])
    assert len(nearest_subsets(candidates[:0], targets[:0]).error) == 0


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=rf"candidates is \(2, 41\) and targets \(2,\); give 1 to {MOST_CANDIDATES}"):
        nearest_subsets(torch.zeros(2, 41), torch.zeros(2))
    with pytest.raises(ValueError, match=r"candidates is \(2, 0\)"):
        nearest_subsets(torch.zeros(2, 0), torch.zeros(2))
    with pytest.raises(ValueError, match="candidates or targets has a value that is not finite"):
        nearest_subsets(torch.full((2, 3), torch.nan), torch.zeros(2))
