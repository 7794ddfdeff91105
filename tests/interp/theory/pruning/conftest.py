"""Short searches for the tests of pruning."""

import pytest


@pytest.fixture(autouse=True)
def short_searches(monkeypatch):
    """Fewer steps of every search, which can only lower the error found; one test has a longer search."""
    monkeypatch.setattr("interp.theory.pruning.search.STREAM_STEPS", 2)
    monkeypatch.setattr("interp.theory.pruning.transformers.EXCHANGES", 2)
