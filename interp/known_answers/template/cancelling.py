"""Template models in which two or three heads cancel, some of which also write noise that nothing reads."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from hooks.checks import check_choice
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw, group_truth
from interp.known_answers.craft.cancelling import (
    NOISE_SIZE,
    NoiseOf,
    cancelling_factors,
    noisy_heads,
    write_map,
    write_noise,
)
from interp.known_answers.template.copy import CONFIDENCE, attend_to, copied_from, copy_registers, write_symbol
from interp.known_answers.template.same import EQUAL, attend_to_equal, mark_pairs, same_registers, write_position
from interp.known_answers.template.start import (
    COPY_PREVIOUS,
    OTHERWISE,
    finish_copy,
    finish_same_answer,
    random_template,
    start_copy,
    start_same,
)

LOUD = 30.0
"""Output of the loudest head of those that cancel, relative to that of the head that works."""
SIGNS = (1.0, -1.0, -1.0, 1.0, -1.0)
"""Signs of what they write for each position."""


def same_cancelling(
    generator: torch.Generator, *, n_heads: int = 3, readable: bool = True, noise: NoiseOf = "none"
) -> KnownAnswer:
    """One a I head works; two or three others write large outputs to the same register, whose sum is zero.

    Without some but not all of them, the pairs of equal symbols are not found, or pairs of others are. Layer 1 reads
    both (i, j) and (j, i).

    Args:
        generator: Determines everything else.
        n_heads: Number of heads that cancel, 2 or 3.
        readable: They attend to the equal symbol, too. If False, attention is uniform, and values of symbols random.
        noise: Which of them also write noise.

    Raises:
        ValueError: another number of heads, or an unknown noise.
    """
    check_choice("noise", noise, NoiseOf)
    factors, heads = cancelling_factors(generator, n_heads), list(range(1, 1 + n_heads))
    model, task, _ = start_same(generator, extra=n_heads, more=n_heads * NOISE_SIZE)
    at, block, length = same_registers(task), model.block(0), len(task.labelled[0].tokens)
    reads = at["position"] if readable else at["symbol"]
    votes = torch.randn(length, reads.stop - reads.start, generator=generator, dtype=torch.float64)
    for head, factor in zip(heads, factors, strict=True):
        if readable:
            attend_to_equal(model, task, head)
            write_position(model, task, head, gains=LOUD * factor * torch.tensor(SIGNS[:length]).double())
        else:
            write_map(block, head, LOUD * factor * votes, reads=reads, writes=at["found"])
    for index, head in enumerate(noisy_heads(heads, noise)):
        writes = at.after(index * NOISE_SIZE, NOISE_SIZE)
        write_noise(block, head, reads=reads, writes=writes, first=length, generator=generator)
    mark_pairs(model, task)
    looks = "association" if readable else None
    truths = {
        (0, EQUAL): HeadTruth(truth="faithful", looks="association"),
        **group_truth("misleading" if readable else "idle", looks, heads),
    }
    name = f"same or different, {n_heads} {'a I' if readable else 'uniform'} heads cancel, noise of {noise}"
    return finish_same_answer(name, model, task, "uniform", truths, otherwise=OTHERWISE)


def copy_cancelling(
    generator: torch.Generator, *, n_heads: int = 3, readable: bool = True, noise: NoiseOf = "none"
) -> KnownAnswer:
    """One b I head copies the last symbol but one; two or three others write random votes, whose sum is zero.

    Args:
        generator: Determines everything else.
        n_heads: Number of heads that cancel, 2 or 3.
        readable: Every token attends to itself in all of them. If False, attention is uniform.
        noise: Which of them also write noise.

    Raises:
        ValueError: another number of heads, or an unknown noise.
    """
    check_choice("noise", noise, NoiseOf)
    factors, heads = cancelling_factors(generator, n_heads), list(range(1, 1 + n_heads))
    task = random_template(generator, COPY_PREVIOUS)
    model = start_copy(generator, task, extra=n_heads, more=n_heads * NOISE_SIZE)
    at, block = copy_registers(task), model.block(0)
    attend_to(model, task, 0, copied_from(task))
    write_symbol(model, 0, CONFIDENCE)
    size = draw(generator, 3, NOISE_SIZE)
    voted = slice(at["symbol"].start, at["symbol"].start + size)
    votes = torch.randn(size, at["symbol"].stop - at["symbol"].start, generator=generator, dtype=torch.float64)
    for head, factor in zip(heads, factors, strict=True):
        if readable:
            attend_to(model, task, head, lambda place: place)
        write_map(block, head, LOUD * CONFIDENCE * factor * votes, reads=at["symbol"], writes=voted)
    for index, head in enumerate(noisy_heads(heads, noise)):
        writes = at.after(index * NOISE_SIZE, NOISE_SIZE)
        write_noise(block, head, reads=at["symbol"], writes=writes, first=size, generator=generator)
    truth, looks = ("misleading", "self") if readable else ("idle", None)
    truths = {(0, 0): HeadTruth(truth="faithful", looks="previous"), **group_truth(truth, looks, heads)}
    return finish_copy(f"copy, {n_heads} {looks or 'uniform'} heads cancel, noise of {noise}", model, task, truths)


CANCELLING: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "same, cancelled decoys": partial(same_cancelling, n_heads=2),
    "same, three cancel": same_cancelling,
    "same, two cancel unreadably": partial(same_cancelling, n_heads=2, readable=False),
    "same, three cancel unreadably": partial(same_cancelling, readable=False),
    "same, two cancel under noise": partial(same_cancelling, n_heads=2, noise="all"),
    "same, three cancel unreadably under noise": partial(same_cancelling, readable=False, noise="all"),
    "copy, cancelled decoys": partial(copy_cancelling, n_heads=2),
    "copy, three cancel": copy_cancelling,
    "copy, two cancel unreadably": partial(copy_cancelling, n_heads=2, readable=False),
    "copy, three cancel unreadably": partial(copy_cancelling, readable=False),
    "copy, two cancel under noise": partial(copy_cancelling, n_heads=2, noise="all"),
    "copy, two cancel under the noise of one": partial(copy_cancelling, n_heads=2, noise="one"),
    "copy, three cancel under noise": partial(copy_cancelling, noise="all"),
    "copy, two cancel unreadably under noise": partial(copy_cancelling, n_heads=2, readable=False, noise="all"),
}
"""Every variant by name."""
