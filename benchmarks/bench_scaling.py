"""Cost against size: CPU time of an audit by heads, of classification and of evaluation by tokens, with slopes.

A slope is that of log time on log size, over all rounds of all sizes, with its 95 % interval. Layers, width and
sequences stay as they are. Attention compares every token with every other one, so that cost by tokens may grow with
the square; no other cost may.
"""

import string
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from scipy import stats

import interp
from benchmarks.timing import BenchmarkResult, cpu_time
from hooks import Transformer
from interp.tasks import Lego

ROUNDS, AUDITS = 2, 1
"""Rounds of the short verbs, and of audits."""
AUDITED = (24, 48, 96, 144)
"""Heads, in `LAYERS` layers of the same width."""
CLASSIFIED = (12, 51, 204)
EVALUATED = (12, 51, 204, 819)
"""Variables of a chain, of five tokens each: 62, 257, 1,022 and 4,097 tokens."""
NAMES = tuple(map("".join, product(string.ascii_lowercase, repeat=3)))[: EVALUATED[-1]]
LAYERS, WIDTH = 3, 96
N_AUDITED, N_READ = 128, 16
"""Sequences."""
BAR, BAR_OF_TOKENS = 1.7, 2.0


def comparisons() -> Iterator[BenchmarkResult]:
    chains = {n_vars: Lego(n_vars=n_vars, alphabet=NAMES) for n_vars in EVALUATED}
    model = untrained(chains[EVALUATED[-1]], n_layers=2, n_heads=4)
    short = Lego(n_vars=2, sentence_format="compact")

    def audit(n_heads: int) -> Callable[[], object]:
        audited = untrained(short, n_layers=LAYERS, n_heads=n_heads // LAYERS)
        return lambda: interp.audit(audited, short, n=N_AUDITED, at_chance=True)

    def classify(n_vars: int) -> Callable[[], object]:
        return lambda: interp.classify_heads(model, chains[n_vars], n=N_READ, alpha=0.05, untrained=19)

    def evaluate(n_vars: int) -> Callable[[], object]:
        return lambda: interp.evaluate(model, chains[n_vars], n=N_READ)

    tokens = {n_vars: chain.n_ctx for n_vars, chain in chains.items()}
    yield slope("audit", "heads", {n_heads: audit(n_heads) for n_heads in AUDITED}, bar=BAR, rounds=AUDITS)
    for verb, call, sizes in (("classify_heads", classify, CLASSIFIED), ("evaluate", evaluate, EVALUATED)):
        calls = {tokens[n_vars]: call(n_vars) for n_vars in sizes}
        yield slope(verb, "tokens", calls, bar=BAR_OF_TOKENS)


def untrained(task: Lego, *, n_layers: int, n_heads: int) -> Transformer:
    """A model with random weights."""
    return Transformer(interp.config_for(task, n_layers=n_layers, n_heads=n_heads, d_model=WIDTH)).eval()


def slope(
    verb: str, unit: str, calls: Mapping[int, Callable[[], object]], *, bar: float, rounds: int = ROUNDS
) -> BenchmarkResult:
    """Slope of CPU time by size on logarithmic axes; it passes at or below the bar.

    Args:
        verb: What is called.
        unit: What the sizes count.
        calls: The call of each size.
        bar: Largest slope that passes.
        rounds: Calls of each size.
    """
    next(iter(calls.values()))()
    seconds = np.array([[cpu_time(call) for call in calls.values()] for _ in range(rounds)])
    log_sizes = np.log(np.broadcast_to(list(calls), seconds.shape)).ravel()
    fit: Any = stats.linregress(log_sizes, np.log(seconds).ravel())
    half = stats.t.isf(0.025, seconds.size - 2) * fit.stderr
    medians = np.median(seconds, 0)
    times = ", ".join(f"{size:,}: {median:.2f} s" for size, median in zip(calls, medians, strict=True))
    figures = f"{times}; slope {fit.slope:.2f} [{fit.slope - half:.2f}, {fit.slope + half:.2f}]"
    return BenchmarkResult(name=f"{verb} by {unit}", figures=figures, bar=bar, passes=fit.slope <= bar)
