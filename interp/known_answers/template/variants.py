"""Template models with a known truth about every head: same-or-different and copying, with decoys and idle heads.

Each function takes a generator, which determines the templates, the alphabets, the symbols' vectors, the number of idle
heads, and whatever its arguments do not.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch

from hooks.checks import check_choice
from interp.known_answers.answers import HeadTruth, KnownAnswer, group_truth
from interp.known_answers.template.cancelling import CANCELLING
from interp.known_answers.template.copy import (
    CONFIDENCE,
    attend_to,
    copied_from,
    write_symbol,
)
from interp.known_answers.template.count import COUNT
from interp.known_answers.template.hops import HOPS
from interp.known_answers.template.indirect import INDIRECT
from interp.known_answers.template.same import (
    EQUAL,
    attend_to_equal,
    mark_pairs,
    write_position,
)
from interp.known_answers.template.start import (
    COPY_AFAR,
    COPY_PREVIOUS,
    finish_copy,
    finish_same_answer,
    random_template,
    start_copy,
    start_same,
)

Decoy = Literal["zero", "constant"]
OFFSET = 0.5
"""Output of a head of constant values."""


def same_plain(generator: torch.Generator) -> KnownAnswer:
    """Same or different: an a I head attends to the equal symbol, another head gathers the result at [CLS]."""
    model, task, gather = start_same(generator, extra=0)
    mark_pairs(model, task)
    found = HeadTruth(truth="faithful", looks="association")
    return finish_same_answer("same or different", model, task, gather, {(0, EQUAL): found})


def same_redundant(generator: torch.Generator) -> KnownAnswer:
    """Two a I heads with equal output; one of them, with the mean of the other, is enough for the MLP."""
    model, task, gather = start_same(generator, extra=1)
    attend_to_equal(model, task, 1)
    write_position(model, task, 1)
    mark_pairs(model, task, between=(0.75, 0.95))
    heads = group_truth("redundant", "association", (0, 1))
    return finish_same_answer("same or different, found twice", model, task, gather, heads)


def same_decoy(generator: torch.Generator, *, decoy: Decoy = "zero") -> KnownAnswer:
    """One a I head works; another with the same pattern writes no information.

    Args:
        generator: Determines everything else.
        decoy: `zero`: a head of zero values. `constant`: its values are the same for every token, and the MLP subtracts
            them.

    Raises:
        ValueError: an unknown decoy.
    """
    check_choice("decoy", decoy, Decoy)
    model, task, gather = start_same(generator, extra=1)
    length = len(task.labelled[0].tokens)
    attend_to_equal(model, task, 1)
    constant = OFFSET if decoy == "constant" else 0.0
    write_position(model, task, 1, gains=torch.zeros(length), constant=constant)
    mark_pairs(model, task, between=(1 / length + constant, 1 / max(1, length - 1) + constant))
    heads = {
        (0, EQUAL): HeadTruth(truth="faithful", looks="association"),
        **group_truth("misleading", "association", (1,)),
    }
    return finish_same_answer(f"same or different, decoy {decoy}", model, task, gather, heads)


def copy_plain(generator: torch.Generator) -> KnownAnswer:
    """A b I head copies the last symbol but one."""
    task = random_template(generator, COPY_PREVIOUS)
    model = start_copy(generator, task, extra=0)
    attend_to(model, task, 0, copied_from(task))
    write_symbol(model, 0, CONFIDENCE)
    return finish_copy("copy", model, task, {(0, 0): HeadTruth(truth="faithful", looks="previous")})


def copy_redundant(generator: torch.Generator) -> KnownAnswer:
    """Two b I heads copy the last symbol but one."""
    task = random_template(generator, COPY_PREVIOUS)
    model = start_copy(generator, task, extra=1)
    for head in range(2):
        attend_to(model, task, head, copied_from(task))
        write_symbol(model, head, CONFIDENCE / 2)
    heads = group_truth("redundant", "previous", (0, 1))
    return finish_copy("copy, twice", model, task, heads)


def copy_hidden(generator: torch.Generator, *, decoy: bool = False) -> KnownAnswer:
    """A b I head copies the first symbol; every token attends to it, which is no relation between tokens.

    With `decoy`, another head attends to the previous token and writes nothing.
    """
    task = random_template(generator, COPY_AFAR)
    model = start_copy(generator, task, extra=int(decoy))
    attend_to(model, task, 0, copied_from(task, relative=False))
    write_symbol(model, 0, CONFIDENCE)
    heads = {(0, 0): HeadTruth(truth="hidden")}
    if decoy:
        attend_to(model, task, 1, _before)
        heads |= group_truth("misleading", "previous", (1,))
    return finish_copy("copy the first" + ", decoy zero" * decoy, model, task, heads)


def copy_misread(generator: torch.Generator) -> KnownAnswer:
    """A b I head copies the first symbol; only the last token attends there, all others to themselves."""
    task = random_template(generator, COPY_AFAR)
    model = start_copy(generator, task, extra=0)
    attend_to(model, task, 0, copied_from(task))
    write_symbol(model, 0, CONFIDENCE)
    return finish_copy("copy from afar", model, task, {(0, 0): HeadTruth(truth="misleading", looks="self")})


def copy_decoy(generator: torch.Generator) -> KnownAnswer:
    """One b I head copies the last symbol but one; another with the same pattern has b_h = 0."""
    task = random_template(generator, COPY_PREVIOUS)
    model = start_copy(generator, task, extra=1)
    for head, strength in enumerate((CONFIDENCE, 0.0)):
        attend_to(model, task, head, copied_from(task))
        write_symbol(model, head, strength)
    heads = {(0, 0): HeadTruth(truth="faithful", looks="previous"), **group_truth("misleading", "previous", (1,))}
    return finish_copy("copy, decoy zero", model, task, heads)


TEMPLATE_ANSWERS: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "same": same_plain,
    "same, redundant": same_redundant,
    "same, zero decoy": same_decoy,
    "same, constant decoy": partial(same_decoy, decoy="constant"),
    "copy": copy_plain,
    "copy, redundant": copy_redundant,
    "copy, zero decoy": copy_decoy,
    "copy, hidden": copy_hidden,
    "copy, hidden beside a decoy": partial(copy_hidden, decoy=True),
    "copy, misread": copy_misread,
    **CANCELLING,
    **INDIRECT,
    **HOPS,
    **COUNT,
}
"""Every variant by name."""


def _before(place: int) -> int:
    return max(0, place - 1)
