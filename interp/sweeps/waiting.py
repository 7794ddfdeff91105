"""Waiting for models that other processes train, as long as these go on."""

import time
from collections.abc import Iterable
from pathlib import Path

from interp.core.processes import WAIT_VARIABLE, longest_wait
from interp.core.progress import say
from interp.training.folder import FolderInUse, RunFolder

LONGEST_STOP = 10.0
"""Seconds after which a process that is stopped is no longer awaited: it does not go on by itself."""


class Waiting:
    """The models that are awaited, and since when their folders have not changed."""

    def __init__(self) -> None:
        self._longest = longest_wait()
        self._changes: dict[Path, tuple[int, float]] = {}  # last change of a folder, and when it was seen

    def look(self, folders: Iterable[Path]) -> None:
        """Look at the folders of models that other processes train; says once for whom it waits.

        Raises:
            FolderInUse: a process is stopped, or has written nothing for `longest_wait`.
        """
        now = time.monotonic()
        for folder in folders:
            files = RunFolder(folder)
            writer = files.writer
            change = files.last_change
            if folder not in self._changes:
                say(
                    f"waiting for {writer or 'another process'}, which writes to {folder}; at most {self._longest:g} "
                    f"seconds after its last change"
                )
            if self._changes.get(folder, (None, now))[0] != change:
                self._changes[folder] = (change, now)
            seconds = now - self._changes[folder][1]
            is_stopped = writer is not None and writer.is_stopped
            if seconds <= (min(LONGEST_STOP, self._longest) if is_stopped else self._longest):
                continue
            advice = "End it or wait for it, then make the same call again"
            if is_stopped and writer is not None:
                advice = (
                    f"It is stopped: kill -CONT {writer.process} lets it go on, kill -KILL {writer.process} ends it"
                )
            raise FolderInUse(
                f"{writer or 'another process'} holds {folder} and has written nothing there for {seconds:.0f} "
                f"seconds. {advice}. The longest wait is {self._longest:g} seconds; the environment variable "
                f"{WAIT_VARIABLE} sets it."
            )
