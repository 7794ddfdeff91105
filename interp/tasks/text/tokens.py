"""Tokenizers: training, conversion, and special tokens by role."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from interp.tasks.text.vocab import TextVocab

Role = Literal["pad", "cls", "sep", "mask", "end", "next", "random"]
OURS: dict[Role, str] = {
    "pad": "[PAD]",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
    "end": "<|endoftext|>",
    "next": "[NEXT]",
    "random": "[RANDOM]",
}
"""Special tokens of a trained tokenizer, in the order of their ids."""
_THEIRS: dict[Role, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "end": ("<|endoftext|>", "</s>", "<eos>", "[SEP]"),
    "next": ("[NEXT]",),
    "random": ("[RANDOM]",),
}
_ATTRIBUTES: dict[Role, str] = {
    "pad": "pad_token",
    "cls": "cls_token",
    "sep": "sep_token",
    "mask": "mask_token",
    "end": "eos_token",
}
SMALLEST = 300
"""Smallest vocabulary: 256 bytes, the special tokens, and some merges."""
TRAINED_ON = 20_000_000
"""Number of characters that a tokenizer is trained on at most."""


@dataclass(frozen=True)
class TextTokens:
    """A tokenizer as a value: its JSON and the roles of its special tokens. Equal values tokenize identically."""

    content: str
    """Output of `tokenizers.Tokenizer.to_str`."""
    roles: tuple[tuple[Role, int], ...]
    """Token id of each role."""

    @cached_property
    def engine(self) -> Tokenizer:
        """Tokenizer for user input: the name of a special token is parsed as that token."""
        return _engine(self.content)

    @cached_property
    def vocab(self) -> TextVocab:
        """Names, texts and kinds of all tokens."""
        return TextVocab(self.engine, also_special=dict(self.roles).values())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that determines ids."""
        return hashlib.sha256(json.dumps([self.content, self.roles]).encode()).hexdigest()[:16]

    def token(self, role: Role, needed_by: str) -> int:
        """Id of the token that has a role.

        Raises:
            ValueError: this tokenizer has none (which names are looked for).
        """
        found = dict(self.roles).get(role)
        if found is None:
            attribute = f", or a tokenizer with {_ATTRIBUTES[role]}" if role in _ATTRIBUTES else ""
            raise ValueError(
                f"the tokenizer has no {OURS[role]} token, which {needed_by} needs. Add one of "
                f"{', '.join(_THEIRS[role])} to it (add_special_tokens){attribute}."
            )
        return found

    def documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts, in which the names of special tokens are text like any other."""
        engine = _engine(self.content)
        engine.encode_special_tokens = True
        return [found.ids for found in engine.encode_batch_fast(list(texts), add_special_tokens=False)]


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> TextTokens:
    """Train a byte-level byte-pair tokenizer, deterministically. It can encode any text.

    Args:
        texts: Training texts; the first 20 million characters are used.
        vocab_size: Number of tokens including special ones; smaller if the texts have no more pairs to merge.

    Raises:
        ValueError: a vocabulary that is too small.

    Source: byte-pair encoding, Sennrich et al. 2016 (arXiv:1508.07909), on bytes as in GPT-2.
    """
    check_vocab_size(vocab_size)
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    engine.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(OURS.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    engine.train_from_iterator(_first(texts, TRAINED_ON), trainer)
    return take_tokenizer(engine)


def check_vocab_size(vocab_size: int) -> None:
    """Check that a vocabulary is large enough for bytes and special tokens.

    Raises:
        ValueError: too small; the message gives the smallest size.
    """
    if vocab_size < SMALLEST:
        raise ValueError(f"vocab_size is {vocab_size}; give at least {SMALLEST}: 256 bytes, special tokens and words.")


def take_tokenizer(given: Any) -> TextTokens:
    """Convert a given tokenizer, with its special tokens. It is not changed.

    Args:
        given: A `tokenizers.Tokenizer`, or a fast tokenizer of transformers.

    Raises:
        ValueError: another type, or a tokenizer without tokens.
    """
    if isinstance(given, TextTokens):
        return given
    engine = given if isinstance(given, Tokenizer) else getattr(given, "backend_tokenizer", None)
    if not isinstance(engine, Tokenizer):
        raise ValueError(
            f"tokenizer is a {type(given).__name__}; give a tokenizers.Tokenizer or a fast tokenizer of transformers "
            f"(PreTrainedTokenizerFast)."
        )
    if not engine.get_vocab_size():
        raise ValueError("the tokenizer has no tokens; train it first.")
    engine = _engine(engine.to_str())
    roles: list[tuple[Role, int]] = []
    for role in get_args(Role):
        own = getattr(given, _ATTRIBUTES.get(role, ""), None)
        ids = [engine.token_to_id(str(name)) for name in (own, *_THEIRS[role]) if name is not None]
        found = next((one for one in ids if one is not None), None)
        if found is not None:
            roles.append((role, found))
    return TextTokens(engine.to_str(), tuple(roles))


def _engine(content: str) -> Tokenizer:
    engine = Tokenizer.from_str(content)
    engine.no_truncation()
    engine.no_padding()
    return engine


def _first(texts: Iterable[str], most: int) -> Iterable[str]:
    for text in texts:
        if most <= 0:
            return
        yield text[:most]
        most -= len(text)
