"""Hand-written template heads that cancel: the cost of every set of them, and the angle between their writes."""

import pytest
import torch
from known_truth import names_of

from interp.known_answers.suite import TEMPLATE_ANSWERS
from interp.known_answers.template.copy_variants import copy_cancelling
from interp.known_answers.template.same_variants import same_cancelling

CANCELLING = names_of(TEMPLATE_ANSWERS, same_cancelling, copy_cancelling)


def built(name, seed=0):
    return TEMPLATE_ANSWERS[name](torch.Generator().manual_seed(seed + len(name)))


@pytest.mark.parametrize("name", CANCELLING)
def test_noise_hides_that_writes_are_opposite(name):
    answer = built(name)
    batch = answer.task.sample(64, generator=torch.Generator().manual_seed(0), split="test")
    _, cache = answer.model.run_with_cache(batch.tokens, names_filter=lambda name: name.startswith("blocks.0.attn"))
    heads = [head for (_, head), truth in answer.heads.items() if truth.partners]
    if "result" in "".join(cache):
        written = cache["blocks.0.attn.hook_result"][:, :, heads]
    else:
        written = torch.einsum("bphe,hed->bphd", cache["z", 0], answer.model.blocks[0].attn.W_O)[:, :, heads]
    flat = (written - written.mean(0)).permute(2, 0, 1, 3).flatten(1)
    unit = flat / flat.norm(dim=1, keepdim=True)
    cosines = torch.triu(unit @ unit.T, diagonal=1)
    if "noise" in name:
        assert cosines.abs().max() < 0.3
    else:
        assert cosines.min() < -0.99


def test_unknown_noise_raises(as_a_user):
    for build in (same_cancelling, copy_cancelling):
        with pytest.raises(ValueError, match="noise is 'loud'"):
            build(torch.Generator(), noise="loud")
        with pytest.raises(ValueError, match="n_heads is 4"):
            build(torch.Generator(), n_heads=4)
