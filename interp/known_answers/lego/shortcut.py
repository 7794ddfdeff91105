"""A transformer that predicts the last variable of a chain of signs by counting minus signs.

Each minus flips the value, so the value of the last variable is the parity of the number of minus signs. One head
attends evenly to the sentence and counts them; the MLP computes the parity with a zigzag of relu units. Another head
detects the last variable, the only one whose letter occurs once, since no clause uses it.
"""

import torch
from torch import Tensor

from hooks import Transformer
from hooks.typed import checks_types
from interp.known_answers.craft.weights import Registers, balance, bias_of, head_rows, mlp_of
from interp.known_answers.lego.loop import CONFIDENCE, attend_to_same_token, embed_tokens, empty_chain
from interp.tasks import Lego
from interp.tasks.lego.groups import Z2

COUNT, ELSEWHERE = 0, 1
"""Indices of the head that counts and the head that attends to other occurrences of a letter."""
FIRST = 0.01
"""Logit of the first value for the other variables, so that their answers do not depend on rounding."""


@checks_types
def lego_shortcut(task: Lego) -> Transformer:
    """A one-layer transformer that solves the last variable of sign chains exactly, and no other variable.

    For the other variables it always predicts the first value.

    Args:
        task: Task of any number of variables, over signs (Z2), in the paper's format.

    Returns:
        The model, in float64.

    Raises:
        ValueError: another group, or the compact format.
    """
    return larger_shortcut(task)


@torch.no_grad()
def larger_shortcut(task: Lego, *, heads: int = 0, registers: int = 0) -> Transformer:
    """The shortcut with additional heads and coordinates of zero weights, as of `larger_loop`."""
    if task.group != Z2:
        raise ValueError(f"task has group={task.group.name!r}; only for signs (Z2) is the value the parity of a count.")
    if task.sentence_format != "paper":
        raise ValueError(f"task has sentence_format={task.sentence_format!r}; give 'paper', with its [BOS].")
    stream = Registers(
        {
            "token": task.d_vocab,
            "position": task.n_ctx,
            "minus": 1,  # number of minus signs, within the layer
            "alone": 1,  # 1 if the token occurs nowhere else, within the layer
            "last": 1,  # 1 at the last variable's letter
            "odd": 1,  # parity of the minus signs, at that letter
        }
    )
    model = empty_chain(
        task, n_heads=2 + heads, d_model=stream.d_model + registers, n_layers=1, d_mlp=task.n_vars + 3, tied=False
    )
    embed_tokens(model, task, stream)
    _write_heads(model, task, stream)
    _write_mlp(model, task, stream)
    model.unembed.weight[:, stream["last"]] = torch.tensor([[CONFIDENCE], [0.0]])
    model.unembed.weight[:, stream["odd"]] = torch.tensor([[-CONFIDENCE], [CONFIDENCE]])
    model.b_U[0] = FIRST
    balance(model)
    return model.eval()


def _write_heads(model: Transformer, task: Lego, stream: Registers) -> None:
    """The counting head has zero queries and keys: the mean of n_ctx for each minus sign is their number."""
    block = model.block(0)
    ids = task.vocab.ids
    rows = head_rows(block, COUNT)
    block.attention.v.weight[rows][0, stream["token"].start + ids["-"]] = task.n_ctx
    block.attention.o.weight[stream["minus"], rows.start] = 1
    # The other head finds [BOS], which it attends to if the letter occurs nowhere else
    rows = head_rows(block, ELSEWHERE)
    attend_to_same_token(block, rows, task, stream)
    block.attention.v.weight[rows][0, stream["token"].start + ids["[BOS]"]] = 1
    block.attention.o.weight[stream["alone"], rows.start] = 1


def _write_mlp(model: Transformer, task: Lego, stream: Registers) -> None:
    """Compute the parity of minus signs where a letter occurs once, and clear the registers of the layer."""
    mlp = mlp_of(model.block(0))
    reads = mlp.w_in.weight
    writes = mlp.w_out.weight
    shut = 2 * task.n_vars + 2
    unit = 0
    # A zigzag of the count: up by one, down by one, ...
    for turn in range(task.n_vars):
        _read_last(reads[unit], task, stream, shut)
        reads[unit, stream["minus"]] = 1
        bias_of(mlp.w_in)[unit] = -turn - 2 * shut
        writes[stream["odd"], unit] = 1 if turn == 0 else 2 * (-1) ** turn
        unit += 1
    # Whether this is the last variable
    _read_last(reads[unit], task, stream, 1)
    bias_of(mlp.w_in)[unit] = -1
    writes[stream["last"], unit] = 1
    # Clear the registers
    for name in ("minus", "alone"):
        unit += 1
        reads[unit, stream[name]] = 1
        writes[stream[name], unit] = -1


def _read_last(unit: Tensor, task: Lego, stream: Registers, size: int) -> None:
    """Read 2 `size` at a letter that occurs once, and `size` if only one of the two holds."""
    unit[[task.vocab.ids[letter] + stream["token"].start for letter in task.alphabet]] = size
    unit[stream["alone"]] = size
