"""Algorithms for bounded Dyck: looking up the top of the stack, and counting brackets of each type and level."""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.typed import checks_types
from interp.algorithms.algorithm import NO_ANSWER, Algorithm, Variable
from interp.tasks.base import Task
from interp.tasks.dyck import brackets
from interp.tasks.dyck.task import Dyck, DyckBatch

STATE = "bracket"
"""Name of the variable that both algorithms start from: a bracket with the depth after it."""


@checks_types
def bracket_stack(task: Task) -> Algorithm:
    """The top of the stack is looked up: the type of the last opener whose depth is the current depth.

    Variables, at each position: `bracket`, the token and the number of brackets open after it, as one number; `top`,
    the type of the innermost open bracket. Answers are the types of the closers that are due, after closers.

    Source: bounded Dyck (arXiv:2312.01429), stack-like attention of Ebrahimi et al. 2020 (arXiv:2010.04303).
    """
    task = Dyck.require(task, "bracket_stack is for Dyck.")

    def top(_: DyckBatch, state: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        # The last opener at the current depth, among the visible ones.
        token, depth = _token_and_depth(task, state)
        pos = state.shape[1]
        visible = torch.ones(pos, pos, dtype=torch.bool, device=state.device).tril()
        same_depth = depth[:, None] == depth[:, :, None]
        candidates = brackets.is_opener(token)[:, None] & same_depth & visible
        opener = torch.where(candidates, torch.arange(pos, device=state.device), NO_ANSWER).amax(-1)
        kind = (token.gather(1, opener.clamp_min(0)) - brackets.FIRST_BRACKET) // 2
        return torch.where((opener >= 0) & (depth > 0), kind, NO_ANSWER)

    return _with_top(task, "bracket stack", top)


@checks_types
def depth_counter(task: Task) -> Algorithm:
    """Brackets are counted: openers minus closers of each type and level; the top is the deepest level with one left.

    Variables as of `bracket_stack`. The two give the same answers, and differ if the depth of a bracket in the past is
    changed: a closer is never looked up, but counted. It predicts nothing where the counts are not those of a stack of
    this depth.

    Source: bounded Dyck (arXiv:2312.01429) Corollary 1 and Eq. 11: uniform attention, and the balance condition.
    """
    task = Dyck.require(task, "depth_counter is for Dyck.")

    def top(_: DyckBatch, state: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        # Openers minus closers of each type and level, up to each position.
        token, depth = _token_and_depth(task, state)
        closes = brackets.is_closer(token).long()
        sign = brackets.is_opener(token).long() - closes
        kind = ((token - brackets.FIRST_BRACKET) // 2).clamp_min(0)
        level = (depth + closes).clamp(1, task.max_depth)
        one_hot = torch.nn.functional.one_hot(kind * task.max_depth + level - 1, task.n_types * task.max_depth)
        counts = (one_hot * sign[..., None]).cumsum(1).unflatten(-1, (task.n_types, task.max_depth))
        # Of a stack, each level up to the deepest one has exactly one open bracket.
        n_open, kind_open = counts.sum(2), counts.argmax(2)
        deepest = (n_open > 0).sum(-1)
        levels = torch.arange(task.max_depth, device=state.device)
        is_stack = (n_open == (levels < deepest[..., None])).all(-1) & (counts >= 0).all(-1).all(-1)
        kind = kind_open.gather(2, (deepest - 1).clamp_min(0)[..., None])[..., 0]
        return torch.where(is_stack & (deepest == depth) & (depth > 0), kind, NO_ANSWER)

    return _with_top(task, "depth counter", top)


def _with_top(task: Dyck, name: str, top: Callable[..., Int[Tensor, "batch pos"]]) -> Algorithm:
    def state(batch: DyckBatch) -> Int[Tensor, "batch pos"]:
        return batch.tokens * (task.max_depth + 1) + batch.depth

    def answers(batch: DyckBatch, _, top: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch target"]:
        return torch.where(batch.after_closer, top, NO_ANSWER)

    return Algorithm(
        name=name,
        variables=(
            Variable(name=STATE, compute=state, per_position=True),
            Variable(name="top", parents=(STATE,), compute=top, per_position=True),
        ),
        answers=answers,
        choices=lambda logits: logits[..., brackets.closer(0) :: 2],
    )


def _token_and_depth(task: Dyck, state: Int[Tensor, "batch pos"]) -> tuple[Tensor, Tensor]:
    return state // (task.max_depth + 1), state % (task.max_depth + 1)
