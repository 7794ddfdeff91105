"""File systems that answer calls of `flock` with any error."""

import errno
import fcntl
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from short_runs import new_model
from tries import TASK, Try

import interp
from interp import TrainSettings
from interp.sweeps import ModelSpec, Sweep
from interp.training.folder import RunFolder

SETTINGS = TrainSettings(steps=4, tokens_per_step=64, eval_every=2, n_eval=50)
GRID = Sweep(ModelSpec(task=TASK, config=new_model(TASK).cfg, settings=SETTINGS, seed=0), {"seed": range(2)})


def tries(n: int, folder: Path) -> Iterator[Try]:
    """`flock` answers with any error: training is refused with the folder's name, and reading works."""
    rng, flock = random.Random(0), fcntl.flock
    interp.sweep(GRID, folder / "whole", n_jobs=1)
    others = Sweep(replace(GRID.base, seed=7), {})
    contention = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.EEXIST, errno.ENOENT}
    numbers = sorted(set(errno.errorcode) - contention)
    for index in range(n):
        number, path = rng.choice(numbers), folder / str(index)
        what = f"flock raises {errno.errorcode[number]}"

        def refuse(file: Any, operation: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        fcntl.flock = refuse
        try:
            call = rng.choice([
                lambda path=path: interp.sweep(others, path, n_jobs=1),
                lambda path=path: interp.train(new_model(TASK), TASK, SETTINGS, folder=path),
            ])  # fmt: skip
            call()
            yield Try(what, "silently wrong", "it trained without a lock")
        except OSError as error:
            clear = str(path) in str(error) and "Choose a folder" in str(error)
            yield Try(what, None if clear else "unclear", str(error))
        except BaseException as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}")
        else:
            RunFolder(path).clear()
        try:
            interp.sweep(GRID, folder / "whole", n_jobs=1).select()
        except BaseException as error:
            yield Try(f"{what}, reading", "lost", f"{type(error).__name__}: {error}")
        finally:
            fcntl.flock = flock
