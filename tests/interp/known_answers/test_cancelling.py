"""Heads that cancel: factors, noise, and options that cannot be."""

from itertools import combinations

import pytest
import torch

from interp.known_answers import SUITE, known_answer
from interp.known_answers.craft.cancelling import cancelling_factors
from interp.known_answers.dyck.variants import dyck_cancelling
from interp.known_answers.lego.added import cancelling
from interp.known_answers.template.copy_variants import copy_cancelling
from interp.known_answers.template.same_variants import same_cancelling
from interp.tasks import Lego

TASK = Lego(n_vars=2, alphabet="abcdefghijklmnop")
OF_ONE_OF_THREE = "loop three cancel in noise, manipulation"
"""Only the first of its three heads has noise, so that the others, which have the same sign, are parallel."""
CANCELLING = [name for name in SUITE if "cancel" in name and not name.startswith(OF_ONE_OF_THREE)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def writes(answer, heads):
    """Output of each head, minus its mean over sequences at each position, as one vector each."""
    batch = answer.task.sample(64, generator=seeded(), split="test")
    _, cache = answer.model.run_with_cache(batch.tokens)
    outputs = []
    for layer, head in heads:
        if answer.model.cfg.vo_identity:
            output = cache[f"blocks.{layer}.attn.hook_result"][:, :, head]
        else:
            output = cache["z", layer][:, :, head] @ answer.model.blocks[layer].attn.W_O[head]
        outputs.append((output - output.mean(0)).flatten())
    return torch.stack(outputs)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_heads", [2, 3])
def test_only_all_factors_together_sum_to_zero(n_heads, seed):
    factors = cancelling_factors(seeded(seed), n_heads)
    assert factors.sum().abs() < 1e-15
    subsets = [subset for size in range(1, n_heads) for subset in combinations(range(n_heads), size)]
    assert min(abs(float(factors[list(subset)].sum())) for subset in subsets) >= 0.35


@pytest.mark.parametrize("name", CANCELLING)
@torch.no_grad()
def test_noise_hides_that_writes_are_opposite(name):
    answer = known_answer(name, 0)
    vectors = writes(answer, [head for head, truth in answer.heads.items() if truth.partners])
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    cosines = torch.triu(unit @ unit.T, diagonal=1)
    if "noise" in name:
        assert cosines.abs().max() < 0.3
    else:
        assert cosines.min() < -0.99


@pytest.mark.parametrize("build", [dyck_cancelling, same_cancelling, copy_cancelling])
def test_other_numbers_of_heads_and_unknown_noise_raise(build, as_a_user):
    with pytest.raises(ValueError, match="n_heads is 4; two or three heads can cancel"):
        build(seeded(), n_heads=4)
    with pytest.raises(ValueError, match="noise is 'loud'"):
        build(seeded(), noise="loud")


def test_unknown_patterns_raise(as_a_user):
    with pytest.raises(ValueError, match="pattern is 'flat'"):
        dyck_cancelling(seeded(), pattern="flat")
    with pytest.raises(ValueError, match="pattern is 'even'"):
        cancelling(TASK, seeded(), pattern="even")
    with pytest.raises(ValueError, match="n_heads is 4; two or three heads can cancel"):
        cancelling(TASK, seeded(), n_heads=4)
