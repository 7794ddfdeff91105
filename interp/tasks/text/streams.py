"""Tokenized corpora: one token stream per split, cached on disk."""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from pathlib import Path

import tokenizers
import torch
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hooks.files import user_path, write_bytes, write_text
from interp.tasks.base import SPLITS, Split
from interp.tasks.text.corpus import Corpus
from interp.tasks.text.tokenizer import TextTokenizer, train_tokenizer

CACHE_VERSION = 1
"""Increased whenever the same corpus and settings would give other tokens."""


@dataclass(frozen=True, eq=False)
class TokenStream:
    """The documents of a split, concatenated, each followed by an end token."""

    tokens: Int[Tensor, " token"]
    """Token ids, int32."""
    document_starts: Int[Tensor, " document"]
    """Position of the first token of each document."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def lengths(self) -> Int[Tensor, " document"]:
        """Tokens of each document, without its end token."""
        return torch.diff(self.document_starts, append=torch.tensor([len(self.tokens)])) - 1

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
    # everything that the tokens depend on
    fingerprint = tokenizer and tokenizer.fingerprint
    settings = [CACHE_VERSION, tokenizers.__version__, corpus.fingerprint, vocab_size, fingerprint]
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:24]
    path = cache_folder() / "text" / f"{key}.safetensors"
    cached = _load(path)
    if cached is not None:
        return cached
    # not in the cache
    if tokenizer is None:
        assert vocab_size is not None
        tokenizer = train_tokenizer(corpus.texts("train"), vocab_size)
    streams: dict[Split, TokenStream] = {split: _stream(corpus.texts(split), tokenizer) for split in SPLITS}
    tokenized = TokenizedCorpus(tokenizer, streams)
    _store(path, tokenized)
    return tokenized


def cache_folder() -> Path:
    """`$UNMYOPIC_CACHE`, else `unmyopic` in `$XDG_CACHE_HOME` or in `~/.cache`. Its content may be deleted."""
    folder = os.environ.get("UNMYOPIC_CACHE")
    if folder:
        return user_path(folder)
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
    """The file of a tokenizer in the cache."""
    return cache_folder() / "text" / "tokenizers" / f"{fingerprint}.json"


def _store(path: Path, tokenized: TokenizedCorpus) -> None:
    """Write the tokens of a corpus and their tokenizer to the cache, if that is writable."""
    tensors = {}
    for split, stream in tokenized.split.items():
        tensors[f"{split}.tokens"] = stream.tokens
        tensors[f"{split}.document_starts"] = stream.document_starts
    tokenizer = tokenized.tokenizer
    try:
        write_text(_tokenizer_file(tokenizer.fingerprint), json.dumps([tokenizer.content, tokenizer.roles]))
        write_bytes(path, save(tensors, metadata={"tokenizer": tokenizer.fingerprint}))
    except OSError:
        pass


def _load(path: Path) -> TokenizedCorpus | None:
    """Read the tokens of a corpus and their tokenizer from the cache; None if they are missing or damaged."""
    streams: dict[Split, TokenStream] = {}
    try:
        with safe_open(path, framework="pt") as file:
            tokenizer = cached_tokenizer(file.metadata()["tokenizer"])
            for split in SPLITS:
                tokens, document_starts = (file.get_tensor(f"{split}.{name}") for name in ("tokens", "document_starts"))
                streams[split] = TokenStream(tokens, document_starts)
    except (OSError, ValueError, SafetensorError):
        return None
    return TokenizedCorpus(tokenizer, streams)


def _stream(texts: list[str], tokenizer: TextTokenizer) -> TokenStream:
    """The stream of the documents of a split."""
    end = tokenizer.token("end", "a text of several documents")
    documents = [[*ids, end] for ids in tokenizer.encode_documents(texts)]
    document_starts = [0, *accumulate(map(len, documents))][:-1]
    tokens = torch.tensor(list(chain.from_iterable(documents)), dtype=torch.int32)
    return TokenStream(tokens, torch.tensor(document_starts))
