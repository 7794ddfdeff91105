"""A task whose answer is a digit plus a mode, both of one token, and a model that computes it from both."""

from dataclasses import dataclass

import torch

from hooks import TransformerConfig
from interp.algorithms import Algorithm, Variable
from interp.known_answers.craft.weights import Registers, bias_of, empty_model, head_rows, mlp_of
from interp.tasks.base import Batch, Task
from interp.tasks.vocab import Vocab

DIGITS, MODES = 5, 3


@dataclass(frozen=True)
class DigitAndMode(Task):
    """`3b ?` is 3 plus the number of b, modulo 5."""

    disjoint_splits = False
    targets = ("answer",)
    answer_names = ("0", "1", "2", "3", "4")
    d_vocab_out = DIGITS

    @property
    def vocab(self):
        names = [f"{digit}{mode}" for digit in range(DIGITS) for mode in "abc"]
        return Vocab((*names, "?"))

    def batch(self, tokens):
        return Batch(
            tokens=torch.stack([tokens, torch.full_like(tokens, DIGITS * MODES)], 1),
            target_positions=torch.ones(len(tokens), 1, dtype=torch.long),
            labels=((tokens // MODES + tokens % MODES) % DIGITS)[:, None],
            supervised=torch.ones(1, dtype=torch.bool),
        )

    def sample(self, n, *, generator, split="train"):
        return self.batch(torch.randint(DIGITS * MODES, (n,), generator=generator))

    def every_input(self, split="test"):
        return self.batch(torch.arange(DIGITS * MODES))


def digit_plus_mode():
    """The algorithm: digit and mode of the first token, and their sum."""
    digit = Variable(name="digit", compute=lambda batch: batch.tokens[:, 0] // MODES)
    mode = Variable(name="mode", compute=lambda batch: batch.tokens[:, 0] % MODES)
    return Algorithm(
        name="digit plus mode",
        variables=(digit, mode),
        answers=lambda batch, digit, mode: ((digit + mode) % DIGITS)[:, None],
    )


@torch.no_grad()
def digit_and_mode_model():
    """One head brings the digit to the read-out, another one the mode, and an MLP adds them."""
    stream = Registers(
        {"digit": DIGITS, "mode": MODES, "sees": 2, "digit here": DIGITS, "mode here": MODES, "answer": 5}
    )
    model = empty_model(
        TransformerConfig(
            d_vocab=DIGITS * MODES + 1,
            d_vocab_out=DIGITS,
            n_ctx=2,
            n_layers=1,
            n_heads=2,
            d_model=stream.d_model,
            d_head=DIGITS,
            d_mlp=DIGITS * MODES,
            block="no_norm",
            activation="relu",
            attn_scale=1.0,
            positions="none",
        )
    )
    for token in range(DIGITS * MODES):
        model.embed.weight[token, stream["digit"].start + token // MODES] = 1
        model.embed.weight[token, stream["mode"].start + token % MODES] = 1
    block = model.block(0)
    for head, (name, size) in enumerate((("digit", DIGITS), ("mode", MODES))):
        rows = head_rows(block, head)
        block.attention.v.weight[rows][:size, stream[name]] = 2 * torch.eye(size).double()  # half of the attention
        block.attention.o.weight[stream[f"{name} here"], rows][:, :size] = torch.eye(size).double()
    mlp = mlp_of(block)
    for unit in range(DIGITS * MODES):
        digit, mode = divmod(unit, MODES)
        mlp.w_in.weight[unit, stream["digit here"].start + digit] = 1
        mlp.w_in.weight[unit, stream["mode here"].start + mode] = 1
        mlp.w_out.weight[stream["answer"].start + (digit + mode) % DIGITS, unit] = 1
    bias_of(mlp.w_in)[:] = -1
    model.unembed.weight[:, stream["answer"]] = torch.eye(DIGITS).double()
    return model.float()
