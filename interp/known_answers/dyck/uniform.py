"""Corollary 1 of the bounded-Dyck paper as a model: exact next-token probabilities from uniform attention.

x -> depth -> e(bracket, depth) -> symbols on the stack -> top of the stack -> logits, one function for each arrow.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer, presets
from hooks.model.blocks import MLP, Block
from hooks.typed import checks_types
from interp.known_answers.craft.weights import empty_model, mlp_of
from interp.known_answers.dyck.one_hot import TINY, bracket_states, pair_coordinates
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START, closer, opener
from interp.tasks.dyck.sampling import prefix_probabilities

FORBIDDEN = -60.0
"""Logit of impossible next tokens; the logit of others is the log of their probability. exp(-60) is 9e-27."""


@checks_types
def uniform_dyck(task: Dyck) -> Transformer:
    """A two-layer transformer that gives `task.next_token_probabilities` exactly, for prefixes of any length.

    Both heads are hard-coded as uniform over the past, so that no attention pattern depends on the stack. The residual
    stream holds

    - after layer 0 (`blocks.0.hook_resid_post`): e(bracket, depth), as in `BracketStates(encoding="pair")`;
    - after layer 1 (`blocks.1.hook_resid_post`): coordinate `type * max_depth + level - 1` is 1 if the top of the stack
      is a bracket of that type and level; all are 0 at depth 0.

    Args:
        task: Language of prefixes. Its `length` matters only beyond 6000, since the model reads at least 6000 tokens.

    Returns:
        The model, in float64. `model.float()` is exact up to float32 rounding.

    Raises:
        ValueError: a task of complete words, whose next token depends on the number of brackets read.

    Source: bounded-Dyck paper (arXiv:2312.01429) Corollary 1, Eq. 6 for the layers. Differs: the MLPs have one hidden
    layer each, the paper's six in all; the output is logits, so that forbidden tokens have a total probability of about
    e^-60; LN_0 is a LayerNorm with eps 1e-30 whose gain undoes sqrt(d_model); hidden units saturate, so that rounding
    errors do not accumulate over a long prefix.
    """
    if task.words != "prefixes":
        raise ValueError(
            f"task has words={task.words!r}; only of prefixes does the next token depend on the stack alone. "
            f"Use Dyck(words='prefixes')."
        )
    states = bracket_states(task)
    symbols = task.n_types * task.max_depth + 1  # every symbol that can be on the stack, and [START]
    cfg = presets.dyck_uniform(
        d_vocab=task.d_vocab,
        d_model=states.width + 2 * symbols,
        d_head=symbols,
        d_mlp=task.d_vocab + 4 * task.n_types * (task.max_depth - 1),
        block="dyck",
        attn_bias=False,
        layer_norm_eps=TINY,
        n_ctx=max(task.n_ctx, presets.DYCK_POSITIONS),
    )
    model = empty_model(cfg)
    with torch.no_grad():
        model.W_E[:, : task.d_vocab] = torch.eye(task.d_vocab)
        _read_depth(model.block(0), states)
        _write_states(model.block(0), states)
        _read_stack(model.block(1), states)
        _write_top(model.block(1), states)
        _write_logits(model, task)
    return model.eval()


def _read_depth(block: Block, states: BracketStates) -> None:
    """Attention and norm of layer 0: sine and cosine of arctan(depth), written after the one-hot of the token.

    The mean over n tokens is (depth, 1) / n; the norm removes the factor 1 / n.
    """
    value = block.attention.v.weight
    value[0, states.first_bracket : states.d_vocab : 2] = 1
    value[0, states.first_bracket + 1 : states.d_vocab : 2] = -1
    value[1, START] = 1
    _write_unit_vector(block, start=states.d_vocab, size=2)


def _write_unit_vector(block: Block, *, start: int, size: int) -> None:
    """Write the first `size` dimensions of the head, normalised, to the stream from coordinate `start` on.

    A copy with the opposite sign keeps the mean at zero. The norm's gain is zero on the copy, and sqrt(2 / d_model) on
    the original, which undoes the norm's factor.
    """
    identity = torch.eye(size)
    block.attention.o.weight[start : start + size, :size] = identity
    block.attention.o.weight[start + size : start + 2 * size, :size] = -identity
    block.norm_1.weight[start : start + size] = math.sqrt(2 / len(block.norm_1.weight))


def _write_states(block: Block, states: BracketStates) -> None:
    """MLP of layer 0: e(bracket, depth), one coordinate for each state (bracket, depth).

    Start at the bracket's lowest state; each boundary below its depth moves it up one state. The sign of
    sine - boundary * cosine is that of depth - boundary; scaled, its absolute value is at least 1, and a step from -1/2
    to 1/2 turns it into 0 or 1. A step is active only for its own token.
    """
    mlp = mlp_of(block)
    sine = states.d_vocab
    # Without its token, the input of a step must be below -1/2: the scaled value is at most the largest `steep`, which
    # the gate exceeds by 1 or more
    gate = math.ceil(2 * math.hypot(1, states.max_depth)) + 1.0
    unit = 0
    for token in range(states.d_vocab):
        bracket = token - states.first_bracket
        is_mark = bracket < 0
        # One unit for the lowest state
        lowest = token if is_mark else states.first_bracket + bracket * states.max_depth
        mlp.w_in.weight[unit, token] = 1
        mlp.w_out.weight[lowest, unit] = 1
        unit += 1
        # Two units for each boundary, which move the bracket up by one state
        for step in range(1, 0 if is_mark else states.max_depth):
            # Midway between two depths: states are of depths 1 to max_depth for openers, 0 to max_depth - 1 for closers
            boundary = step + 0.5 - bracket % 2
            # sine - boundary * cosine is (depth - boundary) / hypot(1, depth): least at the depth above the boundary
            steep = 2 * math.hypot(1, boundary + 0.5)
            direction = torch.zeros(mlp.w_in.weight.shape[1], dtype=torch.float64)
            direction[sine] = steep
            direction[sine + 1] = -steep * boundary
            direction[token] = gate
            step_output = _write_step(mlp, unit, direction, -gate)
            mlp.w_out.weight[lowest + step] += step_output
            mlp.w_out.weight[lowest + step - 1] -= step_output
            unit += 2


def _write_step(mlp: MLP, unit: int, direction: Tensor, bias: float) -> Float[Tensor, " d_mlp"]:
    """Write two hidden units whose difference is 0 if direction x + bias is below -1/2, and 1 if it is above 1/2.

    Returns:
        The vector that reads the step from the hidden units.
    """
    mlp.w_in.weight[unit : unit + 2] = direction
    mlp.w_in.bias_or_zero[unit] = bias + 0.5
    mlp.w_in.bias_or_zero[unit + 1] = bias - 0.5
    step = torch.zeros(mlp.w_in.weight.shape[0], dtype=torch.float64)
    step[unit] = 1
    step[unit + 1] = -1
    return step


def _read_stack(block: Block, states: BracketStates) -> None:
    """Attention and norm of layer 1: 1 / sqrt(1 + depth) for each symbol on the stack and for [START].

    A closer subtracts what its opener adds: the balance condition (Eq. 11) in its simplest form.
    """
    opens, closes = pair_coordinates(states)
    symbol = torch.arange(opens.numel())
    value = block.attention.v.weight
    value[symbol, opens.flatten()] = 1
    value[symbol, closes.flatten()] = -1
    value[opens.numel(), START] = 1
    _write_unit_vector(block, start=states.width, size=opens.numel() + 1)


def _write_top(block: Block, states: BracketStates) -> None:
    """MLP of layer 1: the top of the stack.

    sqrt(1 + d) * symbol + [depth is d] - 1 is 1 if the symbol, of level d, is the top, and at most 0 otherwise.
    """
    mlp = mlp_of(block)
    opens, closes = pair_coordinates(states)
    for symbol in range(opens.numel()):
        level = symbol % states.max_depth + 1
        direction = torch.zeros(mlp.w_in.weight.shape[1], dtype=torch.float64)
        direction[states.width + symbol] = math.sqrt(1 + level)
        # [depth is d] is read from the current token's state: an opener of this level, or a closer of the next one
        direction[opens[:, level - 1]] = 1
        if level < states.max_depth:
            direction[closes[:, level]] = 1
        # Scaled to 2 (s - 3/2): s, the sum without - 1, is 2 for the top, else at most 1
        mlp.w_out.weight[symbol] = _write_step(mlp, 2 * symbol, 2 * direction, -3.0)


def _write_logits(model: Transformer, task: Dyck) -> None:
    """Read-out: log-probabilities at depth 0 as biases, and the change of them by each top of the stack as weights."""
    open_probability = prefix_probabilities(task.q, task.max_depth, 0).opens[0]  # by depth
    openers = slice(opener(0), None, 2)
    log_open = open_probability.log().clamp_min(FORBIDDEN)
    log_close = (1 - open_probability).log().clamp_min(FORBIDDEN)
    model.b_U[:] = FORBIDDEN
    model.b_U[openers] = log_open[0] - math.log(task.n_types)
    for kind in range(task.n_types):
        for level in range(1, task.max_depth + 1):
            change = model.unembed.weight[:, kind * task.max_depth + level - 1]
            change[openers] = log_open[level] - log_open[0]
            change[closer(kind)] = log_close[level] - FORBIDDEN
