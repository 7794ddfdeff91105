"""LEGO loops with two or three heads that cancel: in all that they write, or only where anything is read."""

from typing import Literal

import torch

from interp.known_answers.answers import KnownAnswer, draw, group_truth
from interp.known_answers.craft.cancelling import (
    NOISE_SIZE,
    NoiseOf,
    cancelling_factors,
    noisy_heads,
    write_map,
    write_noise,
)
from interp.known_answers.craft.weights import balance
from interp.known_answers.lego.loop import loop_registers
from interp.known_answers.lego.patterns import LOOKS, Pattern, random_votes, write_patterns
from interp.known_answers.lego.variants import enlarged_loop, loop_answer
from interp.tasks import Lego

LOUD = 12.0
"""Vote of the loudest of the heads that cancel, relative to the value in the same register."""


def cancelling(
    task: Lego,
    generator: torch.Generator,
    *,
    n_heads: Literal[2, 3] = 3,
    noise: NoiseOf = "none",
    pattern: Pattern = "association",
    idle: int = 0,
) -> KnownAnswer:
    """The loop with heads in one layer that vote for values by the token that they attend to, and cancel.

    Three heads write +a, -b and -c times the votes, a = b + c: without one or two of them the model fails, without all
    three it does not. With noise, heads also write to coordinates that nothing reads, where they do not cancel.

    Args:
        task: Task of at least two variables.
        generator: Determines the layer, votes, factors, noise and idle heads.
        n_heads: Number of heads that cancel.
        noise: Which of them write noise.
        pattern: Pattern of all of them.
        idle: Number of idle heads per layer.

    Raises:
        ValueError: an unknown pattern, or another number of heads.
    """
    heads, factors = range(2, 2 + n_heads), cancelling_factors(generator, n_heads)
    model = enlarged_loop(task, generator, idle=idle, heads=n_heads, registers=n_heads * NOISE_SIZE, untie=True)
    layer = draw(generator, 0, model.cfg.n_layers - 1)
    at, block, votes = loop_registers(task), model.block(layer), LOUD * random_votes(task, generator)
    write_patterns(model, layer, heads, pattern, task, generator)
    for head, factor in zip(heads, factors, strict=True):
        write_map(block, head, factor * votes, reads=at["token"], writes=at["value"])
    for head in noisy_heads(list(heads), noise):
        start = at.d_model - 1 + (head - 2) * NOISE_SIZE
        own = slice(start, start + NOISE_SIZE)
        write_noise(block, head, reads=at["token"], writes=own, first=len(votes), generator=generator)
    balance(model)
    looks = LOOKS[pattern]
    truths = group_truth("misleading" if looks else "idle", looks, heads, layer=layer)
    return loop_answer(f"loop, {n_heads} heads cancel ({pattern}, noise {noise}, layer {layer})", task, model, truths)
