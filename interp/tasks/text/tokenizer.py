"""Tokenizers: training, conversion, and special tokens by role."""

import hashlib
import json
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from interp.tasks.vocab import Vocab

TOKEN_KINDS = ("name", "keyword", "number", "operator", "space", "newline", "other", "special")
"""Coarse kinds of token; probe labels are indices into this tuple."""
_MARK_OF = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}
"""White space in names of tokens."""
_NAME_OF_LETTER = {**_MARK_OF, **{mark: f"<U+{ord(mark):04X}>" for mark in _MARK_OF.values()}}
_VISIBLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_INVISIBLE = tuple(byte for byte in range(256) if byte not in _VISIBLE)
_BYTE_OF = {chr(byte): byte for byte in _VISIBLE} | {chr(256 + index): byte for index, byte in enumerate(_INVISIBLE)}
"""Byte-level tokenizers write each byte as a letter: visible bytes unchanged, the others from U+0100."""


def token_kind(text: str) -> str:
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

    def __init__(self, engine: Tokenizer, also_special: Iterable[int] = ()):
        self.engine = engine
        # stored pieces by id, and special ids
        pieces = {index: piece for piece, index in engine.get_vocab(with_added_tokens=True).items()}
        added_tokens = engine.get_added_tokens_decoder()
        special_ids = {index for index, token in added_tokens.items() if token.special} | set(also_special)
        # text and printable name of each id; ids may have gaps
        to_text = _text_function(engine)
        texts, names = [], []
        for index in range(max(pieces) + 1):
            if index not in pieces:
                text = name = f"<unused {index}>"
            else:
                # added tokens are stored as text
                text = pieces[index] if index in added_tokens else to_text(pieces[index])
                printable_name = "".join(map(_printable, text)) or f"<empty {index}>"
                name = text if index in special_ids else printable_name
            texts.append(text)
            names.append(name)
        self.texts = tuple(texts)
        self.names = tuple(names)
        # names need not be unique: the first token of a name has it
        self.ids = dict(reversed([(name, index) for index, name in enumerate(names)]))
        self.special_ids = tuple(sorted(special_ids))

    @cached_property
    def special(self) -> Bool[Tensor, " d_vocab"]:
        """Mask of special tokens."""
        mask = torch.zeros(len(self), dtype=torch.bool)
        mask[list(self.special_ids)] = True
        return mask

    @cached_property
    def ordinary(self) -> Int[Tensor, " token"]:
        """Ids of tokens that are not special."""
        return (~self.special).nonzero()[:, 0]

    @cached_property
    def kinds(self) -> Int[Tensor, " d_vocab"]:
        """Kind of each token, as an index into `TOKEN_KINDS`."""
        kinds = [token_kind(text) for text in self.texts]
        for index in self.special_ids:
            kinds[index] = "special"
        return torch.tensor([TOKEN_KINDS.index(kind) for kind in kinds])

    def encode(self, text: str) -> list[int]:
        """Encode a text as token ids, without adding special tokens."""
        return self.engine.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Int[Tensor, " pos"] | Sequence[int]) -> str:
        """Decode token ids.

        Raises:
            ValueError: an id outside the vocabulary, and its position.
        """
        self.words(tokens)  # raises for an unknown id
        return self.engine.decode([int(token) for token in tokens], skip_special_tokens=False)


def _printable(letter: str) -> str:
    """A letter in the name of a token; a lone surrogate is a byte that is part of a letter."""
    if letter in _NAME_OF_LETTER:
        return _NAME_OF_LETTER[letter]
    if "\udc80" <= letter <= "\udcff":
        return f"<0x{ord(letter) - 0xDC00:02X}>"
    return letter if letter.isprintable() else f"<U+{ord(letter):04X}>"


def _text_function(engine: Tokenizer) -> Callable[[str], str]:
    """Function from a stored piece to its text; bytes that are not part of a letter become lone surrogates."""
    decoder = json.dumps(json.loads(engine.to_str())["decoder"])
    if "ByteLevel" in decoder:
        return lambda piece: _text_of(bytes(_BYTE_OF[letter] for letter in piece))
    if "WordPiece" in decoder:
        return lambda piece: piece.removeprefix("##") or piece
    if "ByteFallback" in decoder:
        return _text_of_byte_or_word
    return lambda piece: piece.replace("▁", " ")


def _text_of_byte_or_word(piece: str) -> str:
    """The text of a byte such as `<0xE2>`, or of a word with `▁` for a space."""
    byte = re.fullmatch(r"<0x([0-9A-F]{2})>", piece)
    if byte is None:
        return piece.replace("▁", " ")
    return _text_of(bytes([int(byte.group(1), 16)]))


def _text_of(content: bytes) -> str:
    """UTF-8 bytes as text; a byte that is not part of a letter becomes a lone surrogate."""
    return content.decode("utf-8", errors="surrogateescape")


Role = Literal["pad", "cls", "sep", "mask", "end", "next", "random"]


