"""Hand-written heads that cancel: factors, noise, and the cost of every set of them."""

from itertools import combinations

import pytest
import torch
from known_truth import names_of

from interp.known_answers.craft.cancelling import cancelling_factors
from interp.known_answers.dyck.variants import dyck_cancelling
from interp.known_answers.suite import DYCK_ANSWERS

CANCELLING = names_of(DYCK_ANSWERS, dyck_cancelling)


def built(name, seed=0):
    return DYCK_ANSWERS[name](torch.Generator().manual_seed(seed + len(name)))


def cancelling(answer):
    return [head for head, truth in answer.heads.items() if truth.partners]


def writes(answer, heads):
    """Output of each head, minus its mean over sequences at each position, as one vector each."""
    batch = answer.task.sample(64, generator=torch.Generator().manual_seed(0), split="test")
    _, cache = answer.model.run_with_cache(batch.tokens)
    z, out = cache["z", 0], answer.model.blocks[0].attn.W_O
    written = [torch.einsum("bpe,ed->bpd", z[:, :, head], out[head]) for _, head in heads]
    return torch.stack([(one - one.mean(0)).flatten() for one in written])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_heads", [2, 3])
def test_only_all_factors_together_sum_to_zero(n_heads, seed):
    factors = cancelling_factors(torch.Generator().manual_seed(seed), n_heads)
    assert factors.sum().abs() < 1e-15
    parts = [chosen for size in range(1, n_heads) for chosen in combinations(range(n_heads), size)]
    assert min(abs(float(factors[list(chosen)].sum())) for chosen in parts) >= 0.35


@pytest.mark.parametrize("name", CANCELLING)
def test_noise_hides_that_writes_are_opposite(name):
    answer = built(name)
    written = writes(answer, cancelling(answer))
    unit = written / written.norm(dim=1, keepdim=True)
    cosines = torch.triu(unit @ unit.T, diagonal=1)
    if "noise" in name:
        assert cosines.abs().max() < 0.3
    else:
        assert cosines.min() < -0.99


def test_other_numbers_of_heads_and_unknown_options_raise(as_a_user):
    with pytest.raises(ValueError, match="n_heads is 4; two or three heads can cancel"):
        dyck_cancelling(torch.Generator(), n_heads=4)
    with pytest.raises(ValueError, match="noise is 'loud'"):
        dyck_cancelling(torch.Generator(), noise="loud")
    with pytest.raises(ValueError, match="pattern is 'flat'"):
        dyck_cancelling(torch.Generator(), pattern="flat")
