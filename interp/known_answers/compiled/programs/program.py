"""A RASP program, the inputs on which it is defined, and a plain statement of what it computes."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Token = Any
"""A text or an integer."""
Word = tuple[Token, ...]
"""An input, without tracr's first token."""
LETTERS = ("a", "b", "c", "d", "e")
DIGITS = (0, 1, 2, 3, 4)
"""Tokens of most programs. With fewer, a head with random weights selects by chance what a program's head selects, and
then no label tells the two apart."""
FEW_LETTERS = ("a", "b", "c")
"""Where an answer would be rare with more."""
Answers = Sequence[str | int | float | bool | None]
"""An answer at each position; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class RaspProgram:
    """A program in RASP and what it must compute.

    Raises:
        ValueError: no tokens or no lengths.
    """

    name: str
    description: str
    """What it computes, in a sentence."""
    write: Callable[[Any], Any]
    """Write the program: a function of the module `tracr.rasp.rasp` that returns its last expression."""
    statement: Callable[[Word], Answers]
    """The answers in plain Python, by which the compiled model is checked."""
    tokens: tuple[Token, ...]
    lengths: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    """Lengths of its inputs."""
    causal: bool = False
    """Whether a position sees only itself and those before."""

    def __post_init__(self):
        if not self.tokens or not self.lengths:
            raise ValueError(f"the program {self.name!r} has no tokens or no lengths; give both.")

    @property
    def n_inputs(self) -> int:
        """Number of all inputs."""
        return sum(len(self.tokens) ** length for length in self.lengths)

    def inputs(self, n: int, rng: np.random.Generator) -> list[Word]:
        """All inputs in random order, or n different ones: of a random length, then of random tokens."""
        if self.n_inputs <= n:
            words = [word for length in self.lengths for word in itertools.product(self.tokens, repeat=length)]
            return [words[index] for index in rng.permutation(len(words))]
        words_drawn: dict[Word, None] = {}
        while len(words_drawn) < n:
            indices = rng.integers(len(self.tokens), size=rng.choice(self.lengths))
            words_drawn[tuple(self.tokens[index] for index in indices)] = None
        return list(words_drawn)
