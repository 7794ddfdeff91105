"""LEGO chains of two variables: the truth about each head by brute force, and what is special about each model."""

import pytest
import torch
from known_truth import Removals

from interp.known_answers.lego.added import cancelling, constant, magnitude, masked
from interp.known_answers.lego.divided import divided, evenly
from interp.known_answers.lego.patterns import random_signs, random_votes
from interp.known_answers.lego.variants import loop
from interp.tasks import Lego
from interp.tasks.lego.groups import S3, Z2, cyclic

TASK = Lego(n_vars=2, alphabet="abcdefghijklmnop")
N = 96


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def added(answer, truth):
    """The heads of a truth that the loop itself does not have: index 2 and higher."""
    return [head for head, head_truth in answer.heads.items() if head[1] >= 2 and head_truth.truth == truth]


@pytest.mark.parametrize("pattern", ["manipulation", "unreadable"])
def test_three_heads_cancel_and_no_part_of_them_does(pattern):
    answer = cancelling(TASK, seeded(1), pattern=pattern)
    truth = "idle" if pattern == "unreadable" else "misleading"
    three = [head for head in added(answer, truth) if answer.heads[head].partners]
    removed = Removals(answer)
    assert len(three) == 3
    assert all(set(answer.heads[head].partners) == set(three) - {head} for head in three)
    for size in (1, 2):
        for start in range(3):
            assert removed.costs([three[(start + step) % 3] for step in range(size)])
    assert not removed.costs(three)


@pytest.mark.parametrize("pattern", ["association", "manipulation"])
def test_only_the_magnitude_of_what_the_head_brings_is_read(pattern):
    answer = magnitude(TASK, seeded(3), pattern=pattern)
    removed = Removals(answer, n=N)
    (head,) = (head for head in answer.heads if answer.heads[head].needed)
    assert [removed.costs([head], method) for method in ("zero", "mean", "resample")] == [True, True, False]
    assert removed.costs_as(head, "uniform", pattern)
    assert not removed.costs_as(head, "wrong_key", pattern)
    name = f"blocks.{head[0]}.hook_resid_mid"
    brought = answer.model.run_with_cache(removed.batch.tokens)[1][name][:, 1:, -4]  # [BOS] has no other
    torch.testing.assert_close(brought.abs(), torch.ones_like(brought))
    assert abs(brought[:, 0].mean()) < 0.8  # at the first clause's variable


@pytest.mark.parametrize("pattern", ["association", "unreadable"])
def test_two_backups_are_masked_by_a_third_head(pattern):
    answer = masked(TASK, seeded(4), pattern=pattern)
    first, second = added(answer, "redundant")
    (harm,) = (
        head for head in added(answer, "idle" if pattern == "unreadable" else "misleading") if head[0] == first[0]
    )
    removed = Removals(answer, n=N)
    for free in ([first], [second], [harm], [first, harm], [second, harm], [first, second, harm]):
        assert not removed.costs(free)
    assert removed.costs([first, second])


@pytest.mark.parametrize("pattern", ["association", "unreadable"])
def test_a_constant_head_is_needed_under_zero_only(pattern):
    answer = constant(TASK, seeded(5), pattern=pattern)
    ((head, truth),) = ((head, truth) for head, truth in answer.heads.items() if truth.needed)
    assert truth.needed == {"zero": True, "mean": False, "resample": False}
    assert truth.truth == ("idle" if pattern == "unreadable" else "misleading")
    z = answer.model.run_with_cache(TASK.sample(20, generator=seeded()).tokens)[1][f"blocks.{head[0]}.attn.hook_z"]
    assert (z[:, :, head[1]].amax((0, 1)) - z[:, :, head[1]].amin((0, 1))).max() < 1e-12


@pytest.mark.parametrize(("work", "layer"), [("association", 1), ("manipulation", 2)])
def test_two_heads_divide_the_sentences(work, layer):
    """Without one, the last variable is lost in a share of the sentences; which, the letters or operations say."""
    task = Lego(n_vars=2, group=cyclic(4), alphabet=TASK.alphabet)
    answer = divided(task, seeded(6), work=work)
    removed = Removals(answer, n=240)
    batch = removed.batch

    def right_without(head):
        def replace_head(z, hook):
            z = z.clone()
            z[:, :, head] = removed.replacements["mean"][layer][:, :, head]
            return z

        logits = answer.model.run_with_hooks(batch.tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", replace_head)])
        positions = batch.target_positions[:, -1]
        return logits[torch.arange(len(positions)), positions].argmax(-1) == batch.labels[:, -1]

    wrong = ~right_without(2)
    by = batch.letters[:, 0] if work == "association" else batch.operations[:, 1]
    spoilt = set(by[wrong].tolist())
    assert spoilt.isdisjoint(set(range(16 if work == "association" else 4)) - spoilt)
    share = sum(value in spoilt for value in by.tolist()) / len(by)
    assert 0.3 <= share <= 0.7
    if work == "association":  # the first head carries the values of the others
        spoilt_by_first = set(batch.letters[:, 0][~right_without(0)].tolist())
        assert spoilt.isdisjoint(spoilt_by_first)
        assert len(spoilt | spoilt_by_first) == 16


def test_an_association_head_acts_over_two_layers():
    """Nothing that it writes is read out, and without the manipulation head after it it has no effect."""
    answer = loop(TASK, seeded(), untie=True)
    read_out = answer.model.unembed.weight
    for layer in range(3):
        written = read_out @ answer.model.block(layer).attention.o.weight
        assert not written.any()
    assert answer.heads[1, 0].truth == answer.heads[2, 1].truth == "faithful"


def test_a_uniform_head_is_hidden():
    answer = evenly(TASK, seeded())
    pattern = answer.model.run_with_cache(TASK.sample(8, generator=seeded()).tokens)[1]["blocks.1.attn.hook_pattern"]
    torch.testing.assert_close(pattern[:, 0], torch.full_like(pattern[:, 0], 1 / TASK.n_ctx))
    assert [answer.heads[layer, 0].truth for layer in range(3)] == ["idle", "hidden", "idle"]


def test_signs_and_votes_are_balanced():
    task = Lego(n_vars=2, group=S3, alphabet="abcdefghijklmnopq")
    signs, votes = random_signs(task, seeded()), random_votes(task, seeded())
    letters = [task.vocab.ids[letter] for letter in task.alphabet]
    assert sorted(signs[letters].tolist()) == [-1.0] * 8 + [0.0] + [1.0] * 8
    assert signs.sum() == 0
    assert not votes.sum(0).any()
    assert sorted((votes[:, letters] == 1).sum(1).tolist()) == [2, 3, 3, 3, 3, 3]


def test_what_cannot_be_built_raises(as_a_user):
    with pytest.raises(ValueError, match="work is 'counting'"):
        divided(TASK, seeded(), work="counting")
    with pytest.raises(ValueError, match=r"n_vars is 3; the sum over positions is one value only in chains of 2"):
        evenly(Lego(n_vars=3, group=Z2), seeded())
