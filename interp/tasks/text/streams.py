"""Tokenized corpora: one token stream per split, cached on disk."""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import get_args

import tokenizers
import torch
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load, save
from tokenizers import Tokenizer
from torch import Tensor

from hooks.files import write_bytes, write_text
from interp.tasks.base import Split
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
