"""LEGO sentences per second, against the generator that a user would write in plain Python."""

import random
import statistics
import time
from collections.abc import Iterator

import torch

from benchmarks.timing import Comparison, compare
from interp.tasks import Lego

CLAUSES, SENTENCES, FEWER = 12, 20_000, 1_000
PROMISED = 100_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = ("[PAD]", "[BOS]", "[EOS]", "=", ";", "1", "+", "-", *LETTERS)
IDS = {name: index for index, name in enumerate(NAMES)}


def plain(n: int, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels of n sentences, one at a time; no splits."""
    tokens, labels = [], []
    for _ in range(n):
        letters = rng.sample(LETTERS, CLAUSES)
        clauses, values, value, before = [], [], 1, "1"
        for letter in letters:
            sign = rng.choice("+-")
            value = value if sign == "+" else -value
            clauses.append([letter, "=", sign, before, ";"])
            values.append(int(value < 0))
            before = letter
        rng.shuffle(clauses)
        words = ["[BOS]", *(word for clause in clauses for word in clause), "[EOS]"]
        tokens.append([IDS[word] for word in words])
        labels.append(values)
    return torch.tensor(tokens), torch.tensor(labels)


def comparisons() -> Iterator[Comparison]:
    task = Lego(n_vars=CLAUSES)
    generator, rng = torch.Generator().manual_seed(0), random.Random(0)
    task.sample(SENTENCES, generator=generator)
    speeds = []
    for _ in range(11):
        started = time.perf_counter()
        task.sample(SENTENCES, generator=generator)
        speeds.append(SENTENCES / (time.perf_counter() - started))
    name = f"lego, {statistics.median(speeds):,.0f} sentences/s (promised {PROMISED:,})"
    yield compare(name, lambda: task.sample(FEWER, generator=generator), lambda: plain(FEWER, rng), bar=1.0, rounds=11)
