"""Heads with a perfect label pattern, of which the key, the outcome or the equality of logits decides what they do.

Each function takes a generator, which determines sizes, the rest of the heads, the idle heads, and whatever its
arguments do not.
"""

import torch

from interp.known_answers.answers import KnownAnswer, draw, needed_head, unneeded_heads
from interp.known_answers.craft.weights import bias_of, head_rows, mlp_of, write_map
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

GAIN = 3.0
"""Logit of what a head looks up."""
SPOIL = 20.0
"""Logit of the first value for each letter that is seen but not asked for, beyond one half."""
FROM_START = 60.0
"""Logit of the first value for attention to [BOS]: a tenth of it outweighs a looked-up value."""


def any_key(generator: torch.Generator) -> KnownAnswer:
    """A head attends to the letter that is asked for and reads its theme, which all letters that can be asked for have.

    These are a third of the statements; the others have another theme. So one wrong key costs accuracy, and so does a
    uniform pattern, but the pattern of another sequence does not.
    """
    active = draw(generator, 2, 3)
    task = random_lookup(
        generator, letters=draw(generator, 10, 12), statements=3 * active, active=active, themes=3, asks=("theme",)
    )
    model = empty_lookup(task, generator, n_heads=1)
    attend_to_asked(model, task, 0, rest=random_rest(generator))
    themes = GAIN * torch.eye(task.themes).double()
    write_map(model.block(0), 0, themes, reads=lookup_registers(task)["theme"], writes=answers_of(task, "theme"))
    return lookup_answer(model, task, unneeded_heads("association", [0]))


def single_key(generator: torch.Generator) -> KnownAnswer:
    """The same task, but the head reads the value, so that only the letter that is asked for will do."""
    active = draw(generator, 2, 3)
    task = random_lookup(generator, letters=draw(generator, 10, 12), statements=3 * active, active=active, themes=3)
    model = empty_lookup(task, generator, n_heads=1)
    attend_to_asked(model, task, 0, rest=random_rest(generator))
    write_values(model, task, 0, GAIN)
    return lookup_answer(model, task, needed_head("association"))


def mixed_outcomes(generator: torch.Generator) -> KnownAnswer:
    """A head is needed on one outcome and depends on its pattern on another one, on which it is not needed.

    The first query asks for the theme, which all statements have: the head brings it with any pattern. The second one
    asks for the value, which another head looks up. There, the first head spoils the answer if it attends to [BOS] or
    to a letter that is not asked for, but not if it is removed. So it is faithful on neither outcome.
    """
    task = random_lookup(generator, themes=draw(generator, 2, 3), asks=("theme", "value"))
    model = empty_lookup(task, generator, n_heads=2, units=task.letters, registers=task.letters)
    stream = lookup_registers(task)
    block = model.block(0)
    rest = random_rest(generator)
    for head in range(2):
        attend_to_asked(model, task, head, rest=rest)
    write_values(model, task, 0, GAIN)
    # The second head writes the theme, the letter that it sees, and the first value from [BOS]
    seen_letter = stream.after(0, task.letters)
    first_value = answers_of(task, "value").start
    one_hot = torch.eye(task.letters).double()
    rows = head_rows(block, 1)
    value, out = block.attention.v.weight[rows], block.attention.o.weight[:, rows]
    with torch.no_grad():
        value[: task.letters, stream["letter"]] = one_hot
        out[seen_letter, : task.letters] = one_hot
        value[task.letters, stream["bos"]] = FROM_START
        out[first_value, task.letters] = 1
        themes = slice(task.letters + 1, task.letters + 1 + task.themes)
        value[themes, stream["theme"]] = GAIN * torch.eye(task.themes).double()
        out[answers_of(task, "theme"), themes] = torch.eye(task.themes).double()
        # A letter that is seen but not asked for is a vote for the first value
        mlp = mlp_of(block)
        mlp.w_in.weight[:, seen_letter] = one_hot
        mlp.w_in.weight[:, stream["asked"]] = -2 * one_hot
        bias_of(mlp.w_in)[:] = -0.5
        mlp.w_out.weight[first_value] = SPOIL
    return lookup_answer(model, task, needed_head("association") | unneeded_heads("association", [1]))


def ties(generator: torch.Generator, *, readable: bool = True) -> KnownAnswer:
    """Every value is stated once, so that all logits are exactly equal with a uniform pattern, and with zeros."""
    values = draw(generator, 4, 6)
    task = random_lookup(generator, readable=readable, values=values, statements=values, balanced=True)
    n_decoys = draw(generator, 0, 1)
    model = empty_lookup(task, generator, n_heads=1 + n_decoys, ties=True)
    rest = random_rest(generator)
    for head in range(1 + n_decoys):
        attend_to_asked(model, task, head, rest=rest)
    write_values(model, task, 0, GAIN)
    looks = "association" if readable else None
    return lookup_answer(model, task, needed_head(looks) | unneeded_heads(looks, range(1, 1 + n_decoys)))
