"""Patterns of heads that are added to the LEGO loop, and random votes and signs of the tokens that they attend to."""

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_choice
from hooks.model.blocks import Block
from interp.known_answers.answers import draw
from interp.known_answers.craft.weights import SHARP, copy_head, head_rows
from interp.known_answers.lego.loop import ASSOCIATION, loop_registers
from interp.tasks import Lego

Pattern = Literal["association", "manipulation", "unreadable"]
"""`association`: the same token elsewhere, or [BOS]. `manipulation`: the first token of the same clause. `unreadable`:
a place of another clause that no kind describes; from the first token of a clause that of another one."""
UNREADABLE = {5: (0, 4, 1, 4, 1), 3: (0, 0, 1)}
"""For each place of a clause, by its length, the place of another clause that the pattern attends to."""
LOOKS: dict[Pattern, str | None] = {"association": "association", "manipulation": "manipulation", "unreadable": None}
"""Label of each pattern."""


@torch.no_grad()
def write_patterns(
    block: Block, heads: Iterable[int], pattern: Pattern, task: Lego, generator: torch.Generator
) -> None:
    """Give several empty heads of a block the same pattern.

    Raises:
        ValueError: an unknown pattern.
    """
    check_choice("pattern", pattern, Pattern)
    keys = _first_of_clause(task) if pattern == "manipulation" else _another_clause(task, generator)
    positions = loop_registers(task)["position"]
    one_hot = torch.eye(task.n_ctx, dtype=torch.float64)
    for head in heads:
        if pattern == "association":
            copy_head(block, ASSOCIATION, head)
        else:
            rows = head_rows(block, head)
            block.attention.k.weight[rows][: task.n_ctx, positions] = SHARP**0.5 * one_hot
            block.attention.q.weight[rows][: task.n_ctx, positions] = SHARP**0.5 * one_hot[keys].T


def _first_of_clause(task: Lego) -> Int[Tensor, " pos"]:
    """For each position the first one of its clause; [BOS] and [EOS] for themselves."""
    positions = torch.arange(task.n_ctx)
    first = positions - (positions - 1) % task.clause_length
    return torch.where(_is_mark(task), positions, first)


def _another_clause(task: Lego, generator: torch.Generator) -> Int[Tensor, " pos"]:
    """For each position one of another clause (`UNREADABLE`); [BOS] and [EOS] for each other."""
    positions = torch.arange(task.n_ctx)
    clause = (positions - 1).div(task.clause_length, rounding_mode="floor")
    place = (positions - 1) % task.clause_length
    shifted = (clause + draw(generator, 1, task.n_vars - 1)) % task.n_vars
    keys = 1 + task.clause_length * shifted + torch.tensor(UNREADABLE[task.clause_length])[place]
    return torch.where(_is_mark(task), task.n_ctx - 1 - positions, keys)


def _is_mark(task: Lego) -> Bool[Tensor, " pos"]:
    """Whether a position is that of [BOS] or [EOS]."""
    positions = torch.arange(task.n_ctx)
    return (positions == 0) | (positions == task.n_ctx - 1)


def random_signs(task: Lego, generator: torch.Generator) -> Float[Tensor, " token"]:
    """A sign for each letter and each operation, half of them 1 and half -1; of an odd number, one is 0. Others: 0."""
    signs = torch.zeros(task.d_vocab, dtype=torch.float64)
    for names in (task.alphabet, task.group.elements):
        ids = torch.tensor([task.vocab.ids[name] for name in names])
        half = len(ids) // 2
        order = torch.randperm(len(ids), generator=generator)[: 2 * half]
        signs[ids[order]] = torch.tensor([1.0, -1.0] * half).double()
    return signs


def random_votes(task: Lego, generator: torch.Generator) -> Float[Tensor, "point token"]:
    """For each token a vote of 1 for a value and of -1 against another one; votes are even over values."""
    points = task.d_vocab_out
    votes = torch.zeros(points, task.d_vocab, dtype=torch.float64)
    for names in (task.alphabet, task.group.elements):
        order = torch.randperm(len(names), generator=generator).tolist()
        for turn, index in enumerate(order):
            token = task.vocab.ids[names[index]]
            votes[turn % points, token] = 1
            votes[(turn + draw(generator, 1, points - 1)) % points, token] = -1
    return votes
