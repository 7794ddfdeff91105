"""Work in parallel processes that end with the process that started them."""

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
from pickle import PicklingError
from typing import Any

from joblib import Parallel, delayed
from joblib.externals.loky.backend.reduction import dumps

from hooks.extras import require
from interp.core.progress import progress, say

PARENT_CHECK_SECONDS = 0.5
"""Seconds between checks of the parent process."""
MOST_LOST = 5
"""Losses of processes without a finished call, after which no others are started."""
CONNECT = 30
"""Seconds to wait for a scheduler."""
LONGEST_WAIT = 600.0
"""Default of `longest_wait`. A training writes metrics or a state every 50 to 100 steps: within minutes."""
WAIT_VARIABLE = "INTERP_WAIT"
POLL = 0.1
"""Seconds between looks at the results of a cluster."""
LOOK_FOR_WORKERS = 1.0
"""Seconds between questions to a scheduler how many workers it has."""
_one_at_a_time = threading.Lock()
Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


class LostWorkers(RuntimeError):
    """Processes that do the work end again and again, or the scheduler of a cluster is gone."""


def longest_wait() -> float:
    """Seconds that this process waits for another one that does not go on: the environment variable INTERP_WAIT.

    Raises:
        ValueError: it is not a positive number.
    """
    text = os.environ.get(WAIT_VARIABLE, str(LONGEST_WAIT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(
            f"the environment variable {WAIT_VARIABLE} is {text[:40]!r}; give a number of seconds above 0."
        )
    return seconds


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
        LostWorkers: processes are killed again and again without finishing a call, the scheduler is gone, or it has no
            workers for `longest_wait`.
        ValueError: an argument that cannot be sent to a process; names the part of it, such as a lock.
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
        except PicklingError as error:
            unsendable = _unsendable(remaining)
            raise ValueError(
                f"n_jobs is {n_jobs}, but {unsendable} cannot be sent to other processes. Remove it, or use n_jobs=1."
            ) from error
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


def _unsendable(calls: Mapping[int, Call]) -> str:
    """The part of the arguments that cannot be sent, with its path: `model.guard, a lock`."""
    member: Any = [arguments for _, arguments in calls.values()]
    path: list[str] = []
    visited: set[int] = set()
    # Down to the part that cannot be sent though all its own parts can
    while id(member) not in visited:
        visited.add(id(member))
        for name, candidate in _members(member):
            if id(candidate) not in visited and not _can_be_sent(candidate):
                member = candidate
                path += [name] if name else []
                break
    return f"{'.'.join(path) or 'an argument'}, a {type(member).__name__},"


def _members(value: Any) -> list[tuple[str, Any]]:
    """Parts of a value with their names; those of a list have none."""
    if isinstance(value, list | tuple):
        return [("", element) for element in value]
    if isinstance(value, Mapping):
        return [(str(key), element) for key, element in value.items()]
    return list(getattr(value, "__dict__", {}).items())


def _can_be_sent(value: Any) -> bool:
    try:
        dumps(value)
    except Exception:  # what objects raise that cannot be pickled is not settled
        return False
    return True


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
        while futures:
            _wait_for_result(results, client, len(futures))
            future = next(results)
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


def _wait_for_result(results: Any, client: Any, n_calls: int) -> None:
    """Wait until a call is done.

    Args:
        results: distributed's `as_completed` of all calls.
        client: The client of the scheduler.
        n_calls: Number of calls that are not done.

    Raises:
        LostWorkers: the scheduler has no workers, or does not answer, for `longest_wait`.
    """
    longest = longest_wait()
    next_look = time.monotonic() + LOOK_FOR_WORKERS
    alone_since: float | None = None  # when it was first seen that there are no workers
    while not results.has_ready():
        time.sleep(POLL)
        now = time.monotonic()
        if now < next_look:
            continue
        next_look = now + LOOK_FOR_WORKERS
        if _has_workers(client):
            alone_since = None
            continue
        address = client.scheduler.address
        if alone_since is None:
            say(f"waiting for workers: the scheduler at {address} has none, or does not answer.")
            alone_since = now
        elif now - alone_since > longest:
            raise LostWorkers(
                f"the scheduler at {address} has had no workers, or has not answered, for {longest:g} seconds; "
                f"{n_calls} calls are not done. Start workers (dask worker {address}) and make the same call again; "
                f"{WAIT_VARIABLE} sets the seconds."
            )


def _has_workers(client: Any) -> bool:
    """Whether a scheduler answers, and has workers."""
    try:
        return bool(client.sync(client.scheduler.ncores, callback_timeout=LOOK_FOR_WORKERS))
    except TimeoutError:
        return False


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
