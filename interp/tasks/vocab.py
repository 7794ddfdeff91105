"""Vocabularies: token names and ids."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache

from jaxtyping import Int
from torch import Tensor

from hooks.checks import check_text, shown


class Vocab:
    """Token names and ids.

    Raises:
        ValueError: a duplicate name, or a name that is empty, contains white space or has a lone surrogate.

    >>> from interp.tasks import Vocab
    >>> Vocab(["a", "b", "="]).encode("a = b")
    [0, 2, 1]
    """

    def __init__(self, names: Sequence[str]):
        try:
            self.names = tuple(names)
        except TypeError:
            raise ValueError(f"names is {shown(names)}; it must be a list of strings.") from None
        for name in self.names:
            if not isinstance(name, str):
                raise ValueError(f"names has {shown(name)}; it must have strings.")
        check_text("names", self.names)
        self.ids = {name: index for index, name in enumerate(self.names)}
        if len(self.ids) < len(self.names):
            duplicate = next(name for name, count in Counter(self.names).items() if count > 1)
            raise ValueError(f"the token {duplicate!r} appears twice in the vocabulary; rename one of them.")
        for name in self.names:
            if not name or any(letter.isspace() for letter in name):
                raise ValueError(f"the token name {name!r} is empty or contains white space; choose another.")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _token(self) -> re.Pattern[str]:
        """Pattern of a token, the longest one that matches."""
        longest_first = sorted(self.names, key=len, reverse=True)
        return re.compile("|".join(re.escape(name) for name in longest_first))

    def encode(self, text: str) -> list[int]:
        """Encode a text as token ids. White space between tokens is ignored.

        Raises:
            ValueError: an unknown token, and its position.
        """
        ids = []
        position = 0
        while position < len(text):
            if text[position].isspace():
                position += 1
                continue
            # the longest token that begins here
            match = self._token.match(text, position)
            if match is None:
                word = text[position:].split()[0][:12]
                raise ValueError(
                    f"unknown token at character {position}: {word!r}. Known tokens: {' '.join(self.names[:40])}"
                )
            ids.append(self.ids[match.group()])
            position = match.end()
        return ids

    def decode(self, tokens: Int[Tensor, " pos"] | Sequence[int]) -> str:
        """Decode token ids; spaces are inserted only if the text could not be encoded again without them.

        Raises:
            ValueError: an id outside the vocabulary, and its position.
        """
        words = self.words(tokens)
        text = "".join(words)
        is_unambiguous = self._token.findall(text) == words
        return text if is_unambiguous else " ".join(words)

    def words(self, tokens: Int[Tensor, " pos"] | Sequence[int]) -> list[str]:
        """The name of each token.

        Raises:
            ValueError: an id outside the vocabulary, and its position.
        """
        words = []
        for position, token in enumerate(tokens):
            if not 0 <= int(token) < len(self.names):
                raise ValueError(f"unknown token id {int(token)} at position {position}; ids go to {len(self) - 1}.")
            words.append(self.names[int(token)])
        return words


@lru_cache
def vocab_of(names: tuple[str, ...]) -> Vocab:
    """Return the vocabulary with these names, built once."""
    return Vocab(names)
