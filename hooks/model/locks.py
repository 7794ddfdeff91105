"""One thread at a time: locks of models, held during forward passes, while hooks are attached, and in verbs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
R = TypeVar("R")

LONGEST = 600.0
"""Seconds that a thread waits for another one before it raises an error: a `with model.hooks(...)` block that waits
for a thread which runs the same model would otherwise never end."""


class ModelLock:
    """A re-entrant lock. Copies of a model, and models sent to other processes, get a new one."""

    def __init__(self):
        self._lock = threading.RLock()
        self._holder = ""

    def __enter__(self) -> "ModelLock":
        # Only a thread that has to wait uses the timeout
        if not self._lock.acquire(blocking=False) and not self._lock.acquire(timeout=LONGEST):
            raise RuntimeError(
                f"the model is in use by the thread {self._holder!r} since {LONGEST:g} seconds: a verb runs, or hooks "
                f"are attached. Give each thread a copy (copy.deepcopy(model)), or wait until that thread is done."
            )
        self._holder = threading.current_thread().name
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict) -> "ModelLock":
        return ModelLock()

    def __reduce__(self) -> tuple:
        return ModelLock, ()


_locks_of_others: WeakKeyDictionary[Any, ModelLock] = WeakKeyDictionary()
_adding_lock = threading.Lock()


def lock_of(model: Any) -> ModelLock:
    """The lock of a model: its property `lock`, or, for models of other packages, one that is kept here."""
    lock = getattr(model, "lock", None)
    if isinstance(lock, ModelLock):
        return lock
    # Two threads that ask at the same time get the same lock
    with _adding_lock:
        return _locks_of_others.setdefault(model, ModelLock())


@contextmanager
def holding(*models: Any) -> Iterator[None]:
    """Hold the locks of models, always in the same order, so that two threads never wait for each other."""
    locks_by_id = {id(lock): lock for lock in map(lock_of, models)}
    with ExitStack() as stack:
        for _, lock in sorted(locks_by_id.items()):
            stack.enter_context(lock)
        yield


def one_thread(method: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a model's method: it holds the model's lock."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with args[0].lock:  # type: ignore[attr-defined]
            return method(*args, **kwargs)

    return run
