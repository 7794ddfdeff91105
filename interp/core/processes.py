"""Work in parallel processes that end with the process that started them."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
from typing import Any

from joblib import Parallel, delayed

from hooks.extras import require
from interp.core.progress import progress

PARENT_CHECK_SECONDS = 0.5
"""Seconds between checks of the parent process."""
MOST_LOST = 5
"""Losses of processes without a finished call, after which no others are started."""
CONNECT = 30
"""Seconds to wait for a scheduler."""
_one_at_a_time = threading.Lock()
Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


class LostWorkers(RuntimeError):
    """Processes that do the work end again and again, or the scheduler of a cluster is gone."""


def in_processes(calls: Iterable[Call], *, n_jobs: int, scheduler: Any = None) -> Iterator[Any]:
    """Call functions in parallel processes, and yield their results as they come.

    A process ends when the process that started it has ended, however it was killed. Processes show no progress bars.
    A call whose process was killed is made again in another.

    Args:
        calls: Functions of modules, with their arguments.
        n_jobs: Number of processes; 1 calls them in this one.
        scheduler: Address of a Dask scheduler, such as `tcp://host:8786`, or a `distributed.Client`, whose workers make
            the calls in place of processes of this machine; one call at a time in each worker.

    Yields:
        The results, in the order in which they are ready.

    Raises:
        LostWorkers: processes are killed again and again without finishing a call, or the scheduler is gone.
        MissingExtra: a scheduler is given, and `distributed` is not installed.
    """
    remaining = dict(enumerate(calls))
    if scheduler is not None:
        yield from _on_cluster(remaining, scheduler)
        return
    losses = 0  # in a row, since the last finished call
    while remaining:
        try:
            for index, result in _on_this_machine(remaining, min(n_jobs, len(remaining))):
                del remaining[index]
                losses = 0
                yield result
        except BrokenProcessPool as error:
            losses += 1
            if losses == MOST_LOST:
                raise LostWorkers(
                    f"processes were killed {losses} times in a row before one of {len(remaining)} calls was done, "
                    f"which happens when memory runs out; use fewer (n_jobs is {n_jobs})."
                ) from error


def _on_this_machine(calls: Mapping[int, Call], n_jobs: int) -> Iterator[tuple[int, Any]]:
    parent = os.getpid()
    # as an initializer, since a new process spends seconds on the imports of its first call
    yield from Parallel(n_jobs=n_jobs, return_as="generator_unordered", initializer=_end_with, initargs=(parent,))(
        delayed(_call)(parent, index, *call) for index, call in list(calls.items())
    )  # type: ignore[misc]


def _call(parent: int, index: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[int, Any]:
    with progress(False) if os.getpid() != parent else nullcontext():
        return index, function(*arguments)


def _on_cluster(calls: Mapping[int, Call], scheduler: Any) -> Iterator[Any]:
    require("distributed", extra="cluster")
    from concurrent.futures import CancelledError

    from distributed import Client, KilledWorker, as_completed

    opens_client = isinstance(scheduler, str)
    client = None if opens_client else scheduler
    futures: dict[Any, int] = {}
    losses: Counter[int] = Counter()  # by call
    try:
        client = client or Client(scheduler, timeout=CONNECT, set_as_default=False)
        futures = {client.submit(_call_alone, *call, pure=False): index for index, call in calls.items()}
        results = as_completed(list(futures), loop=client.loop)
        for future in results:
            index = futures.pop(future)
            try:
                result = future.result()
            except KilledWorker as error:
                # The worker was lost with the call: make it again on another
                losses[index] += 1
                if losses[index] == MOST_LOST:
                    raise LostWorkers(
                        f"workers of {scheduler} were lost again and again while they did one call, which happens when "
                        f"memory runs out: {error}"
                    ) from error
                second_attempt = client.submit(_call_alone, *calls[index], pure=False)
                futures[second_attempt] = index
                results.add(second_attempt)
                continue
            yield result
    except (CancelledError, OSError) as error:
        raise LostWorkers(f"the connection to the scheduler at {scheduler} is lost: {error or 'it ended'}.") from error
    finally:
        if client is not None:
            with suppress(CancelledError, OSError):
                client.cancel(list(futures))
            if opens_client:
                with suppress(CancelledError, OSError):
                    client.close(timeout=CONNECT)


def _call_alone(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call on a worker, which may have several threads: one call at a time, as torch's settings are the process's."""
    with _one_at_a_time, progress(False):
        return function(*arguments)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone."""
    threading.Thread(target=_watch, args=(parent,), name=f"end with {parent}", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)
