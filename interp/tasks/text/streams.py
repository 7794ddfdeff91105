"""A corpus as tokens, one stream for each split, kept on disk so that it is cut once."""

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

from hooks.atomic import write_bytes, write_text
from interp.tasks.base import Split
from interp.tasks.text.corpus import Corpus
from interp.tasks.text.tokens import TextTokens, take_tokenizer, train_tokenizer

VERSION = 1
"""Of what is kept; goes up whenever the same corpus and settings would give other tokens."""
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, eq=False)
class Stream:
    """All documents of a split, one after another, each followed by an end token."""

    tokens: Int[Tensor, " token"]
    """Ids, in 32 bits."""
    first: Int[Tensor, " document"]
    """Where each document begins."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def lengths(self) -> Int[Tensor, " document"]:
        """Tokens of each document, its end token not counted."""
        return torch.diff(self.first, append=torch.tensor([len(self.tokens)])) - 1

    def windows(self, start: Int[Tensor, " window"], length: int) -> Int[Tensor, "window pos"]:
        """So many tokens from each of these places on."""
        return self.tokens[start[:, None] + torch.arange(length)].long()


@dataclass(frozen=True, eq=False)
class Streams:
    """A tokenizer and the corpus cut by it."""

    tokens: TextTokens
    split: dict[Split, Stream]


def cut(corpus: Corpus, *, vocab_size: int | None, tokenizer: TextTokens | None) -> Streams:
    """The corpus as tokens: from this process, else from disk, else cut now and kept in both.

    A place on disk that cannot be written to is passed over.

    Args:
        corpus: The documents.
        vocab_size: Tokens of a tokenizer trained on the training split.
        tokenizer: One to use instead.

    Raises:
        ValueError: a tokenizer that has no token for the end of a document.
    """
    return _cut(corpus, vocab_size, tokenizer)


@lru_cache(maxsize=8)
def _cut(corpus: Corpus, vocab_size: int | None, tokenizer: TextTokens | None) -> Streams:
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
    """`$UNMYOPIC_CACHE`, else `unmyopic` in `$XDG_CACHE_HOME` or in `~/.cache`. What lies there can be deleted."""
    if own := os.environ.get("UNMYOPIC_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unmyopic"


def kept_tokenizer(fingerprint: str) -> TextTokens:
    """A tokenizer that a corpus was cut by on this machine.

    Raises:
        ValueError: there is none, or it is damaged.
    """
    path = _tokenizer_file(fingerprint)
    try:
        content, roles = json.loads(path.read_text(encoding="utf-8"))
        found = TextTokens(content, tuple((role, int(token)) for role, token in roles))
    except (OSError, ValueError, TypeError):
        found = None
    if found is None or found.fingerprint != fingerprint:
        raise ValueError(
            f"the task's tokenizer (fingerprint {fingerprint}) is not in {path.parent}. Make the task anew with "
            f"Text(tokenizer=...), or set UNMYOPIC_CACHE to where it was used before."
        )
    return found


def _tokenizer_file(fingerprint: str) -> Path:
    return cache_folder() / "text" / "tokenizers" / f"{fingerprint}.json"


def _kept(folder: Path, tokenizer: TextTokens | None) -> Streams | None:
    """What lies on disk; None if it is not there, or not whole."""
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
        if type(error) is Exception:  # what the tokenizers library raises for a file that it cannot read
            return None
        raise
    return Streams(tokenizer, split)


def _stream(texts: list[str], tokenizer: TextTokens) -> Stream:
    end = tokenizer.token("end", "a text of several documents")
    documents = [[*ids, end] for ids in tokenizer.documents(texts)]
    first = [0, *accumulate(map(len, documents))][:-1]
    tokens = torch.tensor([token for ids in documents for token in ids], dtype=torch.int32)
    return Stream(tokens, torch.tensor(first))
