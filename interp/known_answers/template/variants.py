"""Template models whose heads are known one by one: what compares or copies, what helps, and what only looks like it.

Each function takes a generator, which decides the templates, the alphabets, the symbols' vectors and how many idle
heads there are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch

from hooks import Transformer
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import HeadTruth, KnownAnswer
from interp.known_answers.craft.idle_heads import write_idle_head
from interp.known_answers.craft.wiring import Registers, balance
from interp.known_answers.template.copy import (
    CONFIDENCE,
    copied_from,
    copy_registers,
    empty_copy,
    look_at,
    write_symbol,
)
from interp.known_answers.template.same import (
    BRING,
    EQUAL,
    Gather,
    empty_same,
    finish_same,
    look_for_equal,
    mark_pairs,
    same_registers,
    tell_where,
)
from interp.tasks import Template

SameDecoy = Literal["zero", "constant", "cancelled"]
CopyDecoy = Literal["zero", "cancelled"]
SAME = (
    ("aa -> +1", "ab -> -1"),
    ("aba -> +1", "abb -> -1"),
    ("aabb -> +1", "abab -> -1"),
    ("aab -> -1", "aba -> 0", "abb -> +1"),
    ("abcab -> +1", "abcba -> -1"),
)
"""Where no symbol comes three times, and what the last one equals decides."""
COPY_PREVIOUS = (("ab -> a",), ("aba -> b",), ("abc -> b",), ("aab -> a", "abc -> b"))
"""The last symbol but one is the label, and strings are so short that a band of two on either side is everything."""
COPY_AFAR = (("abcd -> a",), ("abcde -> a",), ("abcdef -> a",))
OFFSET = 0.5
"""What a head of constant values writes."""
LOUD = 3.0
"""How much louder than the head that is listened to are two that cancel."""
SIGNS = (1.0, -1.0, -1.0, 1.0, -1.0)
"""Of each place in what they write: one of them alone says the opposite at some places, and so solves nothing."""
MOST_IDLE = 2


def same_plain(generator: torch.Generator) -> KnownAnswer:
    """Same or different: a I finds the equal symbol, another head brings the finding to [CLS]."""
    model, task, gather = _start_same(generator, extra=0)
    mark_pairs(model, task)
    found = HeadTruth(truth="faithful", looks="association")
    return _finish_same("same or different", model, task, gather, {(0, EQUAL): found})


def same_redundant(generator: torch.Generator) -> KnownAnswer:
    """Two a I heads write the same; the MLP asks for what lies between one and two of them, less a mean."""
    model, task, gather = _start_same(generator, extra=1)
    look_for_equal(model, task, 1)
    tell_where(model, task, 1)
    mark_pairs(model, task, between=(0.75, 0.95))
    heads = {
        (0, head): HeadTruth(truth="redundant", looks="association", partners=((0, 1 - head),)) for head in range(2)
    }
    return _finish_same("same or different, found twice", model, task, gather, heads)


def same_decoy(generator: torch.Generator, *, decoy: SameDecoy = "zero") -> KnownAnswer:
    """One a I head does the work; others with its very pattern write nothing that tells anything.

    Args:
        generator: Decides all that is not said here.
        decoy: `zero`: a head of zero values. `constant`: its values are the same for every token, and what reads them
            expects that. `cancelled`: two heads write each other's negative, loudly, where it is read; all of it is
            read, both (i, j) and (j, i), so that neither of the two can do the work.

    Raises:
        ValueError: an unknown decoy.
    """
    if decoy not in get_args(SameDecoy):
        raise ValueError(f"decoy is {decoy!r}; choose one of {', '.join(get_args(SameDecoy))}.")
    decoys = (1, 2) if decoy == "cancelled" else (1,)
    model, task, gather = _start_same(generator, extra=len(decoys))
    length = len(task.labelled[0].tokens)
    signs = LOUD * torch.tensor(SIGNS[:length]).double()
    for head, gain in zip(decoys, (signs, -signs) if decoy == "cancelled" else (0 * signs,), strict=True):
        look_for_equal(model, task, head)
        tell_where(model, task, head, gains=gain, constant=OFFSET if decoy == "constant" else 0.0)
    low, high = 1 / length, 1 / max(1, length - 1)
    gather = "uniform" if decoy == "cancelled" else gather
    mark_pairs(model, task, between=(low + OFFSET, high + OFFSET) if decoy == "constant" else (low, high))
    heads = {(0, EQUAL): HeadTruth(truth="faithful", looks="association"), **_misleading("association", decoys)}
    return _finish_same(f"same or different, decoy {decoy}", model, task, gather, heads)


def copy_plain(generator: torch.Generator) -> KnownAnswer:
    """b I copies the last symbol but one."""
    model, task = _start_copy(generator, COPY_PREVIOUS, extra=0)
    look_at(model, task, 0, copied_from(task))
    write_symbol(model, 0, CONFIDENCE)
    return _finish_copy("copy", model, task, {(0, 0): HeadTruth(truth="faithful", looks="previous")})


def copy_redundant(generator: torch.Generator) -> KnownAnswer:
    """Two heads of b I copy the last symbol but one."""
    model, task = _start_copy(generator, COPY_PREVIOUS, extra=1)
    for head in range(2):
        look_at(model, task, head, copied_from(task))
        write_symbol(model, head, CONFIDENCE / 2)
    heads = {(0, head): HeadTruth(truth="redundant", looks="previous", partners=((0, 1 - head),)) for head in range(2)}
    return _finish_copy("copy, twice", model, task, heads)


def copy_hidden(generator: torch.Generator, *, decoy: bool = False) -> KnownAnswer:
    """b I copies the first symbol; every token looks at it, which is no relation between tokens.

    Args:
        generator: Decides all that is not said here.
        decoy: A further head looks at the token before, and writes nothing.
    """
    model, task = _start_copy(generator, COPY_AFAR, extra=int(decoy))
    look_at(model, task, 0, copied_from(task, relative=False))
    write_symbol(model, 0, CONFIDENCE)
    heads = {(0, 0): HeadTruth(truth="hidden")}
    if decoy:
        look_at(model, task, 1, _before)
        heads |= _misleading("previous", (1,))
    return _finish_copy("copy the first" + ", decoy zero" * decoy, model, task, heads)


def copy_misread(generator: torch.Generator) -> KnownAnswer:
    """b I copies the first symbol; only the last token looks there, all others look at themselves: needed, misread."""
    model, task = _start_copy(generator, COPY_AFAR, extra=0)
    look_at(model, task, 0, copied_from(task))
    write_symbol(model, 0, CONFIDENCE)
    return _finish_copy("copy from afar", model, task, {(0, 0): HeadTruth(truth="misleading", looks="self")})


def copy_decoy(generator: torch.Generator, *, decoy: CopyDecoy = "zero") -> KnownAnswer:
    """One head of b I copies the last symbol but one; others write nothing in all.

    Args:
        generator: Decides all that is not said here.
        decoy: `zero`: a head that looks there too, whose b_h is 0. `cancelled`: every token looks at itself in two
            heads whose b_h are each other's negative.

    Raises:
        ValueError: an unknown decoy.
    """
    if decoy not in get_args(CopyDecoy):
        raise ValueError(f"decoy is {decoy!r}; choose one of {', '.join(get_args(CopyDecoy))}.")
    decoys = (1, 2) if decoy == "cancelled" else (1,)
    model, task = _start_copy(generator, COPY_PREVIOUS, extra=len(decoys))
    strengths = (CONFIDENCE, LOUD * CONFIDENCE, -LOUD * CONFIDENCE) if decoy == "cancelled" else (CONFIDENCE, 0.0)
    for head, strength in enumerate(strengths):
        look_at(model, task, head, _itself if head and decoy == "cancelled" else copied_from(task))
        write_symbol(model, head, strength)
    looks = "self" if decoy == "cancelled" else "previous"
    heads = {(0, 0): HeadTruth(truth="faithful", looks="previous"), **_misleading(looks, decoys)}
    return _finish_copy(f"copy, decoy {decoy}", model, task, heads)


TEMPLATE_ANSWERS: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "same": same_plain,
    "same, redundant": same_redundant,
    "same, zero decoy": same_decoy,
    "same, constant decoy": lambda generator: same_decoy(generator, decoy="constant"),
    "same, cancelled decoys": lambda generator: same_decoy(generator, decoy="cancelled"),
    "copy": copy_plain,
    "copy, redundant": copy_redundant,
    "copy, zero decoy": copy_decoy,
    "copy, cancelled decoys": lambda generator: copy_decoy(generator, decoy="cancelled"),
    "copy, hidden": copy_hidden,
    "copy, hidden beside a decoy": lambda generator: copy_hidden(generator, decoy=True),
    "copy, misread": copy_misread,
}
"""Every variant by name."""


def _itself(place: int) -> int:
    return place


def _before(place: int) -> int:
    return max(0, place - 1)


def _draw(generator: torch.Generator, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    return int(torch.randint(low, high + 1, (1,), generator=generator))


def _task(generator: torch.Generator, families: Sequence[tuple[str, ...]]) -> Template:
    templates = families[_draw(generator, 0, len(families) - 1)]
    sizes: dict[str, Any] = {split: _draw(generator, 10, 30) for split in ("train", "validation", "test")}
    return Template(templates=templates, **sizes)


def _misleading(looks: str, heads: Sequence[int]) -> dict[Head, HeadTruth]:
    """Heads of layer 0 that look like a kind, and do nothing together."""
    return {
        (0, head): HeadTruth(
            truth="misleading", looks=looks, partners=tuple((0, other) for other in heads if other != head)
        )
        for head in heads
    }


def _start_same(generator: torch.Generator, *, extra: int) -> tuple[Transformer, Template, Gather]:
    """A model whose head 0.0 finds the equal symbol, with heads to spare in both layers; the last ones are idle."""
    task = _task(generator, SAME)
    n_idle = _draw(generator, 0, MOST_IDLE)
    model = empty_same(task, n_heads=1 + extra + n_idle, seed=_draw(generator, 0, 2**30))
    look_for_equal(model, task, EQUAL)
    tell_where(model, task, EQUAL)
    at = same_registers(task)
    _write_idle(model, at, [(0, 1 + extra + index) for index in range(n_idle)], generator)
    _write_idle(model, at, [(1, head) for head in range(model.cfg.n_heads) if head != BRING], generator)
    return model, task, "previous" if _draw(generator, 0, 1) else "uniform"


def _finish_same(
    name: str, model: Transformer, task: Template, gather: Gather, heads: dict[Head, HeadTruth]
) -> KnownAnswer:
    brings = HeadTruth(truth="hidden") if gather == "uniform" else HeadTruth(truth="faithful", looks=gather)
    finish_same(model, task, gather=gather)
    return _answer(name, model, task, {**heads, (1, BRING): brings}, readable={"label": 2})


def _start_copy(
    generator: torch.Generator, families: Sequence[tuple[str, ...]], *, extra: int
) -> tuple[Transformer, Template]:
    """A model that does nothing yet; its last heads are idle."""
    task = _task(generator, families)
    n_idle = _draw(generator, 0, MOST_IDLE)
    model = empty_copy(task, n_heads=1 + extra + n_idle, seed=_draw(generator, 0, 2**30))
    idle = [(0, 1 + extra + index) for index in range(n_idle)]
    _write_idle(model, copy_registers(task), idle, generator)
    return model, task


def _finish_copy(name: str, model: Transformer, task: Template, heads: dict[Head, HeadTruth]) -> KnownAnswer:
    balance(model)
    return _answer(name, model.eval(), task, heads)


def _write_idle(model: Transformer, at: Registers, heads: Sequence[Head], generator: torch.Generator) -> None:
    """Heads that look at symbols, at none in particular."""
    for layer, head in heads:
        block = model.block(layer)
        write_idle_head(block, head, reads=at["symbol"], writes=at["scrap"], generator=generator, strength=0.5)


def _answer(
    name: str,
    model: Transformer,
    task: Template,
    heads: Mapping[Head, HeadTruth],
    readable: Mapping[str, int] | None = None,
) -> KnownAnswer:
    """Every head that is not named is idle."""
    every = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    strings = ", ".join(str(one) for one in task.labelled)
    idle = HeadTruth(truth="idle")
    truth = {head: heads.get(head, idle) for head in every}
    return KnownAnswer(name=f"{name} ({strings})", model=model, task=task, heads=truth, readable=readable or {})