@dataclass(frozen=True)
class SpecialToken:
    """The special token of a role."""

    name: str
    """Name in a trained tokenizer."""
    knattribute_names: tuple[str, ...]
    """Names in tokenizers of others, best first."""
    attribute: str = ""
    """Attribute of a tokenizer of transformers that has the name; empty if there is none."""


SPECIAL_TOKENS: dict[Role, SpecialToken] = {
    "pad": SpecialToken("[PAD]", ("[PAD]", "<pad>"), "pad_token"),
    "cls": SpecialToken("[CLS]", ("[CLS]", "<s>"), "cls_token"),
    "sep": SpecialToken("[SEP]", ("[SEP]", "</s>"), "sep_token"),
    "mask": SpecialToken("[MASK]", ("[MASK]", "<mask>"), "mask_token"),
    "end": SpecialToken("<|endoftext|>", ("<|endoftext|>", "</s>", "<eos>", "[SEP]"), "eos_token"),
    "next": SpecialToken("[NEXT]", ("[NEXT]",)),
    "random": SpecialToken("[RANDOM]", ("[RANDOM]",)),
}
"""Special token of each role, in the order of the ids of a trained tokenizer."""
SMALLEST_VOCAB = 300
"""Smallest vocabulary: 256 bytes, the special tokens, and some merges."""
TRAINING_CHARACTERS = 20_000_000
"""Number of characters that a tokenizer is trained on at most."""


@dataclass(frozen=True)
class TextTokenizer:
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
            ValueError: this tokenizer has none; the message lists the names that are recognised.
        """
        token = dict(self.roles).get(role)
        if token is None:
            special = SPECIAL_TOKENS[role]
            alternative = f", or a tokenizer with {special.attribute}" if special.attribute else ""
            raise ValueError(
                f"the tokenizer has no {special.name} token, which {needed_by} needs. Add one of "
                f"{', '.join(special.knattribute_names)} to it (add_special_tokens){alternative}."
            )
        return token

    def encode_documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts; names of special tokens in them are ordinary text."""
        engine = _engine(self.content)
        engine.encode_special_tokens = True
        return [encoding.ids for encoding in engine.encode_batch_fast(list(texts), add_special_tokens=False)]


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> TextTokenizer:
    """Train a byte-level byte-pair tokenizer, deterministically. It can encode any text.

    Args:
        texts: Training texts; the first 20 million characters are used.
        vocab_size: Number of tokens including special ones; smaller if the texts have no more pairs to merge.

    Raises:
        ValueError: a vocabulary that is too small.

    Source: byte-pair encoding, Sennrich et al. 2016 (arXiv:1508.07909), on bytes as in GPT-2.
    """
    check_vocab_size(vocab_size)
    # pairs of bytes are merged within words
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    engine.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[special.name for special in SPECIAL_TOKENS.values()],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    engine.train_from_iterator(_first_characters(texts, TRAINING_CHARACTERS), trainer)
    return convert_tokenizer(engine)


def check_vocab_size(vocab_size: int) -> None:
    """Check that a vocabulary is large enough for bytes and special tokens.

    Raises:
        ValueError: too small; the message gives the smallest size.
    """
    if vocab_size < SMALLEST_VOCAB:
        raise ValueError(
            f"vocab_size is {vocab_size}; give at least {SMALLEST_VOCAB}: 256 bytes, special tokens and words."
        )


def convert_tokenizer(tokenizer: Any) -> TextTokenizer:
    """Convert a tokenizer of a library, with its special tokens. It is not changed.

    Args:
        tokenizer: A `tokenizers.Tokenizer`, or a fast tokenizer of transformers.

    Raises:
        ValueError: another type, or a tokenizer without tokens.
    """
    if isinstance(tokenizer, TextTokenizer):
        return tokenizer
    # the engine of either library, copied
    engine = tokenizer if isinstance(tokenizer, Tokenizer) else getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(engine, Tokenizer):
        raise ValueError(
            f"tokenizer is a {type(tokenizer).__name__}; give a tokenizers.Tokenizer or a fast tokenizer of "
            f"transformers (PreTrainedTokenizerFast)."
        )
    if not engine.get_vocab_size():
        raise ValueError("the tokenizer has no tokens; train it first.")
    engine = _engine(engine.to_str())
    # the token of each role: that of the tokenizer's attribute, or the first known name that it has
    roles: list[tuple[Role, int]] = []
    for role, special in SPECIAL_TOKENS.items():
        names = list(special.knattribute_names)
        attribute_name = getattr(tokenizer, special.attribute, None)
        if attribute_name is not None:
            names.insert(0, str(attribute_name))
        for name in names:
            token = engine.token_to_id(name)
            if token is not None:
                roles.append((role, token))
                break
    return TextTokenizer(engine.to_str(), tuple(roles))


def _engine(content: str) -> Tokenizer:
    """A tokenizer from its JSON, which keeps all tokens of a text and adds none."""
    engine = Tokenizer.from_str(content)
    engine.no_truncation()
    engine.no_padding()
    return engine


def _first_characters(texts: Iterable[str], count: int) -> Iterable[str]:
    """The texts up to a number of characters in total."""
    for text in texts:
        if count <= 0:
            return
        yield text[:count]
        count -= len(text)
