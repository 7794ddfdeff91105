"""Masking: causality, padding, independence of the other sequences in a batch."""

import pytest
import torch

from hooks import HeadPattern

BOTH = pytest.mark.parametrize("attention", ["causal", "bidirectional"])
MIXED_HEADS = (
    (HeadPattern(kind="association"), HeadPattern(), HeadPattern(kind="local", kernel=(0.2, 0.5, 0.3))),
)  # fmt: skip


def changed_at(tokens, position):
    tokens = tokens.clone()
    tokens[:, position] = (tokens[:, position] + 1) % 11
    return tokens


@pytest.mark.parametrize("patterns", [(), MIXED_HEADS], ids=["learned", "mixed"])
@pytest.mark.parametrize("position", [0, 4, 7])
def test_causal_model_never_sees_a_later_token(make, tokens, position, patterns):
    model = make(attention="causal", head_patterns=patterns)
    before, after = model(tokens), model(changed_at(tokens, position))
    assert torch.equal(before[:, :position], after[:, :position])
    assert ((before[:, position:] - after[:, position:]).abs().amax((0, 2)) > 1e-4).all()


@pytest.mark.parametrize("position", [0, 4, 7])
def test_bidirectional_model_sees_every_token(make, tokens, position):
    model = make()
    change = (model(tokens) - model(changed_at(tokens, position))).abs().amax((0, 2))
    assert (change > 1e-4).all()


@pytest.mark.parametrize(
    "mask",
    [
        (1 - torch.ones(1, 8)) * -1e9 - 1,
        torch.tensor([[0.0, 0, 0, 0, 0, 0, -torch.inf, -torch.inf]]),
        torch.tensor([[2, 1, 1, 1, 1, 1, 0, 0]]),
        torch.full((1, 8), 0.5),
        torch.full((1, 8), torch.nan),
    ],
    ids=["additive", "minus infinity", "counts", "a half", "NaN"],
)
def test_masks_of_other_values_are_refused(as_a_user, make, tokens, mask):
    mask = mask.expand(len(tokens), -1)
    for call in (lambda model: model(tokens, mask), lambda model: model.run_with_cache(tokens, attention_mask=mask)):
        with pytest.raises(ValueError, match=r"attention_mask has .*; it must be True or 1 for real tokens"):
            call(make())


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.long, torch.float32])
def test_masks_of_zeros_and_ones_are_the_same_in_all_types(as_a_user, make, tokens, dtype):
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, 6:] = False
    model = make()
    assert torch.equal(model(tokens, mask.to(dtype)), model(tokens, mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool])
def test_ids_that_are_not_integers_are_refused(as_a_user, make, tokens, dtype):
    with pytest.raises(ValueError, match=r"tokens is torch\.\w+; it must hold integer ids"):
        make()(tokens.to(dtype))


def test_causal_query_sees_itself_and_everything_before(make, tokens):
    _, cache = make(attention="causal").run_with_cache(tokens)
    assert torch.equal(cache["pattern", 0][0, 0] > 0, torch.ones(8, 8).tril().bool())


@BOTH
@pytest.mark.parametrize("patterns", [(), MIXED_HEADS], ids=["learned", "mixed"])
def test_right_padding_never_leaks(make, tokens, attention, patterns):
    model = make(attention=attention, head_patterns=patterns)
    mask = torch.arange(8) < torch.tensor([8, 5, 1, 3])[:, None]
    padded = model(tokens, mask)
    for row, length in enumerate(mask.sum(1).tolist()):
        alone = model(tokens[row : row + 1, :length])
        torch.testing.assert_close(padded[row, :length], alone[0], atol=1e-6, rtol=0)
    other = torch.where(mask, tokens, (tokens + 3) % 11)
    assert torch.equal(model(other, mask)[mask], padded[mask])


@BOTH
@pytest.mark.parametrize("patterns", [(), MIXED_HEADS], ids=["learned", "mixed"])
def test_left_padding_never_leaks(make, tokens, attention, patterns):
    model = make(attention=attention, head_patterns=patterns)
    lengths = torch.tensor([8, 5, 1, 3])[:, None]
    mask = torch.arange(8) >= 8 - lengths
    position_ids = (torch.arange(8) - (8 - lengths)).clamp(min=0)
    padded = model(tokens, mask, position_ids=position_ids)
    for row, length in enumerate(lengths[:, 0].tolist()):
        alone = model(tokens[row : row + 1, 8 - length :])
        torch.testing.assert_close(padded[row, 8 - length :], alone[0], atol=1e-6, rtol=0)


def test_mask_changes_what_it_hides(make, tokens):
    mask = torch.ones(4, 8, dtype=torch.bool)
    mask[:, 3] = False
    assert not torch.allclose(make()(tokens, mask), make()(tokens), atol=1e-3)


def test_mask_of_ones_and_zeros_is_a_mask_of_true_and_false(make, tokens):
    mask = torch.arange(8) < torch.tensor([8, 5, 1, 3])[:, None]
    assert torch.equal(make()(tokens, mask.long()), make()(tokens, mask))
    assert torch.equal(make()(tokens, torch.ones(4, 8, dtype=torch.bool)), make()(tokens))


@BOTH
def test_rows_of_nothing_but_padding_stay_finite(make, tokens, attention):
    mask = torch.ones(4, 8, dtype=torch.bool)
    mask[2] = False
    logits, cache = make(attention=attention).run_with_cache(tokens, mask)
    assert logits.isfinite().all()
    assert torch.equal(cache["pattern", 0][2, 0], torch.eye(8, dtype=torch.float64))


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_of_a_batch_of_one_is_that_row_of_a_batch_of_64(make, generator, attention, dtype):
    model = make(attention=attention, dtype=dtype)
    tokens = torch.randint(11, (64, 8), generator=generator)
    together = model(tokens)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for row in (0, 17, 63):
        torch.testing.assert_close(together[row], model(tokens[row : row + 1])[0], atol=tolerance, rtol=0)
