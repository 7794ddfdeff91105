"""One layer that satisfies the balance condition exactly, or violates it by a given amount.

Balance (bounded-Dyck paper, Eq. 14): for every query, the terms u(query, key) = exp(score) * P W_V e of an opener and
of its closer cancel, so that matched pairs do not change the output. P is the norm's centring: it subtracts the mean.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer
from hooks.checks import check_choice
from hooks.model.blocks import Block
from hooks.randomness import seeded_generator
from hooks.typed import checks_types
from interp.known_answers.craft.weights import head_rows
from interp.known_answers.dyck.one_hot import (
    bracket_states,
    empty_minimal,
    mirror_values,
    pair_coordinates,
    write_closers,
)
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START

BalancedAttention = Literal["uniform", "uneven"]
GROWTH = 4.0
"""Value of a bracket relative to one a level further out; the top of the stack outweighs the rest."""
WIDEST_GAP = 2.0
"""Largest absolute difference of random scores, opener minus closer."""
WIDEST_COMMON = 0.25
"""Largest absolute value of the random score that a query has for both."""


@checks_types
def balanced_dyck(
    task: Dyck, *, imbalance: float = 0.0, attention: BalancedAttention = "uniform", seed: int = 0
) -> Transformer:
    """`presets.dyck_minimal` with weights that satisfy the balance condition, and so close brackets at any length.

    The opener of a pair of type i at level d adds 4^d along the i-th direction of the value space, and its closer
    subtracts it. The largest closer logit is that of the type on top of the stack; at depth 0 openers have the largest
    logits. Scores are computed from queries and keys, not hard-coded.

    Args:
        task: Language of prefixes or complete words.
        imbalance: Closers' values are multiplied by 1 + `imbalance`, so that every u(query, opener) + u(query, closer)
            is `imbalance` times u(query, closer) at balance.
        attention: `uniform`: all scores are 0. `uneven`: scores depend on query and key, and closers' values
            compensate: score(opener) - score(closer) is the same for every query (Eq. 11) but differs between pairs.
        seed: Determines uneven scores.

    Returns:
        The model, in float64.

    Raises:
        ValueError: an imbalance that is not finite, or an unknown attention.

    Source: bounded-Dyck paper (arXiv:2312.01429) Eq. 11, 12 and 14, embedding Eq. 19. Differs: the read-out is linear,
    as in the paper's experiments, and gives the likeliest closer, not exact probabilities (see `uniform_dyck`).
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
    gains: Float[Tensor, " level"] | None = None,
) -> None:
    """Let one head of a layer over `states` satisfy the balance condition.

    It writes, for each type, the sum of its brackets' values (the open ones, at balance).

    `gains` are factors of the values of each level, default: 1. The other options are those of `balanced_dyck`.
    """
    check_choice("attention", attention, BalancedAttention)
    # Scores: all zero, or random with one gap of each pair for every query (Eq. 11)
    opens, _ = pair_coordinates(states)
    gap = torch.zeros(opens.shape, dtype=torch.float64)
    if attention == "uneven":
        generator = seeded_generator(seed)
        shape = states.width, *opens.shape
        common = (torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1) * WIDEST_COMMON
        gap = (torch.rand(opens.shape, generator=generator, dtype=torch.float64) * 2 - 1) * WIDEST_GAP
        _write_scores(model, states, common, gap, head)
    # Values, which compensate for the gap
    gains = torch.ones(states.max_depth, dtype=torch.float64) if gains is None else gains
    _write_values(model.block(0), states, gap, closer_factor=1 + imbalance, gains=gains, head=head)


def _write_scores(
    model: Transformer,
    states: BracketStates,
    common: Float[Tensor, "query type level"],
    gap: Float[Tensor, "type level"],
    head: int,
) -> None:
    """Keys are e, and a query is its vector of scores.

    `common` is the score of a query for both brackets of a pair; `gap` is the opener's score minus the closer's, which
    must be the same for every query.
    """
    opens, closes = pair_coordinates(states)
    scores = torch.zeros(states.width, states.width, dtype=torch.float64)  # query, key
    scores[:, opens] = common + gap / 2
    scores[:, closes] = common - gap / 2
    attention = model.block(0).attention
    rows = head_rows(model.block(0), head)
    width = states.width
    attention.k.weight[rows][:width, :width] = torch.eye(width)
    attention.q.weight[rows][:width, :width] = scores.T * model.cfg.attn_scale


def _write_values(
    block: Block,
    states: BracketStates,
    gap: Float[Tensor, "type level"],
    *,
    closer_factor: float,
    gains: Float[Tensor, " level"],
    head: int,
) -> None:
    """Dimension i is brackets of type i, the dimension after the last type is [START]. P W_V is W_V."""
    opens, closes = pair_coordinates(states)
    magnitude = gains * GROWTH ** torch.arange(1, states.max_depth + 1, dtype=torch.float64)
    value = block.attention.v.weight[head_rows(block, head)]
    n_values = states.n_types + 1
    for kind in range(states.n_types):
        value[kind, opens[kind]] = magnitude * (-gap[kind] / 2).exp()
        value[kind, closes[kind]] = -magnitude * (gap[kind] / 2).exp() * closer_factor
    value[states.n_types, START] = 1
    mirror_values(block, n_values, head=head)
