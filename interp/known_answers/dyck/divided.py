"""Dyck models in which two heads divide the levels, so that each is needed for a part of the answers only."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from jaxtyping import Bool
from torch import Tensor

from hooks.checks import check_choice
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw
from interp.known_answers.dyck.balanced import GROWTH, balance_head
from interp.known_answers.dyck.stack import attend_to_top, write_type
from interp.known_answers.dyck.start import Work, finish_dyck, start_dyck, worker_truth
from interp.tasks import Dyck

LEAST_SHARE, MOST_SHARE = 0.3, 0.7
"""Range of each head's share of the answers."""
AGAINST = 0.4
"""A head that reads the stack counts against the type on the levels of the other head by this much."""
WORDS = 200
"""Number of words on which shares are measured."""


def dyck_divided(generator: torch.Generator, *, other: Work = "stack") -> KnownAnswer:
    """Head 0.0 reads the stack and closes the brackets of some levels, head 0.1 those of all other levels.

    Args:
        generator: Determines everything else.
        other: Algorithm of head 0.1: reading the `stack`, or balanced attention, `uniform` or `uneven`.

    Raises:
        ValueError: an unknown algorithm.
    """
    check_choice("other", other, Work)
    model, task, states = start_dyck(generator, n_heads=2)
    chosen = _levels(task, generator).double()
    attend_to_top(model, states)
    if other == "stack":
        for head, levels in enumerate((chosen, 1 - chosen)):
            attend_to_top(model, states, head=head)
            write_type(model, states, head=head, share=levels - AGAINST * (1 - levels))
    else:  # louder than balanced attention, which finds the type of a lower level where it has no values
        write_type(model, states, share=chosen * 2 * GROWTH**states.max_depth)
        balance_head(model, states, head=1, attention=other, gains=1 - chosen, seed=draw(generator, 0, 2**30))
    truths = {(0, 0): HeadTruth(truth="faithful", looks="stack_top"), (0, 1): worker_truth(other)}
    names = " ".join(str(level + 1) for level in chosen.nonzero().flatten().tolist())
    return finish_dyck(f"levels {names} by the stack, others {other}", model, task, truths)


def _levels(task: Dyck, generator: torch.Generator) -> Bool[Tensor, " level"]:
    """Random levels with 30 to 70 % of the answers of each outcome."""
    batch = task.sample(WORDS, generator=generator)
    answers = [batch.depth[batch.due >= 0], batch.depth[(batch.due >= 0) & batch.after_closer]]
    while True:
        chosen = torch.rand(task.max_depth, generator=generator) < 0.5
        shares = [float(chosen[depth - 1].double().mean()) for depth in answers]
        if min(shares) >= LEAST_SHARE and max(shares) <= MOST_SHARE:
            return chosen


DIVIDED: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "levels divided": dyck_divided,
    "levels divided with a uniform head": partial(dyck_divided, other="uniform"),
    "levels divided with an uneven head": partial(dyck_divided, other="uneven"),
}
"""Every variant by name."""
