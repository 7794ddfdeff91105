"""Same-or-different models whose heads are not simply added up: magnitudes, masked redundancy, and divided work."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw, group_truth
from interp.known_answers.craft.cancelling import write_map
from interp.known_answers.craft.weights import balance, bias_of, head_rows, mlp_of
from interp.known_answers.template.same import (
    EQUAL,
    GATHER,
    Gather,
    attend_to_equal,
    mark_pairs,
    same_registers,
    write_position,
)
from interp.known_answers.template.start import (
    OTHERWISE,
    SAME,
    finish_same_answer,
    random_template,
    start_same,
)
from interp.tasks import Template
from interp.tasks.template.families import majority

DIVIDED = (
    ("abc -> 0", "aba -> +1", "abb -> -1"),
    ("abcd -> 0", "abca -> +1", "abcb -> -1", "abcc -> +2"),
)
"""Templates whose label is determined by the symbol equal to the last one; none is equal in the first."""
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


def same_magnitude(generator: torch.Generator) -> KnownAnswer:
    """One a I head finds equal symbols; marks are set only where what another brings has magnitude 1.

    The other head has the same pattern. Every position that it can attend to brings +1 or -1, both of them over the
    templates, so that another position does as well, but a mean or a mix of positions does not.
    """
    task = random_template(generator, SAME)
    truth = HeadTruth(truth="misleading", looks="association")
    return _gated(generator, task, _signs(task, generator), truth, name="magnitude")


def same_constant(generator: torch.Generator, *, readable: bool = True) -> KnownAnswer:
    """The same with a head that brings 1 from every position, so that it is needed under zero only.

    If it is not `readable`, its attention is uniform.
    """
    task = random_template(generator, SAME)
    truth, looks = ("misleading", "association") if readable else ("idle", None)
    needed = {"zero": True, "mean": False, "resample": False}
    truth = HeadTruth(truth=truth, looks=looks, needed=needed)
    return _gated(generator, task, torch.ones(task.n_ctx).double(), truth, name="constant")


def _gated(
    generator: torch.Generator, task: Template, brings: Float[Tensor, " key"], truth: HeadTruth, *, name: str
) -> KnownAnswer:
    """Head 0.0 finds equal symbols, and marks are set by the magnitude of what head 0.1 brings from a position."""
    n_units = 4 * _length(task) * (_length(task) - 1)
    model, task, gather = start_same(generator, extra=1, task=task, more=1, n_units=n_units)
    at = same_registers(task)
    if truth.looks:
        attend_to_equal(model, task, 1)
    write_map(model.block(0), 1, brings[None], reads=at["position"], writes=at.after())
    mark_pairs(model, task, gate=at.after())
    heads = {(0, EQUAL): HeadTruth(truth="faithful", looks="association"), (0, 1): truth}
    return finish_same_answer(f"same or different, {name}", model, task, gather, heads, otherwise=OTHERWISE)


def same_masked(generator: torch.Generator) -> KnownAnswer:
    """One a I head finds equal symbols; another spoils the answer of one template, and each of two more prevents it.

    All have the same pattern. Without both of the two, that template gets the opposite answer, unless the head that
    spoils it is removed too. (Not with strings of two symbols, where the head that spoils the answer also gives it.)
    """
    task = random_template(generator, SAME[1:])
    n_units = 2 * _length(task) * (_length(task) - 1) + 2
    model, task, gather = start_same(generator, extra=3, task=task, more=3, n_units=n_units)
    at, block = same_registers(task), model.block(0)
    spoils = (torch.arange(task.n_ctx) == _spoilt_at(task, generator)).double()
    strength = 1.06 / (1 + 1 / len(task.labelled))  # enough without the other, of which the mean remains
    values = (2 * spoils - 1, -strength * spoils, -strength * spoils)
    for head, value in enumerate(values, start=1):
        attend_to_equal(model, task, head)
        write_map(block, head, value[None], reads=at["position"], writes=at.after(0))
    mark_pairs(model, task)
    _spoil(model, task, gather)
    heads = {
        (0, EQUAL): HeadTruth(truth="faithful", looks="association"),
        (0, 1): HeadTruth(truth="misleading", looks="association"),
        **group_truth("redundant", "association", (2, 3)),
    }
    answer = finish_same_answer("same or different, masked", model, task, gather, heads, otherwise=OTHERWISE)
    _answer_the_opposite(answer.model, task)
    return answer


@torch.no_grad()
def _spoil(model: Transformer, task: Template, gather: Gather) -> None:
    """Turn what spoils the answer at the last symbol into 0 or 1, and gather it in layer 1."""
    at, mlp, block = same_registers(task), mlp_of(model.block(0)), model.block(1)
    low, high = SPOILT
    units = slice(mlp.w_in.weight.shape[0] - 2, mlp.w_in.weight.shape[0])
    mlp.w_in.weight[units, at.after(0)] = 1 / (high - low)
    mlp.w_in.weight[units, at["position"].start + _length(task) - 1] = STEEP / (high - low)
    bias_of(mlp.w_in)[units] = -(low + STEEP) / (high - low) - torch.arange(2.0).double()
    mlp.w_out.weight[at.after(1), units] = torch.tensor([[1.0, -1.0]]).double()
    rows, last = head_rows(block, GATHER), len(block.attention.v.weight[head_rows(block, GATHER)]) - 1
    block.attention.v.weight[rows][last, at.after(1)] = 1
    block.attention.o.weight[at.after(2), rows.start + last] = task.n_ctx if gather == "uniform" else 1


@torch.no_grad()
def _answer_the_opposite(model: Transformer, task: Template) -> None:
    """MLP of layer 1: a second unit for each template that is active if the answer is spoilt, and reverses it."""
    at, mlp, n = same_registers(task), mlp_of(model.block(1)), len(task.labelled)
    bias, answer = bias_of(mlp.w_in), slice(at["answer"].start, at["answer"].stop)
    otherwise = bias_of(mlp.w_out)[answer]
    mlp.w_in.weight[n : 2 * n] = mlp.w_in.weight[:n]
    mlp.w_in.weight[n : 2 * n, at.after(2)] = 1
    bias[n : 2 * n] = bias[:n] - 1
    mlp.w_out.weight[answer, n : 2 * n] = -2 * (mlp.w_out.weight[answer, :n] + otherwise)
    balance(model)


def same_divided(generator: torch.Generator) -> KnownAnswer:
    """Two a I heads find equal symbols, each at other positions, so that each is needed for some templates only."""
    families = random_template(generator, DIVIDED)
    attended = _attended(families)[1:, -1]
    mine = torch.randperm(len(attended), generator=generator) < draw(generator, 1, len(attended) - 1)
    share = LEAST + (MOST - LEAST) * float(torch.rand((), generator=generator))
    weights = torch.where(mine, share / mine.sum(), (1 - share) / (~mine).sum()) * (1 - RARE)
    task = replace(families, weights=(RARE, *weights.tolist()))
    model, task, _ = start_same(generator, extra=1, task=task)
    first = torch.isin(torch.arange(_length(task)), attended[mine]).double()
    attend_to_equal(model, task, 1)
    for head, gains in ((EQUAL, first), (1, 1 - first)):
        write_position(model, task, head, gains=gains)
    mark_pairs(model, task, between=SURE)
    heads = {(0, head): HeadTruth(truth="faithful", looks="association") for head in (EQUAL, 1)}
    return finish_same_answer("same or different, divided", model, task, "previous", heads)


def same_majority(generator: torch.Generator) -> KnownAnswer:
    """Does the first symbol make up half of the string? An a I head finds equal symbols, a uniform one gathers them."""
    task = replace(random_template(generator, SAME), templates=majority(draw(generator, 2, 3)))
    model, task, _ = start_same(generator, extra=0, task=task)
    mark_pairs(model, task)
    heads = {(0, EQUAL): HeadTruth(truth="faithful", looks="association")}
    return finish_same_answer("majority", model, task, "uniform", heads, otherwise=OTHERWISE)


def _length(task: Template) -> int:
    return len(task.labelled[0].tokens)


def _attended(task: Template) -> Int[Tensor, "template place"]:
    """Position that an a I head attends to: the equal symbol elsewhere, or [CLS] if there is none."""
    found = torch.full((len(task.labelled), _length(task)), task.n_ctx - 1)
    for index, one in enumerate(task.labelled):
        for here, symbol in enumerate(one.tokens):
            for there, other in enumerate(one.tokens):
                if there != here and symbol == other:
                    found[index, here] = there
    return found


def _signs(task: Template, generator: torch.Generator) -> Float[Tensor, " key"]:
    """+1 or -1 for each position; wherever templates differ, the mean over them is at most a half."""
    attended = _attended(task)
    differ = (attended != attended[0]).any(0)
    while True:
        signs = torch.randint(0, 2, (task.n_ctx,), generator=generator).double() * 2 - 1
        if (signs[attended].mean(0).abs() <= 0.5)[differ].all():
            return signs


def _spoilt_at(task: Template, generator: torch.Generator) -> int:
    """Position that the last symbol of a random template attends to, whose label is not 0."""
    chosen = [index for index, one in enumerate(task.labelled) if one.label]
    return int(_attended(task)[chosen[draw(generator, 0, len(chosen) - 1)], -1])


INDIRECT: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "same, magnitude": same_magnitude,
    "same, constant": same_constant,
    "same, constant unreadably": partial(same_constant, readable=False),
    "same, masked redundancy": same_masked,
    "same, divided": same_divided,
    "majority": same_majority,
}
"""Every variant by name."""
