"""Copying in two hops, one in each layer, and copying from a place that depends on the kind of template."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch

from interp.known_answers.answers import HeadTruth, KnownAnswer
from interp.known_answers.craft.weights import SHARP, head_rows
from interp.known_answers.template.copy import CONFIDENCE, Place, attend_to, copy_registers, write_symbol
from interp.known_answers.template.start import finish_copy, random_template, start_copy

FROM_TWO_BACK = (("abcd -> b",), ("abcde -> c",), ("abcdef -> d",))
FROM_FOUR_BACK = (("abcdef -> b",), ("abcdefg -> c",), ("abcdefgh -> d",))
KINDS = (("abX -> b", "abY -> a"), ("abcdX -> d", "abcdY -> a"), ("abcdeX -> e", "abcdeY -> b"))
"""Two kinds of templates: before X the last symbol is the label, before Y another one."""
LEAST, MOST = 0.35, 0.65
"""Range of the share of each kind."""
FAINT = 0.1
"""Norm of the vectors of X and Y, so that copies of them are no answer."""
LOUDER = 3.0
"""Strength of the head that copies before Y, relative to the one that always copies the last symbol."""


def copy_hops(generator: torch.Generator, *, offsets: tuple[int, int] = (1, 1)) -> KnownAnswer:
    """Two layers of one b I head each: every symbol moves by one offset and then by another, around the string.

    Layer 1 has nothing but what layer 0 has copied, symbols and positions, so that it finds a position by the one that
    was copied there. A head of offset 1 attends to the previous token; a larger offset is readable as no kind.

    Args:
        generator: Determines everything else.
        offsets: Offset of each layer, which sum to 2 or 4.

    Raises:
        ValueError: offsets of another sum.
    """
    families = {2: FROM_TWO_BACK, 4: FROM_FOUR_BACK}.get(sum(offsets))
    if families is None or min(offsets) < 1:
        raise ValueError(f"offsets is {offsets}; give two positive offsets whose sum is 2 or 4.")
    task = random_template(generator, families)
    model = start_copy(generator, task, extra=0, n_layers=2)
    heads = {}
    for layer, (offset, strength) in enumerate(zip(offsets, (1.0, CONFIDENCE), strict=True)):
        attend_to(model, task, 0, _back(offset, task.n_ctx), layer=layer)
        write_symbol(model, 0, strength, layer=layer)
        looks = "previous" if offset == 1 else None
        heads[layer, 0] = HeadTruth(truth="faithful" if looks else "hidden", looks=looks)
    return finish_copy(f"copy by {offsets[0]} and {offsets[1]}", model, task, heads)


def _back(offset: int, length: int) -> Place:
    """The position `offset` back, around the string."""
    return lambda place: (place - offset) % length


def copy_by_kind(generator: torch.Generator) -> KnownAnswer:
    """One b I head copies the last symbol; another copies another one, more loudly, if the string ends in Y.

    The first is needed for strings that end in X, the second for those that end in Y. It attends to a certain position,
    from the last one only, which is readable as no kind.
    """
    drawn = random_template(generator, KINDS)
    share = LEAST + (MOST - LEAST) * float(torch.rand((), generator=generator))
    task = replace(drawn, weights=(share, 1 - share))
    model = start_copy(generator, task, extra=1, more=2)
    at, rows = copy_registers(task), head_rows(model.block(0), 1)
    attend_to(model, task, 0, lambda place: max(0, place - 1))
    write_symbol(model, 0, CONFIDENCE)
    write_symbol(model, 1, LOUDER * CONFIDENCE)
    last, other = task.n_ctx - 1, task.labelled[1]
    with torch.no_grad():
        model.embed.weight[:2] = 0  # X and Y
        model.embed.weight[:2, at.after(size=2)] = FAINT * torch.eye(2).double()
        attention = model.block(0).attention
        for kind, place in enumerate((last, other.tokens.index(str(other.label)))):
            attention.q.weight[rows][kind, at.after(kind)] = SHARP / FAINT
            attention.k.weight[rows][kind, at["position"].start + place] = 1
    heads = {(0, 0): HeadTruth(truth="faithful", looks="previous"), (0, 1): HeadTruth(truth="hidden")}
    return finish_copy(f"copy by kind, X {share:.2f}", model, task, heads)


HOPS: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "copy in two hops": copy_hops,
    "copy in two hops, the first hidden": partial(copy_hops, offsets=(3, 1)),
    "copy in two hops, the second hidden": partial(copy_hops, offsets=(1, 3)),
    "copy by kind": copy_by_kind,
}
"""Every variant by name."""
