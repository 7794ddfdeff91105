"""A task whose answer depends on two flags, and models that have both at one place, in directions at any angle."""

from dataclasses import dataclass

import torch

from hooks import TransformerConfig
from interp.algorithms import Algorithm, Variable
from interp.known_answers.craft.weights import SHARP, Registers, bias_of, empty_model, head_rows, mlp_of, position_table
from interp.tasks.base import Batch, Task
from interp.tasks.vocab import Vocab

BITS, WIDTH = 4, 6
"""Tokens of an input before the question, and coordinates in which the flags are."""
ANSWERS = {"both": ((0, 1), (2, 3)), "xor": ((0, 1), (1, 0)), "or": ((0, 1), (1, 1)), "and": ((0, 0), (0, 1))}
"""The answer for each value of the first and of the second flag."""


@dataclass(frozen=True)
class TwoFlags(Task):
    """`0110?`: do the first two bits differ, and do the last two?"""

    question: str = "both"
    disjoint_splits = False
    targets = ("answer",)

    @property
    def vocab(self):
        return Vocab(("0", "1", "?"))

    @property
    def answer_names(self):
        return tuple(map(str, range(self.d_vocab_out)))

    @property
    def d_vocab_out(self):
        return 1 + max(map(max, ANSWERS[self.question]))

    def batch(self, bits):
        first, second = flags(bits)
        return Batch(
            tokens=torch.cat([bits, torch.full((len(bits), 1), 2)], 1),
            target_positions=torch.full((len(bits), 1), BITS),
            labels=torch.tensor(ANSWERS[self.question])[first, second][:, None],
            supervised=torch.ones(1, dtype=torch.bool),
        )

    def sample(self, n, *, generator, split="train"):
        return self.batch(torch.randint(2, (n, BITS), generator=generator))

    def every_input(self, split="test"):
        return self.batch(torch.cartesian_prod(*[torch.arange(2)] * BITS))


def flags(bits):
    """Whether the first two bits differ, and the last two."""
    return bits[:, 0] ^ bits[:, 1], bits[:, 2] ^ bits[:, 3]


def flag(index):
    """One of the flags."""
    return Variable(name=f"flag {index}", compute=lambda batch: flags(batch.tokens)[index])


def answers_of(task):
    """Answers from the values of both flags."""
    return lambda batch, first, second: torch.tensor(ANSWERS[task.question])[first, second][:, None]


def flags_of(task):
    """The algorithm of the models."""
    return Algorithm(name="flags", variables=(flag(0), flag(1)), answers=answers_of(task))


def first_flag_of(task):
    """The same with the second flag unnamed: part of how the answer follows from the input."""
    second = lambda batch: flags(batch.tokens)[1]  # noqa: E731
    return Algorithm(
        name="first flag",
        variables=(flag(0),),
        answers=lambda batch, first: answers_of(task)(batch, first, second(batch)),
    )


def flag_and_equality_of(task):
    """The same answers from the first flag, and from whether the flags differ: the models do not have the latter."""
    differ = Variable(name="flags differ", compute=lambda batch: torch.stack(flags(batch.tokens)).sum(0) % 2)
    return Algorithm(
        name="flag and equality",
        variables=(flag(0), differ),
        answers=lambda batch, first, differ: answers_of(task)(batch, first, first ^ differ),
    )


def crossed_parities():
    """The answers to `xor` from parities of other bits, which the models do not have."""

    def parity(first, second):
        compute = lambda batch: batch.tokens[:, first] ^ batch.tokens[:, second]  # noqa: E731
        return Variable(name=f"parity {first}{second}", compute=compute)

    return Algorithm(
        name="crossed parities",
        variables=(parity(0, 2), parity(1, 3)),
        answers=lambda batch, first, second: (first ^ second)[:, None],
    )


@torch.no_grad()
def two_flags_model(task, *, cosine, seed=0, n_idle=0):
    """Four heads bring the bits to the end, one MLP writes a flag in each of two directions, the next one reads both.

    Args:
        task: Which answer it gives.
        cosine: Of the directions, which are otherwise random.
        seed: Determines the directions.
        n_idle: Number of layers that follow and add nothing.
    """
    stream = Registers({"bit": 1, "position": BITS + 1, "brought": BITS, "flags": WIDTH, "answer": task.d_vocab_out})
    model = empty_model(
        TransformerConfig(
            d_vocab=3,
            d_vocab_out=task.d_vocab_out,
            n_ctx=BITS + 1,
            n_layers=2 + n_idle,
            n_heads=BITS,
            d_model=stream.d_model,
            d_head=1,
            d_mlp=4,
            block="no_norm",
            activation="relu",
            attn_scale=1.0,
        )
    )
    model.embed.weight[1, stream["bit"]] = 1
    position_table(model)[:, stream["position"]] = torch.eye(BITS + 1).double()
    # Layer 0: each head brings one bit to the end, and two units for each flag see whether bits differ
    block = model.block(0)
    for head in range(BITS):
        rows = head_rows(block, head)
        bias_of(block.attention.q)[rows] = SHARP
        block.attention.k.weight[rows, stream["position"].start + head] = 1
        block.attention.v.weight[rows, stream["bit"]] = 1
        block.attention.o.weight[stream["brought"].start + head, rows] = 1
    directions = directions_at(cosine, seed)
    mlp = mlp_of(block)
    for unit in range(4):
        pair, order = divmod(unit, 2)
        sign = 1 - 2 * order
        bits = stream["brought"].start + 2 * pair
        mlp.w_in.weight[unit, bits : bits + 2] = sign * torch.tensor([1.0, -1.0]).double()
        mlp.w_out.weight[stream["flags"], unit] = directions[:, pair]
    # Layer 1: a unit for each value of both, which reads each flag where the other one writes nothing
    mlp = mlp_of(model.block(1))
    readers = torch.linalg.pinv(directions)
    for unit in range(4):
        first, second = divmod(unit, 2)
        signs = torch.tensor([2 * first - 1, 2 * second - 1]).double()
        mlp.w_in.weight[unit, stream["flags"]] = signs @ readers
        bias_of(mlp.w_in)[unit] = 1 - first - second
        mlp.w_out.weight[stream["answer"].start + ANSWERS[task.question][first][second], unit] = 1
    model.unembed.weight[:, stream["answer"]] = torch.eye(task.d_vocab_out).double()
    return model.float()


def directions_at(cosine, seed):
    """Two random directions of length 1 with this cosine."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(WIDTH, 2, generator=generator, dtype=torch.float64))[0]
    second = cosine * basis[:, 0] + (1 - cosine**2) ** 0.5 * basis[:, 1]
    return torch.stack([basis[:, 0], second], 1)
