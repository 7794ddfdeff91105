"""Heads that are needed in some of the sequences: in an eighth, in a rare stratum, or where another path is blocked.

Each function takes a generator, which determines sizes, shares, the rest of the heads, the idle heads, and whatever its
arguments do not.
"""

from typing import Any

import torch

from hooks import Transformer
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw, needed_head, unneeded_heads
from interp.known_answers.craft.weights import bias_of, mlp_of, write_map
from interp.known_answers.lookup.model import (
    answers_of,
    attend_to_asked,
    empty_lookup,
    lookup_answer,
    lookup_registers,
    random_lookup,
    random_rest,
    write_values,
)
from interp.known_answers.lookup.task import Lookup

EIGHTH = (0.1, 0.16)
"""Range of the share of queries for rare letters: without their head 0.5 to 0.8 of the loss that counts is lost."""
RARE = (0.055, 0.07)
"""Range of their share where it is an outcome. Of 1,024 sequences these are 56 to 72: with four heads 42 are enough to
show that one is needed, and 56 or more for the tests of its label."""
HALF = (0.53, 0.6)
"""Range of the share of queries that one head alone can answer."""
GAIN = 3.0
"""Logit of the value that a head looks up."""
OPEN, BLOCKED = 10.0, 13.0
"""Logit of a hint, and what a gate of 1 takes from it: nothing is left, but of the mean gate about a quarter is."""


def eighth(generator: torch.Generator, *, readable: bool = True) -> KnownAnswer:
    """One head answers most queries, another one an eighth of them, exactly as it looks: its cost is marginal."""
    task = _with_rare_letters(generator, EIGHTH, readable=readable)
    looks = "association" if readable else None
    truths = needed_head(looks) | {(0, 1): HeadTruth(truth="marginal", looks=looks)}
    return lookup_answer(_divided(task, generator), task, truths)


def rare_stratum(generator: torch.Generator) -> KnownAnswer:
    """One head answers most queries, another one those for rare letters, on which the accuracy is an outcome."""
    task = _with_rare_letters(generator, RARE, named_stratum=True)
    return lookup_answer(
        _divided(task, generator), task, needed_head("association") | needed_head("association", head=1)
    )


def _with_rare_letters(
    generator: torch.Generator, share: tuple[float, float], *, readable: bool = True, **options: Any
) -> Lookup:
    """A random task in which half of the letters are asked for rarely: a statement is as often about one of them."""
    letters = draw(generator, 8, 12)
    return random_lookup(
        generator,
        readable=readable,
        letters=letters,
        rare_letters=letters // 2,
        share=_share(generator, share),
        **options,
    )


def _divided(task: Lookup, generator: torch.Generator) -> Transformer:
    """A model with a head for common letters and another one for rare letters, both with the pattern for all."""
    model = empty_lookup(task, generator, n_heads=2)
    rest = random_rest(generator)
    for head in range(2):
        attend_to_asked(model, task, head, rest=rest)
    write_values(model, task, 0, GAIN, rare=False)
    write_values(model, task, 1, GAIN, common=False)
    return model


def reroute(generator: torch.Generator, *, readable: bool = True) -> KnownAnswer:
    """A head looks letters up, and in half of the queries nothing else does: another head blocks the right hint.

    Without the second head the hint is enough for every query, with or without the first head. So both can go together,
    though the first is needed: the second does not cancel it, but reroutes the answer.
    """
    task = _with_rare_letters(generator, HALF, readable=readable, hint="right")
    model = empty_lookup(task, generator, n_heads=2, units=task.values, registers=1)
    stream = lookup_registers(task)
    rest = random_rest(generator)
    for head in range(2):
        attend_to_asked(model, task, head, rest=rest)
    write_values(model, task, 0, GAIN)
    # The second head sets the gate to 1 if a rare letter is asked for, and the MLP passes the hint if the gate is 0
    gate = stream.after(0)
    write_map(model.block(0), 1, torch.ones(1, task.values).double(), reads=stream["rare value"], writes=gate)
    mlp = mlp_of(model.block(0))
    with torch.no_grad():
        mlp.w_in.weight[:, stream["hint"]] = OPEN * torch.eye(task.values).double()
        mlp.w_in.weight[:, gate] = -BLOCKED
        mlp.w_out.weight[answers_of(task, "value")] = torch.eye(task.values).double()
        bias_of(mlp.w_in).zero_()
    looks = "association" if readable else None
    return lookup_answer(model, task, needed_head(looks) | unneeded_heads(looks, [1]))


def _share(generator: torch.Generator, bounds: tuple[float, float]) -> float:
    """A random share."""
    low, high = bounds
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))
