"""Hand-written Dyck models of magnitudes, masked redundancy, divided work and two steps: what their heads bring."""

import pytest
import torch
from known_truth import COSTS, lost, names_of
from sampled import sampled

from interp.known_answers.craft.weights import head_rows
from interp.known_answers.dyck.indirect import dyck_gated, dyck_hops, dyck_masked, residual_registers
from interp.known_answers.dyck.one_hot import bracket_states, pair_coordinates
from interp.known_answers.dyck.variants import LEAST_SHARE, MOST_SHARE, dyck_divided
from interp.known_answers.suite import DYCK_ANSWERS

DIVIDED = names_of(DYCK_ANSWERS, dyck_divided)
INDIRECT = names_of(DYCK_ANSWERS, dyck_gated, dyck_masked, dyck_hops)


def built(name, seed=0):
    return DYCK_ANSWERS[name](torch.Generator().manual_seed(seed + len(name)))


def written(answer, register, *, layer=0):
    """What the heads of a layer write to a register, of every sequence, position and head."""
    coordinates = residual_registers(bracket_states(answer.task))[register]
    batch = answer.task.sample(200, generator=torch.Generator().manual_seed(0), split="test")
    _, cache = answer.model.run_with_cache(batch.tokens)
    return batch, torch.einsum("bphe,hed->bphd", cache["z", layer], answer.model.blocks[layer].attn.W_O)[
        ..., coordinates
    ]


@pytest.mark.parametrize("name", ["stack, magnitude", "stack, magnitude of self"])
@pytest.mark.parametrize("seed", sampled(range(3), [0]))
def test_a_magnitude_is_one_and_its_mean_is_small(name, seed):
    answer = built(name, seed)
    _, brought = written(answer, "spare")
    assert torch.allclose(brought[:, :, 1, 0].abs(), torch.ones(()).double())
    assert brought[:, 1:, 1, 0].mean(0).abs().max() < 0.8
    assert brought[:, 1:, 1, 0].mean(0).abs().mean() < 0.5
    assert lost(answer, [((0, 1),)], "resample")[((0, 1),)] == 0
    for method in ("mean", "zero"):
        assert lost(answer, [((0, 1),)], method)[((0, 1),)] > 0.5


@pytest.mark.parametrize("name", ["stack, constant", "stack, constant unreadably"])
def test_a_constant_is_needed_under_zero_only(name):
    answer = built(name)
    drops = {method: lost(answer, [((0, 1),)], method)[((0, 1),)] for method in ("zero", "mean", "resample")}
    assert drops["zero"] > 0.5
    assert drops["mean"] == drops["resample"] == 0


@pytest.mark.parametrize("seed", sampled(range(3), [0]))
def test_masked_redundancy(seed):
    answer = built("stack, masked redundancy", seed)
    adds, first, second = (0, 1), (0, 2), (0, 3)
    drops = lost(answer, [(adds,), (first,), (second,), (adds, first), (adds, second), (adds, first, second)], "mean")
    assert not any(drops.values())
    assert lost(answer, [(first, second)], "mean")[first, second] > 3 * COSTS


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize("seed", sampled(range(2), [0]))
def test_each_head_is_right_on_its_levels_only(name, seed):
    answer = built(name, seed)
    batch = answer.task.sample(200, generator=torch.Generator().manual_seed(0), split="test")
    due = batch.due >= 0
    without = answer.model.run_with_hooks(batch.tokens, fwd_hooks=[("blocks.0.attn.hook_z", drop_head(0))])
    closers = without[..., 4::2]
    opens, _ = pair_coordinates(bracket_states(answer.task))
    first_value = answer.model.block(0).attention.v.weight[head_rows(answer.model.block(0), 0)]
    (levels,) = torch.where(first_value[0, opens[0]] > 0)
    mine = torch.isin(batch.depth, levels + 1) & due
    share = float(mine.sum() / due.sum())
    assert LEAST_SHARE - 0.05 <= share <= MOST_SHARE + 0.05
    right = closers.argmax(-1) == batch.due
    assert right[due & ~mine].all()
    assert right[mine].double().mean() < 0.7


def drop_head(head):
    def drop(z, hook):
        z = z.clone()
        z[:, :, head] = 0
        return z

    return drop


@pytest.mark.parametrize("name", [name for name in INDIRECT if name.startswith("two layers")])
def test_the_first_of_two_layers_does_not_reach_the_answer(name):
    answer = built(name)
    _, first = written(answer, "answer")
    _, second = written(answer, "answer", layer=1)
    assert not first.any()
    assert second.any()
    unembed = answer.model.unembed.weight
    stream = residual_registers(bracket_states(answer.task))
    assert not unembed[:, stream["type"]].any()
    assert min(lost(answer, [((0, 0),), ((1, 0),)], "mean").values()) > 2 * COSTS


def test_unknown_options_raise(as_a_user):
    with pytest.raises(ValueError, match="pattern is 'uniform'"):
        dyck_gated(torch.Generator(), brings="sign", pattern="uniform")
    with pytest.raises(ValueError, match="brings is 'two'"):
        dyck_gated(torch.Generator(), brings="two")
    with pytest.raises(ValueError, match="the steps are 'stack' and 'uniform'; exactly one of them must be 'self'"):
        dyck_hops(torch.Generator(), second="uniform")
    with pytest.raises(ValueError, match="second is 'self'"):
        dyck_divided(torch.Generator(), second="self")
