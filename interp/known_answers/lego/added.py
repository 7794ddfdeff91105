"""LEGO loops with heads in one layer that do not resolve the chain: they cancel, or the answer depends on their output.

If what they bring is wrong at a variable, the read-out always predicts the first value there. Tasks have at least two
variables. The generator determines the layer, weights, and idle heads, of which each layer has `idle`. An unknown
pattern raises ValueError.
"""

from typing import Literal

import torch

from hooks import Transformer
from interp.known_answers.answers import ZERO_ONLY, KnownAnswer, draw, redundant_heads, unneeded_heads
from interp.known_answers.craft.cancelling import NOISE_SIZE, NoiseOf, cancelling_factors, write_noise
from interp.known_answers.craft.weights import balance, bias_of, head_rows, mlp_of, write_map
from interp.known_answers.lego.loop import CONFIDENCE, loop_registers
from interp.known_answers.lego.patterns import LOOKS, Pattern, random_signs, random_votes, write_patterns
from interp.known_answers.lego.variants import loop_answer, loop_with_idle_heads
from interp.tasks import Lego

LOUD = 12.0
"""Vote of the loudest of the heads that cancel, relative to the value in the same register."""
CLOSED = 5 * CONFIDENCE
"""Logit of the first value where the gate is closed: an opening of 0.8 is enough to outweigh it."""
LAPSE = 2.25 * CONFIDENCE
"""Logit of the first value for a lapse of 1."""
SPOIL = 3.2
"""Factor of what one head brings, from which what two others undo is subtracted."""
SPARED = 2.3
"""Amount above which the difference is a lapse."""


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

    Raises:
        ValueError: another number of heads.
    """
    heads = range(2, 2 + n_heads)
    factors = cancelling_factors(generator, n_heads)
    model = loop_with_idle_heads(task, generator, idle, heads=n_heads, registers=n_heads * NOISE_SIZE, tied=False)
    layer = draw(generator, 0, model.cfg.n_layers - 1)
    block = model.block(layer)
    stream = loop_registers(task)
    votes = LOUD * random_votes(task, generator)
    write_patterns(block, heads, pattern, task, generator)
    # The same votes, times factors whose sum is zero
    for head, factor in zip(heads, factors, strict=True):
        write_map(block, head, factor * votes, reads=stream["token"], writes=stream["value"])
    spare = stream.after(0).start
    write_noise(block, heads, noise, reads=stream["token"], spare=spare, first=len(votes), generator=generator)
    balance(model)
    return loop_answer(task, model, unneeded_heads(LOOKS[pattern], heads, layer=layer))


def magnitude(
    task: Lego, generator: torch.Generator, *, pattern: Literal["association", "manipulation"], idle: int = 0
) -> KnownAnswer:
    """The answer passes only if the magnitude of what a head brings is near 1.

    Every token has a sign, +1 or -1, and the head brings the sign of the token that it attends to. So any token is as
    good as any other, and so is the output on another sequence, but zero, the mean, and an even pattern are too small.
    """
    model, layer = _loop_with_gate(task, generator, heads=1, idle=idle)
    write_patterns(model.block(layer), [2], pattern, task, generator)
    # A sign for every token, also for those that `random_signs` leaves without one
    signs = random_signs(task, generator)
    coins = 1 - 2 * torch.randint(2, signs.shape, generator=generator).double()
    signs = torch.where(signs == 0, coins, signs)
    stream = loop_registers(task)
    brought, gate = stream.after(0), stream.after(1)
    write_map(model.block(layer), 2, signs[None], reads=stream["token"], writes=brought)
    # The MLP writes the magnitude to the gate
    _write_units(model, layer, reads=((brought, 1.0),), writes=gate, bias=0.0)
    _read_gate(model, gate)
    needed = {"zero": True, "mean": True, "resample": False}
    return loop_answer(task, model, unneeded_heads(LOOKS[pattern], [2], layer=layer, needed=needed))


def constant(task: Lego, generator: torch.Generator, *, pattern: Pattern, idle: int = 0) -> KnownAnswer:
    """The answer passes only if a head brings 1, which it does from every token: it is needed under zero only."""
    model, layer = _loop_with_gate(task, generator, heads=1, idle=idle)
    block = model.block(layer)
    gate = loop_registers(task).after(1)
    write_patterns(block, [2], pattern, task, generator)
    rows = head_rows(block, 2)
    with torch.no_grad():
        bias_of(block.attention.v)[rows.start] = 1
        block.attention.o.weight[gate, rows.start] = 1
    _read_gate(model, gate)
    return loop_answer(task, model, unneeded_heads(LOOKS[pattern], [2], layer=layer, needed=ZERO_ONLY))


def masked(task: Lego, generator: torch.Generator, *, pattern: Pattern, idle: int = 0) -> KnownAnswer:
    """Two heads, either of which undoes the harm that a third one does.

    All three bring the sign of the token that they attend to. Without both of the two the answer is lost; without the
    third nothing is, with or without the two: they back each other up, although all three can go together.
    """
    model, layer = _loop_with_gate(task, generator, heads=3, idle=idle)
    write_patterns(model.block(layer), range(2, 5), pattern, task, generator)
    signs = random_signs(task, generator)[None]
    stream = loop_registers(task)
    undone, lapse, harm = stream.after(0), stream.after(1), stream.after(2)
    for head, register in ((2, undone), (3, undone), (4, harm)):
        write_map(model.block(layer), head, signs, reads=stream["token"], writes=register)
    # The MLP writes a lapse where the harm is not undone, and the read-out answers wrongly there
    _write_units(model, layer, reads=((harm, SPOIL), (undone, -1.0)), writes=lapse, bias=-SPARED)
    with torch.no_grad():
        model.unembed.weight[0, lapse] = LAPSE
    balance(model)
    truths = redundant_heads(LOOKS[pattern], (2, 3), layer=layer) | unneeded_heads(LOOKS[pattern], [4], layer=layer)
    return loop_answer(task, model, truths)


def _loop_with_gate(task: Lego, generator: torch.Generator, *, heads: int, idle: int) -> tuple[Transformer, int]:
    """The loop with empty heads, three coordinates and two hidden units, and a random layer."""
    model = loop_with_idle_heads(task, generator, idle, heads=heads, registers=3, units=2, tied=False)
    return model, draw(generator, 0, model.cfg.n_layers - 1)


@torch.no_grad()
def _write_units(
    model: Transformer, layer: int, *, reads: tuple[tuple[slice, float], ...], writes: slice, bias: float
) -> None:
    """Two hidden units of a layer add up to relu(x + bias) + relu(-x + bias), x being a sum of coordinates."""
    mlp = mlp_of(model.block(layer))
    for unit, sign in ((-1, 1), (-2, -1)):
        for coordinate, weight in reads:
            mlp.w_in.weight[unit, coordinate] = sign * weight
        bias_of(mlp.w_in)[unit] = bias
        mlp.w_out.weight[writes, unit] = 1


@torch.no_grad()
def _read_gate(model: Transformer, gate: slice) -> None:
    """Read out the first value unless the gate is 1."""
    model.unembed.weight[0, gate] = -CLOSED
    model.b_U[0] = CLOSED
    balance(model)
