"""Where do the two brackets of a pair stand in the one-hot of (bracket, depth)?

Both known answers are written over `BracketStates(encoding="pair")`: e(bracket, depth), one coordinate each. A pair
opens at its level d, 1 to `max_depth`, and closes at depth d - 1.

Axes: `type` of the bracket, `level` of the pair.
"""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from hooks import BracketStates
from interp.tasks import Dyck

TINY = 1e-30
"""The eps of every LayerNorm here: LN_C with C = 0, without dividing by zero."""


def bracket_states(task: Dyck) -> BracketStates:
    """The one-hots of (bracket, depth) of a task."""
    return BracketStates(encoding="pair", n_types=task.n_types, max_depth=task.max_depth)


def pair_coordinates(states: BracketStates) -> tuple[Int[Tensor, "type level"], Int[Tensor, "type level"]]:
    """The coordinate of each pair's opener, and that of its closer."""
    shape = states.n_types, 2, states.max_depth
    both = states.first_bracket + torch.arange(2 * states.n_types * states.max_depth).view(shape)
    return both[:, 0], both[:, 1]


@torch.no_grad()
def clear(model: nn.Module) -> None:
    """Set every parameter to zero."""
    for parameter in model.parameters():
        parameter.zero_()
