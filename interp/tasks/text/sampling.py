"""Windows of text as batches: next tokens, masked tokens, pairs of sentences."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.base import Batch
from interp.tasks.text.streams import Stream

HIDDEN, SWAPPED = 0.8, 0.9
"""Cumulative probabilities: a chosen token becomes [MASK] below the first, a random token below the second."""


@dataclass(frozen=True, kw_only=True)
class TextBatch(Batch):
    """Windows of text. Targets are the next tokens, or the masked ones."""

    written: Int[Tensor, "batch pos"]
    """Tokens before masking."""
    token_type_ids: Int[Tensor, "batch pos"] | None = None
    """0 in the first sentence, 1 in the second; None if there is one sentence."""

    def model_inputs(self) -> dict[str, Tensor]:
        more = {} if self.token_type_ids is None else {"token_type_ids": self.token_type_ids}
        return super().model_inputs() | more


@dataclass(frozen=True)
class Marks:
    """Tokens used for masking: special ones, and ordinary ones to substitute."""

    cls: int
    sep: int
    mask: int
    ordinary: Int[Tensor, " token"]


def pairs(
    stream: Stream, n: int, length: int, generator: torch.Generator
) -> tuple[list[Int[Tensor, "window _"]], Bool[Tensor, " window"]]:
    """Sample pairs of windows with `length` tokens in total, each window within one document.

    Returns:
        First and second windows (the first is no shorter), and whether the second continues the first; otherwise, with
        probability 1/2, it is from another document.
    """
    second = length // 2
    both, alone = _room(stream, length), _room(stream, second)
    start, document = both.place(_below(both.ends[-1].expand(n), generator))
    start = stream.first[document] + start
    # uniform over the windows of all other documents
    own = alone.sizes[document]
    other = _below(alone.ends[-1] - own, generator)
    place, elsewhere = alone.place(other + own * (other >= alone.ends[document] - own))
    follows = torch.rand(n, generator=generator) < 0.5
    after = torch.where(follows, start + length - second, stream.first[elsewhere] + place)
    return [stream.windows(start, length - second), stream.windows(after, second)], follows


@dataclass(frozen=True)
class _Room:
    """Number of windows that begin in each document, and cumulative numbers."""

    sizes: Int[Tensor, " document"]
    ends: Int[Tensor, " document"]

    def place(self, at: Int[Tensor, " window"]) -> tuple[Int[Tensor, " window"], Int[Tensor, " window"]]:
        """Window and document of an index into the windows of all documents."""
        document = torch.searchsorted(self.ends, at, right=True)
        return at - (self.ends - self.sizes)[document], document


@lru_cache(maxsize=32)
def _room(stream: Stream, length: int) -> _Room:
    sizes = (stream.lengths - length + 1).clamp_min(0)
    return _Room(sizes, sizes.cumsum(0))


def _below(ends: Int[Tensor, " window"], generator: torch.Generator) -> Int[Tensor, " window"]:
    """Uniform integers from 0 to each of these, exclusive."""
    return (torch.rand(len(ends), generator=generator, dtype=torch.float64) * ends).long().minimum(ends - 1)


def next_tokens(windows: Int[Tensor, "batch pos"]) -> TextBatch:
    """Next-token prediction: every token but the first is the target of the position before it."""
    n, length = windows.shape
    return TextBatch(
        tokens=windows,
        written=windows,
        target_positions=torch.arange(length - 1).expand(n, -1),
        labels=windows[:, 1:],
        supervised=torch.ones(length - 1, dtype=torch.bool),
    )


def masked(windows: list[Int[Tensor, "batch _"]], marks: Marks, *, count: int, generator: torch.Generator) -> TextBatch:
    """Masked prediction: `[CLS]`, then each window followed by `[SEP]`, with `count` masked targets."""
    n = len(windows[0])
    cls, sep = (torch.full((n, 1), mark) for mark in (marks.cls, marks.sep))
    written = torch.cat([cls, *(part for window in windows for part in (window, sep))], 1)
    widths = [window.shape[1] for window in windows]
    begins = [1 + sum(widths[:index]) + index for index in range(len(widths))]
    text = torch.cat([begin + torch.arange(width) for begin, width in zip(begins, widths, strict=True)])
    at = text[torch.rand(n, len(text), generator=generator).topk(count, dim=1).indices.sort(1).values]
    right = written.gather(1, at)
    another = marks.ordinary[torch.randint(len(marks.ordinary), right.shape, generator=generator)]
    fate: Float[Tensor, "batch target"] = torch.rand(right.shape, generator=generator)
    shown = torch.where(fate < HIDDEN, marks.mask, torch.where(fate < SWAPPED, another, right))
    types = None
    if len(windows) == 2:
        types = (torch.arange(written.shape[1]) >= begins[1]).long().expand(n, -1)
    return TextBatch(
        tokens=written.scatter(1, at, shown),
        written=written,
        target_positions=at,
        labels=right,
        supervised=torch.ones(count, dtype=torch.bool),
        token_type_ids=types,
    )


def with_next_sentence(batch: TextBatch, label: Int[Tensor, " batch"]) -> TextBatch:
    """Append a target at `[CLS]` for the next sentence."""
    return replace(
        batch,
        target_positions=F.pad(batch.target_positions, (0, 1)),
        labels=torch.cat([batch.labels, label[:, None]], 1),
        supervised=F.pad(batch.supervised, (0, 1), value=True),
    )
