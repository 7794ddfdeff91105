"""Training that is stopped at every file operation, killed at any time, on a full disk, or several times at once."""

import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tries import Try, in_child, resumes, train

from interp.training.folder import RunFolder

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.chmod")
"""Audit events of operations that change files."""
CONCURRENT = 40


class Killed(BaseException):
    """No code that handles errors may go on after it."""


@dataclass
class Watch:
    """Count the file operations in a folder, and fail from one of them on."""

    folder: str = ""
    at: int | None = None
    error: type[BaseException] = Killed
    once: bool = False
    count: int = 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.folder or event not in EVENTS or not _changes(event, args) or self.folder not in str(args[0]):
            return
        self.count += 1
        if self.at is not None and (self.count == self.at or (self.count > self.at and not self.once)):
            raise Killed if self.error is Killed else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))

    def over(self, folder: Path, at: int | None, error: type[BaseException] = Killed, *, once: bool = False) -> None:
        self.folder, self.at, self.error, self.once, self.count = str(folder), at, error, once, 0

    def off(self) -> int:
        self.folder = ""
        return self.count


def _changes(event: str, args: tuple[Any, ...]) -> bool:
    if event != "open":
        return True
    _, mode, flags = args
    return any(letter in mode for letter in "wax+") if mode else bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


WATCH = Watch()
sys.addaudithook(WATCH)  # for as long as the process lives; it does nothing outside `over` and `off`


def at_every_operation(n: int, folder: Path) -> Iterator[Try]:
    """Stopped before a file operation, or the disk is full there, once or from then on; then trained again."""
    whole, path = train(folder / "whole"), folder / "try"
    train(folder / "of another seed", seed=5)
    WATCH.over(folder / "stopped", 40)
    assert in_child(lambda: train(folder / "stopped") and None)[1].startswith("Killed")
    for before in ("nothing", "of another seed", "stopped"):
        fresh = before == "of another seed"
        _copy(folder / before, path)
        WATCH.over(path, None)
        train(path, fresh=fresh)
        total = WATCH.off()
        for kind, once in ((Killed, False), (OSError, False), (OSError, True)):
            for at in range(1, total + 1, -(-9 * total // n)):
                what = f"{kind.__name__} at operation {at}{' only' if once else ''}, before it {before}"
                _copy(folder / before, path)
                WATCH.over(path, at, kind, once=once)
                _, error = in_child(lambda fresh=fresh: train(path, fresh=fresh) and None)
                WATCH.off()
                if kind is OSError and error and not error.startswith("OSError"):
                    yield Try(what, "unclear", error)
                    continue
                other = fresh and (path / "manifest.json").exists() and RunFolder(path).read_manifest()["seed"] == 5
                yield resumes(path, whole, what, fresh=other)


def _copy(start: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if start.exists():
        shutil.copytree(start, folder)


def killed(n: int, folder: Path) -> Iterator[Try]:
    """SIGKILL at a random time, up to three times in a row."""
    rng, start = random.Random(0), time.perf_counter()
    whole = train(folder / "whole")
    longest = time.perf_counter() - start
    for index in range(n):
        path = folder / f"try {index}"
        for _ in range(rng.randrange(1, 4)):
            in_child(lambda path=path: train(path) and None, kill_after=rng.uniform(0, longest))
        yield resumes(path, whole, f"killed, try {index}")
        shutil.rmtree(path)


def full_disk(n: int, folder: Path) -> Iterator[Try]:
    """No file may be longer than a random size: the operating system cuts writes short."""
    rng, whole = random.Random(0), train(folder / "whole")
    sizes = [path.stat().st_size for path in (folder / "whole").iterdir()]

    def limited(path: Path, size: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        train(path)

    for index in range(n):
        path, size = folder / f"try {index}", rng.randrange(2 * max(sizes))
        _, error = in_child(lambda path=path, size=size: limited(path, size))
        what = f"files of at most {size} bytes"
        if error and not error.startswith("OSError") and "File too large" not in error:
            yield Try(what, "unclear", error)
        yield resumes(path, whole, what)
        shutil.rmtree(path)


def concurrent(n: int, folder: Path) -> Iterator[Try]:
    """Forty processes with four seeds train in one folder at once: one trains, and the folder is that one's."""
    whole = {seed: train(folder / f"whole {seed}", seed=seed) for seed in range(4)}
    context = multiprocessing.get_context("fork")
    for index in range(max(1, n // CONCURRENT)):
        path, barrier = folder / f"try {index}", context.Barrier(CONCURRENT)
        answers = context.Queue()

        def work(number: int, path: Path = path, barrier: Any = barrier, answers: Any = answers) -> None:
            barrier.wait()
            try:
                train(path, seed=number % 4, fresh=number % 2 == 1)
                answers.put((number, ""))
            except Exception as raised:
                answers.put((number, f"{type(raised).__name__}: {raised}"))

        processes = [context.Process(target=work, args=(number,)) for number in range(CONCURRENT)]
        for process in processes:
            process.start()
        found = dict(answers.get(timeout=300) for _ in processes)
        for process in processes:
            process.join()
        refusals = ("FolderInUse: process", "FolderInUse: another process", f"ValueError: {path} holds another run")
        for number, error in found.items():
            refused = error.startswith(refusals)
            yield Try(f"trainer {number}", None if not error or refused else "unclear", error)
        if "" not in found.values():
            yield Try("forty trainers", "lost", "none trained")
        seed = RunFolder(path).read_manifest()["seed"]
        yield resumes(path, whole[seed], f"folder after {CONCURRENT} trainers", seed=seed)
