"""Dyck models in which two or three heads cancel, some of which also write noise that only the norm reads."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer
from hooks.checks import check_choice
from interp.known_answers.answers import KnownAnswer, draw, group_truth
from interp.known_answers.craft.cancelling import NOISE_SIZE, NoiseOf, cancelling_factors, noisy_heads, write_noise
from interp.known_answers.dyck.balanced import GROWTH, balance_head
from interp.known_answers.dyck.stack import attend_to_top, write_type
from interp.known_answers.dyck.start import Work, close_brackets, finish_dyck, scrap_of, start_dyck, worker_truth

LOUD = 30.0
"""Output of the loudest head of those that cancel, relative to that of the head that works."""


def dyck_cancelling(
    generator: torch.Generator,
    *,
    work: Work = "stack",
    pattern: Work = "stack",
    n_heads: int = 3,
    noise: NoiseOf = "none",
) -> KnownAnswer:
    """One head closes the brackets; two or three others write large outputs whose sum is zero.

    Without some but not all of them, every second level is wrong.

    Args:
        generator: Determines everything else.
        work: Algorithm of head 0.0.
        pattern: Pattern of the heads that cancel; `uniform` and `uneven` ones are readable as no kind.
        n_heads: Number of heads that cancel, 2 or 3.
        noise: Which of them also write noise, so that the cosine of their writes is near 0.

    Raises:
        ValueError: an unknown algorithm, pattern or noise, or another number of heads.
    """
    check_choice("work", work, Work)
    check_choice("pattern", pattern, Work)
    check_choice("noise", noise, NoiseOf)
    factors, heads = cancelling_factors(generator, n_heads), list(range(1, 1 + n_heads))
    model, task, states = start_dyck(generator, n_heads=1 + n_heads)
    close_brackets(model, states, work, seed=draw(generator, 0, 2**30))
    levels = torch.arange(states.max_depth, dtype=torch.float64)
    gains = LOUD * (-1.0) ** levels * (1 if work == "stack" else GROWTH ** (levels + 1))
    if pattern != "stack":  # balanced attention has the growth in its values, and divides by the number of brackets
        gains = LOUD * (-1.0) ** levels * task.n_ctx
    seed = draw(generator, 0, 2**30)
    for head, factor in zip(heads, factors, strict=True):
        _write_type(model, states, head, pattern, gains=factor * gains, seed=seed)
    for head in noisy_heads(heads, noise):
        first = scrap_of(states).stop + (head - 1) * NOISE_SIZE
        write_noise(
            model.block(0),
            head,
            reads=slice(0, states.width),
            writes=slice(first, first + NOISE_SIZE),
            first=states.n_types + 1,
            generator=generator,
        )
    truth = "misleading" if pattern == "stack" else "idle"
    truths = {(0, 0): worker_truth(work), **group_truth(truth, "stack_top" if pattern == "stack" else None, heads)}
    return finish_dyck(f"{work} head, {n_heads} {pattern} ones cancel, noise of {noise}", model, task, truths)


def _write_type(
    model: Transformer,
    states: BracketStates,
    head: int,
    pattern: Work,
    *,
    gains: Float[Tensor, " level"],
    seed: int,
) -> None:
    """Let a head write the type of the innermost open bracket, times a factor for each level."""
    if pattern == "stack":
        attend_to_top(model, states, head=head)
        write_type(model, states, head=head, share=gains)
    else:
        balance_head(model, states, head=head, attention=pattern, gains=gains, seed=seed)


CANCELLING: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "stack, three cancel": dyck_cancelling,
    "uniform, three cancel": partial(dyck_cancelling, work="uniform"),
    "uneven, three cancel": partial(dyck_cancelling, work="uneven"),
    "stack, two cancel unreadably": partial(dyck_cancelling, pattern="uniform", n_heads=2),
    "stack, three cancel unreadably": partial(dyck_cancelling, pattern="uneven"),
    "uniform, three cancel unreadably": partial(dyck_cancelling, work="uniform", pattern="uniform"),
    "stack, two cancel under noise": partial(dyck_cancelling, n_heads=2, noise="all"),
    "uneven, two cancel under the noise of one": partial(dyck_cancelling, work="uneven", n_heads=2, noise="one"),
    "uniform, three cancel under noise": partial(dyck_cancelling, work="uniform", noise="all"),
    "stack, two cancel unreadably under noise": partial(dyck_cancelling, pattern="uniform", n_heads=2, noise="all"),
    "stack, three cancel unreadably under noise": partial(dyck_cancelling, pattern="uneven", noise="all"),
}
"""Every variant by name."""
