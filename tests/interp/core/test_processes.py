"""Parallel processes end with the process that started them."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from interp.core import progress
from interp.core.processes import PARENT_CHECK_SECONDS, _unsendable, in_processes

CALLER = """
import sys
from interp.core.processes import in_processes
from test_processes import say_and_sleep

if __name__ == "__main__":
    list(in_processes([(say_and_sleep, (sys.argv[1],))] * 4, n_jobs=2))
"""


def say_and_sleep(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(300)


def add(a, b):
    return a + b


def runs(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def add_and_ask_for_bars(a, b):
    return add(a, b), progress._shown.get()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_results_come_as_they_are_ready_and_other_processes_show_no_bars(n_jobs):
    results = in_processes([(add_and_ask_for_bars, (i, 1)) for i in range(5)], n_jobs=n_jobs)
    assert sorted(results) == [(total, n_jobs == 1) for total in range(1, 6)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_is_left_when_the_caller_is_killed(tmp_path, kind):
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(tmp_path)], env={**os.environ, "PYTHONPATH": path})
    limit = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2:
        assert caller.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.05)
    workers = [int(one.name) for one in tmp_path.iterdir()]
    assert all(runs(one) for one in workers)
    caller.send_signal(kind)
    caller.wait(timeout=10)
    ended = time.monotonic() + 10 * PARENT_CHECK_SECONDS
    while time.monotonic() < ended and any(runs(one) for one in workers):
        time.sleep(0.05)
    assert not any(runs(one) for one in workers)


SLOW = """
import sys, time
time.sleep({seconds})
def work(folder):
    import os, pathlib
    pathlib.Path(folder, "late").touch()
"""
FIRST = """
import sys
from interp.core.processes import in_processes
from slow_to_import import work

if __name__ == "__main__":
    list(in_processes([(work, (sys.argv[1],))] * 2, n_jobs=2))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_process_is_left_that_is_still_importing(tmp_path):
    """Processes of a caller that is killed end while they import what their first call needs."""
    (tmp_path / "code").mkdir()
    (tmp_path / "found").mkdir()
    (tmp_path / "code/slow_to_import.py").write_text(SLOW.format(seconds=4))
    path = os.pathsep.join([str(tmp_path / "code"), *sys.path])
    command = [sys.executable, "-c", FIRST, str(tmp_path / "found")]
    caller = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})

    def workers():
        children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split()
        commands = {int(one): Path(f"/proc/{one}/cmdline").read_text() for one in children}
        return [one for one, text in commands.items() if "popen_loky" in text]

    limit = time.monotonic() + 60
    while len(started := workers()) < 2:
        assert time.monotonic() < limit
        time.sleep(0.05)
    time.sleep(2)  # past the start of Python, within the import of the first call
    caller.kill()
    caller.wait()
    ended = time.monotonic() + 10 * PARENT_CHECK_SECONDS
    while time.monotonic() < ended and any(runs(one) for one in started):
        time.sleep(0.05)
    assert not any(runs(one) for one in started)
    assert list((tmp_path / "found").iterdir()) == []


def test_only_losses_in_a_row_are_counted(monkeypatch):
    monkeypatch.setattr("interp.core.processes.MOST_LOST", 2)
    attempts = iter([[], [0], [1, 2]])
    asked = []

    def here(calls, n_jobs):
        asked.append(sorted(calls))
        yield from ((index, 10 * index) for index in next(attempts))
        if len(asked) < 3:
            raise BrokenProcessPool

    monkeypatch.setattr("interp.core.processes._on_this_machine", here)
    assert list(in_processes([(add, (0, 0))] * 3, n_jobs=2)) == [0, 10, 20]
    assert asked == [[0, 1, 2], [0, 1, 2], [1, 2]]


class Holder:
    """Holds something under a name, in itself or in a list."""

    def __init__(self, name, value):
        setattr(self, name, value)


UNSENDABLE = {
    "guard, a lock,": lambda: Holder("guard", threading.Lock()),
    "model.guard, a lock,": lambda: Holder("model", Holder("guard", threading.Lock())),
    "log, a TextIOWrapper,": lambda: Holder("log", sys.__stderr__),
    "steps.first, a generator,": lambda: Holder("steps", [{"first": (n for n in ())}]),
    "an argument, a lock,": threading.Lock,
}


@pytest.mark.parametrize("words", UNSENDABLE)
def test_the_part_that_cannot_be_sent_is_named(words):
    """Without processes, whose start takes longer; `Parallel` raises this error when it sends a call."""
    calls = {0: (add, (1, 2)), 1: (add, (1, UNSENDABLE[words]()))}
    assert _unsendable(calls) == words


@pytest.mark.slow
def test_what_cannot_be_sent_is_an_error_of_the_caller():
    with pytest.raises(ValueError, match=r"n_jobs is 2, but guard, a lock, cannot be sent to other processes\. Remove"):
        list(in_processes([(add, (Holder("guard", threading.Lock()), 1))] * 2, n_jobs=2))
