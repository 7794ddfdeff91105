"""Bracket sequences: depth, open brackets and matching brackets, computed from token ids."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.tasks.relations import keys_at

PAD, START, END, FIRST_BRACKET = range(4)
"""Token ids: padding, start, end, then the opener and closer of each type."""
PAIRS = ("()", "[]", "{}", "<>")


def bracket_names(n_types: int) -> tuple[str, ...]:
    """Bracket names, opener then closer of each type: `(`, `)`, `[`, `]`, ..., then `(5`, `)5`, ..."""
    names = [name for pair in PAIRS[:n_types] for name in pair]
    names += [f"{mark}{kind + 1}" for kind in range(len(PAIRS), n_types) for mark in "()"]
    return tuple(names)


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
    open_positions: Int[Tensor, "batch pos level"]
    """Position of the open bracket of each level, from level 1; -1 if there is none."""
    top: Int[Tensor, "batch pos"]
    """Position of the innermost open bracket; -1 if none is open."""
    top_type: Int[Tensor, "batch pos"]
    """Type of that bracket (0-based); -1 if none is open."""


def nesting(tokens: Int[Tensor, "batch pos"], max_depth: int) -> Nesting:
    """Compute depth and open brackets after each token. The words are not checked."""
    opens = is_opener(tokens)
    depth = (opens.long() - is_closer(tokens).long()).cumsum(1)
    # the last opener of each level, if that level is still open
    level = torch.arange(1, max_depth + 1, device=tokens.device)
    position = torch.arange(tokens.shape[1], device=tokens.device)[None, :, None]
    opens_level = opens[..., None] & (depth[..., None] == level)
    last_opener = torch.where(opens_level, position, -1).cummax(1).values
    open_positions = torch.where(level <= depth[..., None], last_opener, -1)
    # the innermost
    top = open_positions.max(-1).values
    kind = (tokens.gather(1, top.clamp_min(0)) - FIRST_BRACKET) // 2
    return Nesting(depth, open_positions, top, torch.where(top >= 0, kind, -1))


def first_fault(tokens: Int[Tensor, " pos"], n_types: int, max_depth: int) -> tuple[int, str] | None:
    """Position and description of the first error in a bracket sequence; None if it is a prefix of a word."""
    stack: list[int] = []  # types of the open brackets
    names = bracket_names(n_types)
    for position, token in enumerate(tokens.tolist()):
        if not 0 <= token - FIRST_BRACKET < 2 * n_types:
            return position, f"token {token} is not a bracket of this language"
        # each type has an opener, then a closer
        kind, closes = divmod(token - FIRST_BRACKET, 2)
        name = names[token - FIRST_BRACKET]
        if not closes:
            stack.append(kind)
            if len(stack) > max_depth:
                return position, f"{name!r} opens depth {len(stack)}; max_depth is {max_depth}"
        elif not stack:
            return position, f"{name!r} closes nothing"
        else:
            due = stack.pop()
            if due != kind:
                return position, f"{name!r} where {names[2 * due + 1]!r} is expected"
    return None


def matching_brackets(nesting: Nesting, tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """For each bracket, its partner."""
    # a closer's partner is the innermost bracket that was open before it
    top_before = torch.cat([torch.full_like(nesting.top[:, :1], -1), nesting.top[:, :-1]], 1)
    opener_of_closer = keys_at(torch.where(is_closer(tokens), top_before, -1)[..., None])
    return opener_of_closer | opener_of_closer.mT
