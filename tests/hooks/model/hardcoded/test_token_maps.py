"""Token maps against comparisons of all pairs of tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hooks import HeadPattern, Pathways, token_maps

CLS, SEP = 1, 2
ASSOCIATION = HeadPattern(kind="association")
BROADCAST = {token: HeadPattern(kind="broadcast", token=token) for token in (CLS, SEP)}
BOTH = Pathways(association=4, cls=4, sep=4, cls_token=CLS, sep_token=SEP)


@st.composite
def batches(draw):
    """Tokens and mask: few ids, so that many are equal; [CLS] first, a real [SEP] anywhere, padding anywhere else."""
    batch, pos, d_vocab = draw(st.integers(1, 4)), draw(st.integers(2, 11)), draw(st.integers(3, 7))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    tokens = torch.randint(d_vocab, (batch, pos), generator=generator)
    mask = torch.rand(batch, pos, generator=generator) < draw(st.sampled_from([0.0, 0.5, 0.9]))
    at = torch.randint(1, pos, (batch,), generator=generator)
    tokens[:, 0], mask[:, 0] = CLS, True
    tokens[torch.arange(batch), at], mask[torch.arange(batch), at] = SEP, True
    values = torch.randn(batch, pos, 3, generator=generator, dtype=torch.float64)
    return tokens, draw(st.sampled_from([mask, mask.long(), None])), d_vocab, values


def by_comparison(tokens, mask):
    """Which keys each query is associated with: its own id, padding and real tokens apart."""
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()
    same = (tokens[:, :, None] == tokens[:, None, :]) & (real[:, :, None] == real[:, None, :])
    return same, real


def normalised(related):
    return related.double() / related.sum(-1, keepdim=True)


@settings(max_examples=120, deadline=None)
@given(batches())
def test_classes_are_those_of_comparing_every_pair(given_batch):
    tokens, mask, d_vocab, values = given_batch
    maps = token_maps(tokens, mask, heads=BOTH, d_vocab=d_vocab)
    same, real = by_comparison(tokens, mask)
    number, row = maps.classes.flatten(), torch.arange(len(tokens)).repeat_interleave(tokens.shape[1])
    everywhere = torch.block_diag(*same.float()).bool() & (row[:, None] == row)
    assert torch.equal(number[:, None] == number, everywhere)
    assert torch.equal(maps.classes, maps.key_classes)
    assert maps.members.rows.sort().values.tolist() == list(range(tokens.numel()))  # each token in one class
    assert len(maps.members.starts) == int(number.max()) + 1 == len(number.unique())
    torch.testing.assert_close(maps.dense(ASSOCIATION).double(), normalised(same), rtol=1e-6, atol=0)
    torch.testing.assert_close(maps.associated(values), normalised(same) @ values, rtol=0, atol=1e-12)
    for token in (CLS, SEP):
        at = ((tokens == token) & real)[:, None].expand(-1, tokens.shape[1], -1)
        torch.testing.assert_close(maps.dense(BROADCAST[token]).double(), normalised(at), rtol=1e-6, atol=0)
        torch.testing.assert_close(maps.broadcast(values, token), normalised(at) @ values, rtol=0, atol=1e-12)
    assert torch.equal(maps.without_padding(values), values * real[..., None])


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(1, 5), st.integers(0, 99))
def test_maps_at_some_queries_are_rows_of_the_whole_maps(given_batch, n, seed):
    tokens, mask, d_vocab, values = given_batch
    maps = token_maps(tokens, mask, heads=BOTH, d_vocab=d_vocab)
    at = torch.randint(tokens.shape[1], (len(tokens), n), generator=torch.Generator().manual_seed(seed))
    some = maps.at_queries(at)
    row = torch.arange(len(tokens))[:, None]
    assert torch.equal(some.classes, maps.classes[row, at])
    assert torch.equal(some.associated(values), maps.associated(values)[row, at])
    for pattern in (ASSOCIATION, *BROADCAST.values()):
        assert torch.equal(some.dense(pattern), maps.dense(pattern)[row, at])
    for token in (CLS, SEP):
        assert torch.equal(some.broadcast(values, token), maps.broadcast(values, token)[row, at])
    again = some.at_queries(at[:, :1])  # positions of the sequence, not of the queries before
    assert torch.equal(again.classes, maps.classes[row, at[:, :1]])
    assert maps.queries is None


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(0, 99))
def test_padding_is_seen_by_no_real_token(given_batch, seed):
    tokens, mask, d_vocab, values = given_batch
    _, real = by_comparison(tokens, mask)
    generator = torch.Generator().manual_seed(seed)
    others = torch.where(real, tokens, torch.randint(d_vocab, tokens.shape, generator=generator))
    changed = torch.where(real[..., None], values, torch.randn(values.shape, generator=generator, dtype=values.dtype))
    one, other = (token_maps(ids, mask, heads=BOTH, d_vocab=d_vocab) for ids in (tokens, others))
    assert torch.equal(one.associated(values)[real], other.associated(changed)[real])
    assert torch.equal(one.dense(ASSOCIATION)[real], other.dense(ASSOCIATION)[real])
    assert not (one.dense(ASSOCIATION) * (real[:, :, None] & ~real[:, None, :])).any()
    for token in (CLS, SEP):
        assert torch.equal(one.broadcast(values, token), other.broadcast(changed, token))
    for index, row in enumerate(real):  # and each sequence alone gives the same
        alone = token_maps(tokens[index][None, row], heads=BOTH, d_vocab=d_vocab)
        found = alone.associated(values[index][None, row])[0]
        torch.testing.assert_close(one.associated(values)[index, row], found, rtol=0, atol=1e-12)


def test_an_example_by_hand():
    tokens = torch.tensor([[1, 5, 2, 5, 2, 5], [1, 5, 5, 2, 0, 0]])
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    maps = token_maps(tokens, mask, heads=BOTH, d_vocab=6)
    values = torch.arange(12.0).view(2, 6, 1)
    assert maps.associated(values)[..., 0].tolist() == [[0, 3, 3, 3, 3, 3], [6, 7.5, 7.5, 9, 10.5, 10.5]]
    assert maps.broadcast(values, CLS)[..., 0].tolist() == [[0.0] * 6, [6.0] * 6]
    assert maps.broadcast(values, SEP)[..., 0].tolist() == [[3.0] * 6, [9.0] * 6]
    assert maps.dense(BROADCAST[SEP])[:, 0].tolist() == [[0, 0, 0.5, 0, 0.5, 0], [0, 0, 0, 1, 0, 0]]
    assert maps.allowed[:, 0].tolist() == mask.bool().tolist()
    assert token_maps(tokens, heads=BOTH, d_vocab=6).allowed is None


def test_only_broadcast_markers_have_to_be_present():
    tokens = torch.tensor([[4, 5, 2]])
    only = Pathways(association=4, sep=4, cls_token=CLS, sep_token=SEP)
    maps = token_maps(tokens, heads=only, d_vocab=6)
    assert set(maps.markers) == {SEP}
    lacking = r"these maps lack token 1: they were made for heads that do not broadcast it. Make them with the heads of"
    with pytest.raises(ValueError, match=lacking):
        maps.broadcast(torch.zeros(1, 3, 4), CLS)
    with pytest.raises(ValueError, match=lacking):
        maps.dense(BROADCAST[CLS])


def test_a_sequence_of_padding_alone_is_visible_to_itself():
    mask = torch.tensor([[1, 0], [0, 0]])
    maps = token_maps(torch.zeros(2, 2, dtype=torch.long), mask, heads=Pathways(association=4), d_vocab=1)
    assert maps.allowed[:, 0].tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize(
    ("tokens", "mask", "words"),
    [
        ([1, 4, 2], None, r"tokens is \(3,\); it must be \(batch, pos\). One text\? Pass tokens\[None\]"),
        ([[1, 4, 2]], [[1, 1]], r"attention_mask is \(1, 2\); tokens is \(1, 3\)"),
        ([[1, 6, 2]], None, "tokens holds ids from 1 to 6; d_vocab of this model is 6"),
        ([[1, -1, 2]], None, "tokens holds ids from -1 to 2; d_vocab"),
        ([[1, 4, 2], [4, 4, 2]], None, r"sequence 1 of tokens has no \[CLS\] \(id 1\) to broadcast from; every"),
        ([[1, 4, 4], [1, 4, 2]], None, r"sequence 0 of tokens has no \[SEP\] \(id 2\) to broadcast from; every"),
        ([[1, 4, 2], [1, 4, 2]], [[1, 1, 1], [1, 1, 0]], r"sequence 1 of tokens has no \[SEP\] .* outside its padding"),
        ([[4, 2, 1]], [[1, 1, 0]], r"sequence 0 of tokens has no \[CLS\] .* outside its padding"),
    ],
)
def test_batches_that_are_refused(tokens, mask, words, as_a_user):
    mask = None if mask is None else torch.tensor(mask)
    with pytest.raises(ValueError, match=words):
        token_maps(torch.tensor(tokens), mask, heads=BOTH, d_vocab=6)
