"""One layer that meets the balance condition exactly, or misses it by as much as you say.

Balance (bounded-Dyck paper, Eq. 14): for every query, what attention adds for an opener and what it adds for its
closer, exp(score) * P W_V e, cancel. Then a closed pair leaves no trace, however many there are.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer
from hooks.model.blocks import Block
from interp.known_answers.craft.one_hot import (
    bracket_states,
    empty_minimal,
    mirror_values,
    pair_coordinates,
    write_closers,
)
from interp.known_answers.craft.wiring import head_rows
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START

BalancedAttention = Literal["uniform", "uneven"]
GROWTH = 4.0
"""A bracket weighs this many times as much as one a level further out: the top of the stack outweighs the rest."""
WIDEST_GAP, WIDEST_COMMON = 2.0, 0.25
"""Uneven scores: an opener's minus its closer's, and what a query gives both. Each is drawn up to this, either way."""


@dataclass(frozen=True)
class _Scores:
    """Scores that balance allows."""

    common: Float[Tensor, "query type level"]
    """What a query gives to both brackets of a pair."""
    gap: Float[Tensor, "type level"]
    """Opener's score minus closer's: the same for every query."""


def balanced_dyck(
    task: Dyck, *, imbalance: float = 0.0, attention: BalancedAttention = "uniform", seed: int = 0
) -> Transformer:
    """`presets.dyck_minimal` with weights that satisfy the balance condition, and so close brackets at any length.

    A pair of type i at level d adds 4^d, and takes it away, along one direction of the value space for each type. The
    largest of the closers' logits is the type of the top of the stack, and where nothing is open those of openers are.
    Heads are learned ones, with queries and keys, whose scores happen to be what they are.

    Args:
        task: The language; prefixes or complete words.
        imbalance: Closers' values are 1 + `imbalance` times what balance asks for, so that every
            u(query, opener) + u(query, closer) is `imbalance` times u(query, closer) at balance.
        attention: `uniform`: all scores are 0. `uneven`: scores depend on query and key, and closers' values make up
            for it: score(opener) - score(closer) is the same for every query (Eq. 11), other for each pair.
        seed: Decides uneven scores; without effect on uniform ones.

    Returns:
        The model, in float64.

    Raises:
        ValueError: an imbalance that is not finite, or an unknown attention.

    Source: bounded-Dyck paper (arXiv:2312.01429) Eq. 11, 12 and 14, embedding Eq. 19. Differs: the read-out is linear,
    after the paper's experiments, and tells the likeliest closer, not exact probabilities (`uniform_dyck` does).
    """
    model = empty_minimal(task)
    balance_head(model, bracket_states(task), imbalance=imbalance, attention=attention, seed=seed)
    write_closers(model, task)
    return model.eval()


@torch.no_grad()
def balance_head(
    model: Transformer,
    states: BracketStates,
    *,
    head: int = 0,
    imbalance: float = 0.0,
    attention: BalancedAttention = "uniform",
    seed: int = 0,
) -> None:
    """Let one head of a model meet the balance condition, and write each type's share.

    Args:
        model: One layer over `bracket_states`; changed in place.
        states: Its embedding.
        head: Which one.
        imbalance: As for `balanced_dyck`, and so are the others.
        attention: `uniform` or `uneven`.
        seed: Decides uneven scores.

    Raises:
        ValueError: an imbalance that is not finite, or an unknown attention.
    """
    if not math.isfinite(imbalance):
        raise ValueError(f"imbalance is {imbalance}; give a finite number, 0 for exact balance.")
    if attention not in get_args(BalancedAttention):
        raise ValueError(f"attention is {attention!r}; choose one of {', '.join(get_args(BalancedAttention))}.")
    scores = _uneven(states, seed) if attention == "uneven" else _even(states)
    _write_scores(model, states, scores, head)
    _write_values(model.block(0), states, scores.gap, 1 + imbalance, head)


def _even(states: BracketStates) -> _Scores:
    opens, _ = pair_coordinates(states)
    zeros = torch.zeros(states.width, *opens.shape, dtype=torch.float64)
    return _Scores(zeros, zeros[0])


def _uneven(states: BracketStates, seed: int) -> _Scores:
    generator = torch.Generator().manual_seed(seed)
    opens, _ = pair_coordinates(states)
    common = torch.rand(states.width, *opens.shape, generator=generator, dtype=torch.float64) * 2 - 1
    gap = torch.rand(opens.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return _Scores(common * WIDEST_COMMON, gap * WIDEST_GAP)


def _write_scores(model: Transformer, states: BracketStates, scores: _Scores, head: int) -> None:
    """Keys are e itself; a query holds its score for each of them. All zero where every score is."""
    attention, (opens, closes) = model.block(0).attention, pair_coordinates(states)
    wanted = torch.zeros(states.width, states.width, dtype=torch.float64)  # query, key
    wanted[:, opens] = scores.common + scores.gap / 2
    wanted[:, closes] = scores.common - scores.gap / 2
    if not wanted.any():
        return
    rows, width = head_rows(model.block(0), head), states.width
    attention.k.weight[rows][:width, :width] = torch.eye(width)
    attention.q.weight[rows][:width, :width] = wanted.T * model.cfg.attn_scale


def _write_values(
    block: Block, states: BracketStates, gap: Float[Tensor, "type level"], closers: float, head: int
) -> None:
    """Head dimension i: brackets of type i; the one after the last type: [START]. P W_V is W_V."""
    opens, closes = pair_coordinates(states)
    size = GROWTH ** torch.arange(1, states.max_depth + 1, dtype=torch.float64)
    value, symbols = block.attention.v.weight[head_rows(block, head)], states.n_types + 1
    for kind in range(states.n_types):
        value[kind, opens[kind]] = size * (-gap[kind] / 2).exp()
        value[kind, closes[kind]] = -size * (gap[kind] / 2).exp() * closers
    value[states.n_types, START] = 1
    mirror_values(block, symbols, head=head)
