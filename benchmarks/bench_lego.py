"""LEGO sentences per second, against a generator in plain Python."""

import random
from collections.abc import Iterator
from itertools import chain

import torch

from benchmarks.timing import BenchmarkResult, compare, speed
from interp.tasks import Lego

CLAUSES, SENTENCES, FEWER = 12, 20_000, 1_000
BAR = 100_000
"""Sentences per second."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = ("[PAD]", "[BOS]", "[EOS]", "=", ";", "1", "+", "-", *LETTERS)
IDS = {name: index for index, name in enumerate(NAMES)}


def plain(n: int, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels of n sentences, one at a time, without splits."""
    tokens, labels = [], []
    for _ in range(n):
        letters = rng.sample(LETTERS, CLAUSES)
        # Clauses in chain order; the first refers to 1
        clauses = []
        values = []
        value = 1
        reference = "1"
        for letter in letters:
            sign = rng.choice("+-")
            value = value if sign == "+" else -value
            clauses.append([letter, "=", sign, reference, ";"])
            values.append(int(value < 0))
            reference = letter
        rng.shuffle(clauses)
        words = ["[BOS]", *chain.from_iterable(clauses), "[EOS]"]
        tokens.append([IDS[word] for word in words])
        labels.append(values)
    return torch.tensor(tokens), torch.tensor(labels)


def comparisons() -> Iterator[BenchmarkResult]:
    task = Lego(n_vars=CLAUSES)
    generator = torch.Generator().manual_seed(0)
    rng = random.Random(0)
    task.sample(SENTENCES, generator=generator)
    yield speed("lego, sentences", lambda: task.sample(SENTENCES, generator=generator), n=SENTENCES, bar=BAR)
    name = f"lego, {FEWER} sentences"
    yield compare(name, lambda: task.sample(FEWER, generator=generator), lambda: plain(FEWER, rng), bar=1.0, rounds=11)
