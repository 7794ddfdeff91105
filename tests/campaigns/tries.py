"""One try of a campaign, and how it ended."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from short_runs import SHORT, new_model, same_weights, without_seconds

import interp
from interp.tasks import Lego
from interp.training import TrainingRun

TASK = Lego(n_vars=2, sentence_format="compact")
Fault = Literal["silently wrong", "lost", "let in", "unclear"]
FAULTS: tuple[Fault, ...] = ("silently wrong", "lost", "let in", "unclear")


@dataclass(frozen=True)
class Try:
    """What was tried and, if it failed, how."""

    what: str
    fault: Fault | None = None
    detail: str = ""


def train(folder: Path, *, seed: int = 0, fresh: bool = False) -> TrainingRun:
    """A short run, the same each time: mimicking, then the task; a state after every third step."""
    return interp.train(new_model(TASK), TASK, SHORT, seed=seed, folder=folder, fresh=fresh)


def in_child(call: Callable[[], Any], *, kill_after: float | None = None) -> tuple[Any, str]:
    """Call a function in a forked process: its result, and the error in words; empty after a kill.

    Args:
        call: Returns something that can be pickled.
        kill_after: Seconds after which the process gets SIGKILL.
    """
    context = multiprocessing.get_context("fork")
    read, write = context.Pipe(duplex=False)

    def run() -> None:
        try:
            write.send((call(), ""))
        except BaseException as error:
            write.send((None, f"{type(error).__name__}: {error}"))

    process = context.Process(target=run)
    process.start()
    write.close()
    process.join(kill_after)
    if process.is_alive():
        if kill_after is None:
            raise AssertionError
        os.kill(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
        process.join()
    try:
        return read.recv()
    except EOFError:
        return None, ""


def resumes(folder: Path, whole: TrainingRun, what: str, *, seed: int = 0, fresh: bool = False) -> Try:
    """Train again in a folder: a failure if that fails, or gives other weights or metrics than an undisturbed run."""
    try:
        run = train(folder, seed=seed, fresh=fresh)
        stored = TrainingRun.load(folder)
    except Exception as error:
        return Try(what, "lost", f"{type(error).__name__}: {error}")
    if not (same_weights(run.model, whole.model) and same_weights(stored.model, whole.model)):
        return Try(what, "silently wrong", "other weights")
    if without_seconds(stored.history) != without_seconds(whole.history):
        return Try(what, "silently wrong", "other metrics")
    left = sorted({path.name for path in folder.iterdir()} - {"manifest.json", "metrics.jsonl", "model.safetensors"})
    return Try(what, "lost", f"{left} stay behind") if left else Try(what)
