"""Brackets in a row of tokens: how deep, which are open, which match. Everything follows from the tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

PAD, START, END, FIRST_BRACKET = range(4)
"""Token ids: padding, start, end, then opener and closer of each type in turn."""
PAIRS = ("()", "[]", "{}", "<>")


def bracket_names(n_types: int) -> tuple[str, ...]:
    """Names of the brackets, opener and closer of each type in turn: `(`, `)`, `[`, `]`, ..., then `(5`, `)5`, ..."""
    usual = [name for pair in PAIRS[:n_types] for name in pair]
    return (*usual, *(f"{mark}{i + 1}" for i in range(len(PAIRS), n_types) for mark in "()"))


def opener(kind: int) -> int:
    """Token id of the opener of a type, counted from 0."""
    return FIRST_BRACKET + 2 * kind


def closer(kind: int) -> int:
    """Token id of the closer of a type, counted from 0."""
    return opener(kind) + 1


def is_opener(tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos"]:
    """Where an opening bracket stands."""
    return (tokens >= FIRST_BRACKET) & ((tokens - FIRST_BRACKET) % 2 == 0)


def is_closer(tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos"]:
    """Where a closing bracket stands."""
    return (tokens >= FIRST_BRACKET) & ((tokens - FIRST_BRACKET) % 2 == 1)


@dataclass(frozen=True)
class Nesting:
    """What is open after each token."""

    depth: Int[Tensor, "batch pos"]
    """Open brackets after reading the token: an opener's own depth, one less than it for its closer."""
    open_at: Int[Tensor, "batch pos level"]
    """Position of the open bracket of each level (the first is level 1), -1 where there is none."""
    top: Int[Tensor, "batch pos"]
    """Position of the innermost open bracket, -1 where nothing is open."""
    top_type: Int[Tensor, "batch pos"]
    """Its type, counted from 0; -1 where nothing is open."""


def nesting(tokens: Int[Tensor, "batch pos"], max_depth: int) -> Nesting:
    """Depth and open brackets after each token, for words of the language; nothing is checked."""
    opens = is_opener(tokens)
    depth = (opens.long() - is_closer(tokens).long()).cumsum(1)
    level = torch.arange(1, max_depth + 1, device=tokens.device)
    at = torch.arange(tokens.shape[1], device=tokens.device)[None, :, None]
    landing = opens[..., None] & (depth[..., None] == level)
    last = torch.where(landing, at, -1).cummax(1).values
    open_at = torch.where(level <= depth[..., None], last, -1)
    top = open_at.max(-1).values
    kind = (tokens.gather(1, top.clamp_min(0)) - FIRST_BRACKET) // 2
    return Nesting(depth, open_at, top, torch.where(top >= 0, kind, -1))


def first_fault(tokens: Int[Tensor, " pos"], n_types: int, max_depth: int) -> tuple[int, str] | None:
    """Where a row of brackets leaves the language, and how; None when it is a prefix of a word."""
    stack: list[int] = []
    names = bracket_names(n_types)
    for position, token in enumerate(tokens.tolist()):
        if not 0 <= token - FIRST_BRACKET < 2 * n_types:
            return position, f"token {token} is not a bracket of this language"
        kind, closes = divmod(token - FIRST_BRACKET, 2)
        name = names[token - FIRST_BRACKET]
        if not closes:
            stack.append(kind)
            if len(stack) > max_depth:
                return position, f"{name!r} opens depth {len(stack)}; max_depth is {max_depth}"
        elif not stack:
            return position, f"{name!r} closes nothing"
        elif (due := stack.pop()) != kind:
            return position, f"{name!r} stands where {names[2 * due + 1]!r} is due"
    return None


def stack_top_map(found: Nesting) -> Bool[Tensor, "batch query key"]:
    """The innermost open bracket after each query, which may be the query itself."""
    return _mark(found.top[..., None])


def unmatched_open_map(found: Nesting) -> Bool[Tensor, "batch query key"]:
    """Every open bracket after each query."""
    return _mark(found.open_at)


def matching_map(found: Nesting, tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """The bracket that each closer closes, and the one that closes each opener."""
    before = torch.cat([torch.full_like(found.top[:, :1], -1), found.top[:, :-1]], 1)
    closes = _mark(torch.where(is_closer(tokens), before, -1)[..., None])
    return closes | closes.mT


def _mark(keys: Int[Tensor, "batch query some"]) -> Bool[Tensor, "batch query key"]:
    batch, pos, _ = keys.shape
    marked = torch.zeros(batch, pos, pos + 1, dtype=torch.bool, device=keys.device)
    return marked.scatter(2, torch.where(keys >= 0, keys, pos), True)[..., :pos]
