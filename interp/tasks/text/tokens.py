"""Tokenizers: training, conversion, and special tokens by role."""

import hashlib
import json
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from interp.tasks.vocab import Vocab

KINDS = ("name", "keyword", "number", "operator", "space", "newline", "other", "special")
"""Coarse kinds of token; probe labels are indices into this tuple."""
_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}
_SHOWN = {**_MARKS, **{mark: f"<U+{ord(mark):04X}>" for mark in _MARKS.values()}}
_VISIBLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_HIDDEN = tuple(byte for byte in range(256) if byte not in _VISIBLE)
_BYTE_OF = {chr(byte): byte for byte in _VISIBLE} | {chr(256 + index): byte for index, byte in enumerate(_HIDDEN)}
"""Byte-level tokenizers write each byte as a letter: visible bytes unchanged, the others from U+0100."""


def kind_of(text: str) -> str:
    """Classify an ordinary token by its text, ignoring surrounding white space.

    - `space`, `newline`: only white space, without or with a line break;
    - `keyword`: a reserved word of Python, such as `def`, `in`, `None`; of prose, words like `and`, `is`, `not`;
    - `name`: letters, digits and underscores, the first not a digit; parts of words too;
    - `number`: letters, digits, underscores and dots, the first a digit;
    - `operator`: marks without quotation marks: operators, brackets, other punctuation;
    - `other`: quotation marks, mixtures, parts of a letter.
    """
    core = text.strip()
    if not core:
        return "newline" if "\n" in text else "space"
    if keyword.iskeyword(core):
        return "keyword"
    if re.fullmatch(r"[^\W\d]\w*", core):
        return "name"
    if re.fullmatch(r"\d[\w.]*", core):
        return "number"
    if not re.search(r"[\w\s'\"`\udc80-\udcff]", core):
        return "operator"
    return "other"


class TextVocab(Vocab):
    """The tokens of a tokenizer: text to ids and back, printable names, kinds.

    In names a space is `·`, a line break `⏎`, a tab `⇥`, and a byte that is part of a letter `<0xE2>`. `encode` takes
    the name of a special token for that token; `decode` gives the text itself, special tokens by name.

    Args:
        engine: The tokenizer.
        also_special: Special ids in addition to those that the tokenizer marks.
    """

    def __init__(self, engine: Tokenizer, also_special: Iterable[int] = ()):  # names need not be unique
        self.engine = engine
        pieces = {index: piece for piece, index in engine.get_vocab(with_added_tokens=True).items()}
        added = engine.get_added_tokens_decoder()
        size = max(pieces) + 1
        to_text = _reader_of(engine)
        marked = {index for index, token in added.items() if token.special} | set(also_special)
        texts, names = [], []
        for index in range(size):
            piece = pieces.get(index)
            text = f"<unused {index}>" if piece is None else piece if index in added else to_text(piece)
            texts.append(text)
            names.append(text if index in marked or piece is None else "".join(map(_shown, text)) or f"<empty {index}>")
        self.texts = tuple(texts)
        self.names = tuple(names)
        self.ids = dict(reversed([(name, index) for index, name in enumerate(names)]))
        self.special_ids = tuple(sorted(marked))

    @cached_property
    def special(self) -> Bool[Tensor, " d_vocab"]:
        """Mask of special tokens."""
        found = torch.zeros(len(self), dtype=torch.bool)
        found[list(self.special_ids)] = True
        return found

    @cached_property
    def ordinary(self) -> Int[Tensor, " token"]:
        """Ids of tokens that are not special."""
        return (~self.special).nonzero()[:, 0]

    @cached_property
    def kinds(self) -> Int[Tensor, " d_vocab"]:
        """Kind of each token, as an index into `KINDS`."""
        special = set(self.special_ids)
        named = ("special" if index in special else kind_of(text) for index, text in enumerate(self.texts))
        return torch.tensor([KINDS.index(name) for name in named])

    def encode(self, text: str) -> list[int]:
        """Encode a text as token ids, without adding special tokens."""
        return self.engine.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Int[Tensor, " pos"] | Sequence[int]) -> str:
        """Decode token ids.

        Raises:
            ValueError: an id outside the vocabulary (which, where).
        """
        self.words(tokens)
        return self.engine.decode([int(token) for token in tokens], skip_special_tokens=False)


def _shown(letter: str) -> str:
    if letter in _SHOWN:
        return _SHOWN[letter]
    if "\udc80" <= letter <= "\udcff":
        return f"<0x{ord(letter) - 0xDC00:02X}>"
    return letter if letter.isprintable() else f"<U+{ord(letter):04X}>"


def _reader_of(engine: Tokenizer):
    """Function from a stored piece to its text; bytes that are not part of a letter become lone surrogates."""
    decoder = json.dumps(json.loads(engine.to_str())["decoder"])
    if "ByteLevel" in decoder:
        return lambda piece: _text_of(bytes(_BYTE_OF[letter] for letter in piece))
    if "WordPiece" in decoder:
        return lambda piece: piece.removeprefix("##") or piece
    if "ByteFallback" in decoder:
        return _with_bytes
    return lambda piece: piece.replace("▁", " ")


def _with_bytes(piece: str) -> str:
    byte = re.fullmatch(r"<0x([0-9A-F]{2})>", piece)
    return _text_of(bytes([int(byte.group(1), 16)])) if byte else piece.replace("▁", " ")


def _text_of(content: bytes) -> str:
    return content.decode("utf-8", errors="surrogateescape")


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
