"""Tasks of a user: defined from the base classes alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.tasks import Batch, Score, Task, Vocab

SPLITS = ("train", "validation", "test")
DIGITS = Vocab([*"0123456", "=", "_"])
"""Digits, the sign at which the answer is predicted, and padding."""


def split_of(rows: Tensor) -> Tensor:
    """Split of each example, 0 to 2, from its digits."""
    weights = torch.tensor([31, 17, 11, 5, 3, 2, 1])[: rows.shape[1]]
    return ((rows * weights).sum(1) // 2) % 4 % 3


def draw(n: int, length: int, split: str, generator: torch.Generator) -> Tensor:
    """Digits of n examples of a split."""
    rows = torch.randint(7, (8 * n + 64, length), generator=generator)
    return rows[split_of(rows) == SPLITS.index(split)][:n]


@dataclass(frozen=True, kw_only=True)
class AddMod(Task):
    """The sum of two digits modulo 7: the minimal definition, one length, bidirectional."""

    vocab = DIGITS
    targets = ("sum",)

    def sample(self, n, *, generator, split="train"):
        digits = draw(n, 2, split, generator)
        return Batch(
            tokens=torch.cat([digits, torch.full((n, 1), DIGITS.ids["="])], 1),
            target_positions=torch.full((n, 1), 2),
            labels=digits.sum(1, keepdim=True) % 7,
            supervised=torch.tensor([True]),
        )


@dataclass(frozen=True, kw_only=True)
class RunningMax(Task):
    """The largest digit so far, after every digit: causal, one length; fields replace defaults."""

    n_ctx: int
    attention: str = "causal"

    vocab = DIGITS
    d_vocab_out = 7
    outcomes = ("early", "late")

    @property
    def targets(self):
        return tuple(f"max {index}" for index in range(self.n_ctx))

    def sample(self, n, *, generator, split="train"):
        digits = draw(n, self.n_ctx, split, generator)
        return Batch(
            tokens=digits,
            target_positions=torch.arange(self.n_ctx).expand(n, -1),
            labels=digits.cummax(1).values,
            supervised=torch.arange(self.n_ctx) < self.n_ctx - 1,  # the last one is not trained
        )

    def score(self, target_logits, batch):
        """Accuracy on the first two targets, and on the others."""
        each = super().score(target_logits, batch)
        return Score(**{name: torch.stack([v[:, :2].sum(1), v[:, 2:].sum(1)], 1) for name, v in vars(each).items()})

    def relations(self, batch):
        """The keys that have the largest digit so far."""
        return {"largest": batch.tokens[:, None, :] == batch.labels[:, :, None]}


@dataclass(frozen=True, kw_only=True)
class CountOnes(Task):
    """How many of up to six digits are 1, read at the sign behind them: bidirectional, several lengths."""

    n_ctx: int = 7

    vocab = DIGITS
    targets = ("count",)
    d_vocab_out = 7

    def sample(self, n, *, generator, split="train"):
        longest = self.n_ctx - 1
        digits = draw(n, longest, split, generator) % 2
        length = torch.randint(2, longest + 1, (n, 1), generator=generator)
        at = torch.arange(self.n_ctx)
        real = at <= length
        padded = torch.cat([digits, digits[:, :1]], 1)
        tokens = torch.where(at < length, padded, torch.where(at == length, DIGITS.ids["="], DIGITS.ids["_"]))
        return Batch(
            tokens=tokens,
            target_positions=length,
            labels=((tokens == 1) & real).sum(1, keepdim=True),
            supervised=torch.tensor([True]),
            attention_mask=real,
        )

    @property
    def disjoint_splits(self):
        return False

    def relations(self, batch):
        """The ones."""
        n, pos = batch.tokens.shape
        return {"ones": (batch.tokens == 1)[:, None].expand(n, pos, pos)}


class Echo(Task):
    """Repeat up to three digits behind a sign: causal, several lengths, missing targets; no dataclass."""

    vocab = DIGITS
    targets = ("echo 1", "echo 2", "echo 3")
    attention = "causal"
    n_ctx = 6
    disjoint_splits = False

    def sample(self, n, *, generator, split="train"):
        digits = draw(n, 3, split, generator)
        length = torch.randint(1, 4, (n, 1), generator=generator)
        at, place = torch.arange(6), torch.arange(3)
        behind = (at - length - 1).clamp(0, 2)
        digit = torch.where(at < length, digits[:, [0, 1, 2, 2, 2, 2]], digits.gather(1, behind))
        tokens = torch.where(at == length, DIGITS.ids["="], digit)
        real = at < 2 * length
        there = place < length
        return Batch(
            tokens=torch.where(real, tokens, DIGITS.ids["_"]),
            target_positions=torch.where(there, length + place, 0),
            labels=torch.where(there, digits, 0),
            supervised=torch.tensor([True, True, False]),
            attention_mask=real,
            target_mask=there,
        )

    def relations(self, batch):
        """The same digit elsewhere."""
        same = batch.tokens[:, :, None] == batch.tokens[:, None, :]
        return {"same_token": same & ~torch.eye(batch.tokens.shape[1], dtype=torch.bool)}
