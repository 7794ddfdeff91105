"""A transformer that tells the last variable of a chain of signs without following the chain: it counts minus signs.

A sign turns the value over, so the last variable's value is the parity of all minus signs. One head spreads its
attention evenly over the sentence and counts them; the MLP takes the parity, as a zigzag of relu units. Another head
asks whether a letter stands elsewhere: the last variable's, which nobody uses, does not. Of the other variables
nothing is said.
"""

import torch
from torch import Tensor

from hooks import Transformer
from interp.known_answers.craft.wiring import Registers, balance, bias_of, head_rows, mlp_of, wire_norms
from interp.known_answers.lego.loop import CONFIDENCE, embed_tokens, empty_chain, look_at_same_token
from interp.tasks import Lego
from interp.tasks.lego.groups import Z2

COUNT, ELSEWHERE = 0, 1
"""Which head is which: the one that counts, and the one that looks for a letter's other place."""
FIRST = 0.01
"""Logit of the first value where nothing is known, so that no rounding decides the answer there."""


def lego_shortcut(task: Lego) -> Transformer:
    """A transformer of one layer that solves the last variable of sign chains exactly, and no other.

    Nothing is known of the other variables: their logits are even but for a trifle, and the answer is the first value.

    Args:
        task: Any number of variables, over signs (Z2), in the paper's format.

    Returns:
        The model, in float64.

    Raises:
        ValueError: another group, or the compact format.
    """
    if task.group != Z2:
        raise ValueError(f"task has group={task.group.name!r}; only a value of signs (Z2) is the parity of a count.")
    if task.sentence_format != "paper":
        raise ValueError(f"task has sentence_format={task.sentence_format!r}; give 'paper', with its [BOS].")
    at = Registers(
        {
            "token": task.d_vocab,
            "position": task.n_ctx,
            "minus": 1,  # how many there are, for as long as the layer lasts
            "alone": 1,  # 1 where the token stands nowhere else, for as long as the layer lasts
            "last": 1,  # 1 at the last variable's letter
            "odd": 1,  # and the parity of minus signs there
        }
    )
    model = empty_chain(task, at, n_layers=1, d_mlp=task.n_vars + 3)
    with torch.no_grad():
        embed_tokens(model, task, at)
        _look(model, task, at)
        _decide(model, task, at)
        model.unembed.weight[:, at["last"]] = torch.tensor([[CONFIDENCE], [0.0]])
        model.unembed.weight[:, at["odd"]] = torch.tensor([[-CONFIDENCE], [CONFIDENCE]])
        model.b_U[0] = FIRST
        wire_norms(model)
        balance(model)
    return model.eval()


def _look(model: Transformer, task: Lego, at: Registers) -> None:
    """Without queries and keys attention is even, and the mean of n_ctx for each minus sign is their number."""
    block, ids = model.block(0), task.vocab.ids
    rows = head_rows(block, COUNT)
    block.attention.v.weight[rows][0, at["token"].start + ids["-"]] = task.n_ctx
    block.attention.o.weight[at["minus"], rows.start] = 1
    rows = head_rows(block, ELSEWHERE)
    look_at_same_token(block, rows, task, at)
    block.attention.v.weight[rows][0, at["token"].start + ids["[BOS]"]] = 1
    block.attention.o.weight[at["alone"], rows.start] = 1


def _decide(model: Transformer, task: Lego, at: Registers) -> None:
    """The parity of minus signs where a letter stands alone; then what was gathered is cleared away."""
    mlp = mlp_of(model.block(0))
    reads, writes, shut = mlp.w_in.weight, mlp.w_out.weight, 2 * task.n_vars + 2
    unit = 0
    for turn in range(task.n_vars):  # up by one, down by one, ...
        _read_last(reads[unit], task, at, shut)
        reads[unit, at["minus"]] = 1
        bias_of(mlp.w_in)[unit] = -turn - 2 * shut
        writes[at["odd"], unit] = 1 if turn == 0 else 2 * (-1) ** turn
        unit += 1
    _read_last(reads[unit], task, at, 1)
    bias_of(mlp.w_in)[unit] = -1
    writes[at["last"], unit] = 1
    for name in ("minus", "alone"):
        unit += 1
        reads[unit, at[name]], writes[at[name], unit] = 1, -1


def _read_last(unit: Tensor, task: Lego, at: Registers, size: int) -> None:
    """Twice `size` at a letter that stands alone, and half of that where one of the two is missing."""
    unit[[task.vocab.ids[letter] + at["token"].start for letter in task.alphabet]] = size
    unit[at["alone"]] = size
