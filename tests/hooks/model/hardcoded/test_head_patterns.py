"""Hard-coded patterns: each map against loops over queries and keys; learned heads of the layer are unaffected."""

import pytest
import torch

from hooks import HeadPattern
from hooks.model.hardcoded.token_maps import TokenMaps, local_band

KERNEL = (0.1, 0.2, 0.4, 0.3, 0.0)
KINDS = {
    "uniform": HeadPattern(kind="uniform"),
    "association": HeadPattern(kind="association"),
    "local": HeadPattern(kind="local", kernel=KERNEL),
    "broadcast": HeadPattern(kind="broadcast", token=3),
}


def weight(kind, row, query, key):
    """What one key weighs, before the row is normalised."""
    offset = key - query + 2
    return {
        "uniform": 1.0,
        "association": float(row[query] == row[key]),
        "local": KERNEL[offset] if 0 <= offset < 5 else 0.0,
        "broadcast": float(row[key] == 3),
    }[kind]


def by_loops(kind, tokens, allowed):
    batch, pos = tokens.shape
    out = torch.zeros(batch, pos, pos)
    for b in range(batch):
        for query in range(pos):
            seen = [key for key in range(pos) if allowed[b, query, key]]
            weights = [weight(kind, tokens[b].tolist(), query, key) for key in seen]
            if sum(weights) == 0:
                weights = [1.0] * len(seen)
            for key, value in zip(seen, weights, strict=True):
                out[b, query, key] = value / sum(weights)
    return out


@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pattern_of_a_hard_coded_head_is_its_definition(make, tokens, kind, attention, padded):
    mask = torch.arange(8) < torch.tensor([8, 5, 1, 3] if padded else [8] * 4)[:, None]
    allowed = mask[:, None, :].expand(4, 8, 8)
    if attention == "causal":
        allowed = allowed & torch.ones(8, 8, dtype=torch.bool).tril()
    model = make(head_patterns=((KINDS[kind], HeadPattern(), KINDS[kind]),), attention=attention)
    _, cache = model.run_with_cache(tokens, mask)
    for layer in range(3):
        pattern = cache["pattern", layer].float()
        torch.testing.assert_close(pattern.sum(-1), torch.ones(4, 3, 8), atol=1e-6, rtol=0)
        for head in (0, 2):
            torch.testing.assert_close(pattern[:, head], by_loops(kind, tokens, allowed), atol=1e-6, rtol=0)


def test_association_includes_the_query_itself():
    maps = TokenMaps(tokens=torch.tensor([[4, 5, 4]])).dense(KINDS["association"])
    assert maps[0].tolist() == [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]


def test_broadcast_of_an_absent_token_is_uniform():
    tokens = torch.tensor([[3, 1, 2, 1], [1, 1, 2, 2]])
    maps = TokenMaps(tokens=tokens).dense(KINDS["broadcast"])
    assert maps[0].tolist() == [[1.0, 0.0, 0.0, 0.0]] * 4
    assert maps[1].tolist() == [[0.25] * 4] * 4


def test_local_band_is_the_kernel_cut_off_at_the_edges():
    expected = [[4.0, 3.0, 0.0, 0.0], [2.0, 4.0, 3.0, 0.0], [0.0, 2.0, 4.0, 3.0], [0.0, 0.0, 2.0, 4.0]]
    assert local_band(4, (2.0, 4.0, 3.0)).tolist() == expected


def test_learned_neighbours_are_unaffected(make, tokens):
    learned, mixed = make(n_layers=1), make(n_layers=1, head_patterns=((KINDS["local"], HeadPattern(), HeadPattern()),))
    mixed.load_state_dict(learned.state_dict())
    _, theirs = learned.run_with_cache(tokens)
    _, ours = mixed.run_with_cache(tokens)
    assert torch.equal(ours["pattern", 0][:, 1:], theirs["pattern", 0][:, 1:])
    assert torch.equal(ours["z", 0][:, :, 1:], theirs["z", 0][:, :, 1:])
    assert not torch.allclose(ours["z", 0][:, :, 0], theirs["z", 0][:, :, 0], atol=1e-3)


def test_each_layer_may_have_its_own_row(make, tokens):
    kinds = list(KINDS.values())
    rows = ((kinds[0],) * 3, (HeadPattern(),) * 3, (kinds[1], HeadPattern(), kinds[2]))
    model = make(head_patterns=rows)
    _, cache = model.run_with_cache(tokens)
    everything = torch.ones(4, 8, 8, dtype=torch.bool)
    for layer, head, kind in [(0, 0, "uniform"), (0, 2, "uniform"), (2, 0, "association"), (2, 2, "local")]:
        expected = by_loops(kind, tokens, everything)
        torch.testing.assert_close(cache["pattern", layer][:, head].float(), expected, atol=1e-6, rtol=0)
    assert "blocks.0.attn.hook_q" not in model.hook_dict
    assert "blocks.1.attn.hook_q" in model.hook_dict
    scores = cache["q", 1].transpose(1, 2) @ cache["k", 1].permute(0, 2, 3, 1) / 2
    torch.testing.assert_close(cache["pattern", 1], scores.softmax(-1))


def test_queries_and_keys_exist_only_where_a_head_learns(make):
    rows = ((KINDS["uniform"],) * 3, (KINDS["uniform"], HeadPattern(), HeadPattern()), (HeadPattern(),) * 3)
    has_q = [hasattr(block.attention, "q") for block in make(head_patterns=rows).weights]
    assert has_q == [False, True, True]
    assert hasattr(make(head_patterns=rows, tied=True).weights[0].attention, "q")
    assert not hasattr(make(head_patterns=rows[:1], tied=True).weights[0].attention, "q")
    fixed = make(head_patterns=rows[:1], qk_identity=True)
    assert not any(name.endswith(".a") for name, _ in fixed.named_parameters())


def test_row_of_learned_heads_is_no_row_at_all(make, tokens):
    assert torch.equal(make(head_patterns=((HeadPattern(),) * 3,))(tokens), make()(tokens))


def test_learned_pattern_has_no_map():
    with pytest.raises(ValueError, match="pattern is 'learned'; only a hard-coded pattern has a map"):
        TokenMaps(tokens=torch.tensor([[1]])).dense(HeadPattern())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "induction"}, "kind is 'induction'; choose one of learned, uniform, association, local, broadcast"),
        ({"kind": "local"}, r"kernel is \(\) for kind 'local'; give it for 'local' and only there"),
        ({"kind": "uniform", "kernel": (1.0,)}, r"kernel is \(1.0,\) for kind 'uniform'"),
        ({"kind": "local", "kernel": (1.0, 1.0)}, r"kernel is \(1.0, 1.0\); give an odd number of weights"),
        ({"kind": "local", "kernel": (1.0, -1.0, 1.0)}, "none negative"),
        ({"kind": "local", "kernel": (0.0,)}, "not all zero"),
        ({"kind": "broadcast"}, "token is None for kind 'broadcast'; give it for 'broadcast' and only there"),
        ({"kind": "association", "token": 2}, "token is 2 for kind 'association'"),
    ],
)
def test_patterns_that_make_no_sense_are_refused(settings, words, as_a_user):
    with pytest.raises(ValueError, match=words):
        HeadPattern(**settings)
