"""Same-or-different models with a known truth about every head: decoys, heads that cancel, gates, divided work.

Each function takes a generator, which determines the templates, the alphabets, the symbols' vectors, the number of idle
heads, and whatever its arguments do not.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.checks import check_choice
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import (
    ZERO_ONLY,
    HeadTruth,
    KnownAnswer,
    draw,
    needed_head,
    redundant_heads,
    unneeded_heads,
)
from interp.known_answers.craft.cancelling import NOISE_SIZE, NoiseOf, cancelling_factors, write_noise
from interp.known_answers.craft.weights import balance, bias_of, head_rows, mlp_of, write_map
from interp.known_answers.template.same import (
    EQUAL,
    GATHER,
    Gather,
    attend_to_equal,
    empty_same,
    finish_same,
    mark_pairs,
    same_registers,
    string_length,
    write_position,
)
from interp.known_answers.template.start import MOST_IDLE, random_template, template_answer, write_idle_heads
from interp.tasks import Template
from interp.tasks.template.families import majority

SAME = (
    ("aa -> +1", "ab -> -1"),
    ("aba -> +1", "abb -> -1"),
    ("aabb -> +1", "abab -> -1"),
    ("aab -> -1", "aba -> 0", "abb -> +1"),
    ("abcab -> +1", "abcba -> -1"),
)
"""Templates in which no symbol occurs three times, and the symbols equal to the last one determine the label."""
DIVIDED = (
    ("abc -> 0", "aba -> +1", "abb -> -1"),
    ("abcd -> 0", "abca -> +1", "abcb -> -1", "abcc -> +2"),
)
"""Templates whose label is determined by the symbol equal to the last one; none is equal in the first."""
OTHERWISE = -0.25
"""An answer nearer to -1 than to +1, and nearest to 0 among the three."""
OFFSET = 0.5
"""Output of a head of constant values."""
LOUD = 30.0
"""Output of the loudest head of those that cancel, relative to that of the head that works."""
SIGNS = (1.0, -1.0, -1.0, 1.0, -1.0)
"""Signs of what they write for each position."""
LEAST, MOST = 0.35, 0.65
"""Range of the share of inputs for which a head is needed, among those with an equal symbol."""
RARE = 0.1
"""Share of inputs without an equal symbol."""
SURE = (0.75, 0.95)
"""Amounts of attention between which a mark rises where a mean over inputs must not set it."""
SPOILT = (0.12, 0.2)
"""Amounts between which what spoils the answer takes effect."""
STEEP = 10.0
"""Strength of the condition that only the last symbol's position counts."""


def same_plain(generator: torch.Generator) -> KnownAnswer:
    """Same or different: an a I head attends to the equal symbol, another head gathers the result at [CLS]."""
    model, task, gather = _same_model(generator)
    mark_pairs(model, task)
    return _same_answer(model, task, gather, needed_head("association"))


def same_redundant(generator: torch.Generator) -> KnownAnswer:
    """Two a I heads with equal output; one of them, with the mean of the other, is enough for the MLP."""
    model, task, gather = _same_model(generator, extra=1)
    attend_to_equal(model, task, 1)
    write_position(model, task, 1)
    mark_pairs(model, task, between=SURE)
    return _same_answer(model, task, gather, redundant_heads("association", (0, 1)))


def same_decoy(generator: torch.Generator, *, constant: bool = False) -> KnownAnswer:
    """One a I head works; another with the same pattern writes no information.

    Its values are zero, or, if `constant`, the same for every token, and the MLP subtracts them.
    """
    model, task, gather = _same_model(generator, extra=1)
    length = string_length(task)
    offset = OFFSET if constant else 0.0
    attend_to_equal(model, task, 1)
    write_position(model, task, 1, gains=torch.zeros(length), constant=offset)
    mark_pairs(model, task, between=(1 / length + offset, 1 / max(1, length - 1) + offset))
    return _same_answer(model, task, gather, needed_head("association") | unneeded_heads("association", [1]))


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
    factors = cancelling_factors(generator, n_heads)
    heads = range(1, 1 + n_heads)
    model, task, _ = _same_model(generator, extra=n_heads, registers=n_heads * NOISE_SIZE)
    stream = same_registers(task)
    block = model.block(0)
    length = string_length(task)
    reads = stream["position"] if readable else stream["symbol"]
    # Votes: random, or a sign for the position that is attended to
    votes = torch.randn(length, reads.stop - reads.start, generator=generator, dtype=torch.float64)
    if readable:
        votes = torch.tensor(SIGNS[:length])[:, None] * torch.eye(length, length + 1).double()
    for head, factor in zip(heads, factors, strict=True):
        if readable:
            attend_to_equal(model, task, head)
        write_map(block, head, LOUD * factor * votes, reads=reads, writes=stream["equal"])
    spare = stream.after(0).start
    write_noise(block, heads, noise, reads=reads, spare=spare, first=length, generator=generator)
    mark_pairs(model, task)
    truths = needed_head("association") | unneeded_heads("association" if readable else None, heads)
    return _same_answer(model, task, "uniform", truths, otherwise=OTHERWISE)


