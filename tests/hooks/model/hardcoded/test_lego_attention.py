"""LegoAttention against dense matrices: outputs, gradients, patterns, hooks."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from transformer_lens import HookedRootModule

from hooks import HeadPattern, LegoAttention, Pathways, TransformerConfig, token_maps
from hooks.model.attention import FUSED_FROM
from hooks.model.hardcoded.lego_attention import HardcodedAttention

CLS, SEP, D_VOCAB, D_MODEL, D_HEAD = 1, 2, 7, 12, 4
MARKERS = {"cls_token": CLS, "sep_token": SEP}
ALL = Pathways(learned=8, association=8, cls=8, sep=8, convolution=8, kernel_width=5, **MARKERS)
MIXTURES = {
    "learned": Pathways(learned=12),
    "association": Pathways(association=12),
    "cls": Pathways(cls=12, **MARKERS),
    "sep": Pathways(sep=12, **MARKERS),
    "convolution": Pathways(convolution=12),
    "kernel of one": Pathways(convolution=12, kernel_width=1),
    "hybrid": Pathways(learned=4, association=4, convolution=4, kernel_width=3),
    "hardcode": Pathways(association=4, cls=4, sep=4, convolution=8, kernel_width=7, **MARKERS),
    "two of each": ALL,
}
KINDS = {"learned": 0, "association": 2, "cls": 4, "sep": 6, "convolution": 8}
"""First head of each pathway in `ALL`."""


def attention_of(pathways, *, dtype=torch.float64, seed=3, **settings):
    """Weights far from their start and biases that are not zero."""
    width = sum(pathways.sizes.values())
    attention = LegoAttention(D_MODEL, pathways, d_head=D_HEAD, width=width, **settings).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return attention


def batch_of(pos=9, *, padded, dtype=torch.float64, seed=0):
    """(x, tokens, mask), with padding at both ends and between where there is any."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(D_VOCAB, (3, pos), generator=generator)
    mask = torch.ones(3, pos, dtype=torch.bool)
    if padded:
        mask[1, pos - 3 :] = mask[2, 0] = mask[2, 4] = False
    tokens[:, 1], tokens[:, 3] = CLS, SEP
    return torch.randn(3, pos, D_MODEL, generator=generator, dtype=torch.float64).to(dtype), tokens, mask


def maps_of(attention, tokens, mask):
    given = None if mask.all() else mask
    return token_maps(tokens, given, heads=attention.pathways, d_vocab=D_VOCAB)


def matrices(attention, x, tokens, mask):
    """(batch, coordinate, query, key): what each coordinate of each head is mixed by, written out in full."""
    pathways, (batch, pos) = attention.pathways, tokens.shape
    found = []
    if pathways.learned:
        q, k = (linear(x).unflatten(-1, (-1, D_HEAD)).transpose(1, 2) for linear in (attention.q, attention.k))
        scores = q @ k.mT / attention.scale
        found.append(scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1).repeat_interleave(D_HEAD, 1))
    related = {
        "association": (tokens[:, :, None] == tokens[:, None]) & (mask[:, :, None] == mask[:, None]),
        "cls": ((tokens == CLS) & mask)[:, None].expand(-1, pos, -1),
        "sep": ((tokens == SEP) & mask)[:, None].expand(-1, pos, -1),
    }
    for name, relation in related.items():
        rows = relation.to(x.dtype) / relation.sum(-1, keepdim=True).clamp_min(1)
        found.append(rows[:, None].expand(-1, getattr(pathways, name), -1, -1))
    if pathways.convolution:
        band, half = torch.zeros(pathways.convolution, pos, pos, dtype=x.dtype), pathways.kernel_width // 2
        for query in range(pos):
            for key in range(max(0, query - half), min(pos, query + half + 1)):
                band[:, query, key] = attention.kernel[:, key - query + half]
        found.append(band.expand(batch, -1, -1, -1) * mask[:, None, None])
    return torch.cat(found, 1)


