"""Timing two candidates in turn, so that a machine whose speed drifts slows both alike."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Times of ours and theirs, taken in turn."""

    name: str
    ours: tuple[float, ...]
    """Seconds, one per round."""
    theirs: tuple[float, ...]
    bar: float
    """Largest ratio that was promised."""

    def __str__(self) -> str:
        ratios = [a / b for a, b in zip(self.ours, self.theirs, strict=True)]
        middle, quartiles = statistics.median(ratios), statistics.quantiles(ratios, n=4)
        verdict = "holds" if middle <= self.bar else "DOES NOT HOLD"
        return (
            f"{self.name:<58} ours {1e3 * statistics.median(self.ours):8.2f} ms, theirs "
            f"{1e3 * statistics.median(self.theirs):8.2f} ms, ratio {middle:.3f} "
            f"[{quartiles[0]:.3f}, {quartiles[2]:.3f}], promised {self.bar:.2f}: {verdict}"
        )


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """A time that was promised by itself."""

    name: str
    taken: tuple[float, ...]
    promised: float

    def __str__(self) -> str:
        middle = statistics.median(self.taken)
        verdict = "holds" if middle <= self.promised else "DOES NOT HOLD"
        return (
            f"{self.name:<58} {middle:.2f} s, worst {max(self.taken):.2f} s, promised {self.promised:.2f} s: {verdict}"
        )


def compare(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], *, bar: float, rounds: int = 21
) -> Comparison:
    """Time two callables in turn, after one warm-up of each."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(-1, rounds):
        for side, call in zip(times, (ours, theirs), strict=True):
            started = time.perf_counter()
            call()
            if round_ >= 0:
                side.append(time.perf_counter() - started)
    return Comparison(name=name, ours=tuple(times[0]), theirs=tuple(times[1]), bar=bar)
