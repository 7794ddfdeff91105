import io
import re
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console
from short_runs import SHORT, new_model

import interp
from interp.core import progress
from interp.training.train import Trainer


@pytest.fixture(params=[False, True], ids=["pipe", "terminal"])
def console(request, monkeypatch):
    """Every display writes to one buffer, as a terminal or not."""
    return shown_on(monkeypatch, terminal=request.param), request.param


@pytest.fixture
def terminal(monkeypatch):
    return shown_on(monkeypatch, terminal=True)


def shown_on(monkeypatch, *, terminal):
    written = io.StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda **options: Console(file=written, force_terminal=terminal, width=160, **options)
    )
    return written


def plain(written):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue())


def test_training_progress(console):
    written, terminal = console
    with progress.TrainingProgress() as show:
        for done in range(1, 61):
            show({"steps_done": done, "total": 60, "accuracy": [0.5, done / 60], "seconds": float(done)})
            if done == 15:
                note = show.bar.tasks[0].fields["note"]
    assert note == "about 45 s to go, accuracy 0.50 0.25"
    assert ("60/60" in plain(written)) == terminal
    assert bool(plain(written)) == terminal


def test_count(console, monkeypatch):
    written, terminal = console
    clock = iter([0.0, 1.0, 16.0, 17.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.Count("training models", 4) as count:
        count.advance()
        count.advance()
        assert count.bar.tasks[0].fields["note"] == "about 16 s to go"
        count.advance("the [third] was inconclusive")
        count.advance()
    if terminal:
        assert "4/4" in plain(written)
        assert "  the [third] was inconclusive\n" in plain(written)
    else:
        assert plain(written) == "  the [third] was inconclusive (3 of 4, about 6 s to go)\n"


@pytest.mark.parametrize(
    ("done", "left"), [(9.0, "about 1 s to go"), (1.0, "about 90 s to go"), (0.1, "about 16 min to go")]
)
def test_the_remaining_time_counts_work(monkeypatch, capsys, done, left):
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.Count("claims", 2, work=10.0) as count:
        count.advance("the first", work=done)
    assert f"the first (1 of 2, {left})" in capsys.readouterr().out


def test_a_bar_inside_another_is_a_line_below_it(terminal):
    with progress.Count("outer", 2) as outer:
        for _ in progress.counted("inner", "abc", total=3):
            assert [task.description for task in outer.bar.tasks] == ["outer", "inner"]
        assert [task.description for task in outer.bar.tasks] == ["outer"]
    with progress.Count("next", 1) as following:
        assert following.bar is not outer.bar


@pytest.mark.parametrize("shown", [False, True])
def test_progress_is_switched_off_in_a_block(terminal, shown):
    with progress.progress(shown), progress.Count("items", 1) as count:
        count.advance()
    assert bool(terminal.getvalue()) == shown
    with progress.Count("items", 1) as count:
        assert count.on_terminal


def test_a_notebook_shows_one_display_that_is_updated(monkeypatch):
    shown = []

    class Display:
        def update(self, data, raw):
            shown.append(data)

    console = SimpleNamespace(is_terminal=False, is_jupyter=True)
    real = Console(file=io.StringIO())
    monkeypatch.setattr(progress, "Console", lambda **options: SimpleNamespace(**vars(console)))
    monkeypatch.setattr(progress, "Progress", lambda *columns, console: real_progress(*columns, console=real))
    made = []
    monkeypatch.setitem(
        sys.modules, "IPython.display", SimpleNamespace(display=lambda *a, **k: made.append(k) or Display())
    )
    with progress.Count("<heads>", 2) as count:
        count.advance()
        list(progress.counted("inner", "a", total=1))
        count.advance()
    assert made == [{"raw": True, "display_id": True}]
    assert shown[0]["text/plain"].startswith("<heads> 1 of 2 about")
    assert shown[1]["text/plain"].splitlines()[1] == "inner 1 of 1"
    assert shown[-1]["text/plain"] == "<heads> 2 of 2"
    assert '<progress value="2" max="2"' in shown[-1]["text/html"]
    assert "<heads>" not in shown[-1]["text/html"]


real_progress = progress.Progress


def test_an_interrupt_names_where_it_stopped(terminal):
    def work():
        with progress.Count("claims", 3) as count:
            count.advance()
            with progress.Count("models", 5):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        work()
    assert stopped.value.__notes__ == ["interrupted at 1 of 3 (claims)"]
    with progress.Count("next", 1) as count:
        assert count.on_terminal  # the display before has ended


VERBS = {
    "probe": ("probing value", {"n_train": 200, "n_test": 50, "verify": True}),
    "audit": ("auditing heads", {"n": 200}),
    "audit_parts": ("auditing parts", {"n": 200}),
    "audit_probe": ("auditing probes", {"n_train": 200, "n_test": 64}),
    "ablate": ("ablating parts", {"n": 32}),
    "ablate_heads": ("ablating heads", {"n": 32}),
    "classify_heads": ("classifying heads", {"n": 32, "untrained": 2}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_show_bars_that_reach_their_end(verb, console, trained, tiny):
    written, terminal = console
    name, options = VERBS[verb]
    getattr(interp, verb)(trained.model, tiny, **options)
    if not terminal:
        assert written.getvalue() == ""
        return
    last = plain(written).rstrip().splitlines()[-1]
    assert name in last
    done, total = re.search(r"(\d+)/(\d+)", last).groups()
    assert done == total


def test_training_shows_a_bar(console, tiny):
    written, terminal = console
    interp.train(new_model(tiny), tiny, SHORT)
    assert ("19/19" in plain(written)) == terminal
    assert ("accuracy" in plain(written)) == terminal


@pytest.mark.parametrize(("at", "saved"), [(8, 6), (2, 0)])
def test_interrupted_training_names_its_step_and_what_resumes_it(tiny, tmp_path, monkeypatch, at, saved):
    step = Trainer.train_one_step

    def stop(self):
        if self.step == at:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Trainer, "train_one_step", stop)
    with pytest.raises(KeyboardInterrupt) as error:
        interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    assert error.value.__notes__[-1] == (
        f"interrupted at step {at} of 19; the same call resumes from step {saved}, which is saved in {tmp_path}"
    )
    with pytest.raises(KeyboardInterrupt) as error:
        interp.train(new_model(tiny), tiny, SHORT)
    assert error.value.__notes__[-1].endswith("nothing was saved; with folder=, the same call resumes")


def test_a_report_shows_a_bar(console, trained, tiny, tmp_path):
    written, terminal = console
    interp.report_run(trained, tiny, tmp_path / "report.html", n_test=100)
    assert "2/2" in plain(written).rstrip().splitlines()[-1] if terminal else plain(written) == ""


def test_numbers_of_a_message_are_not_coloured(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress.say("3 of 4 models are trained")
    assert "".join(capsys.readouterr()) == "3 of 4 models are trained\n"
