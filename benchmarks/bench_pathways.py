"""Hard-coded attention: a head against a learned one, long sequences against short ones, models against Hugging Face's.

`python -m benchmarks.bench_pathways` runs it on two threads.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks.timing import Comparison
from case_studies.lego.cost import FIXED, HEAD_BAR, LINEAR_BAR
from case_studies.lego.timing import (
    HUGGINGFACE,
    LINEAR,
    LONG,
    SHORT,
    Cost,
    heads_at_lengths,
    heads_of_each_kind,
    take_turns,
    whole_models,
)

ROUNDS, MODEL_ROUNDS = 21, 7
TOKENS = 2048
"""In a batch of whole models."""
THREADS = 2


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A ratio of which nothing was promised, to compare others with."""

    name: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    def __str__(self) -> str:
        middle = statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))
        return (
            f"{self.name:<58} ours {1e3 * statistics.median(self.ours):8.2f} ms, theirs "
            f"{1e3 * statistics.median(self.theirs):8.2f} ms, ratio {middle:.3f}, nothing promised"
        )


def comparisons() -> Iterator[Comparison | Beside]:
    found = take_turns(heads_of_each_kind(seed=0), rounds=ROUNDS)
    learned = found["learned", SHORT]
    for name in FIXED:
        yield compared(f"{name} head, {SHORT} tokens, against a learned one", found[name, SHORT], learned, HEAD_BAR)
    yield compared(f"token maps alone, {SHORT} tokens, against a learned head", found["token maps", SHORT], learned)
    found = take_turns(heads_at_lengths((SHORT, LONG), seed=0), rounds=ROUNDS)
    for name in dict.fromkeys(name for name, _ in found):
        bar = LINEAR_BAR if name in LINEAR else None
        yield compared(f"{name} head, {LONG} tokens against {SHORT}", found[name, LONG], found[name, SHORT], bar)
    models = ("Hybrid", "Hardcode", *HUGGINGFACE)
    found = take_turns(whole_models(models, lengths=(SHORT,), tokens=TOKENS, seed=0), rounds=MODEL_ROUNDS)
    for ours in ("Hybrid", "Hardcode"):
        for theirs in HUGGINGFACE:
            name = f"{ours}, forward and backward, against {theirs}"
            yield compared(name, found[ours, SHORT], found[theirs, SHORT], 1.0)


def compared(name: str, ours: Cost, theirs: Cost, bar: float | None = None) -> Comparison | Beside:
    if bar is None:
        return Beside(name=name, ours=ours.seconds, theirs=theirs.seconds)
    return Comparison(name=name, ours=ours.seconds, theirs=theirs.seconds, bar=bar)


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    for comparison in comparisons():
        print(comparison, flush=True)
