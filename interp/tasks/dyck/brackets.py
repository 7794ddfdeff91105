"""Bracket sequences: depth, open brackets and matching brackets, computed from token ids."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

PAD, START, END, FIRST_BRACKET = range(4)
"""Token ids: padding, start, end, then the opener and closer of each type."""
PAIRS = ("()", "[]", "{}", "<>")


def bracket_names(n_types: int) -> tuple[str, ...]:
    """Bracket names, opener then closer of each type: `(`, `)`, `[`, `]`, ..., then `(5`, `)5`, ..."""
    usual = [name for pair in PAIRS[:n_types] for name in pair]
    return (*usual, *(f"{mark}{i + 1}" for i in range(len(PAIRS), n_types) for mark in "()"))


def opener(kind: int) -> int:
    """Token id of the opener of a type (0-based)."""
    return FIRST_BRACKET + 2 * kind


def closer(kind: int) -> int:
    """Token id of the closer of a type (0-based)."""
    return opener(kind) + 1


def is_opener(tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos"]:
    """Mask of opening brackets."""
    return (tokens >= FIRST_BRACKET) & ((tokens - FIRST_BRACKET) % 2 == 0)


def is_closer(tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos"]:
    """Mask of closing brackets."""
    return (tokens >= FIRST_BRACKET) & ((tokens - FIRST_BRACKET) % 2 == 1)


@dataclass(frozen=True)
class Nesting:
    """Open brackets after each token."""

    depth: Int[Tensor, "batch pos"]
    """Number of open brackets after the token: d for an opener of depth d, d - 1 for its closer."""
    open_at: Int[Tensor, "batch pos level"]
    """Position of the open bracket of each level, from level 1; -1 if there is none."""
    top: Int[Tensor, "batch pos"]
    """Position of the innermost open bracket; -1 if none is open."""
    top_type: Int[Tensor, "batch pos"]
    """Type of that bracket (0-based); -1 if none is open."""


def nesting(tokens: Int[Tensor, "batch pos"], max_depth: int) -> Nesting:
    """Compute depth and open brackets after each token. The words are not checked."""
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
    """Position and description of the first error in a bracket sequence; None if it is a prefix of a word."""
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
            return position, f"{name!r} where {names[2 * due + 1]!r} is expected"
    return None


def matching_map(found: Nesting, tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """For each bracket, its partner."""
    before = torch.cat([torch.full_like(found.top[:, :1], -1), found.top[:, :-1]], 1)
    closes = key_map(torch.where(is_closer(tokens), before, -1)[..., None])
    return closes | closes.mT


def key_map(keys: Int[Tensor, "batch query some"]) -> Bool[Tensor, "batch query key"]:
    """Attention map of the keys at these positions; -1 for none."""
    batch, pos, _ = keys.shape
    marked = torch.zeros(batch, pos, pos + 1, dtype=torch.bool, device=keys.device)
    return marked.scatter(2, torch.where(keys >= 0, keys, pos), True)[..., :pos]
