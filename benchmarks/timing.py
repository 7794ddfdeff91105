"""Benchmark results: a ratio, a time or a speed with its bar."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from case_studies.frame.stopwatch import time_in_turn


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Times of our implementation and of theirs, measured in turn."""

    name: str
    ours: tuple[float, ...]
    """Seconds, one per round."""
    theirs: tuple[float, ...]
    bar: float | None
    """Largest median ratio that passes; None for a ratio without a bar."""

    def __str__(self) -> str:
        ratios = [a / b for a, b in zip(self.ours, self.theirs, strict=True)]
        middle, quartiles = statistics.median(ratios), statistics.quantiles(ratios, n=4)
        return (
            f"{self.name:<58} ours {1e3 * statistics.median(self.ours):8.2f} ms, theirs "
            f"{1e3 * statistics.median(self.theirs):8.2f} ms, ratio {middle:.3f} [{quartiles[0]:.3f}, "
            f"{quartiles[2]:.3f}], "
            + ("no bar" if self.bar is None else f"bar {self.bar:.2f}: {_judged(middle <= self.bar)}")
        )


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """A time without a peer to compare with."""

    name: str
    taken: tuple[float, ...]
    bar: float
    """Largest median that passes."""

    def __str__(self) -> str:
        middle = statistics.median(self.taken)
        return (
            f"{self.name:<58} {middle:.2f} s, worst {max(self.taken):.2f} s, bar {self.bar:.2f} s: "
            f"{_judged(middle <= self.bar)}"
        )


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Items per second without a peer to compare with."""

    name: str
    per_second: tuple[float, ...]
    bar: float
    """Smallest median that passes."""

    def __str__(self) -> str:
        middle = statistics.median(self.per_second)
        return (
            f"{self.name:<58} {middle:,.0f}/s, worst {min(self.per_second):,.0f}/s, bar {self.bar:,}/s: "
            f"{_judged(middle >= self.bar)}"
        )


Result = Comparison | Seconds | Speed


def _judged(passes: bool) -> str:
    return "passes" if passes else "FAILS"


def compare(
    name: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    *,
    bar: float,
    rounds: int = 21,
    check: Callable[[Any, Any], object] | None = None,
) -> Comparison:
    """Time two callables in turn, after one warm-up of each.

    Args:
        name: What is compared.
        ours: Our implementation.
        theirs: What a user would write with a peer.
        bar: Largest median ratio that passes.
        rounds: Number of times each is run.
        check: Called with both results of the warm-up; raises if they differ.
    """
    warm_up = ours(), theirs()
    if check is not None:
        check(*warm_up)
    times = time_in_turn([ours, theirs], rounds=rounds)
    return Comparison(name=name, ours=times[0], theirs=times[1], bar=bar)


def speed(name: str, call: Callable[[], object], *, n: int, bar: float, rounds: int = 11) -> Speed:
    """Items per second of a call that makes n items, without a warm-up."""
    (seconds,) = time_in_turn([call], rounds=rounds)
    return Speed(name=name, per_second=tuple(n / taken for taken in seconds), bar=bar)


def seconds(name: str, call: Callable[[], object], *, bar: float, rounds: int = 5) -> Seconds:
    """Time of a call, without a warm-up."""
    return Seconds(name=name, taken=time_in_turn([call], rounds=rounds)[0], bar=bar)


def print_all(results: Iterable[Result]) -> None:
    """Print each result when it is there."""
    for result in results:
        print(result, flush=True)
