"""A process that holds the folder of a run."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interp.training.folder import RunFolder

LONGEST = 120.0
"""Seconds after which the process ends by itself."""


@contextmanager
def holding(folder: Path, *, beats: bool = False) -> Iterator[int]:
    """The number of a process that holds a folder; a fork, since a new process would load torch for seconds.

    Args:
        folder: The folder.
        beats: Whether the process writes to the folder all the time, as a training does.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            with RunFolder(folder).writing():
                os.write(writer, b"held")
                end = time.monotonic() + LONGEST
                while time.monotonic() < end:
                    time.sleep(0.05)
                    if beats:
                        (folder / "beat").write_text(str(time.monotonic()))
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 4) == b"held"
    yield process
    os.close(reader)
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
