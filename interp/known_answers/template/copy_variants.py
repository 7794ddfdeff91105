"""Copying models with a known truth about every head: decoys, heads that cancel, two hops, a place that depends.

Each function takes a generator, which determines the templates, the alphabets, the symbols' vectors, the number of idle
heads, and whatever its arguments do not.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import torch

from hooks import Transformer
from hooks.checks import check_choice
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import (
    HeadTruth,
    KnownAnswer,
    draw,
    needed_head,
    redundant_heads,
    unneeded_heads,
)
from interp.known_answers.craft.cancelling import NOISE_SIZE, NoiseOf, cancelling_factors, write_noise
from interp.known_answers.craft.weights import SHARP, balance, head_rows, write_map
from interp.known_answers.template.copy import (
    CONFIDENCE,
    attend_to,
    copied_from,
    copy_registers,
    empty_copy,
    write_symbol,
)
from interp.known_answers.template.start import MOST_IDLE, random_template, template_answer, write_idle_heads
from interp.tasks import Template

COPY_PREVIOUS = (("ab -> a",), ("aba -> b",), ("abc -> b",), ("aab -> a", "abc -> b"))
"""Templates whose label is the last symbol but one; a band of two positions on either side covers the whole string."""
COPY_FIRST = (("abcd -> a",), ("abcde -> a",), ("abcdef -> a",))
"""Templates whose label is the first symbol."""
COPY_AFAR = (("abcde -> b",), ("abcdef -> b",), ("abcdefg -> b",))
"""Templates whose label is the second symbol, which is no relation between tokens."""
COPY_BACK = {
    2: (("abcd -> b",), ("abcde -> c",), ("abcdef -> d",)),
    4: (("abcdef -> b",), ("abcdefg -> c",), ("abcdefgh -> d",)),
}
"""Templates whose label is so many symbols before the last one."""
COPY_KINDS = (("abX -> b", "abY -> a"), ("abcdX -> d", "abcdY -> a"), ("abcdeX -> e", "abcdeY -> b"))
"""Two kinds of templates: before X the last symbol is the label, before Y another one."""
LEAST, MOST = 0.35, 0.65
"""Range of the share of each kind."""
FAINT = 0.1
"""Norm of the vectors of X and Y, so that copies of them are no answer."""
LOUDER = 3.0
"""Strength of the head that copies before Y, relative to the one that always copies the last symbol."""
LOUD = 30.0
"""Output of the loudest head of those that cancel, relative to that of the head that works."""


def copy_previous(generator: torch.Generator, *, copies: int = 1, decoy: bool = False) -> KnownAnswer:
    """A b I head copies the last symbol but one, or several do, which share the work.

    With `decoy`, another head has the same pattern and b_h = 0.
    """
    task = random_template(generator, COPY_PREVIOUS)
    strengths = [CONFIDENCE / copies] * copies + [0.0] * decoy
    model = _copy_model(generator, task, n_heads=len(strengths))
    for head, strength in enumerate(strengths):
        attend_to(model, task, head, copied_from(task))
        write_symbol(model, head, strength)
    truths = needed_head("previous") if copies == 1 else redundant_heads("previous", range(copies))
    return _copy_answer(model, task, truths | unneeded_heads("previous", range(copies, len(strengths))))


def copy_first(generator: torch.Generator, *, relative: bool = False) -> KnownAnswer:
    """A b I head copies the first symbol.

    Args:
        generator: Determines everything else.
        relative: Only the last token attends there, all others to themselves, which nothing reads.
    """
    task = random_template(generator, COPY_FIRST)
    model = _copy_model(generator, task, n_heads=1)
    attend_to(model, task, 0, copied_from(task, relative=relative))
    write_symbol(model, 0, CONFIDENCE)
    return _copy_answer(model, task, needed_head("first_token"))


def copy_second(generator: torch.Generator, *, relative: bool = False, decoy: bool = False) -> KnownAnswer:
    """A b I head copies the second symbol; every token attends to it, which is no relation between tokens.

    Args:
        generator: Determines everything else.
        relative: Only the last tokens attend there or before it, all others to themselves, which nothing reads.
        decoy: Another head attends to the previous token and writes nothing.
    """
    task = random_template(generator, COPY_AFAR)
    model = _copy_model(generator, task, n_heads=1 + decoy)
    attend_to(model, task, 0, copied_from(task, relative=relative))
    write_symbol(model, 0, CONFIDENCE)
    truths = needed_head(None)
    # The decoy's strength stays zero
    if decoy:
        attend_to(model, task, 1, lambda place: max(0, place - 1))
        truths |= unneeded_heads("previous", [1])
    return _copy_answer(model, task, truths)


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
    factors = cancelling_factors(generator, n_heads)
    heads = range(1, 1 + n_heads)
    task = random_template(generator, COPY_PREVIOUS)
    model = _copy_model(generator, task, n_heads=1 + n_heads, registers=n_heads * NOISE_SIZE)
    block = model.block(0)
    stream = copy_registers(task)
    attend_to(model, task, 0, copied_from(task))
    write_symbol(model, 0, CONFIDENCE)
    # The heads that cancel vote for the first coordinates of the symbol
    symbol = stream["symbol"]
    size = draw(generator, 3, NOISE_SIZE)
    votes = torch.randn(size, symbol.stop - symbol.start, generator=generator, dtype=torch.float64)
    for head, factor in zip(heads, factors, strict=True):
        if readable:
            attend_to(model, task, head, lambda place: place)
        matrix = LOUD * CONFIDENCE * factor * votes
        write_map(block, head, matrix, reads=symbol, writes=slice(symbol.start, symbol.start + size))
    write_noise(block, heads, noise, reads=symbol, spare=stream.after(0).start, first=size, generator=generator)
    return _copy_answer(model, task, needed_head("previous") | unneeded_heads("current" if readable else None, heads))


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
    if sum(offsets) not in COPY_BACK or min(offsets) < 1:
        raise ValueError(f"offsets is {offsets}; give two positive offsets whose sum is 2 or 4.")
    task = random_template(generator, COPY_BACK[sum(offsets)])
    model = _copy_model(generator, task, n_heads=1, n_layers=2)
    truths: dict[Head, HeadTruth] = {}
    for layer, (offset, strength) in enumerate(zip(offsets, (1.0, CONFIDENCE), strict=True)):
        # Around the string, since every position attends to some other
        attend_to(model, task, 0, lambda place, offset=offset: (place - offset) % task.n_ctx, layer=layer)
        write_symbol(model, 0, strength, layer=layer)
        truths |= needed_head("previous" if offset == 1 else None, layer=layer)
    return _copy_answer(model, task, truths)


def copy_by_kind(generator: torch.Generator) -> KnownAnswer:
    """One b I head copies the last symbol; another copies another one, more loudly, if the string ends in Y.

    The first is needed for strings that end in X, the second for those that end in Y. It attends to a certain position,
    from the last one only and in strings that end in Y only, which is too little for a label. If that is the first
    token, then this attention is of a kind.
    """
    families = random_template(generator, COPY_KINDS)
    share = LEAST + (MOST - LEAST) * float(torch.rand((), generator=generator, dtype=torch.float32))
    task = replace(families, weights=(share, 1 - share))
    model = _copy_model(generator, task, n_heads=2, registers=2)
    attend_to(model, task, 0, lambda place: max(0, place - 1))
    write_symbol(model, 0, CONFIDENCE)
    write_symbol(model, 1, LOUDER * CONFIDENCE)
    # X and Y have a coordinate each, which is what the second head's queries read
    stream = copy_registers(task)
    attention = model.block(0).attention
    rows = head_rows(model.block(0), 1)
    before_y = task.labelled[1]
    keys = (task.n_ctx - 1, before_y.tokens.index(str(before_y.label)))
    with torch.no_grad():
        model.embed.weight[:2] = 0
        model.embed.weight[:2, stream.after(size=2)] = FAINT * torch.eye(2).double()
        for kind, key in enumerate(keys):
            attention.q.weight[rows][kind, stream.after(kind)] = SHARP / FAINT
            attention.k.weight[rows][kind, stream["position"].start + key] = 1
    acts_like = "first_token" if keys[1] == 0 else None
    return _copy_answer(model, task, needed_head("previous") | needed_head(None, head=1, acts_like=acts_like))


def _copy_model(
    generator: torch.Generator, task: Template, *, n_heads: int, n_layers: int = 1, registers: int = 0
) -> Transformer:
    """A model of a task with empty heads in each layer, then idle ones; `registers` is as in `empty_copy`."""
    n_idle = draw(generator, 0, MOST_IDLE)
    seed = draw(generator, 0, 2**30)
    model = empty_copy(task, n_heads=n_heads + n_idle, n_layers=n_layers, registers=registers, seed=seed)
    idle_heads = list(product(range(n_layers), range(n_heads, n_heads + n_idle)))
    write_idle_heads(model, copy_registers(task), idle_heads, generator)
    return model


def _copy_answer(model: Transformer, task: Template, truths: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of a model that copies, with the balance of the stream that it still lacks."""
    balance(model)
    return template_answer(model, task, truths)
