"""One layer whose head attends to the innermost open bracket, so that its pattern shows the whole algorithm."""

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer
from hooks.typed import checks_types
from interp.known_answers.craft.weights import SHARP, head_rows
from interp.known_answers.dyck.one_hot import (
    bracket_states,
    empty_minimal,
    mirror_values,
    pair_coordinates,
    write_closers,
)
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START


@checks_types
def stack_dyck(task: Dyck) -> Transformer:
    """`presets.dyck_minimal` whose head attends to the top of the stack, and so closes brackets at any length.

    A query at depth d attends to the last opener of level d, which is the one still open; at depth 0, to [START]. The
    value is the opener's type.

    Args:
        task: Language of prefixes or complete words.

    Returns:
        The model, in float64.

    Source: the stack of Yao et al. 2021 (arXiv:2105.11115) Section 4, which according to the bounded-Dyck paper
    (arXiv:2312.01429) training does not find. Differs: one layer above a minimal first layer; with linear positions and
    large scores softmax selects the last key, where Yao et al. match the depth and then the last position.
    """
    states = bracket_states(task)
    model = empty_minimal(task, positions="linear")
    attend_to_top(model, states)
    write_type(model, states)
    write_closers(model, task)
    return model.eval()


@torch.no_grad()
def attend_to_top(model: Transformer, states: BracketStates, *, head: int = 0, layer: int = 0) -> None:
    """Let a head attend to the last opener of the query's depth, by linear positions.

    Head dimension d is level d, 0 for [START]; the dimension after the last prefers later keys.
    """
    block = model.block(layer)
    cfg = model.cfg
    later = SHARP * cfg.n_ctx * cfg.attn_scale  # positions are i / n_ctx: a key gains SHARP over its neighbour
    same_level = (SHARP * cfg.n_ctx + SHARP) * cfg.attn_scale  # another level is worse than any position is good
    rows = head_rows(block, head)
    last = states.max_depth + 1
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    opens, closes = pair_coordinates(states)
    # The query of an opener is its level, that of a closer the level below, which is the top of the stack after it
    for index in range(states.max_depth):
        query[index + 1, opens[:, index]] = same_level
        query[index, closes[:, index]] = same_level
        key[index + 1, opens[:, index]] = 1
    # At depth 0, [START] has the level
    query[0, START] = same_level
    key[0, START] = 1
    # Of the keys of a level, the last one
    query[last, START] = later
    query[last, torch.cat([opens, closes]).flatten()] = later
    key[last, -1] = 1


@torch.no_grad()
def write_type(
    model: Transformer,
    states: BracketStates,
    *,
    head: int = 0,
    share: float | Float[Tensor, " level"] = 1.0,
) -> None:
    """Write the values of a head: dimension i is openers of type i, the dimension after the last type is [START].

    `share` is the value of an opener, one number or one per level; [START] has the mean.
    """
    block = model.block(0)
    opens, _ = pair_coordinates(states)
    value = block.attention.v.weight[head_rows(block, head)]
    worth = torch.as_tensor(share, dtype=torch.float64).expand(states.max_depth)
    for kind in range(states.n_types):
        value[kind, opens[kind]] = worth
    value[states.n_types, START] = worth.mean()
    mirror_values(block, states.n_types + 1, head=head)
