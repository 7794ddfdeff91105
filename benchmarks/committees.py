"""Random models whose heads vote on a bit: with backups, majorities and cancellation.

Tokens encode a bit and a level of noise. Heads of the first layer add multiples of the bit to the vote, or to a second
sum that the MLP limits to -1 and 1. Heads of the second layer add multiples of the bit, or of the limited sum, to the
vote. The sign of vote plus noise is the answer.
"""

from dataclasses import dataclass
from typing import Any

import torch

from hooks import Transformer, TransformerConfig
from hooks.model.transformer import TransformerStack
from interp.auditing.experiments import HeadExperiments
from interp.auditing.sets import HeadSets, find_sets
from interp.core.randomness import derived_generator
from interp.core.sample import Sample
from interp.tasks.base import Batch, Split, Task
from interp.tasks.vocab import Vocab

LEVELS = 50
N_SEARCH = 64
BIT, VOTE, SUM, LIMITED = range(4)


@dataclass(frozen=True, kw_only=True)
class Bits(Task):
    """Read the bit of a token."""

    @property
    def vocab(self) -> Vocab:
        return Vocab(tuple(map(str, range(2 * LEVELS))))

    @property
    def targets(self) -> tuple[str, ...]:
        return ("bit",)

    @property
    def d_vocab_out(self) -> int:
        return 2

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        tokens = torch.randint(2 * LEVELS, (n, 1), generator=generator)
        position = torch.zeros_like(tokens)
        return Batch(
            tokens=tokens, target_positions=position, labels=tokens % 2, supervised=torch.ones(1, dtype=torch.bool)
        )


def draw(generator: torch.Generator, *values: int) -> int:
    """One of the values."""
    return values[int(torch.randint(len(values), (), generator=generator))]


@torch.no_grad()
def committee(generator: torch.Generator, *, n_heads: int = 5) -> TransformerStack:
    """A random model of two layers."""
    config = TransformerConfig(
        d_vocab=2 * LEVELS,
        d_vocab_out=2,
        d_model=4,
        d_head=1,
        n_heads=n_heads,
        n_layers=2,
        n_ctx=1,
        block="no_norm",
        d_mlp=2,
        activation="relu",
        positions="none",
    )
    # Zero weights
    model = Transformer(config).double().eval()
    for parameter in model.parameters():
        parameter.zero_()
    # Tokens write the bit and, to the vote, noise and possibly a multiple of the bit
    bit = torch.arange(2 * LEVELS) % 2 * 2.0 - 1
    noise = 3 * torch.rand(2 * LEVELS, generator=generator, dtype=torch.float64) - 1.5
    model.embed.weight[:, BIT] = bit.double()
    model.embed.weight[:, VOTE] = draw(generator, -2, -1, 0, 1) * bit + noise
    model.unembed.weight[:, VOTE] = torch.tensor([-1.0, 1.0])
    # Every head adds a multiple to the vote; half of them by way of the sum that the MLP limits
    for layer, block in enumerate(model.stored_blocks):
        for head in range(n_heads):
            source = BIT
            write = VOTE
            weight = draw(generator, -3, -2, -1, 0, 0, 1, 1, 2, 3, 4)
            if draw(generator, 0, 1):
                source, write = (BIT, SUM) if layer == 0 else (LIMITED, VOTE)
                weight = draw(generator, -1, 0, 1, 1, 2) if layer == 0 else draw(generator, -2, 1, 2, 3)
            block.attention.v.weight[head, source] = 1
            block.attention.o.weight[write, head] = weight
    _limit(model.stored_blocks[0].mlp)
    return model


def _limit(mlp: Any) -> None:
    """relu(x + 1) - relu(x - 1) - 1, which is x between -1 and 1."""
    mlp.w_in.weight[:, SUM] = 1
    mlp.w_in.bias[:] = torch.tensor([1.0, -1.0])
    mlp.w_out.weight[LIMITED] = torch.tensor([1.0, -1.0])
    mlp.w_out.bias[LIMITED] = -1


def drawn_committee(seed: int, *, n_heads: int = 5) -> TransformerStack:
    """A committee that answers at least 80 % correctly."""
    generator = derived_generator(seed, "committee")
    task = Bits()
    while True:
        model = committee(generator, n_heads=n_heads)
        batch = task.sample(N_SEARCH, generator=generator)
        with torch.no_grad():
            if (model(batch.tokens)[:, 0].argmax(-1) == batch.labels[:, 0]).double().mean() >= 0.8:
                return model


def sets_of(model: TransformerStack, task: Task, *, seed: int, most_exact: int) -> HeadSets:
    """The sets that `find_sets` finds, with the heads that are needed alone taken from other sequences."""

    def experiments(n: int, split: Split) -> HeadExperiments:
        batch = task.sample(n, generator=derived_generator(seed, "sets of committees", split), split=split)
        return HeadExperiments(model, Sample(task, batch, seed))

    search = experiments(N_SEARCH, "validation")
    main = experiments(4 * N_SEARCH, "test")
    score = main.score
    total = score.total.double().numpy().sum(0)
    clean = score.right.double().numpy().sum(0) / total
    threshold = 0.2 * (clean - task.chances)
    accuracy_drops = main.removed([(head,) for head in main.heads]).sum(0) / total
    needed = [head for head, row in zip(main.heads, accuracy_drops, strict=True) if (row > threshold).any()]
    outcomes = [index for index, drop in enumerate(threshold) if drop > 0]
    return find_sets(search, needed, outcomes, threshold[outcomes], further=main, most_exact=most_exact)