def densely(attention, x, tokens, mask):
    z = torch.einsum("bcqk,bkc->bqc", matrices(attention, x, tokens, mask), attention.v(x))
    return attention.o(z)


def outputs_and_gradients(attention, compute, x, mask):
    """What is written at real positions, and how a number made of all that depends on x and the parameters."""
    attention.zero_grad()
    x = x.clone().requires_grad_()
    out = compute(x)[mask]
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(out)
    (out * weight).mean().backward()
    found = {"out": out.detach(), "x": x.grad}
    return found | {name: parameter.grad for name, parameter in attention.named_parameters()}


def same_as_densely(attention, x, tokens, mask, tolerance):
    ours = outputs_and_gradients(attention, lambda x: attention(x, maps_of(attention, tokens, mask)), x, mask)
    theirs = outputs_and_gradients(attention, lambda x: densely(attention, x, tokens, mask), x, mask)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value is not None and value.abs().max() > (0 if name == "k.bias" else 1e-6), name  # noqa: PT018
        torch.testing.assert_close(value, theirs[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("mixture", "padded", "dtype"),
    [
        *((mixture, padded, torch.float64) for mixture in MIXTURES for padded in (False, True)),
        ("two of each", True, torch.float32),
    ],
)
def test_pathways_are_their_matrices(mixture, padded, dtype):
    attention = attention_of(MIXTURES[mixture], dtype=dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    same_as_densely(attention, *batch_of(padded=padded, dtype=dtype), tolerance)
    long = batch_of(FUSED_FROM + 2, padded=padded, dtype=dtype)
    same_as_densely(attention, *long, tolerance)
    same_as_densely(attention.train(), *long, tolerance)


@pytest.mark.parametrize("settings", [{"bias": False}, {"scale": 1.7}, {}], ids=str)
def test_settings_keep_to_their_matrices(settings):
    attention = attention_of(ALL, **settings)
    assert len([name for name, _ in attention.named_parameters() if name.endswith("bias")]) == 4 * (
        "bias" not in settings
    )
    assert attention.scale == settings.get("scale", 2.0)
    same_as_densely(attention, *batch_of(padded=True), 1e-10)
    same_as_densely(attention.train(), *batch_of(FUSED_FROM, padded=True), 1e-10)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_padding_changes_nothing_and_neither_does_the_batch(mixture, train):
    attention = attention_of(MIXTURES[mixture]).train(train)
    x, tokens, mask = batch_of(FUSED_FROM + 2, padded=True)
    mask[2] = True
    mask[2, -5:] = False  # at the ends only: a convolution depends on positions
    out = attention(x, maps_of(attention, tokens, mask))
    other, ids, _ = batch_of(FUSED_FROM + 2, padded=True, seed=9)
    other, ids = torch.where(mask[..., None], x, other), torch.where(mask, tokens, ids)
    assert not torch.equal(ids, tokens)
    assert torch.equal(attention(other, maps_of(attention, ids, mask))[mask], out[mask])
    for row in range(3):
        real = mask[row]
        alone = (x[row][None, real], tokens[row][None, real])
        alone = attention(alone[0], token_maps(alone[1], heads=attention.pathways, d_vocab=D_VOCAB))
        torch.testing.assert_close(alone[0], out[row, real], rtol=0, atol=1e-12)


@pytest.mark.parametrize("train", [False, True])
def test_a_sequence_of_nothing_but_padding_stays_finite(train):
    attention = attention_of(MIXTURES["hybrid"]).train(train)
    x, tokens, mask = batch_of(FUSED_FROM, padded=True)
    alone = attention(x[:2], maps_of(attention, tokens[:2], mask[:2]))
    mask[2] = False
    out = attention(x, maps_of(attention, tokens, mask))
    assert out.isfinite().all()
    torch.testing.assert_close(out[:2][mask[:2]], alone[mask[:2]], rtol=0, atol=1e-12)
    out[mask].square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in attention.parameters())


class Watched(HookedRootModule):
    """A user's own module around attention."""

    def __init__(self, pathways, **settings):
        super().__init__()
        self.attention = attention_of(pathways, **settings)
        self.setup()

    def forward(self, x, maps):
        return x + self.attention(x, maps)


@pytest.fixture(params=[False, True], ids=["whole", "padded"])
def watched(request):
    """(module, x, maps, mask)"""
    model = Watched(ALL)
    x, tokens, mask = batch_of(padded=request.param)
    return model, x, maps_of(model.attention, tokens, mask), mask


def test_hook_points_in_a_users_module(watched):
    model, x, maps, _ = watched
    names = {f"attention.hook_{name}" for name in ("q", "k", "v", "z", "attn_scores", "pattern")}
    assert set(model.hook_dict) == names
    assert not {"attention.hook_q", "attention.hook_k"} & set(Watched(MIXTURES["hardcode"]).hook_dict)
    out, cache = model.run_with_cache(x, maps)
    assert set(cache) == names
    assert torch.equal(out, model(x, maps))
    assert cache["attention.hook_q"].shape == cache["attention.hook_k"].shape == (3, 9, 2, D_HEAD)
    assert cache["attention.hook_v"].shape == cache["attention.hook_z"].shape == (3, 9, 10, D_HEAD)
    assert cache["attention.hook_pattern"].shape == cache["attention.hook_attn_scores"].shape == (3, 10, 9, 9)


def test_shown_patterns_are_the_matrices(watched):
    model, x, maps, mask = watched
    _, cache = model.run_with_cache(x, maps)
    pattern, v, z = (cache[f"attention.hook_{name}"] for name in ("pattern", "v", "z"))
    torch.testing.assert_close(pattern.sum(-1), torch.ones(3, 10, 9, dtype=pattern.dtype), rtol=0, atol=1e-12)
    assert not (pattern * (mask[:, None, :, None] & ~mask[:, None, None, :])).any()
    full = matrices(model.attention, x, maps.tokens, mask).abs().unflatten(1, (10, D_HEAD)).mean(2)
    wanted = full / full.sum(-1, keepdim=True)
    torch.testing.assert_close(pattern.transpose(1, 2)[mask], wanted.transpose(1, 2)[mask], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(cache["attention.hook_attn_scores"].softmax(-1), pattern)
    torch.testing.assert_close(cache["attention.hook_attn_scores"][:, 2:].exp(), pattern[:, 2:])  # logs of the maps
    mixed = (pattern @ v.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(mixed[:, :, :8], z[:, :, :8], rtol=0, atol=1e-12)
    assert (mixed[:, :, 8:] - z[:, :, 8:])[mask].abs().max() > 0.1


@pytest.mark.parametrize("name", ["hook_pattern", "hook_attn_scores"])
def test_hooks_that_only_read_change_no_output_and_no_gradient(watched, name):
    model, x, maps, mask = watched
    looked = []
    for dtype in (torch.float32, torch.float64):
        model.attention.to(dtype)
        read = x.to(dtype)
        clean = outputs_and_gradients(model.attention, lambda x: model(x, maps), read, mask)
        with model.hooks([(f"attention.{name}", lambda value, hook: looked.append(value.shape))]):
            seen = outputs_and_gradients(model.attention, lambda x: model(x, maps), read, mask)
        assert torch.equal(seen["out"], clean["out"])
        for parameter, value in clean.items():
            torch.testing.assert_close(seen[parameter], value, rtol=1e-5, atol=1e-7)
    assert looked == [(3, 10, 9, 9)] * 2


def test_hooks_in_training_change_the_output_only_by_rounding():
    model = Watched(ALL).train()
    x, tokens, mask = batch_of(FUSED_FROM, padded=True)
    maps = maps_of(model.attention, tokens, mask)
    seen, cache = model.run_with_cache(x, maps)
    assert cache["attention.hook_pattern"].shape == (3, 10, FUSED_FROM, FUSED_FROM)
    torch.testing.assert_close(seen, model(x, maps), rtol=0, atol=1e-12)


def rows(seed=4):
    """A distribution over nine keys."""
    return torch.randn(9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


@pytest.mark.parametrize("name", ["hook_pattern", "hook_attn_scores"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_edited_row_mixes_values_as_it_says(watched, kind, name):
    model, x, maps, _ = watched
    head, new = KINDS[kind] + 1, rows()
    seen = {}

    def edit(value, hook):
        value = value.clone()
        value[1, head, 5] = new if name == "hook_pattern" else new.log() + 3.0
        return value

    def keep(value, hook):
        seen[hook.name.rsplit("_", 1)[-1]] = value

    watch = [(f"attention.hook_{point}", keep) for point in ("v", "z")]
    with torch.no_grad():
        model.run_with_hooks(x, maps, fwd_hooks=watch)
        before = seen["z"]
        model.run_with_hooks(x, maps, fwd_hooks=[(f"attention.{name}", edit), *watch])
    torch.testing.assert_close(seen["z"][1, 5, head], new @ seen["v"][1, :, head], rtol=0, atol=1e-12)
    assert (seen["z"][1, 5, head] - before[1, 5, head]).abs().max() > 1e-2
    elsewhere = torch.ones(3, 9, 10, dtype=torch.bool)
    elsewhere[1, 5, head] = False
    torch.testing.assert_close(seen["z"][elsewhere], before[elsewhere], rtol=0, atol=1e-14)
    assert torch.equal(seen["z"][:, :, 2:][elsewhere[:, :, 2:]], before[:, :, 2:][elsewhere[:, :, 2:]])


def test_gradients_reach_patterns_scores_and_what_made_them(watched):
    model, x, maps, _ = watched
    seen = {}

    def keep(value, hook):
        value.retain_grad()
        seen[hook.name.rsplit("_", 1)[-1]] = value

    points = [f"attention.hook_{name}" for name in ("pattern", "attn_scores", "v", "z")]
    out = model.run_with_hooks(x, maps, fwd_hooks=[(point, keep) for point in points])
    out.square().sum().backward()
    wanted = torch.einsum("bqhd,bkhd->bhqk", seen["z"].grad, seen["v"])
    torch.testing.assert_close(seen["pattern"].grad, wanted, rtol=1e-9, atol=1e-9)
    pattern = seen["pattern"].detach()
    of_scores = pattern * (wanted - (pattern * wanted).sum(-1, keepdim=True))
    torch.testing.assert_close(seen["scores"].grad, of_scores.detach(), rtol=1e-9, atol=1e-9)
    called = []
    with model.hooks(bwd_hooks=[("attention.hook_pattern", lambda gradient, hook: called.append(gradient.shape))]):
        model(x, maps).sum().backward()
    assert called == [(3, 10, 9, 9)]


@pytest.mark.parametrize("start", ["random", "zeros"])
def test_a_loss_on_a_shown_pattern_moves_the_kernel(start):
    model = Watched(Pathways(convolution=12, kernel_width=3))
    if start == "zeros":
        nn.init.zeros_(model.attention.kernel)
    x, tokens, mask = batch_of(padded=True)
    maps = maps_of(model.attention, tokens, mask)
    found = []
    model.run_with_hooks(x, maps, fwd_hooks=[("attention.hook_pattern", lambda value, hook: found.append(value))])
    if start == "zeros":
        assert found[0][0, 0, 4].tolist() == pytest.approx([0, 0, 0, 1 / 3, 1 / 3, 1 / 3, 0, 0, 0])
    found[0][:, :, 4, 3].sum().backward()
    gradient = model.attention.kernel.grad
    assert gradient.isfinite().all()
    if start == "random":
        assert (gradient[:, 0] * model.attention.kernel[:, 0] > 0).all()


@pytest.mark.parametrize("name", ["hook_pattern", "hook_attn_scores"])
def test_an_edit_in_place_is_an_edit(watched, name):
    model, x, maps, _ = watched
    found = []

    def in_place(value, hook):
        value[:, :, 5] = rows() if name == "hook_pattern" else rows().log()
        return value

    def copied(value, hook):
        return in_place(value.clone(), hook)

    with torch.no_grad():
        for edit in (in_place, copied):
            found.append(model.run_with_hooks(x, maps, fwd_hooks=[(f"attention.{name}", edit)]))
        assert torch.equal(*found)
        assert (found[0] - model(x, maps))[:, 5].abs().max() > 0.1


def test_an_edit_of_values_passes_the_maps(watched):
    model, x, maps, _ = watched

    def edit(v, hook):
        return v + 1.0

    with torch.no_grad():
        out = model.run_with_hooks(x, maps, fwd_hooks=[("attention.hook_v", edit)])
        model.attention.v.bias += 1.0
        torch.testing.assert_close(out, model(x, maps), rtol=0, atol=1e-12)


def test_output_at_some_queries_is_that_part_of_the_whole(watched):
    model, x, maps, _ = watched
    at = torch.tensor([[8, 0], [3, 3], [1, 5]])
    row = torch.arange(3)[:, None]
    with torch.no_grad():
        whole, cache = model.attention(x, maps), model.run_with_cache(x, maps)[1]
        torch.testing.assert_close(model.attention(x, maps.at_queries(at)), whole[row, at], rtol=0, atol=1e-12)
        found = []
        with model.hooks([("attention.hook_pattern", lambda value, hook: found.append(value))]):
            shown = model.attention(x, maps.at_queries(at))
    torch.testing.assert_close(shown, whole[row, at], rtol=0, atol=1e-12)
    wanted = cache["attention.hook_pattern"].transpose(1, 2)[row, at].transpose(1, 2)
    torch.testing.assert_close(found[0], wanted, rtol=0, atol=1e-12)


PATTERNS = (
    HeadPattern(kind="uniform"),
    HeadPattern(),
    HeadPattern(kind="association"),
    HeadPattern(kind="local", kernel=(0.2, 0.5, 0.3)),
    HeadPattern(kind="broadcast", token=SEP),
)


def weight(pattern, row, query, key):
    """The weight of one key before its row is normalised."""
    if pattern.kind == "local":
        return pattern.kernel[key - query + 1] if abs(key - query) <= 1 else 0.0
    if pattern.kind == "uniform":
        return 1.0
    return float(row[key] == (row[query] if pattern.kind == "association" else pattern.token))


@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("patterns", [PATTERNS, PATTERNS[2:]], ids=["one learned", "none learned"])
def test_each_head_may_be_given_its_pattern(patterns, padded, attention):
    model = LegoAttention(D_MODEL, patterns, d_head=D_HEAD).double().eval()
    x, tokens, mask = batch_of(padded=padded)
    maps = token_maps(tokens, mask if padded else None, heads=model.heads, d_vocab=D_VOCAB, attention=attention)
    allowed = mask[:, None].expand(-1, 9, -1)
    if attention == "causal":
        allowed = allowed & torch.ones(9, 9, dtype=torch.bool).tril()
    heads = []
    for head, pattern in enumerate(patterns):
        if pattern.learned:
            q, k = (linear(x)[..., D_HEAD * head : D_HEAD * (head + 1)] for linear in (model.q, model.k))
            scores = (q @ k.mT / model.scale).masked_fill(~allowed, -torch.inf)
            heads.append(scores.softmax(-1))
            continue
        rows = [[[weight(pattern, row, query, key) for key in range(9)] for query in range(9)] for row in tokens]
        full = torch.tensor(rows, dtype=x.dtype) * allowed
        full = torch.where(full.sum(-1, keepdim=True) > 0, full, allowed.double())
        heads.append(full / full.sum(-1, keepdim=True))
    z = torch.stack(heads, 1) @ model.v(x).unflatten(-1, (-1, D_HEAD)).transpose(1, 2)
    seen = allowed.any(-1)  # a query with no key to see sees itself
    out = model(x, maps)
    torch.testing.assert_close(out[seen], model.o(z.transpose(1, 2).flatten(2))[seen], rtol=0, atol=1e-6)
    assert torch.equal(model.train()(x, maps), out)
    assert hasattr(model, "q") == hasattr(model, "hook_q") == (len(patterns) == 5)


def test_the_seed_decides_and_torchs_generator_does_not():
    state = torch.get_rng_state()
    one, same, other = (LegoAttention(16, replace(ALL, learned=8), d_head=4, width=40, seed=s) for s in (0, 0, 1))
    LegoAttention(16, ALL, d_head=4, width=40, seed=None)
    assert torch.equal(torch.get_rng_state(), state)
    for (name, value), again, another in zip(
        one.named_parameters(), same.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(value, again)
        assert torch.equal(value, another) == name.endswith("bias")
        if name.endswith("bias"):
            assert not value.any()
        else:
            assert float(value.detach().std() * value.shape[1] ** 0.5) == pytest.approx(1, abs=0.25)


def test_it_trains_inside_a_users_module():
    class Small(HookedRootModule):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(D_VOCAB, D_MODEL)
            self.attention = LegoAttention(D_MODEL, replace(MIXTURES["hardcode"], learned=4), d_head=4, width=24)
            self.out = nn.Linear(D_MODEL, 2)
            self.setup()

        def forward(self, tokens):
            maps = token_maps(tokens, heads=self.attention.pathways, d_vocab=D_VOCAB)
            return self.out(self.attention(self.embed(tokens), maps))[:, 0]

    torch.manual_seed(0)
    model = Small()
    _, tokens, _ = batch_of(30, padded=False)
    tokens = torch.cat([tokens, batch_of(30, padded=False, seed=1)[1]])
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    losses = []
    for _ in range(25):
        losses.append(nn.functional.cross_entropy(model(tokens), labels))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.3 * losses[0]
    for name, parameter in model.named_parameters():
        if name != "attention.k.bias":  # adds the same to all scores of a query
            assert (parameter - before[name]).abs().max() > 1e-3, name


def test_hook_points_may_be_those_of_another_module():
    own = attention_of(ALL)
    sizes = {"d_model": D_MODEL, "n_heads": 10, "d_head": D_HEAD, "d_vocab": D_VOCAB}
    bare = HardcodedAttention(TransformerConfig(**sizes, head_patterns=ALL), ALL).double()
    bare.load_state_dict(own.state_dict())
    assert not any(name.startswith("hook") for name, _ in bare.named_modules())
    x, tokens, mask = batch_of(padded=True)
    maps = maps_of(own, tokens, mask)
    assert torch.equal(bare(x, maps, own), own(x, maps))


def test_attention_that_is_refused(as_a_user):
    attention = attention_of(ALL)
    x, tokens, mask = batch_of(padded=False)
    with pytest.raises(ValueError, match=r"maps are of tokens \(3, 9\); x is \(3, 8, 12\)"):
        attention(x[:, :8], maps_of(attention, tokens, mask))
    with pytest.raises(ValueError, match=r"maps are of tokens \(2, 9\); x is \(3, 9, 12\)"):
        attention(x, maps_of(attention, tokens[:2], mask[:2]))
    maps = token_maps(tokens, heads=replace(ALL, sep=0, learned=16), d_vocab=D_VOCAB)
    with pytest.raises(ValueError, match=r"these maps lack token 2: they were made for heads that do not broadcast it"):
        attention(x, maps)
    with pytest.raises(ValueError, match=r"the pathways add up to 40, not to the width 36 .*; remove 4"):
        LegoAttention(36, ALL, d_head=4)
    with pytest.raises(ValueError, match=r"the pathways add up to 40, not to the width 48 .*; add 8"):
        LegoAttention(36, ALL, d_head=4, width=48)
    with pytest.raises(ValueError, match="pathway learned is 8 wide, not a whole number of heads of d_head 5"):
        LegoAttention(40, ALL, d_head=5)
    with pytest.raises(ValueError, match=r"width is 16; 5 heads of d_head 4 are 20"):
        LegoAttention(12, PATTERNS, d_head=4, width=16)
    with pytest.raises(ValueError, match=r"head_patterns has a convolution, .*; only Pathways have one"):
        LegoAttention(12, [HeadPattern(kind="convolution")], d_head=4)
