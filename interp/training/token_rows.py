"""Rows of a pretrained embedding for the tokens of a task."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from hooks.randomness import seeded_generator
from interp.tasks.base import Task
from interp.tasks.text.tokenizer import Role, TextTokenizer, TextVocab, convert_tokenizer
from interp.tasks.vocab import Vocab

MARKS: dict[str, tuple[Role | None, ...]] = {
    "[PAD]": ("pad", None, "end", "sep"),
    "[BOS]": ("cls", None, "end"),
    "[START]": ("cls", None, "end"),
    "[EOS]": ("sep", "end"),
    "[END]": ("sep", "end"),
}
"""Special tokens of tasks, and the roles of the tokens that may replace them, best first. None: beginning of text."""
MAY_SHARE_A_ROW = frozenset(MARKS) - {"[PAD]"}
"""Tokens at the beginning and the end, which may have the same row."""


class TokenLookup:
    """Look-up of task tokens in a tokenizer.

    Args:
        tokenizer: The vocabulary of a task, a `tokenizers.Tokenizer`, or a fast tokenizer of transformers.

    Raises:
        ValueError: another type.
    """

    vocab: Vocab
    """The tokens of the tokenizer."""
    roles: Mapping[Role | None, int]
    """Token id of each role that the tokenizer has; empty for a vocabulary of symbols."""
    unknown: int | None
    """Id of the unknown token, if there is one."""

    def __init__(self, tokenizer: Any):
        if isinstance(tokenizer, Vocab) and not isinstance(tokenizer, TextVocab):
            self.vocab, self.roles, self.unknown = tokenizer, {}, None
            return
        is_vocab = isinstance(tokenizer, TextVocab)
        converted = convert_tokenizer(tokenizer.engine if is_vocab else tokenizer)
        self.vocab = tokenizer if is_vocab else converted.vocab
        bos_token = str(getattr(tokenizer, "bos_token", None) or "<s>")
        self.roles = _roles(converted, bos_token)
        self.unknown = _unknown_token(converted.engine)

    def single_token(self, text: str) -> int | None:
        """Token of a text that is tokenized to a single known token, else None."""
        if not isinstance(self.vocab, TextVocab):
            return self.vocab.ids.get(text)
        try:
            ids = self.vocab.encode(text)
        except Exception:  # raised by `tokenizers`, with this class, if there is no unknown token
            return None
        is_known = len(ids) == 1 and ids[0] != self.unknown
        return ids[0] if is_known else None

    def find(self, name: str) -> int | None:
        """Token of a text that is tokenized to a single token, else the token of this name; None for neither."""
        token = self.single_token(name)
        if token is None and isinstance(self.vocab, TextVocab):
            token = self.vocab.engine.token_to_id(name)
        if token is None:
            token = self.vocab.ids.get(name)
        return None if token == self.unknown else token

    def row(self, token: str) -> int | None:
        """Token that replaces a task token: that of the same name, or a special token of the same role."""
        row = self.find(token)
        if row is not None:
            return row
        candidates = [self.roles[role] for role in MARKS.get(token, ()) if role in self.roles]
        return candidates[0] if candidates else None

    def ordinary_text(self, index: int) -> str | None:
        """Printable text that is tokenized to this token alone; None if there is none or the token is special."""
        if not isinstance(self.vocab, TextVocab):
            name = self.vocab.names[index]
            return None if name in MARKS else name
        text = self.vocab.texts[index]
        if index in self.vocab.special_ids or not text.strip() or not text.isprintable():
            return None
        for form in (text.strip(), text):
            if self.single_token(form) == index:
                return form
        return None


def _roles(tokenizer: TextTokenizer, bos_token: str) -> dict[Role | None, int]:
    """Token id of each role; None, the beginning of text, is the token with this name."""
    roles: dict[Role | None, int] = dict(tokenizer.roles)
    beginning_of_text = tokenizer.engine.token_to_id(bos_token)
    if beginning_of_text is not None:
        roles[None] = beginning_of_text
    return roles


def _unknown_token(engine: Tokenizer) -> int | None:
    """Id of the unknown token, which some models name and others number; None if there is none."""
    model = json.loads(engine.to_str())["model"]
    if model.get("unk_token") is not None:
        return engine.token_to_id(model["unk_token"])
    return model.get("unk_id")


def markers_of(task: Task) -> dict[str, int]:
    """Ids of a task's `cls_token` and `sep_token`, at the beginning and the end of its sequences.

    Raises:
        ValueError: a task without one of them.
    """
    lookup = TokenLookup(task.vocab)
    markers = {"cls_token": lookup.row("[BOS]"), "sep_token": lookup.row("[EOS]")}
    if lacking := [name for name, token in markers.items() if token is None]:
        raise ValueError(
            f"the task has no {' and no '.join(lacking)}, from which hardcode and hybrid broadcast: its sequences do "
            f"not begin with [CLS] or [BOS] and end with [SEP] or [EOS]. Use a task with these markers (Lego's "
            f"sentence_format 'paper', Text's objective 'masked'), or give a config with custom pathways."
        )
    return {name: token for name, token in markers.items() if token is not None}


def rows_of(task: Task, tokenizer: Any, *, symbols: Mapping[str, str] | None = None, d_vocab: int) -> list[int]:
    """Row of a pretrained embedding for each token of a task, in the order of the task's ids.

    A task token has the row of the single token that its name is tokenized to. If the vocabulary lacks their names,
    `[PAD]`, `[BOS]` or `[START]`, and `[EOS]` or `[END]` have the rows of the padding token, of the class or beginning
    token, and of the separation or end token; the last two may share a row, as in GPT-2.

    Args:
        task: The task.
        tokenizer: Tokenizer of the pretrained model, in a form that `TokenLookup` accepts.
        symbols: Replacements, from task token to vocabulary token.
        d_vocab: Number of rows of the embedding.

    Raises:
        ValueError: a text task, whose tokens are those of a tokenizer; another type than a tokenizer; symbols that are
            not tokens of the task, or whose replacements are not single tokens; task tokens that are not single
            tokens; two task tokens with one row; a tokenizer with more ids than rows.
    """
    symbols = symbols or {}
    if task.is_language:
        raise ValueError(
            "the task is text, whose tokens are those of a tokenizer, not symbols with one row each. Train the source "
            "itself on it: interp.train."
        )
    lookup = TokenLookup(tokenizer)
    # Replacements: each is a token of the task, and a single token of the vocabulary
    _check_task_tokens("symbols", symbols, task)
    not_single = {token: symbol for token, symbol in symbols.items() if lookup.find(symbol) is None}
    if not_single:
        raise ValueError(
            f"symbols replaces {_listed(not_single)} by {_listed(not_single.values())}, not a single token of the "
            f"vocabulary. interp.training.token_rows.arbitrary_symbols draws single tokens."
        )
    # A row for every token
    rows = {}
    for token in task.vocab.names:
        rows[token] = lookup.find(symbols[token]) if token in symbols else lookup.row(token)
    if lacking := [token for token, row in rows.items() if row is None]:
        raise ValueError(
            f"the vocabulary has no single token for {_listed(lacking)} of the task. Give replacements, "
            f"symbols={{{lacking[0]!r}: ...}}, rename the task's tokens, or use another source."
        )
    _check_rows(rows, lookup, d_vocab)
    return list(rows.values())


def _check_task_tokens(argument: str, tokens: Collection[str], task: Task) -> None:
    """Raise ValueError for tokens that the task does not have."""
    names = task.vocab.names
    if strange := [token for token in tokens if token not in names]:
        raise ValueError(f"{argument} has {_listed(strange)}, not a token of the task; it has {' '.join(names[:40])}.")


def _check_rows(rows: Mapping[str, int], lookup: TokenLookup, d_vocab: int) -> None:
    """Raise ValueError for two tokens with one row, and for rows beyond the embedding."""
    for token, row in rows.items():
        if row >= d_vocab:
            raise ValueError(
                f"the tokenizer gives {token!r} the id {row}, but the source has {d_vocab} tokens. Is it another "
                f"model's?"
            )
    # Two tokens with one row would be indistinguishable, which only the marks of beginning and end may be
    tokens_by_row: dict[int, list[str]] = {}
    for token, row in rows.items():
        if token != "[PAD]":
            tokens_by_row.setdefault(row, []).append(token)
    for row, tokens in tokens_by_row.items():
        if len(tokens) > 1 and not MAY_SHARE_A_ROW.issuperset(tokens):
            raise ValueError(
                f"{_listed(tokens)} of the task would all be the token {lookup.vocab.names[row]!r} (id {row}) and "
                f"indistinguishable. Give different symbols."
            )


def arbitrary_symbols(
    task_tokens: Sequence[str], tokenizer: Any, *, seed: int, task: Task | None = None
) -> dict[str, str]:
    """Draw random replacements for task tokens: distinct ordinary tokens of a vocabulary.

    An ordinary token is not special and is the only token of its printable text.

    Args:
        task_tokens: Task tokens to replace.
        tokenizer: A tokenizer in a form that `TokenLookup` accepts.
        seed: Seed of the draw.
        task: The task, whose other tokens are then not drawn. If None they may be, which `interp.pretrained` rejects.

    Returns:
        `symbols` for `interp.pretrained`. No symbol is drawn twice or has the row of one of `task_tokens`.

    Raises:
        ValueError: a repeated token, a token that is not the task's, another type than a tokenizer, or too few
            ordinary tokens.

    Source: LEGO (arXiv:2206.04301), where arbitrary tokens for `=`, `+` and `-` do not change the results.
    """
    lookup = TokenLookup(tokenizer)
    if len(set(task_tokens)) < len(task_tokens):
        raise ValueError(f"task_tokens has a token twice: {_listed(task_tokens)}.")
    if task is not None:
        _check_task_tokens("task_tokens", task_tokens, task)
    # Ordinary tokens in random order, without those that the task has
    names = () if task is None else task.vocab.names
    used_rows = {lookup.row(token) for token in (*names, *task_tokens)}
    order = torch.randperm(len(lookup.vocab), generator=seeded_generator(seed)).tolist()
    candidates = (lookup.ordinary_text(index) for index in order if index not in used_rows)
    ordinary = (symbol for symbol in candidates if symbol is not None)
    symbols = dict(zip(task_tokens, ordinary, strict=False))
    if len(symbols) < len(task_tokens):
        raise ValueError(
            f"task_tokens has {len(task_tokens)} tokens, but the vocabulary only {len(symbols)} ordinary tokens that "
            f"are not in use. Replace fewer, or use another source."
        )
    return symbols


def _listed(tokens: Any) -> str:
    return ", ".join(map(repr, tokens))
