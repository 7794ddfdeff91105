"""Work in parallel processes that end with the process that started them."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

from joblib import Parallel, delayed

from interp.core.progress import progress

EVERY = 0.5
"""Seconds between looks at the parent process."""
Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


def in_processes(calls: Iterable[Call], *, n_jobs: int) -> Iterator[Any]:
    """Call functions in parallel processes, and yield their results as they come.

    A process ends at once when the one that started it is gone, however it was killed. Other processes show no bars.

    Args:
        calls: Functions of modules, with their arguments.
        n_jobs: Number of processes; 1 calls them in this one.

    Yields:
        The results, in the order in which they are ready.
    """
    parent = os.getpid()
    # as an initializer, since a new process spends seconds on the imports of its first call
    results: Any = Parallel(n_jobs=n_jobs, return_as="generator_unordered", initializer=_end_with, initargs=(parent,))(
        delayed(_call)(parent, function, arguments) for function, arguments in calls
    )
    yield from results


def _call(parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    with progress(False) if os.getpid() != parent else nullcontext():
        return function(*arguments)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone."""
    threading.Thread(target=_watch, args=(parent,), name=f"end with {parent}", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(EVERY)
    os._exit(1)
