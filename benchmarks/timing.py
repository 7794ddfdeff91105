"""Benchmark results: a ratio, a time or a speed, each with its bar."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from case_studies.recipes.stopwatch import time_in_turn

LONGEST = 6.0
"""Seconds after which a comparison ends, so that none takes most of the time of all."""
FEWEST_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """One line of the benchmark."""

    name: str
    figures: str
    bar: float | None
    """The median must be on the right side of it; None if there is no bar."""
    passes: bool = True

    def __str__(self) -> str:
        bar = "no bar" if self.bar is None else f"bar {self.bar:,.2f}: {'passes' if self.passes else 'FAILS'}"
        return f"{self.name:<58} {self.figures}, {bar}"


def ratio(name: str, unmyopic: Sequence[float], peer: Sequence[float], *, bar: float | None = None) -> BenchmarkResult:
    """Median of our times over the peer's with its quartiles, paired by round; passes at or below the bar."""
    ratios = [a / b for a, b in zip(unmyopic, peer, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    median = statistics.median(ratios)
    milliseconds = f"unmyopic {1e3 * statistics.median(unmyopic):8.2f} ms, peer {1e3 * statistics.median(peer):8.2f} ms"
    figures = f"{milliseconds}, ratio {median:.3f} [{low:.3f}, {high:.3f}], n = {len(ratios)}"
    return BenchmarkResult(name=name, figures=figures, bar=bar, passes=bar is None or median <= bar)


def seconds(name: str, times: Sequence[float], *, bar: float) -> BenchmarkResult:
    """Median time; passes at or below the bar."""
    median = statistics.median(times)
    return BenchmarkResult(
        name=name, figures=f"{median:.2f} s, worst {max(times):.2f} s", bar=bar, passes=median <= bar
    )


def speed(name: str, call: Callable[[], object], *, n: int, bar: float, rounds: int = 11) -> BenchmarkResult:
    """Median number of items per second of a call that makes n, without a warm-up; passes at or above the bar."""
    per_second = [n / duration for duration in time_in_turn([call], rounds=rounds)[0]]
    median = statistics.median(per_second)
    figures = f"{median:,.0f}/s, worst {min(per_second):,.0f}/s"
    return BenchmarkResult(name=name, figures=figures, bar=bar, passes=median >= bar)


def elapsed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def cpu_time(call: Callable[[], object]) -> float:
    """Seconds of CPU that a call takes in this process."""
    start = time.process_time()
    call()
    return time.process_time() - start


def compare(
    name: str,
    unmyopic: Callable[[], Any],
    peer: Callable[[], Any],
    *,
    bar: float,
    rounds: int = 21,
    check: Callable[[Any, Any], object] | None = None,
) -> BenchmarkResult:
    """Compare the CPU time of two callables, run in turn after one warm-up of each: a busy machine does not decide.

    Rounds end early, but not before the third, when they have taken `LONGEST` seconds together.

    Args:
        name: What is compared.
        unmyopic: Our implementation.
        peer: What a user would write with a peer.
        bar: Largest median ratio that passes.
        rounds: Number of times each is run.
        check: Called with both results of the warm-up; raises if they differ.
    """
    warm_up = unmyopic(), peer()
    if check is not None:
        check(*warm_up)
    times: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(times) < rounds and (len(times) < FEWEST_ROUNDS or time.perf_counter() - start < LONGEST):
        times.append((cpu_time(unmyopic), cpu_time(peer)))
    return ratio(name, *zip(*times, strict=True), bar=bar)
