"""All bracket strings of a length, their running depths and flags, and the task: are they balanced?"""

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.tasks.base import AttentionKind, Batch, Split, Task
from interp.tasks.vocab import Vocab, vocab_of

OPEN, CLOSE = 0, 1
"""Token ids."""
BALANCED = 1
"""The model's output for balanced strings; 0 is that for others."""


@dataclass(frozen=True)
class Strings:
    """Every string of a length, in lexicographic order, with the variables of the stated circuit."""

    tokens: Int[Tensor, "string pos"]

    @property
    def signs(self) -> Int[Tensor, "string pos"]:
        """1 for an opening bracket, -1 for a closing one."""
        return 1 - 2 * self.tokens

    @property
    def depth(self) -> Int[Tensor, "string pos"]:
        """Running depth: opening brackets less closing ones, up to each position."""
        return self.signs.cumsum(1)

    @property
    def flags(self) -> Int[Tensor, "string pos"]:
        """1 where the running depth is below zero."""
        return (self.depth < 0).long()

    @property
    def total(self) -> Int[Tensor, " string"]:
        """Final depth."""
        return self.depth[:, -1]

    @property
    def violations(self) -> Int[Tensor, " string"]:
        """Number of positions with a running depth below zero."""
        return self.flags.sum(1)

    @property
    def balanced(self) -> Bool[Tensor, " string"]:
        """Whether the final depth is zero and the running depth never below."""
        return (self.total == 0) & (self.violations == 0)


@cache
def every_string(n: int) -> Strings:
    """All 2^n strings of n brackets; string number b has the binary digits of b as its tokens."""
    numbers = torch.arange(2**n)
    places = torch.arange(n - 1, -1, -1)
    return Strings((numbers[:, None] >> places) & 1)


@dataclass(frozen=True, kw_only=True)
class Balanced(Task):
    """Is a string of brackets balanced? One answer for each string; every string is in every split."""

    n: int
    """Number of brackets."""

    @property
    def vocab(self) -> Vocab:
        """The two brackets."""
        return vocab_of(("(", ")"))

    @property
    def targets(self) -> tuple[str, ...]:
        """One answer."""
        return ("balanced",)

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The two answers."""
        return ("not balanced", "balanced")

    @property
    def attention(self) -> AttentionKind:
        """Attention of the models."""
        return "causal"

    @property
    def disjoint_splits(self) -> bool:
        """Every split has every string."""
        return False

    @property
    def n_ctx(self) -> int:
        return self.n

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        """Draw strings: each is balanced with probability one half, and uniform among the balanced or the others."""
        balanced = every_string(self.n).balanced
        rows = torch.where(
            torch.rand(n, generator=generator) < 0.5,
            _draw(balanced.nonzero()[:, 0], n, generator),
            _draw((~balanced).nonzero()[:, 0], n, generator),
        )
        return self.batch(rows)

    def every_input(self, split: Split = "test") -> Batch:
        """All strings, in lexicographic order."""
        return self.batch(torch.arange(2**self.n))

    def batch(self, rows: Int[Tensor, " batch"]) -> Batch:
        """Strings by number, with their answers."""
        strings = every_string(self.n)
        return Batch(
            tokens=strings.tokens[rows],
            target_positions=torch.full((len(rows), 1), self.n - 1),
            labels=strings.balanced[rows, None].long(),
            supervised=torch.ones(1, dtype=torch.bool),
        )


def _draw(pool: Int[Tensor, " string"], n: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    return pool[torch.randint(len(pool), (n,), generator=generator)]