def same_gated(generator: torch.Generator, *, brings: Literal["sign", "one"], readable: bool = True) -> KnownAnswer:
    """One a I head finds equal symbols; marks are set only where what another brings has magnitude 1.

    Args:
        generator: Determines everything else.
        brings: `sign`: every position that the other head can attend to brings +1 or -1, both of them over the
            templates, so that another position does as well, but a mean or a mix of positions does not. `one`: 1 from
            every position, so that the head is needed under zero only.
        readable: It has the same pattern. If False, its attention is uniform.
    """
    task = random_template(generator, SAME)
    values = _random_signs(task, generator) if brings == "sign" else torch.ones(task.n_ctx).double()
    n_units = 4 * string_length(task) * (string_length(task) - 1)
    model, task, gather = _same_model(generator, extra=1, task=task, registers=1, n_units=n_units)
    stream = same_registers(task)
    # Head 1 brings its values to a coordinate that gates the marks
    if readable:
        attend_to_equal(model, task, 1)
    write_map(model.block(0), 1, values[None], reads=stream["position"], writes=stream.after())
    mark_pairs(model, task, gate=stream.after())
    looks = "association" if readable else None
    needed = ZERO_ONLY if brings == "one" else None
    truths = needed_head("association") | unneeded_heads(looks, [1], needed=needed)
    return _same_answer(model, task, gather, truths, otherwise=OTHERWISE)


def _random_signs(task: Template, generator: torch.Generator) -> Float[Tensor, " key"]:
    """+1 or -1 for each position; wherever templates differ, the mean over them is at most a half."""
    attended = _attended(task)
    differ = (attended != attended[0]).any(0)
    while True:
        signs = torch.randint(0, 2, (task.n_ctx,), generator=generator).double() * 2 - 1
        is_small = signs[attended].mean(0).abs() <= 0.5
        if is_small[differ].all():
            return signs


def same_masked(generator: torch.Generator) -> KnownAnswer:
    """One a I head finds equal symbols; another spoils the answer of one template, and each of two more prevents it.

    All have the same pattern. Without both of the two, that template gets the opposite answer, unless the head that
    spoils it is removed too. (Not with strings of two symbols, where the head that spoils the answer also gives it.)
    """
    task = random_template(generator, SAME[1:])
    n_units = 2 * string_length(task) * (string_length(task) - 1) + 2
    model, task, gather = _same_model(generator, extra=3, task=task, registers=3, n_units=n_units)
    stream = same_registers(task)
    block = model.block(0)
    spoils = (torch.arange(task.n_ctx) == _random_key(task, generator)).double()
    strength = 1.06 / (1 + 1 / len(task.labelled))  # enough without the other, of which the mean remains
    # One head adds 1 at the key and takes 1 elsewhere; two heads remove what is added
    for head, values in enumerate((2 * spoils - 1, -strength * spoils, -strength * spoils), start=1):
        attend_to_equal(model, task, head)
        write_map(block, head, values[None], reads=stream["position"], writes=stream.after(0))
    mark_pairs(model, task)
    _gather_spoilt(model, task, gather)
    truths = needed_head("association") | unneeded_heads("association", [1]) | redundant_heads("association", (2, 3))
    answer = _same_answer(model, task, gather, truths, otherwise=OTHERWISE)
    _answer_the_opposite(model, task)
    return answer


def _random_key(task: Template, generator: torch.Generator) -> int:
    """Position that the last symbol of a random template attends to, whose label is not 0."""
    indices = [index for index, template in enumerate(task.labelled) if template.label]
    return int(_attended(task)[indices[draw(generator, 0, len(indices) - 1)], -1])


@torch.no_grad()
def _gather_spoilt(model: Transformer, task: Template, gather: Gather) -> None:
    """Turn what spoils the answer at the last symbol into 0 or 1, and gather it in layer 1."""
    stream = same_registers(task)
    mlp = mlp_of(model.block(0))
    block = model.block(1)
    low, high = SPOILT
    # The last two units of layer 0 are a step
    units = slice(mlp.w_in.weight.shape[0] - 2, mlp.w_in.weight.shape[0])
    mlp.w_in.weight[units, stream.after(0)] = 1 / (high - low)
    mlp.w_in.weight[units, stream["position"].start + string_length(task) - 1] = STEEP / (high - low)
    bias_of(mlp.w_in)[units] = -(low + STEEP) / (high - low) - torch.arange(2.0).double()
    mlp.w_out.weight[stream.after(1), units] = torch.tensor([[1.0, -1.0]]).double()
    # The last dimension of the head that gathers marks moves it to [CLS]
    rows = head_rows(block, GATHER)
    last_dimension = rows.stop - 1
    block.attention.v.weight[last_dimension, stream.after(1)] = 1
    block.attention.o.weight[stream.after(2), last_dimension] = task.n_ctx if gather == "uniform" else 1


