"""Names and kinds of the tokens of a tokenizer."""

import json
import keyword
import re
from collections.abc import Iterable, Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from tokenizers import Tokenizer
from torch import Tensor

from interp.tasks.base import Vocab

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
