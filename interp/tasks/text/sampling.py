"""Windows of text as batches: next tokens, masked tokens, pairs of sentences."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from interp.tasks.base import Batch
from interp.tasks.text.streams import TokenStream
from interp.tasks.text.tokenizer import TextTokenizer

P_MASK, P_RANDOM = 0.8, 0.1
"""Probabilities that a chosen token becomes [MASK], or a random token; else it stays."""


@dataclass(frozen=True, kw_only=True)
class TextBatch(Batch):
    """Windows of text. Targets are the next tokens, or the masked ones."""

    unmasked_tokens: Int[Tensor, "batch pos"]
    """Tokens before masking."""
    token_type_ids: Int[Tensor, "batch pos"] | None = None
    """0 in the first sentence, 1 in the second; None if there is one sentence."""

    def model_inputs(self) -> dict[str, Tensor]:
        inputs = super().model_inputs()
        if self.token_type_ids is not None:
            inputs["token_type_ids"] = self.token_type_ids
        return inputs


def next_token_batch(windows: Int[Tensor, "batch pos"]) -> TextBatch:
    """Next-token prediction: every token but the first is the target of the position before it."""
    n, length = windows.shape
    return TextBatch(
        tokens=windows,
        unmasked_tokens=windows,
        target_positions=torch.arange(length - 1).expand(n, -1),
        labels=windows[:, 1:],
        supervised=torch.ones(length - 1, dtype=torch.bool),
    )


def masked_batch(
    windows: list[Int[Tensor, "batch _"]], tokenizer: TextTokenizer, *, count: int, generator: torch.Generator
) -> TextBatch:
    """Masked prediction: `[CLS]`, then each window followed by `[SEP]`, with `count` masked targets.

    Args:
        windows: One or two windows for each example.
        tokenizer: It has tokens for `[CLS]`, `[SEP]` and `[MASK]`.
        count: Masked tokens per example.
        generator: Determines which tokens are masked, and how.
    """
    n = len(windows[0])
    cls, sep, mask = (tokenizer.token(role, "objective 'masked'") for role in ("cls", "sep", "mask"))
    # windows and special tokens, and the positions of the text
    columns = [torch.full((n, 1), cls)]
    text_positions = []
    length = 1
    for window in windows:
        columns += [window, torch.full((n, 1), sep)]
        text_positions.append(length + torch.arange(window.shape[1]))
        length += window.shape[1] + 1
    tokens = torch.cat(columns, 1)
    positions = torch.cat(text_positions)
    # the tokens to predict, in the order of the text
    priority = torch.rand(n, len(positions), generator=generator, dtype=torch.float32)
    chosen = priority.topk(count, dim=1).indices.sort(1).values
    target_positions = positions[chosen]
    labels = tokens.gather(1, target_positions)
    # mask most of them, replace some by random tokens, and leave some
    ordinary = tokenizer.vocab.ordinary
    random_tokens = ordinary[torch.randint(len(ordinary), labels.shape, generator=generator)]
    draws = torch.rand(labels.shape, generator=generator, dtype=torch.float32)
    masked_or_label = torch.where(draws < P_MASK, mask, labels)
    is_random = (draws >= P_MASK) & (draws < P_MASK + P_RANDOM)
    inputs = torch.where(is_random, random_tokens, masked_or_label)
    # the second sentence begins with its first token
    types = None
    if len(windows) == 2:
        start_of_second = int(text_positions[1][0])
        types = (torch.arange(length) >= start_of_second).long().expand(n, -1)
    return TextBatch(
        tokens=tokens.scatter(1, target_positions, inputs),
        unmasked_tokens=tokens,
        target_positions=target_positions,
        labels=labels,
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


def sample_pairs(
    stream: TokenStream, n: int, length: int, generator: torch.Generator
) -> tuple[list[Int[Tensor, "window _"]], Bool[Tensor, " window"]]:
    """Sample pairs of windows with `length` tokens in total, each window within one document.

    Returns:
        First and second windows (the first is no shorter), and whether the second continues the first; otherwise, with
        probability 1/2, it is from another document.
    """
    second_length = length // 2
    first_length = length - second_length
    pair_starts = _window_starts(stream, length)
    second_starts = _window_starts(stream, second_length)
    # the first window: uniform over the places where a pair fits into a document
    index = _uniform_below(pair_starts.ends[-1].expand(n), generator)
    document, offset = pair_starts.locate(index)
    first_start = stream.document_starts[document] + offset
    # an unrelated window: uniform over those of all other documents, so indices skip those of this one
    n_same_document = second_starts.counts[document]
    index = _uniform_below(second_starts.ends[-1] - n_same_document, generator)
    is_after = index >= second_starts.ends[document] - n_same_document
    other_document, offset = second_starts.locate(index + n_same_document * is_after)
    unrelated_start = stream.document_starts[other_document] + offset
    # the continuation, or the unrelated window
    follows = torch.rand(n, generator=generator, dtype=torch.float32) < 0.5
    second_start = torch.where(follows, first_start + first_length, unrelated_start)
    return [stream.windows(first_start, first_length), stream.windows(second_start, second_length)], follows


@dataclass(frozen=True)
class WindowStarts:
    """The places where a window may begin, counted document by document."""

    counts: Int[Tensor, " document"]
    ends: Int[Tensor, " document"]
    """Cumulative counts."""

    def locate(self, index: Int[Tensor, " window"]) -> tuple[Int[Tensor, " window"], Int[Tensor, " window"]]:
        """Document and offset in it of the places with these numbers."""
        document = torch.searchsorted(self.ends, index, right=True)
        return document, index - (self.ends - self.counts)[document]


@lru_cache(maxsize=32)
def _window_starts(stream: TokenStream, length: int) -> WindowStarts:
    """The places where a window of this length fits into a document."""
    counts = (stream.lengths - length + 1).clamp_min(0)
    return WindowStarts(counts, counts.cumsum(0))


def _uniform_below(ends: Int[Tensor, " window"], generator: torch.Generator) -> Int[Tensor, " window"]:
    """Uniform integers from 0 to each of these, exclusive."""
    return (torch.rand(len(ends), generator=generator, dtype=torch.float64) * ends).long().minimum(ends - 1)
