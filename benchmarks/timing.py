"""Benchmark results: a ratio, a time or a speed, each with its bar."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from case_studies.recipes.stopwatch import time_in_turn


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the benchmark."""

    name: str
    figures: str
    bar: float | None
    """The median must be on the right side of it; None if there is no bar."""
    passes: bool = True

    def __str__(self) -> str:
        bar = "no bar" if self.bar is None else f"bar {self.bar:,.2f}: {'passes' if self.passes else 'FAILS'}"
        return f"{self.name:<58} {self.figures}, {bar}"


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], *, bar: float | None = None) -> Result:
    """Median of ours over theirs with its quartiles, paired by round; passes at or below the bar."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    middle, mine, other = map(statistics.median, (ratios, ours, theirs))
    figures = f"ours {1e3 * mine:8.2f} ms, theirs {1e3 * other:8.2f} ms, ratio {middle:.3f} [{low:.3f}, {high:.3f}]"
    return Result(name=name, figures=figures, bar=bar, passes=bar is None or middle <= bar)


def seconds(name: str, taken: Sequence[float], *, bar: float) -> Result:
    """Median time; passes at or below the bar."""
    middle = statistics.median(taken)
    return Result(name=name, figures=f"{middle:.2f} s, worst {max(taken):.2f} s", bar=bar, passes=middle <= bar)


def speed(name: str, call: Callable[[], object], *, n: int, bar: float, rounds: int = 11) -> Result:
    """Median number of items per second of a call that makes n, without a warm-up; passes at or above the bar."""
    per_second = [n / taken for taken in time_in_turn([call], rounds=rounds)[0]]
    middle = statistics.median(per_second)
    figures = f"{middle:,.0f}/s, worst {min(per_second):,.0f}/s"
    return Result(name=name, figures=figures, bar=bar, passes=middle >= bar)


def compare(
    name: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    *,
    bar: float,
    rounds: int = 21,
    check: Callable[[Any, Any], object] | None = None,
) -> Result:
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
    return ratio(name, *time_in_turn([ours, theirs], rounds=rounds), bar=bar)


def print_all(results: Iterable[Result]) -> None:
    """Print each result as soon as it is measured."""
    for result in results:
        print(result, flush=True)
