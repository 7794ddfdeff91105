"""Tasks that give another number of examples than they were asked for are named, as by `check_task`."""

from dataclasses import dataclass

import pytest
import torch

import interp
from hooks import make_model
from interp.tasks import Lego


@dataclass(frozen=True, kw_only=True)
class Uneven(Lego):
    sampled: int = 0
    paired: int = 0

    def sample(self, n, **options):
        return super().sample(n + self.sampled, **options)

    def counterparts(self, batch, **options):
        pairs = super().counterparts(batch, **options)
        n = len(pairs) + self.paired
        return pairs.select(torch.arange(n) % len(pairs))


def model_of(task):
    return make_model(interp.config_for(task, n_layers=1, d_model=16, n_heads=2)).eval()


@pytest.mark.parametrize("more", [-3, 5, -7])
def test_counterparts_of_another_number(more):
    task = Uneven(n_vars=2, paired=more)
    with pytest.raises(ValueError, match=rf"^Uneven\.counterparts gives {8 + more} examples; expected: 8\.$"):
        interp.patch(model_of(task), task, n=8)


@pytest.mark.parametrize("verb", ["patch", "evaluate", "logit_lens"])
@pytest.mark.parametrize("more", [-3, 5])
def test_samples_of_another_number(verb, more):
    task = Uneven(n_vars=2, sampled=more)
    words = rf"^Uneven\.sample\(16, split='test'\) gives {16 + more} examples; expected: 16\.$"
    with pytest.raises(ValueError, match=words):
        getattr(interp, verb)(model_of(task), task, n=16)


def test_the_check_of_a_task_has_the_same_words():
    with pytest.raises(ValueError, match=r"^Uneven\.sample\(\d+, split='train'\) gives \d+ examples; expected: \d+\.$"):
        interp.check_task(Uneven(n_vars=2, sampled=-3))
