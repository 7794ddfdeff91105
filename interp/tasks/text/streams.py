"""Tokenized corpora: one token stream per split, cached on disk."""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path

import tokenizers
import torch
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load, save
from tokenizers import Tokenizer
from torch import Tensor

from hooks.files import write_bytes, write_text
from interp.tasks.base import SPLITS, Split
from interp.tasks.text.corpus import Corpus
from interp.tasks.text.tokenizer import TextTokenizer, convert_tokenizer, train_tokenizer

CACHE_VERSION = 1
"""Increased whenever the same corpus and settings would give other tokens."""


@dataclass(frozen=True, eq=False)
class TokenStream:
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
        """The windows of this length that begin at these positions."""
        return self.tokens[start[:, None] + torch.arange(length)].long()


@dataclass(frozen=True, eq=False)
class TokenizedCorpus:
    """A tokenizer and the corpus tokenized with it."""

    tokenizer: TextTokenizer
    split: dict[Split, TokenStream]


@lru_cache(maxsize=8)
def tokenize(corpus: Corpus, *, vocab_size: int | None, tokenizer: TextTokenizer | None) -> TokenizedCorpus:
    """Tokenize a corpus, or load it from the memory or disk cache.

    A cache folder that is not writable is ignored.

    Args:
        corpus: The documents.
        vocab_size: Vocabulary size of a tokenizer trained on the training split.
        tokenizer: Tokenizer to use instead.

    Raises:
        ValueError: a tokenizer without a token for the end of a document.
    """
    fingerprint = tokenizer and tokenizer.fingerprint
    settings = [CACHE_VERSION, tokenizers.__version__, corpus.fingerprint, vocab_size, fingerprint]
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:24]
    folder = cache_folder() / "text" / key
    cached = _load(folder, tokenizer)
    if cached is not None:
        return cached
    if tokenizer is None:
        assert vocab_size is not None
        tokenizer = train_tokenizer(corpus.texts("train"), vocab_size)
    streams: dict[Split, TokenStream] = {split: _stream(corpus.texts(split), tokenizer) for split in SPLITS}
    tokenized = TokenizedCorpus(tokenizer, streams)
    _store(folder, tokenized)
    return tokenized


def cache_folder() -> Path:
    """`$UNMYOPIC_CACHE`, else `unmyopic` in `$XDG_CACHE_HOME` or in `~/.cache`. Its content may be deleted."""
    folder = os.environ.get("UNMYOPIC_CACHE")
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unmyopic"


def cached_tokenizer(fingerprint: str) -> TextTokenizer:
    """Load a tokenizer used before on this machine from the cache.

    Raises:
        ValueError: it is missing or damaged.
    """
    path = _tokenizer_file(fingerprint)
    try:
        content, roles = json.loads(path.read_text(encoding="utf-8"))
        tokenizer = TextTokenizer(content, tuple((role, int(token)) for role, token in roles))
    except (OSError, ValueError, TypeError):
        tokenizer = None
    if tokenizer is None or tokenizer.fingerprint != fingerprint:
        raise ValueError(
            f"the task's tokenizer (fingerprint {fingerprint}) is not in {path.parent}. Make the task again "
            f"with Text(tokenizer=...), or set UNMYOPIC_CACHE to the cache that it was used with."
        )
    return tokenizer


def _tokenizer_file(fingerprint: str) -> Path:
    return cache_folder() / "text" / "tokenizers" / f"{fingerprint}.json"


def _store(folder: Path, tokenized: TokenizedCorpus) -> None:
    """Write a tokenized corpus to the cache, if that is writable."""
    tensors = {}
    for split, stream in tokenized.split.items():
        tensors |= {f"{split}.tokens": stream.tokens, f"{split}.first": stream.first}
    tokenizer = tokenized.tokenizer
    try:
        write_text(folder / "tokenizer.json", tokenizer.content)
        write_text(_tokenizer_file(tokenizer.fingerprint), json.dumps([tokenizer.content, tokenizer.roles]))
        write_bytes(folder / "tokens.safetensors", save(tensors))
    except OSError:
        pass


def _load(folder: Path, tokenizer: TextTokenizer | None) -> TokenizedCorpus | None:
    """Read a tokenized corpus from the cache; None if it is missing or incomplete."""
    try:
        tensors = load((folder / "tokens.safetensors").read_bytes())
        streams: dict[Split, TokenStream] = {
            split: TokenStream(tensors[f"{split}.tokens"], tensors[f"{split}.first"]) for split in SPLITS
        }
        if tokenizer is None:
            tokenizer = convert_tokenizer(Tokenizer.from_file(str(folder / "tokenizer.json")))
    except (OSError, KeyError, SafetensorError):
        return None
    except Exception as error:
        # the class with which tokenizers reports an unreadable file
        if type(error) is Exception:
            return None
        raise
    return TokenizedCorpus(tokenizer, streams)


def _stream(texts: list[str], tokenizer: TextTokenizer) -> TokenStream:
    end = tokenizer.token("end", "a text of several documents")
    documents = [[*ids, end] for ids in tokenizer.encode_documents(texts)]
    first = [0, *accumulate(map(len, documents))][:-1]
    tokens = torch.tensor([token for ids in documents for token in ids], dtype=torch.int32)
    return TokenStream(tokens, torch.tensor(first))
