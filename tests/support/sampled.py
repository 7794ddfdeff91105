"""Parameters of which some are tried by default and all by the slow tests."""

import pytest


def sampled(values, chosen):
    """The values, of which those that are not chosen are slow."""
    values = list(values)
    assert set(chosen) <= set(values), "a chosen value is none of the values"
    return [value if value in chosen else slow(value) for value in values]


def slow(value):
    """A slow parameter; a tuple is one value for each argument."""
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
