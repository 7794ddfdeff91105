"""A head that reads the stack: it looks at the innermost open bracket, and what it finds there is the answer.

The model that a reader of attention patterns hopes to find in bounded Dyck: everything it does shows in its pattern.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer
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

SHARP = 60.0
"""Score that the bracket before the last of a level lacks against the last: exp(-60) is 9e-27."""


def stack_dyck(task: Dyck) -> Transformer:
    """`presets.dyck_minimal` whose one head looks at the top of the stack, and so closes brackets at any length.

    A query at depth d looks at openers of level d, and of those at the last: it is the one that is still open. At depth
    0 it looks at [START]. The value is the opener's type.

    Args:
        task: The language; prefixes or complete words.

    Returns:
        The model, in float64.

    Source: the stack of Yao et al. 2021 (arXiv:2105.11115) Section 4, which the bounded-Dyck paper (arXiv:2312.01429)
    argues is not what training finds. Differs: one layer above a minimal first layer; positions are linear and a large
    score makes softmax choose the last key, where Yao et al. look for the depth and the last position in turn.
    """
    states = bracket_states(task)
    model = empty_minimal(task, positions="linear")
    look_at_the_top(model, states)
    read_its_type(model, states)
    write_closers(model, task)
    return model.eval()


@torch.no_grad()
def look_at_the_top(model: Transformer, states: BracketStates, *, head: int = 0) -> None:
    """Queries and keys of one head; positions are linear.

    Head dimension d: level d, and [START] for 0; the one after the last: later is better.
    """
    block, levels, cfg = model.block(0), states.max_depth + 1, model.cfg
    later = SHARP * cfg.n_ctx  # positions are i / n_ctx: a key gains SHARP over its neighbour
    apart = later + SHARP  # and another level is worse than any position is good
    rows = head_rows(block, head)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    opens, closes = pair_coordinates(states)
    for pair_level in range(1, levels):
        query[pair_level, opens[:, pair_level - 1]] = apart * cfg.attn_scale
        query[pair_level - 1, closes[:, pair_level - 1]] = apart * cfg.attn_scale
        key[pair_level, opens[:, pair_level - 1]] = 1
    query[0, START], key[0, START] = apart * cfg.attn_scale, 1
    every = [START, *opens.flatten().tolist(), *closes.flatten().tolist()]
    query[levels, every], key[levels, -1] = later * cfg.attn_scale, 1


@torch.no_grad()
def read_its_type(
    model: Transformer,
    states: BracketStates,
    *,
    head: int = 0,
    share: float | Float[Tensor, " level"] = 1.0,
) -> None:
    """Values of one head, and where they are written.

    Args:
        model: One layer over `bracket_states`; changed in place.
        states: Its embedding.
        head: Which one. Head dimension i: openers of type i; the one after the last type: [START].
        share: What an opener is worth, at every level or at each; [START] is worth the mean.
    """
    block, (opens, _) = model.block(0), pair_coordinates(states)
    value = block.attention.v.weight[head_rows(block, head)]
    worth = torch.as_tensor(share, dtype=torch.float64).expand(states.max_depth)
    for kind in range(states.n_types):
        value[kind, opens[kind]] = worth
    value[states.n_types, START] = worth.mean()
    mirror_values(block, states.n_types + 1, head=head)
