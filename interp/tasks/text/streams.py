"""Tokenized corpora: one token stream per split, cached on disk."""

import hashlib
import json
import os
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import get_args

import tokenizers
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from safetensors.torch import load, save
from tokenizers import Tokenizer
from torch import Tensor

from hooks.files import write_bytes, write_text
from interp.tasks.base import Batch, Split
from interp.tasks.text.corpus import Corpus
from interp.tasks.text.tokens import TextTokens, take_tokenizer, train_tokenizer

VERSION = 1
"""Version of the cache; increased whenever the same corpus and settings would give other tokens."""
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, eq=False)
class Stream:
    """The documents of a split, concatenated, each followed by an end token."""

    tokens: Int[Tensor, " token"]
    """Token ids, int32."""
    first: Int[Tensor, " document"]
    """Start of each document."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def lengths(self) -> Int[Tensor, " document"]:
        """Tokens of each document, without its end token."""
        return torch.diff(self.first, append=torch.tensor([len(self.tokens)])) - 1

    def windows(self, start: Int[Tensor, " window"], length: int) -> Int[Tensor, "window pos"]:
        """The windows of a given length that begin at these positions."""
        return self.tokens[start[:, None] + torch.arange(length)].long()


@dataclass(frozen=True, eq=False)
class Streams:
    """A tokenizer and the corpus tokenized with it."""

    tokens: TextTokens
    split: dict[Split, Stream]


@lru_cache(maxsize=8)
def cut(corpus: Corpus, *, vocab_size: int | None, tokenizer: TextTokens | None) -> Streams:
    """Tokenize a corpus, or load it from the memory or disk cache.

    A cache folder that is not writable is ignored.

    Args:
        corpus: The documents.
        vocab_size: Vocabulary size of a tokenizer trained on the training split.
        tokenizer: Tokenizer to use instead.

    Raises:
        ValueError: a tokenizer without a token for the end of a document.
    """
    settings = [VERSION, tokenizers.__version__, corpus.fingerprint, vocab_size, tokenizer and tokenizer.fingerprint]
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:24]
    folder = cache_folder() / "text" / key
    kept = _kept(folder, tokenizer)
    if kept is not None:
        return kept
    if tokenizer is None:
        assert vocab_size is not None
        tokenizer = train_tokenizer(corpus.texts("train"), vocab_size)
    made = Streams(tokenizer, {split: _stream(corpus.texts(split), tokenizer) for split in SPLITS})
    content = {f"{split}.{name}": getattr(made.split[split], name) for split in SPLITS for name in ("tokens", "first")}
    try:
        write_text(folder / "tokenizer.json", tokenizer.content)
        write_text(_tokenizer_file(tokenizer.fingerprint), json.dumps([tokenizer.content, tokenizer.roles]))
        write_bytes(folder / "tokens.safetensors", save(content))
    except OSError:
        pass
    return made


def cache_folder() -> Path:
    """`$UNMYOPIC_CACHE`, else `unmyopic` in `$XDG_CACHE_HOME` or in `~/.cache`. Its content may be deleted."""
    if own := os.environ.get("UNMYOPIC_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unmyopic"


def kept_tokenizer(fingerprint: str) -> TextTokens:
    """Load a tokenizer used before on this machine from the cache.

    Raises:
        ValueError: it is missing or damaged.
    """
    path = _tokenizer_file(fingerprint)
    try:
        content, roles = json.loads(path.read_text(encoding="utf-8"))
        found = TextTokens(content, tuple((role, int(token)) for role, token in roles))
    except (OSError, ValueError, TypeError):
        found = None
    if found is None or found.fingerprint != fingerprint:
        raise ValueError(
            f"the task's tokenizer (fingerprint {fingerprint}) is not in {path.parent}. Make the task again "
            f"with Text(tokenizer=...), or set UNMYOPIC_CACHE to the cache that it was used with."
        )
    return found


def _tokenizer_file(fingerprint: str) -> Path:
    return cache_folder() / "text" / "tokenizers" / f"{fingerprint}.json"


def _kept(folder: Path, tokenizer: TextTokens | None) -> Streams | None:
    """Load streams from disk; None if they are missing or incomplete."""
    try:
        content = load((folder / "tokens.safetensors").read_bytes())
        split: dict[Split, Stream] = {
            name: Stream(content[f"{name}.tokens"], content[f"{name}.first"]) for name in SPLITS
        }
        if tokenizer is None:
            tokenizer = take_tokenizer(Tokenizer.from_file(str(folder / "tokenizer.json")))
    except (OSError, KeyError, SafetensorError):
        return None
    except Exception as error:
        if type(error) is Exception:  # raised by tokenizers for an unreadable file
            return None
        raise
    return Streams(tokenizer, split)


def _stream(texts: list[str], tokenizer: TextTokens) -> Stream:
    end = tokenizer.token("end", "a text of several documents")
    documents = [[*ids, end] for ids in tokenizer.documents(texts)]
    first = [0, *accumulate(map(len, documents))][:-1]
    tokens = torch.tensor([token for ids in documents for token in ids], dtype=torch.int32)
    return Stream(tokens, torch.tensor(first))


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
