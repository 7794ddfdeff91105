"""LEGO loops whose answer passes only if what other heads bring has the right magnitude, sum or constant.

These heads are added to one layer and do not take part in resolving the chain. If what they bring is wrong at a
variable, the read-out always predicts the first value there.
"""

from typing import Literal

import torch
from torch import Tensor

from hooks import Transformer
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw, group_truth
from interp.known_answers.craft.cancelling import write_map
from interp.known_answers.craft.weights import balance, bias_of, head_rows, mlp_of
from interp.known_answers.lego.loop import CONFIDENCE, loop_registers
from interp.known_answers.lego.patterns import LOOKS, Pattern, random_signs, write_patterns
from interp.known_answers.lego.variants import enlarged_loop, loop_answer
from interp.tasks import Lego

CLOSED = 5 * CONFIDENCE
"""Logit of the first value where the gate is closed: an opening of 0.8 is enough to outweigh it."""
LAPSE = 2.25 * CONFIDENCE
"""Logit of the first value for a lapse of 1."""
SPOIL, SPARED = 3.2, 2.3
"""A lapse is SPOIL times what one head brings, minus what two others undo, minus SPARED, if that is positive."""


def magnitude(
    task: Lego, generator: torch.Generator, *, pattern: Literal["association", "manipulation"], idle: int = 0
) -> KnownAnswer:
    """The answer passes only if the magnitude of what a head brings is near 1.

    Every token has a sign, +1 or -1, and the head brings the sign of the token that it attends to. So any token is as
    good as any other, and so is the output on another sequence, but zero, the mean, and an even pattern are too small.

    Raises:
        ValueError: an unknown pattern.
    """
    model, layer = _start(task, generator, heads=1, idle=idle)
    write_patterns(model, layer, range(2, 3), pattern, task, generator)
    signs = random_signs(task, generator)
    others = 1 - 2 * torch.randint(2, signs.shape, generator=generator).double()
    at, brought, gate = loop_registers(task), *_registers(task)
    write_map(
        model.block(layer), 2, torch.where(signs == 0, others, signs)[None], reads=at["token"], writes=_only(brought)
    )
    _write_units(model, layer, reads=((brought, 1.0),), writes=gate, bias=0.0)
    _read_gate(model, gate)
    needed = {"zero": True, "mean": True, "resample": False}
    truth = HeadTruth(truth="misleading", looks=LOOKS[pattern], needed=needed)
    return loop_answer(f"loop gated by a magnitude ({pattern}, layer {layer})", task, model, {(layer, 2): truth})


def constant(task: Lego, generator: torch.Generator, *, pattern: Pattern, idle: int = 0) -> KnownAnswer:
    """The answer passes only if a head brings 1, which it does from every token: it is needed under zero only.

    Raises:
        ValueError: an unknown pattern.
    """
    model, layer = _start(task, generator, heads=1, idle=idle)
    write_patterns(model, layer, range(2, 3), pattern, task, generator)
    block, (_, gate) = model.block(layer), _registers(task)
    with torch.no_grad():
        rows = head_rows(block, 2)
        bias_of(block.attention.v)[rows.start] = 1
        block.attention.o.weight[gate, rows.start] = 1
    _read_gate(model, gate)
    looks = LOOKS[pattern]
    needed = {"zero": True, "mean": False, "resample": False}
    truth = HeadTruth(truth="misleading" if looks else "idle", looks=looks, needed=needed)
    return loop_answer(f"loop gated by a constant ({pattern}, layer {layer})", task, model, {(layer, 2): truth})


def masked(task: Lego, generator: torch.Generator, *, pattern: Pattern, idle: int = 0) -> KnownAnswer:
    """Two heads, either of which undoes the harm that a third one does.

    All three bring the sign of the token that they attend to. Without both of the two the answer is lost; without the
    third nothing is, with or without the two: they back each other up, although all three can go together.

    Raises:
        ValueError: an unknown pattern.
    """
    model, layer = _start(task, generator, heads=3, idle=idle)
    write_patterns(model, layer, range(2, 5), pattern, task, generator)
    signs, at, (undone, lapse) = random_signs(task, generator)[None], loop_registers(task), _registers(task)
    harm = lapse + 1
    for head, into in ((2, undone), (3, undone), (4, harm)):
        write_map(model.block(layer), head, signs, reads=at["token"], writes=_only(into))
    _write_units(model, layer, reads=((harm, SPOIL), (undone, -1.0)), writes=lapse, bias=-SPARED)
    with torch.no_grad():
        model.unembed.weight[0, lapse] = LAPSE
    balance(model)
    looks = LOOKS[pattern]
    truths = group_truth("redundant", looks, (2, 3), layer=layer)
    truths |= group_truth("misleading" if looks else "idle", looks, (4,), layer=layer)
    return loop_answer(f"loop with masked redundancy ({pattern}, layer {layer})", task, model, truths)


def _start(task: Lego, generator: torch.Generator, *, heads: int, idle: int) -> tuple[Transformer, int]:
    """The loop with empty heads, three coordinates and two hidden units, and a random layer."""
    model = enlarged_loop(task, generator, idle=idle, heads=heads, registers=3, units=2, untie=True)
    return model, draw(generator, 0, model.cfg.n_layers - 1)


def _registers(task: Lego) -> tuple[int, int]:
    """Coordinates of what heads bring, and of what passes or spoils the answer."""
    first = loop_registers(task).d_model - 1
    return first, first + 1


def _only(coordinate: int) -> slice:
    return slice(coordinate, coordinate + 1)


@torch.no_grad()
def _write_units(
    model: Transformer, layer: int, *, reads: tuple[tuple[int, float], ...], writes: int, bias: float
) -> None:
    """Two hidden units of a layer add up to relu(x + bias) + relu(-x + bias), x being a sum of coordinates."""
    mlp = mlp_of(model.block(layer))
    for unit, sign in ((-1, 1), (-2, -1)):
        for coordinate, weight in reads:
            mlp.w_in.weight[unit, coordinate] = sign * weight
        bias_of(mlp.w_in)[unit] = bias
        mlp.w_out.weight[writes, unit] = 1


@torch.no_grad()
def _read_gate(model: Transformer, gate: int) -> None:
    """Read out the first value unless the gate is 1."""
    model.unembed.weight[0, gate] = -CLOSED
    bias: Tensor = model.b_U
    bias[0] = CLOSED
    balance(model)
