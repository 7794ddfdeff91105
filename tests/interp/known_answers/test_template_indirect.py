"""Hand-written template models of magnitudes, masked redundancy, divided work, two hops, and counting."""

import pytest
import torch
from known_truth import lost, names_of
from sampled import sampled

import interp
from interp.known_answers.suite import TEMPLATE_ANSWERS
from interp.known_answers.template.copy import copy_registers
from interp.known_answers.template.copy_variants import LEAST, MOST, copy_by_kind, copy_hops
from interp.known_answers.template.count import template_count
from interp.known_answers.template.same import same_registers
from interp.known_answers.template.same_variants import same_divided, same_gated, same_majority, same_masked

NEW = names_of(
    TEMPLATE_ANSWERS,
    same_gated, same_masked, same_divided, same_majority, copy_hops, copy_by_kind, template_count,
)  # fmt: skip


def built(name, seed=0):
    return TEMPLATE_ANSWERS[name](torch.Generator().manual_seed(seed + len(name)))


def written(answer, register, *, layer=0):
    batch = answer.task.sample(200, generator=torch.Generator().manual_seed(0), split="test")
    _, cache = answer.model.run_with_cache(batch.tokens)
    return torch.einsum("bphe,hed->bphd", cache["z", layer], answer.model.blocks[layer].attn.W_O)[..., register]


@pytest.mark.parametrize("seed", sampled(range(4), [0]))
def test_a_magnitude_is_one_and_its_mean_is_small(seed):
    answer = built("same, magnitude", seed)
    brought = written(answer, same_registers(answer.task).after())[:, :-1, 1, 0]
    assert torch.allclose(brought.abs(), torch.ones(()).double())
    differ = brought.std(0) > 0
    assert differ.any()
    assert brought.mean(0)[differ].abs().max() < 0.65
    assert lost(answer, [((0, 1),)], "resample")[((0, 1),)] == 0


@pytest.mark.parametrize("seed", sampled(range(4), [0]))
def test_masked_redundancy(seed):
    answer = built("same, masked redundancy", seed)
    spoils, first, second = (0, 1), (0, 2), (0, 3)
    drops = lost(
        answer, [(spoils,), (first,), (second,), (spoils, first), (spoils, second), (spoils, first, second)], "mean"
    )
    assert not any(drops.values())
    assert lost(answer, [(first, second)], "mean")[first, second] > 0.2


@pytest.mark.parametrize(("name", "heads"), [("same, divided", [(0, 0), (0, 1)]), ("copy by kind", [(0, 0), (0, 1)])])
@pytest.mark.parametrize("seed", sampled(range(3), [0]))
def test_a_head_is_needed_for_its_share_only(name, heads, seed):
    answer = built(name, seed)
    drops = [lost(answer, [(head,)], "zero", n=400)[(head,)] for head in heads]
    assert all(0.9 * LEAST - 0.1 < drop < MOST + 0.1 for drop in drops)
    assert sum(drops) == pytest.approx(1 if name == "copy by kind" else 0.9, abs=0.08)


def test_the_second_hop_has_only_what_the_first_copied():
    answer = built("copy in two hops, the first hidden")
    register = copy_registers(answer.task)["position"]
    batch = answer.task.sample(4, generator=torch.Generator().manual_seed(0), split="test")
    _, cache = answer.model.run_with_cache(batch.tokens)
    n = answer.task.n_ctx
    assert torch.allclose(cache["resid_post", 0][0, :, register], torch.eye(n).roll(3, 0).double())


@pytest.mark.parametrize("seed", sampled(range(3), [0]))
def test_counting_is_exact_for_any_order_and_wildcard(seed):
    answer = built("count", seed)
    for split in ("train", "test"):
        batch = answer.task.sample(50, generator=torch.Generator().manual_seed(0), split=split)
        assert torch.allclose(answer.model(batch.tokens)[:, -1, 0], batch.values[:, 0].double(), atol=1e-9)
    assert interp.classify_heads(answer.model, answer.task, n=32).label[0][0] in ("uniform", "unclassified")


def test_unknown_options_raise(as_a_user):
    with pytest.raises(ValueError, match=r"offsets is \(2, 3\); give two positive offsets whose sum is 2 or 4"):
        copy_hops(torch.Generator(), offsets=(2, 3))
    with pytest.raises(ValueError, match="decoy is 'loud'"):
        template_count(torch.Generator(), decoy="loud")
