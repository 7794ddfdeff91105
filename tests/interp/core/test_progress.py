import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from interp.core import progress


@pytest.fixture(params=[False, True], ids=["lines", "terminal"])
def console(request, monkeypatch):
    """Every display writes to one buffer, as a terminal or not."""

    def make(**options):
        return Console(file=written, force_terminal=request.param, width=120, **options)

    written = io.StringIO()
    monkeypatch.setattr(progress, "Console", make)
    return written, request.param


def test_training_progress(console):
    written, terminal = console
    with progress.TrainingProgress("model") as show:
        for done in range(1, 61):
            show({"steps_done": done, "total": 60, "accuracy": [0.5, done / 60], "seconds": float(done)})
    text = written.getvalue()
    assert "60/60" in text if terminal else "60/60" not in text
    lines = [line for line in text.splitlines() if " of 60 steps" in line]
    assert lines == (
        [] if terminal else [f"model {n:>9} of 60 steps, {n} s, accuracy 0.50 {n / 60:.2f}" for n in range(10, 61, 10)]
    )


def test_count(console, monkeypatch):
    written, terminal = console
    clock = iter([0.0, 1.0, 16.0, 17.0, 18.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.Count("training models", 4) as count:
        count.one()
        count.one()
        count.one("the [third] was inconclusive")
        count.one()
    text = written.getvalue()
    assert "  the [third] was inconclusive\n" in text
    if terminal:
        assert "4/4" in text
        assert "to go" in text
    else:
        assert text.splitlines() == [
            "  training models: 2 of 4, 16 s",
            "  the [third] was inconclusive",
            "  training models: 4 of 4, 18 s",
        ]
