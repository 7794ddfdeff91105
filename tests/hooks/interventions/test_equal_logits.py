"""Heads whose removal leaves all logits equal: the engine must not point at the clean answer by a rounding error."""

from itertools import combinations, permutations

import pytest
import torch

import interp
from hooks import Transformer, TransformerConfig
from hooks.interventions.ablation_engine import AblationEngine, every_head
from hooks.interventions.replacements import Mean, Pattern, Zero
from interp.tasks import Batch, Task, Vocab

LETTERS = 4
WRITERS = ((0, 0), (1, 0))
"""Heads that write the letter of the first position; the others write a constant to all letters."""
ORDERS = torch.tensor(list(permutations(range(LETTERS))))


def first_letter_model(dtype):
    """Attention only, without norms; the width is four letters, four positions and four logits.

    Weights such as 0.3 are rounded, so that an answer that is added and subtracted again leaves a rounding error.
    """
    cfg = TransformerConfig(
        d_vocab=LETTERS,
        d_model=3 * LETTERS,
        n_heads=2,
        n_layers=2,
        n_ctx=LETTERS,
        d_head=LETTERS,
        block="no_norm",
        attn_bias=False,
        d_mlp=0,
        attn_scale=1.0,
    )
    model = Transformer(cfg).to(dtype).eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    one_hot = torch.eye(3 * LETTERS, dtype=dtype)
    model.embed.weight.data[:] = one_hot[:LETTERS]
    model.positions.weight.data[:] = one_hot[LETTERS : 2 * LETTERS]
    model.unembed.weight.data[:] = one_hot[2 * LETTERS :]
    for block, scale in zip(model.stored_blocks, (0.3, 0.7), strict=True):
        attention = block.attention
        # Head 0: every query attends to position 0 only; head 1 to all positions
        attention.q.weight.data[0, LETTERS : 2 * LETTERS] = 1
        attention.k.weight.data[0, LETTERS] = 1000
        # Head 0 copies letters, head 1 averages over all of them
        attention.v.weight.data[:LETTERS, :LETTERS] = scale * torch.eye(LETTERS, dtype=dtype)
        attention.v.weight.data[LETTERS:, :LETTERS] = 0.4 * torch.eye(LETTERS, dtype=dtype)
        attention.o.weight.data[2 * LETTERS :, :LETTERS] = 0.7 * torch.eye(LETTERS, dtype=dtype)
        attention.o.weight.data[2 * LETTERS :, LETTERS:] = 0.9 * torch.eye(LETTERS, dtype=dtype)
    return model


def hooks_of(heads, replace, point):
    return [(f"blocks.{layer}.{point}", replace.hook(head=head)) for layer, head in heads]


def replacements_and_points(model):
    """Zero, mean and uniform, each with the point at which its hook acts."""
    # Each letter is first in one sequence, so that its mean is exactly the same as that of every other letter
    _, cache = model.run_with_cache(ORDERS[::6])
    means = [cache["z", layer] for layer in range(2)]
    uniform = torch.full((1, LETTERS, LETTERS), 1 / LETTERS, dtype=means[0].dtype)
    return {
        "zero": (Zero(), "attn.hook_z"),
        "mean": (Mean(means), "attn.hook_z"),
        "uniform": (Pattern(uniform), "attn.hook_pattern"),
    }


@pytest.mark.parametrize("read_at", [None, torch.full((len(ORDERS), 1), LETTERS - 1)], ids=["all", "last position"])
@pytest.mark.parametrize("per_head", [False, True], ids=["outputs together", "a point per head"])
@pytest.mark.parametrize("method", ["zero", "mean", "uniform"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_equal_logits_stay_equal(dtype, method, per_head, read_at):
    model = first_letter_model(dtype)
    model.set_use_attn_result(per_head)
    replace, point = replacements_and_points(model)[method]
    engine = AblationEngine(model, ORDERS, read_at=read_at)
    assert torch.equal(engine.logits.argmax(-1)[:, -1], ORDERS[:, 0])
    sets = [heads for size in range(1, 5) for heads in combinations(every_head(model), size)]
    logits_of_sets = dict(engine.each_set(sets, replace))
    logits_of_heads = dict(engine.each_head(replace))
    n_ties = 0
    for heads in sets:
        by_hooks = model.run_with_hooks(ORDERS, fwd_hooks=hooks_of(heads, replace, point))
        expected = by_hooks if read_at is None else by_hooks[:, -1:]
        assert torch.equal(logits_of_sets[heads], expected), heads
        if len(heads) == 1:
            assert torch.equal(logits_of_heads[heads[0]], expected), heads
        is_tie = bool((expected == expected[..., :1]).all())
        assert is_tie == (set(WRITERS) <= set(heads))
        n_ties += is_tie
    assert n_ties == 4  # both heads that write the letter, with or without the others


class FirstLetter(Task):
    """Sequences of four different letters; the answer is the first one, at the last position."""

    vocab = Vocab(tuple("abcd"))
    targets = ("first",)
    n_ctx = LETTERS
    disjoint_splits = False

    def sample(self, n, *, generator, split="train"):
        tokens = ORDERS[torch.randint(len(ORDERS), (n,), generator=generator)]
        return Batch(
            tokens=tokens,
            target_positions=torch.full((n, 1), LETTERS - 1),
            labels=tokens[:, :1],
            supervised=torch.ones(1, dtype=torch.bool),
        )


@pytest.mark.parametrize("method", ["zero", "uniform"])
def test_a_head_without_which_all_answers_are_equal_is_needed(method):
    """Equal logits give answer 0, which is right in a quarter of the sequences."""
    ablation = interp.ablate_heads(
        first_letter_model(torch.float32), FirstLetter(), heads={"both": WRITERS}, method=method, n=400
    )
    assert ablation.clean.tolist() == [1.0]
    share_of_first_answer = 1 - float(ablation.drop[0, 0])
    assert abs(share_of_first_answer - 0.25) < 5 * (0.25 * 0.75 / 400) ** 0.5  # five standard deviations
