"""Hard-coded heads against a learned one, long sequences against short ones, models against Hugging Face's.

Figures in the documentation are on two threads: `python -m benchmarks --threads 2 pathways`.
"""

from collections.abc import Iterator

from benchmarks.timing import BenchmarkResult, ratio
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
from hooks.model.hardcoded.head_patterns import ORDER

ROUNDS, MODEL_ROUNDS = 11, 5
FIXED = tuple(name for name in ORDER if name != "learned")
HEAD_BAR = 0.5
"""Largest time of a hard-coded head over that of a learned one."""
LINEAR_BAR = 9
"""Largest growth of time for eight times the tokens that counts as linear."""
TOKENS = 2048
"""Tokens in a batch of whole models."""


def comparisons() -> Iterator[BenchmarkResult]:
    # Heads of each kind, at one length and at two
    costs = take_turns(heads_of_each_kind(seed=0), rounds=ROUNDS)
    learned = costs["learned", SHORT]
    for name in FIXED:
        yield compared(f"{name} head, {SHORT} tokens, against a learned one", costs[name, SHORT], learned, HEAD_BAR)
    yield compared(f"token maps alone, {SHORT} tokens, against a learned head", costs["token maps", SHORT], learned)
    costs = take_turns(heads_at_lengths((SHORT, LONG), seed=0), rounds=ROUNDS)
    for name in dict.fromkeys(name for name, _ in costs):
        bar = LINEAR_BAR if name in LINEAR else None
        yield compared(f"{name} head, {LONG} tokens against {SHORT}", costs[name, LONG], costs[name, SHORT], bar)
    # Whole models
    models = ("Hybrid", "Hardcode", *HUGGINGFACE)
    costs = take_turns(whole_models(models, lengths=(SHORT,), tokens=TOKENS, seed=0), rounds=MODEL_ROUNDS)
    for unmyopic in ("Hybrid", "Hardcode"):
        for peer in HUGGINGFACE:
            name = f"{unmyopic}, forward and backward, against {peer}"
            yield compared(name, costs[unmyopic, SHORT], costs[peer, SHORT], 1.0)


def compared(name: str, unmyopic: TimeAndMemory, peer: TimeAndMemory, bar: float | None = None) -> BenchmarkResult:
    return ratio(name, unmyopic.seconds, peer.seconds, bar=bar)