@torch.no_grad()
def _answer_the_opposite(model: Transformer, task: Template) -> None:
    """MLP of layer 1: a second unit for each template that is active if the answer is spoilt, and reverses it."""
    stream = same_registers(task)
    mlp = mlp_of(model.block(1))
    n = len(task.labelled)
    bias = bias_of(mlp.w_in)
    answer = stream["answer"]
    otherwise = bias_of(mlp.w_out)[answer]
    added = slice(n, 2 * n)
    mlp.w_in.weight[added] = mlp.w_in.weight[:n]
    mlp.w_in.weight[added, stream.after(2)] = 1
    bias[added] = bias[:n] - 1
    mlp.w_out.weight[answer, added] = -2 * (mlp.w_out.weight[answer, :n] + otherwise)
    balance(model)


def same_divided(generator: torch.Generator) -> KnownAnswer:
    """Two a I heads find equal symbols, each at other positions, so that each is needed for some templates only."""
    families = random_template(generator, DIVIDED)
    # Divide the templates with an equal symbol among the heads, and draw the share of each head
    attended = _attended(families)[1:, -1]
    of_first = torch.randperm(len(attended), generator=generator) < draw(generator, 1, len(attended) - 1)
    share = LEAST + (MOST - LEAST) * float(torch.rand((), generator=generator, dtype=torch.float32))
    weight_of_first = share / of_first.sum()
    weight_of_second = (1 - share) / (~of_first).sum()
    weights = torch.where(of_first, weight_of_first, weight_of_second) * (1 - RARE)
    task = replace(families, weights=(RARE, *weights.tolist()))
    model, task, _ = _same_model(generator, extra=1, task=task)
    # Each head writes only the positions of its templates
    gains = torch.isin(torch.arange(string_length(task)), attended[of_first]).double()
    attend_to_equal(model, task, 1)
    write_position(model, task, EQUAL, gains=gains)
    write_position(model, task, 1, gains=1 - gains)
    mark_pairs(model, task, between=SURE)
    truths = needed_head("association", head=EQUAL) | needed_head("association", head=1)
    return _same_answer(model, task, "previous", truths)


def same_majority(generator: torch.Generator) -> KnownAnswer:
    """Does the first symbol make up half of the string? An a I head finds equal symbols, a uniform one gathers them."""
    task = replace(random_template(generator, SAME), templates=majority(draw(generator, 2, 3)))
    model, task, _ = _same_model(generator, task=task)
    mark_pairs(model, task)
    return _same_answer(model, task, "uniform", needed_head("association"), otherwise=OTHERWISE)


def _attended(task: Template) -> Int[Tensor, "template place"]:
    """Position that an a I head attends to: the equal symbol elsewhere, or [CLS] if there is none."""
    keys = torch.full((len(task.labelled), string_length(task)), task.n_ctx - 1)
    for index, template in enumerate(task.labelled):
        for query, key in permutations(range(string_length(task)), 2):
            if template.tokens[query] == template.tokens[key]:
                keys[index, query] = key
    return keys


def _same_model(
    generator: torch.Generator, *, extra: int = 0, task: Template | None = None, **sizes: int
) -> tuple[Transformer, Template, Gather]:
    """A model whose head 0.0 attends to the equal symbol, with `extra` empty heads and idle heads after it.

    The task is drawn from `SAME` if it is None; `sizes` are `registers` and `n_units` of `empty_same`. The third value
    is a random way to gather marks.
    """
    task = random_template(generator, SAME) if task is None else task
    n_idle = draw(generator, 0, MOST_IDLE)
    # Idle heads: in layer 0 after all others, in layer 1 all but the one that gathers
    model = empty_same(task, n_heads=1 + extra + n_idle, seed=draw(generator, 0, 2**30), **sizes)
    attend_to_equal(model, task, EQUAL)
    write_position(model, task, EQUAL)
    idle_heads = [(0, 1 + extra + index) for index in range(n_idle)]
    idle_heads += [(1, head) for head in range(model.cfg.n_heads) if head != GATHER]
    write_idle_heads(model, same_registers(task), idle_heads, generator)
    return model, task, "previous" if draw(generator, 0, 1) else "uniform"


def _same_answer(
    model: Transformer, task: Template, gather: Gather, truths: Mapping[Head, HeadTruth], *, otherwise: float = 0.0
) -> KnownAnswer:
    """Known answer of a model of equal symbols, with the layer 1 that it still lacks.

    `otherwise` is the answer if no template is recognised. At 0 it is as near to -1 as to +1, so that rounding decides.
    """
    finish_same(model, task, gather=gather, otherwise=otherwise)
    gathers = needed_head("previous" if gather == "previous" else None, layer=1, head=GATHER)
    return template_answer(model, task, {**truths, **gathers}, readable={"label": 2})
