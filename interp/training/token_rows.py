"""Which row of a pretrained embedding stands for each token of a task?"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from interp.tasks.base import Task, Vocab
from interp.tasks.text.tokens import Role, TextVocab, take_tokenizer

MARKS: dict[str, tuple[Role | None, ...]] = {
    "[PAD]": ("pad", None, "end", "sep"),
    "[BOS]": ("cls", None, "end"),
    "[START]": ("cls", None, "end"),
    "[EOS]": ("sep", "end"),
    "[END]": ("sep", "end"),
}
"""Special tokens of tasks, and the roles of those that stand for them, best first. None: the beginning of a text."""
_FRAME = set(MARKS) - {"[PAD]"}


@dataclass(frozen=True)
class KnownTokens:
    """What a tokenizer knows, by the names that a task has for it.

    Args:
        given: A vocabulary of a task, a `tokenizers.Tokenizer`, or a fast tokenizer of transformers.

    Raises:
        ValueError: something else.
    """

    given: Any

    def __post_init__(self):
        len(self.vocab)  # what is no tokenizer is refused here

    @cached_property
    def vocab(self) -> Vocab:
        """Names of all tokens."""
        return self.given if isinstance(self.given, Vocab) else take_tokenizer(self.given).vocab

    @cached_property
    def roles(self) -> dict[Role | None, int]:
        """Id of the token of each role that there is."""
        if not isinstance(self.vocab, TextVocab):
            return {}
        engine = self.vocab.engine
        taken = take_tokenizer(engine if isinstance(self.given, Vocab) else self.given)
        first = engine.token_to_id(str(getattr(self.given, "bos_token", None) or "<s>"))
        return dict(taken.roles) | ({} if first is None else {None: first})

    @cached_property
    def unknown(self) -> int | None:
        """The id that stands for whatever the tokenizer does not know, if it has one."""
        if not isinstance(self.vocab, TextVocab):
            return None
        model = json.loads(self.vocab.engine.to_str())["model"]
        if model.get("unk_token") is not None:
            return self.vocab.engine.token_to_id(model["unk_token"])
        return model.get("unk_id")

    def alone(self, text: str) -> int | None:
        """The one token that a text by itself is cut into; None where it is none, several or an unknown one."""
        if not isinstance(self.vocab, TextVocab):
            return self.vocab.ids.get(text)
        try:
            ids = self.vocab.encode(text)
        except Exception:  # `tokenizers` raises that very class where a vocabulary has no token for the unknown
            return None
        return ids[0] if len(ids) == 1 and ids[0] != self.unknown else None

    def find(self, name: str) -> int | None:
        """The token that a text by itself is cut into, else the one that the vocabulary calls so; None for neither."""
        found = self.alone(name)
        if found is None and isinstance(self.vocab, TextVocab):
            piece = self.vocab.engine.token_to_id(name)
            found = self.vocab.ids.get(name) if piece is None else piece
        return None if found == self.unknown else found

    def row(self, token: str) -> int | None:
        """The token that stands for one of a task: of the same name, or for a special one of the same role."""
        found = self.find(token)
        if found is not None or token not in MARKS:
            return found
        return next((self.roles[role] for role in MARKS[token] if role in self.roles), None)

    def ordinary(self, index: int) -> str | None:
        """The printable text that, by itself, is cut into this token; None for any other token, and special ones."""
        if not isinstance(self.vocab, TextVocab):
            name = self.vocab.names[index]
            return None if name in MARKS else name
        text = self.vocab.texts[index]
        if index in self.vocab.special_ids or not text.strip() or not text.isprintable():
            return None
        return next((written for written in (text.strip(), text) if self.alone(written) == index), None)


def markers_of(task: Task) -> dict[str, int]:
    """Ids of a task's `cls_token` and `sep_token`: what begins and what ends its sequences.

    Raises:
        ValueError: a task without them.
    """
    known = KnownTokens(task.vocab)
    found = {"cls_token": known.row("[BOS]"), "sep_token": known.row("[EOS]")}
    if lacking := [name for name, token in found.items() if token is None]:
        raise ValueError(
            f"the task has no {' and no '.join(lacking)}, from which hardcode and hybrid broadcast: no [CLS] or [BOS] "
            f"first, no [SEP] or [EOS] last in its sequences. Take a task that has them (Lego's sentence_format "
            f"'paper', Text's objective 'masked'), or give a config with pathways of your own."
        )
    return {name: token for name, token in found.items() if token is not None}


def rows_of(task: Task, tokenizer: Any, *, symbols: Mapping[str, str] | None = None, d_vocab: int) -> list[int]:
    """For each token of a task, in the order of its ids, the row of a pretrained embedding that stands for it.

    A token stands for the one of the same name: what the tokenizer cuts that name into, by itself. `[PAD]`, `[BOS]` or
    `[START]`, and `[EOS]` or `[END]`, where the vocabulary has no such names, stand for its tokens of padding, class or
    beginning, separation or end; the last two may be one and the same, as GPT-2 has it.

    Args:
        task: Whose tokens.
        tokenizer: What the source was pretrained with: as `KnownTokens` takes it.
        symbols: Token of the task to the token of the vocabulary that stands in its place.
        d_vocab: Rows that the embedding has.

    Raises:
        ValueError: a task of text, which has a vocabulary of its own; no tokenizer; symbols for no token of the task,
            or that are no single token of the vocabulary; tokens of the task that are none; two of them on one row;
            a tokenizer with more ids than there are rows.
    """
    names, symbols = task.vocab.names, dict(symbols or {})
    if isinstance(task.vocab, TextVocab):
        raise ValueError(
            "the task is text, whose tokens are a tokenizer's own, not symbols with a row each. Train the source "
            "itself on it: interp.train."
        )
    known = KnownTokens(tokenizer)
    if strange := [token for token in symbols if token not in task.vocab.ids]:
        raise ValueError(f"symbols names {_listed(strange)}, no token of the task; it has {' '.join(names[:40])}.")
    wrong = {token: symbol for token, symbol in symbols.items() if known.find(symbol) is None}
    if wrong:
        raise ValueError(
            f"symbols puts {_listed(wrong.values())} in the place of {_listed(wrong)}, no single token of the "
            f"vocabulary. interp.training.token_rows.arbitrary_symbols draws some that are."
        )
    rows = {token: known.find(symbols[token]) if token in symbols else known.row(token) for token in names}
    if lacking := [token for token, row in rows.items() if row is None]:
        raise ValueError(
            f"the vocabulary has no single token for {_listed(lacking)} of the task. Say what stands for them, "
            f"symbols={{{lacking[0]!r}: ...}}, or give the task other names, or take another source."
        )
    found = {token: row for token, row in rows.items() if row is not None}
    _check(found, known, d_vocab)
    return list(found.values())


def _check(rows: Mapping[str, int], known: KnownTokens, d_vocab: int) -> None:
    """Refuse two tokens on one row, and rows that the embedding does not have."""
    beyond = {token: row for token, row in rows.items() if row >= d_vocab}
    if beyond:
        token, row = next(iter(beyond.items()))
        raise ValueError(
            f"the tokenizer gives {token!r} the id {row}, but the source has {d_vocab} tokens. Is it another model's?"
        )
    on: dict[int, list[str]] = {}
    for token, row in rows.items():
        on.setdefault(row, []).append(token)
    for row, sharing in on.items():
        sharing = [token for token in sharing if token != "[PAD]"]
        if len(sharing) > 1 and not _FRAME.issuperset(sharing):
            raise ValueError(
                f"{_listed(sharing)} of the task would all be the token {known.vocab.names[row]!r} (id {row}), and no "
                f"model could tell them apart. Give symbols that are different."
            )


def arbitrary_symbols(
    task_tokens: Sequence[str], tokenizer: Any, *, seed: int, task: Task | None = None
) -> dict[str, str]:
    """Symbols drawn at random: for each of these tokens of a task an ordinary token of a vocabulary.

    Ordinary is what is not special, and what its own printable text, by itself, is cut into: no part of a word that
    never stands alone, no token that no text has.

    Args:
        task_tokens: The tokens of the task to be replaced.
        tokenizer: As `KnownTokens` takes it.
        seed: Decides the draw.
        task: The task. Tokens that stand for others of its own are not drawn; without it they could be, and
            `interp.pretrained` would refuse them.

    Returns:
        What `interp.pretrained` takes as `symbols`. None is drawn twice, and none stands for one of `task_tokens`.

    Raises:
        ValueError: a token twice, or one that the task does not have; no tokenizer; too few ordinary tokens.

    Source: LEGO (arXiv:2206.04301), where arbitrary tokens in the place of `=`, `+` and `-` change nothing.
    """
    known = KnownTokens(tokenizer)
    others = () if task is None else task.vocab.names
    if len(set(task_tokens)) < len(task_tokens):
        raise ValueError(f"task_tokens has a token twice: {_listed(task_tokens)}.")
    strange = [token for token in task_tokens if task is not None and token not in others]
    if strange:
        raise ValueError(f"task_tokens has {_listed(strange)}, no token of the task; it has {' '.join(others[:40])}.")
    taken = {known.row(token) for token in (*others, *task_tokens)}
    drawn: dict[str, str] = {}
    order = torch.randperm(len(known.vocab), generator=torch.Generator().manual_seed(seed)).tolist()
    candidates = (known.ordinary(index) for index in order if index not in taken)
    for token, symbol in zip(task_tokens, (symbol for symbol in candidates if symbol is not None), strict=False):
        drawn[token] = symbol
    if len(drawn) < len(task_tokens):
        raise ValueError(
            f"task_tokens has {len(task_tokens)} tokens, but the vocabulary only {len(drawn)} ordinary ones that stand "
            f"for nothing else. Replace fewer, or take another source."
        )
    return drawn


def _listed(tokens: Any) -> str:
    return ", ".join(map(repr, tokens))
