"""Patterns of heads that are added to the LEGO loop, and random votes and signs of the tokens that they attend to."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.checks import check_choice
from interp.known_answers.answers import draw
from interp.known_answers.craft.weights import SHARP, head_rows
from interp.known_answers.lego.loop import ASSOCIATION, loop_registers
from interp.known_answers.lego.variants import copy_pattern
from interp.tasks import Lego

Pattern = Literal["association", "manipulation", "unreadable"]
"""`association`: the same token elsewhere, or [BOS]. `manipulation`: the first token of the own clause. `unreadable`:
another place in another clause; from the first token of a clause, the operation."""
LOOKS: dict[Pattern, str | None] = {"association": "association", "manipulation": "manipulation", "unreadable": None}
"""Label of each pattern."""


def write_patterns(
    model: Transformer, layer: int, heads: range, pattern: Pattern, task: Lego, generator: torch.Generator
) -> None:
    """Give several empty heads of a layer the same pattern.

    Raises:
        ValueError: an unknown pattern.
    """
    check_choice("pattern", pattern, Pattern)
    places = first_of_clause(task) if pattern == "manipulation" else _elsewhere(task, generator)
    for head in heads:
        if pattern == "association":
            copy_pattern(model, layer, ASSOCIATION, head)
        else:
            attend_to_places(model, layer, head, places, task)


@torch.no_grad()
def attend_to_places(model: Transformer, layer: int, head: int, places: Int[Tensor, " pos"], task: Lego) -> None:
    """Let an empty head attend from every position to a fixed one."""
    block, positions = model.block(layer), loop_registers(task)["position"]
    rows, one_hot = head_rows(block, head), torch.eye(task.n_ctx, dtype=torch.float64)
    block.attention.k.weight[rows][: task.n_ctx, positions] = SHARP**0.5 * one_hot
    block.attention.q.weight[rows][: task.n_ctx, positions] = SHARP**0.5 * one_hot[places].T


def first_of_clause(task: Lego) -> Int[Tensor, " pos"]:
    """For each position the first one of its clause; [BOS] and [EOS] for themselves."""
    here = torch.arange(task.n_ctx)
    first = here - (here - 1) % task.clause_length
    return torch.where((here == 0) | (here == task.n_ctx - 1), here, first)


def _elsewhere(task: Lego, generator: torch.Generator) -> Int[Tensor, " pos"]:
    """For each position one of another clause, two places further; [BOS] and [EOS] for each other."""
    here = torch.arange(task.n_ctx)
    clause, place = (here - 1).div(task.clause_length, rounding_mode="floor"), (here - 1) % task.clause_length
    other = (clause + draw(generator, 1, task.n_vars - 1)) % task.n_vars
    there = 1 + task.clause_length * other + (place + 2) % task.clause_length
    return torch.where((here == 0) | (here == task.n_ctx - 1), task.n_ctx - 1 - here, there)


def random_signs(task: Lego, generator: torch.Generator) -> Float[Tensor, " token"]:
    """A sign for each letter and each operation, half of them 1 and half -1; of an odd number, one is 0. Others: 0."""
    signs = torch.zeros(task.d_vocab, dtype=torch.float64)
    for names in (task.alphabet, task.group.elements):
        ids = torch.tensor([task.vocab.ids[name] for name in names])
        half = len(ids) // 2
        signs[ids[torch.randperm(len(ids), generator=generator)[: 2 * half]]] = torch.tensor(
            [1.0, -1.0] * half
        ).double()
    return signs


def random_votes(task: Lego, generator: torch.Generator) -> Float[Tensor, "point token"]:
    """For each token a vote of 1 for a value and of -1 against another one; votes are even over values."""
    points = task.d_vocab_out
    votes = torch.zeros(points, task.d_vocab, dtype=torch.float64)
    for names in (task.alphabet, task.group.elements):
        order = torch.randperm(len(names), generator=generator).tolist()
        for turn, name in enumerate(names[index] for index in order):
            votes[turn % points, task.vocab.ids[name]] = 1
            votes[(turn + draw(generator, 1, points - 1)) % points, task.vocab.ids[name]] = -1
    return votes


PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
