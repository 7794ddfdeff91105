"""Small corpora of short functions."""

import random

from interp.tasks import Corpus

NAMES = ("alpha", "beta", "gamma", "delta", "count", "total", "index")


def function(draw: random.Random) -> str:
    """Three lines that a byte-pair tokenizer learns much of, with tokens of every kind."""
    one, two = draw.sample(NAMES, 2)
    return f'def {one}_{draw.randrange(9)}({two}):\n    "it\'s"\n    return {two}  + {draw.randrange(99)}\n\n'


def documents(n: int = 60, length: int = 12, seed: int = 0) -> dict[str, str]:
    """n documents of `length` functions each."""
    draw = random.Random(seed)
    return {f"{index:03}.py": "".join(function(draw) for _ in range(length)) for index in range(n)}


def corpus(n: int = 60, length: int = 12, seed: int = 0) -> Corpus:
    """The same documents as a corpus."""
    return Corpus(documents=documents(n, length, seed))
