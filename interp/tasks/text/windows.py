"""Windows of a stream of text, and what is to be told in them: the next token, masked ones, the next sentence."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.base import Batch
from interp.tasks.text.streams import Stream

HIDDEN, SWAPPED = 0.8, 0.9
"""Up to the first a masked token becomes [MASK], up to the second a random one; beyond it stays."""


@dataclass(frozen=True, kw_only=True)
class TextBatch(Batch):
    """Windows of text. `target` is a token to tell: the next one after each, or those that are masked."""

    written: Int[Tensor, "batch pos"]
    """The text itself: the tokens before any were masked."""
    token_type_ids: Int[Tensor, "batch pos"] | None = None
    """0 in the first sentence, 1 in the second, where there are two."""

    def model_inputs(self) -> dict[str, Tensor]:
        more = {} if self.token_type_ids is None else {"token_type_ids": self.token_type_ids}
        return super().model_inputs() | more


@dataclass(frozen=True)
class Marks:
    """What masking writes: special tokens, and ordinary ones to swap in."""

    cls: int
    sep: int
    mask: int
    ordinary: Int[Tensor, " token"]


def starts(stream: Stream, n: int, length: int, generator: torch.Generator) -> Int[Tensor, " window"]:
    """Where n windows begin: anywhere in the stream, all places alike."""
    return torch.randint(len(stream) - length + 1, (n,), generator=generator)


def pairs(
    stream: Stream, n: int, length: int, generator: torch.Generator
) -> tuple[list[Int[Tensor, "window _"]], Bool[Tensor, " window"]]:
    """Pairs of windows, of `length` tokens together, the first no shorter; in each pair either lies in one document.

    Returns:
        First and second windows, and whether the second goes on where the first ends. It is from another document
        else, one chance in two.
    """
    second = length // 2
    both, alone = _room(stream, length), _room(stream, second)
    start, document = both.place(_below(both.ends[-1].expand(n), generator))
    start = stream.first[document] + start
    # one of the windows of all documents but the first one's
    own = alone.sizes[document]
    other = _below(alone.ends[-1] - own, generator)
    place, elsewhere = alone.place(other + own * (other >= alone.ends[document] - own))
    follows = torch.rand(n, generator=generator) < 0.5
    after = torch.where(follows, start + length - second, stream.first[elsewhere] + place)
    return [stream.windows(start, length - second), stream.windows(after, second)], follows


@dataclass(frozen=True)
class _Room:
    """How many windows begin in each document, and in all up to it."""

    sizes: Int[Tensor, " document"]
    ends: Int[Tensor, " document"]

    def place(self, at: Int[Tensor, " window"]) -> tuple[Int[Tensor, " window"], Int[Tensor, " window"]]:
        """Of a place in all documents' windows laid end to end: which window of its document, and which document."""
        document = torch.searchsorted(self.ends, at, right=True)
        return at - (self.ends - self.sizes)[document], document


@lru_cache(maxsize=32)
def _room(stream: Stream, length: int) -> _Room:
    sizes = (stream.lengths - length + 1).clamp_min(0)
    return _Room(sizes, sizes.cumsum(0))


def _below(ends: Int[Tensor, " window"], generator: torch.Generator) -> Int[Tensor, " window"]:
    """A number from 0 up to each of these, all alike."""
    return (torch.rand(len(ends), generator=generator, dtype=torch.float64) * ends).long().minimum(ends - 1)


def next_tokens(windows: Int[Tensor, "batch pos"]) -> TextBatch:
    """Every token but the first is to be told, at the one before it."""
    n, length = windows.shape
    return TextBatch(
        tokens=windows,
        written=windows,
        target_positions=torch.arange(length - 1).expand(n, -1),
        labels=windows[:, 1:],
        supervised=torch.ones(length - 1, dtype=torch.bool),
    )


def masked(windows: list[Int[Tensor, "batch _"]], marks: Marks, *, count: int, generator: torch.Generator) -> TextBatch:
    """`[CLS]`, each window followed by `[SEP]`; so many tokens of the windows are masked, and are to be told."""
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
    """One more target, at `[CLS]`, after the masked ones."""
    return replace(
        batch,
        target_positions=F.pad(batch.target_positions, (0, 1)),
        labels=torch.cat([batch.labels, label[:, None]], 1),
        supervised=F.pad(batch.supervised, (0, 1), value=True),
    )
