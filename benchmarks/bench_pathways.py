"""Hard-coded heads against a learned one, long sequences against short ones, models against Hugging Face's.

`python -m benchmarks.bench_pathways` runs it on two threads.
"""

from collections.abc import Iterator

import torch

from benchmarks.timing import Result, print_all, ratio
from case_studies.lego.cost import FIXED, HEAD_BAR, LINEAR_BAR
from case_studies.lego.timing import (
    HUGGINGFACE,
    LINEAR,
    LONG,
    SHORT,
    TimeAndMemory,
    heads_at_lengths,
    heads_of_each_kind,
    take_turns,
    whole_models,
)

ROUNDS, MODEL_ROUNDS = 21, 7
TOKENS = 2048
"""Tokens in a batch of whole models."""
THREADS = 2


def comparisons() -> Iterator[Result]:
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


def compared(name: str, ours: TimeAndMemory, theirs: TimeAndMemory, bar: float | None = None) -> Result:
    return ratio(name, ours.seconds, theirs.seconds, bar=bar)


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    print_all(comparisons())
