"""Verdicts on trained models against what all subsets of heads show, on other sequences."""

from itertools import combinations

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.auditing.experiments import HeadExperiments
from interp.auditing.significance import LITTLE, MUCH
from interp.core.sample import Sample
from interp.tasks import Batch, Task, Vocab

N = 2000


class LargerOfTwo(Task):
    """Digits; the answer at each is the larger of it and the one before."""

    targets = ("#1", "#2", "#3", "#4", "#5")

    @property
    def vocab(self):
        return Vocab([str(digit) for digit in range(10)])

    def sample(self, n, *, generator, split="train"):
        digits = torch.randint(10, (n, 6), generator=generator)
        low, high = {"train": (2, 10), "validation": (0, 1), "test": (1, 2)}[split]
        remainder = torch.randint(low, high, (n,), generator=generator)
        digits[:, 5] = (remainder - digits[:, :5].sum(1)) % 10
        labels = torch.maximum(digits[:, 1:], digits[:, :-1])
        positions = torch.arange(1, 6).expand(n, 5)
        return Batch(
            tokens=digits, target_positions=positions, labels=labels, supervised=torch.ones(5, dtype=torch.bool)
        )


def losses_of_subsets(model, task):
    """Accuracy lost without every subset of the heads, on each outcome, as a multiple of what counts."""
    batch = task.sample(N, generator=torch.Generator().manual_seed(77), split="test")
    experiments = HeadExperiments(model, Sample(task, batch, 77))
    heads = experiments.heads
    subsets = [subset for size in range(1, len(heads) + 1) for subset in combinations(heads, size)]
    total = experiments.score.total.double().numpy().sum(0)
    clean = experiments.score.right.double().numpy().sum(0) / total
    threshold = 0.2 * (clean - np.array(task.chances))
    losses = experiments.removed(subsets).sum(0) / total / threshold
    return {frozenset(): np.zeros(len(total))} | dict(zip(map(frozenset, subsets), losses, strict=True))


def most_beyond(losses, head):
    """What a head costs at most beyond other heads that leave half of the accuracy above chance."""
    without = [heads for heads in losses if head not in heads]
    costs = [np.where(losses[heads] <= 2.5, losses[heads | {head}] - losses[heads], 0).max() for heads in without]
    return max(costs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_heads_that_back_each_other_up(seed):
    """Four heads that all look at the digit before: which of them are needed, and which only together."""
    task = LargerOfTwo()
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=4, d_model=32), seed=seed)
    settings = interp.TrainSettings(steps=400, batch_size=128, learning_rate=5e-3, n_eval=200)
    model = interp.train(model, task, settings).model
    losses = losses_of_subsets(model, task)
    result = interp.audit(model, task, seconds=None)
    assert result.of("undecided") == ()
    # Wide enough that neither the sequences of the audit nor these decide
    margin = 0.25
    for head in result.heads:
        alone, beyond = losses[frozenset([head.place])].max(), most_beyond(losses, head.place)
        if head.verdict in ("idle", "misleading") and head.reason == "not needed":
            assert max(alone, beyond) < 1 + margin
        elif head.verdict == "redundant":
            assert beyond > 1 - margin
        elif head.verdict == "marginal":
            assert LITTLE - margin < max(alone, beyond)
            assert alone < MUCH + margin
        else:
            assert alone > 1 - margin
        # Partners agree
        by_place = {other.place: other for other in result.heads}
        if head.verdict == "redundant":
            assert all(head.place in by_place[partner].partners for partner in head.partners)
    named = {partner for head in result.heads if head.verdict == "redundant" for partner in head.partners}
    assert all(by_place[place].verdict not in ("idle", "misleading") for place in named)
