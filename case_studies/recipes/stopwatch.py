"""Timing callables in turn, for studies and benchmarks."""

import time
from collections.abc import Callable, Sequence


def time_in_turn(calls: Sequence[Callable[[], object]], *, rounds: int) -> list[tuple[float, ...]]:
    """Time each call once per round, so that drift in the machine's speed affects all calls equally.

    Args:
        calls: Functions to time; run each once before, so that the first round is not a warm-up.
        rounds: Number of times each call is run.

    Returns:
        Seconds per round, for each call. Ratios of two calls are paired by round.

    Raises:
        ValueError: rounds below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; give at least 1.")
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for times, call in zip(seconds, calls, strict=True):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
    return [tuple(times) for times in seconds]
