"""Differences between plain values in words, and archives that do not depend on the clock."""

import zipfile

import numpy as np
import pytest
from scipy import stats

from case_studies.frame.measurement import rounded_interval
from case_studies.recipes.intervals import correlation
from case_studies.review.bundle import _add
from case_studies.review.compare import _difference


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (1, 2, "1 stored, 2 here"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "b 2 stored, 3 here"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "b 1 stored, 2 here"),
        ({"a": 1}, {}, "a 1 stored, null here"),
        ([1], [2], "1 stored, 2 here"),
        ([{"a": 1}], [{"a": 2}], "a 1 stored, 2 here"),
        ([1, 2], [1, 3], "[1, 2] stored, [1, 3] here"),
        ([1], [1, 2], "[1] stored, [1, 2] here"),
        ("x" * 61, "y", "x" * 57 + "... stored, y here"),
        ("x" * 60, "y", "x" * 60 + " stored, y here"),
    ],
)
def test_differences_in_words(old, new, text):
    assert _difference(old, new) == text


def test_entries_of_a_bundle_have_one_date_and_the_same_rights(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        _add(archive, "x.txt", b"text" * 100)
    (entry,) = zipfile.ZipFile(tmp_path / "a.zip").infolist()
    assert entry.date_time == (1980, 1, 1, 0, 0, 0)
    assert (entry.external_attr >> 16, entry.create_system) == (0o644, 3)
    assert entry.compress_size < entry.file_size == 400


@pytest.fixture
def few_resamples(monkeypatch):
    """50 resamples instead of 2000."""
    bootstrap = stats.bootstrap
    monkeypatch.setattr(
        stats, "bootstrap", lambda *given, **options: bootstrap(*given, **options | {"n_resamples": 50})
    )


def test_rank_correlation_of_six_pairs(few_resamples):
    """Two neighbours exchanged: 1 - 6 * 2 / (6 * 35)."""
    x, y = np.arange(6.0), np.array([0, 2, 1, 3, 4, 5.0])
    value, low, high = correlation(x, y, seed=0).floats()
    assert value == pytest.approx(1 - 12 / 210)
    assert low < value <= high <= 1 + 1e-12


def test_the_interval_of_a_perfect_correlation_is_fishers(few_resamples):
    """Five models: 0.9 with two neighbours exchanged, tanh(atanh 0.9 - 1.96 / 2^0.5) = 0.0862."""
    x = np.arange(5.0)
    assert correlation(x, x**3, seed=0).floats() == (pytest.approx(1), pytest.approx(0.0862, abs=1e-4), 1)
    assert correlation(x[:2], x[:2], seed=0).floats() == (0, -1, 1)
    assert correlation(x, 0 * x, seed=0).floats() == (0, -1, 1)


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((0.51234, 0.45, 0.57), ("0.51", "0.45", "0.57")),  # width 0.12: two digits
        ((1234.5, 1230.0, 1240.0), ("1,234", "1,230", "1,240")),
        ((0.5, 0.4999, 0.5001), ("0.50000", "0.49990", "0.50010")),
        ((0.123456, 0.123456, 0.123456), ("0.1235", "0.1235", "0.1235")),
        ((2.0, -np.inf, np.inf), ("2", "-inf", "inf")),
    ],
)
def test_numbers_are_shown_to_two_digits_of_their_interval(numbers, texts):
    assert rounded_interval(*numbers) == texts
