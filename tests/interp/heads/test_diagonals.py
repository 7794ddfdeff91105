"""Identity components: planted diagonals, dense matrices, the null distribution, invariances and error texts."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from transformer_lens import TransformerBridge, TransformerBridgeConfig

import interp
from hooks import FullyConnected, FullyConnectedConfig, HeadPattern, Transformer, TransformerConfig
from hooks.model.initialise import mimetic_query_key
from interp.heads.diagonals import ALPHA, _frame_diagonals, _heads, diagonals

SIZES = {"d_vocab": 7, "n_ctx": 6, "d_model": 24, "n_heads": 3, "n_layers": 2, "d_mlp": 0}


def untrained(seed=0, **sizes):
    return Transformer(TransformerConfig(**{**SIZES, **sizes}), seed=seed)


@torch.no_grad()
def frame(d_model, width, seed=9):
    """A matrix with orthonormal columns."""
    drawn = torch.randn(d_model, width, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(drawn).Q


@torch.no_grad()
def plant(model, layer, head, *, matrix, sign=1):
    """Equal orthonormal factors: W_Q = W_K, or W_V = W_O^T."""
    width = model.cfg.d_head
    rows, chosen = slice(head * width, (head + 1) * width), frame(model.cfg.d_model, width)
    attention = model.block(layer).attention
    if matrix == 0:
        attention.q.weight[rows], attention.k.weight[rows] = chosen.T, sign * chosen.T
    else:
        attention.v.weight[rows], attention.o.weight[:, rows] = chosen.T, sign * chosen
    return model


def dense(model, layer, head, matrix):
    """The matrix itself, alone and with its scalar."""
    attn, attention = model.blocks[layer].attn, model.block(layer).attention
    if matrix == 0:
        alone, scalar = attn.W_Q[head] @ attn.W_K[head].T / model.cfg.attn_scale, attention.a
    else:
        alone, scalar = attn.W_V[head] @ attn.W_O[head], attention.b
    alone = alone.detach().double().numpy()
    return alone, alone + (0 if scalar is None else scalar[head].item()) * np.eye(len(alone))


def cosine_and_ratio(m):
    """By definition, from all entries."""
    identity = np.eye(len(m))
    return (m * identity).sum() / np.linalg.norm(m) / np.linalg.norm(identity), (
        np.diag(m).mean() / m[identity == 0].std()
    )


@pytest.mark.parametrize("matrix", [0, 1], ids=["query-key", "value-output"])
@pytest.mark.parametrize("cell", [(0, 2), (1, 0)])
def test_only_the_planted_diagonal_is_strong(matrix, cell):
    result = diagonals(plant(untrained(), *cell, matrix=matrix))
    assert result.heads(matrix) == (cell,)
    assert result.heads(1 - matrix) == ()
    found = (*cell, matrix)
    assert result.cosine[found] == pytest.approx((8 / 24) ** 0.5, abs=1e-6)  # a projection on 8 of 24 dimensions
    assert result.cosine[found] == pytest.approx(result.largest, abs=1e-6)
    assert result.z[found] == pytest.approx(24 * result.cosine[found])
    assert result.p[found] == 1 / (1 + result.n)
    assert result.p_holm[found] == pytest.approx(12 / (1 + result.n))
    assert result.n == 200 * 12


def test_a_negative_diagonal_is_not_strong():
    result = diagonals(plant(untrained(), 0, 1, matrix=0, sign=-1))
    assert result.heads(0) == ()
    assert result.z[0, 1, 0] == pytest.approx(-24 * (1 / 3) ** 0.5, abs=1e-4)
    assert result.p[0, 1, 0] == 1


@pytest.mark.parametrize("identities", [{}, {"qk_identity": True}, {"qk_identity": True, "vo_identity": True}], ids=str)
def test_cosines_equal_dense_matrices(identities):
    model = untrained(attn_scale=1.7, d_head=5, **identities)
    with torch.no_grad():
        for layer in range(2):
            for name in ("a", "b"):
                if getattr(model.block(layer).attention, name) is not None:
                    getattr(model.block(layer).attention, name).copy_(torch.tensor([0.0, 0.3, -0.8]) + layer)
    result = diagonals(model, n_null=1)
    for layer, head, matrix in np.ndindex(2, 3, 2):
        cell, (alone, both) = (layer, head, matrix), dense(model, layer, head, matrix)
        assert (result.cosine[cell], result.ratio[cell]) == pytest.approx(cosine_and_ratio(alone), rel=1e-5)
        expected = cosine_and_ratio(both)
        assert (result.cosine_with_scalar[cell], result.ratio_with_scalar[cell]) == pytest.approx(expected, rel=1e-5)
        assert result.mean_diagonal[cell] == pytest.approx(np.diag(alone).mean(), rel=1e-4, abs=1e-9)
        assert np.diag(both).mean() - np.diag(alone).mean() == pytest.approx(result.scalar[cell], abs=1e-9)
    assert result.largest == pytest.approx((5 / 24) ** 0.5)
    assert result.scalar.any(axis=(0, 1)).tolist() == [f"{name}_identity" in identities for name in ("qk", "vo")]


def test_the_null_equals_full_random_frames():
    """One head's p against U S V^T written out, with both frames from QR of Gaussians, sign fixed."""
    model = untrained(seed=4, d_model=6, n_heads=1, d_head=4, n_layers=1)
    with torch.no_grad():  # one large singular value and small ones: no normal tail
        model.block(0).attention.q.weight *= torch.tensor([3.0, 1.0, 0.5, 0.1])[:, None]
        model.block(0).attention.q.weight += 0.5 * model.block(0).attention.k.weight
    result = diagonals(model, n_null=10_000)
    generator, n = torch.Generator().manual_seed(1), 20_000
    alone, _ = dense(model, 0, 0, 0)
    frames = []
    for _ in range(2):
        q, r = torch.linalg.qr(torch.randn(n, 6, 4, generator=generator, dtype=torch.float64))
        frames.append(q * r.diagonal(dim1=1, dim2=2).sign()[:, None])
    s = torch.from_numpy(np.linalg.svd(alone, compute_uv=False)[:4])
    trace = (frames[0] * s * frames[1]).sum((1, 2)).numpy()
    share = (trace >= np.trace(alone)).mean()
    assert 0.01 < share < 0.2
    # both shares are of 20,000 draws: five standard deviations of their difference
    assert result.p[0, 0, 0] == pytest.approx(share, abs=5 * (2 * share * (1 - share) / n) ** 0.5)
    assert result.null_sd == pytest.approx(trace.std() / np.linalg.norm(alone) / 6**0.5, rel=5 / (2 * n) ** 0.5)


@pytest.mark.parametrize(("d_model", "rank"), [(9, 3), (5, 4), (4, 4), (2, 1), (1, 1)])
def test_moments_of_frame_diagonals(d_model, rank):
    n, d = 40_000, d_model
    drawn = _frame_diagonals(n, d_model, rank, np.random.default_rng(0)).numpy()
    assert drawn.shape == (n, rank)
    assert np.abs(drawn).max() <= 1 + 1e-9
    moments = {"mean": (drawn, 0), "square": (drawn**2, 1 / d), "fourth": (drawn**4, 3 / (d * (d + 2)))}
    if rank > 1:
        pairs = drawn[:, :1] ** 2 * drawn[:, 1:] ** 2
        moments["pair"] = (pairs, (d + 1) / (d * (d - 1) * (d + 2)))
        moments["product"] = (drawn[:, :1] * drawn[:, 1:], 0)
    for name, (values, expected) in moments.items():
        error = 5 * values.std(0) / n**0.5 + 1e-9  # five standard errors
        assert (np.abs(values.mean(0) - expected) <= error).all(), name


def test_untrained_models_have_uniform_p_and_no_strong_diagonal():
    results = [diagonals(untrained(seed, d_model=12, n_heads=2, attn_bias=False), seed=seed) for seed in range(60)]
    p = np.concatenate([result.p.ravel() for result in results])
    assert stats.kstest(p, "uniform").pvalue > 1e-4
    false_alarms = sum(bool((result.p_holm <= ALPHA).any()) for result in results)
    assert false_alarms <= stats.binom.ppf(1 - 1e-6, len(results), ALPHA)
    assert (p <= ALPHA).any()  # without a correction, some would be strong
    assert all(len(r.heads(0)) + len(r.heads(1)) == (r.p_holm <= ALPHA).sum() for r in results)
    z = np.concatenate([result.z.ravel() for result in results])
    assert abs(z.std() - 1) < 5 / (2 * z.size) ** 0.5


def test_invariance_to_rotations():
    model, turned = untrained(seed=2), untrained(seed=2)
    result = diagonals(model)
    with torch.no_grad():
        stream, inside = frame(24, 24, seed=1), frame(8, 8, seed=2)
        attention = turned.block(1).attention
        for linear in (attention.q, attention.k, attention.v):
            linear.weight.copy_(linear.weight @ stream.T)
        attention.o.weight.copy_(stream @ attention.o.weight)
        for linear in (attention.q, attention.k):
            linear.weight[8:16] = 3.0 * inside @ linear.weight[8:16]
    again = diagonals(turned)
    np.testing.assert_allclose(again.cosine, result.cosine, atol=1e-5)
    np.testing.assert_allclose(again.p, result.p, atol=2 / result.n)
    np.testing.assert_allclose(again.mean_diagonal[1, 1, 0], 9 * result.mean_diagonal[1, 1, 0], rtol=1e-3)
    assert not np.allclose(again.ratio[1], result.ratio[1], atol=1e-4)  # the ratio depends on the axes


def test_hard_coded_heads_are_nan_and_not_counted():
    uniform, learned = HeadPattern(kind="uniform"), HeadPattern()
    rows = ((uniform,) * 3, (learned, uniform, learned))
    model = plant(untrained(head_patterns=rows, qk_identity=True), 1, 2, matrix=0)
    result = diagonals(plant(model, 1, 1, matrix=0))  # an unused matrix is planted too
    present = np.array([[False] * 3, [True, False, True]])
    for name in ("cosine", "z", "p", "p_holm", "ratio", "mean_diagonal", "scalar", "cosine_with_scalar"):
        values = getattr(result, name)
        assert (np.isfinite(values[:, :, 0]) == present).all(), name
        assert np.isfinite(values[:, :, 1]).all(), name
    assert result.n == 200 * 8
    assert result.heads(0) == ((1, 2),)
    assert result.p_holm[1, 2, 0] == pytest.approx(8 / (1 + result.n))
    assert "hard-coded" in str(result).splitlines()[1]
    assert "1 of 2" in str(result).splitlines()[3]
    assert "<svg" in result._repr_html_()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_transformer_lens_bridge():
    cfg = TransformerBridgeConfig(
        d_model=24, d_head=8, n_heads=3, n_layers=2, n_ctx=6, d_vocab=7, act_fn="gelu", attention_dir="causal", seed=0
    )
    theirs, ours = TransformerBridge.boot_native(cfg), plant(untrained(), 1, 1, matrix=0)
    with torch.no_grad():
        for layer in range(2):
            for name in "qkvo":
                their = getattr(theirs.blocks[layer].attn, name).weight
                their.copy_(getattr(ours.block(layer).attention, name).weight)
    found, expected = diagonals(theirs), diagonals(ours)
    assert found.heads(0) == ((1, 1),)
    for name in ("cosine", "p_holm", "ratio", "mean_diagonal", "scalar"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-6)


@pytest.mark.parametrize(("cfg", "scale"), [({"attn_scale": 2.5}, 2.5), ({"attn_scale": -1.0}, 3**0.5),
    ({"attn_scale": -1.0, "use_attn_scale": False}, 1.0)])  # fmt: skip
def test_any_object_with_the_same_names(cfg, scale, generator):
    shapes = {"W_Q": (2, 5, 3), "W_K": (2, 5, 3), "W_V": (2, 5, 3), "W_O": (2, 3, 5)}
    attn = SimpleNamespace(**{name: torch.randn(shape, generator=generator) for name, shape in shapes.items()})
    model = SimpleNamespace(blocks=[SimpleNamespace(attn=attn)], cfg=SimpleNamespace(n_layers=1, n_heads=2, **cfg))
    result = diagonals(model, n_null=3)
    for head in range(2):
        query_key = attn.W_Q[head] @ attn.W_K[head].T / scale
        assert result.mean_diagonal[0, head, 0] == pytest.approx(query_key.trace().item() / 5, rel=1e-5)
        assert result.mean_diagonal[0, head, 1] == pytest.approx(
            (attn.W_V @ attn.W_O)[head].trace().item() / 5, rel=1e-5
        )
    assert not result.scalar.any()


def test_mimetic_queries_and_keys_are_strong_in_every_head():
    model = untrained()
    assert diagonals(model).heads(0) == ()
    for layer in range(2):
        query, key = mimetic_query_key(24, 3, 8, generator=torch.Generator().manual_seed(layer))
        with torch.no_grad():
            model.block(layer).attention.q.weight.copy_(query.mT.flatten(0, 1))
            model.block(layer).attention.k.weight.copy_(key.mT.flatten(0, 1))
    result = diagonals(model)
    assert len(result.heads(0)) == 6
    assert result.heads(1) == ()


def test_zero_and_identity_matrices():
    model = untrained(n_heads=1, d_head=24, n_layers=1, d_mlp=0)
    with torch.no_grad():
        model.block(0).attention.k.weight.zero_()
        model.block(0).attention.v.weight.copy_(torch.eye(24))
        model.block(0).attention.o.weight.copy_(torch.eye(24))
    result = diagonals(model)
    assert (result.cosine[0, 0, 0], result.p[0, 0, 0], result.ratio[0, 0, 0]) == (0, 1, 0)
    assert result.cosine[0, 0, 1] == pytest.approx(1)
    assert result.heads(1) == ((0, 0),)
    assert result.ratio[0, 0, 1] > 1e6


def test_the_seed_determines_the_null_and_the_model_is_unchanged():
    model = untrained()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    state = torch.random.get_rng_state()
    one, again, other = (diagonals(model, n_null=20, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(one.p, again.p)
    assert not np.array_equal(one.p, other.p)
    assert np.array_equal(one.cosine, other.cosine)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_diagonals_result_formats(tmp_path):
    result = interp.diagonals(plant(untrained(vo_identity=True), 0, 0, matrix=0), n_null=100)
    result.save(tmp_path / "r.json")
    again = interp.heads.DiagonalsResult.load(tmp_path / "r.json")
    assert np.array_equal(again.p_holm, result.p_holm)
    assert again.heads(0) == result.heads(0) == ((0, 0),)
    frame = again.to_dataframe()
    assert len(frame) == 12
    assert frame.set_index(["layer", "head", "matrix"]).loc[(0, 0, "W_Q W_K^T"), "z"] == result.z[0, 0, 0]
    assert "1 of 3" in str(again)
    assert "b I" not in str(again)  # it is zero before training
    assert "W_Q W_K^T: 1 strong" in again.plot().to_json()


def test_the_added_identity_is_shown():
    model = untrained(vo_identity=True)
    with torch.no_grad():
        model.block(1).attention.b.copy_(torch.tensor([0.0, 0.0, -5.0]))
    result = diagonals(model, n_null=10)
    assert result.cosine_with_scalar[1, 2, 1] < -0.9
    assert "largest with b I" in str(result)
    assert "(head 2, -5 I)" in str(result).splitlines()[4]
    chart = result.plot().to_json()
    assert "W_V W_O + b I" in chart
    assert "+ a I" not in chart


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (untrained, {"n_null": 0}, "n_null is 0; at least 1 random matrix per head and matrix"),
        (lambda: torch.nn.Linear(2, 2), {}, "model is Linear, without blocks and cfg; pass a hooks.Transformer"),
        (
            lambda: FullyConnected(FullyConnectedConfig(d_vocab=3, n_ctx=2)),
            {},
            "this model is a fully connected network: it has no attention heads",
        ),
    ],
)
def test_errors(model, settings, words):
    with pytest.raises(ValueError, match=words):
        diagonals(model(), **settings)


def test_errors_name_missing_and_nonfinite_weights():
    model = untrained()
    with torch.no_grad():
        model.block(1).attention.o.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="W_O of layer 1 has values that are not finite; did training diverge"):
        diagonals(model)
    del model.block(0).attention.__dict__["k"], model.block(0).attention._modules["k"]
    with pytest.raises(ValueError, match=r"W_K of layer 0 is missing; expected one matrix for each of 3 heads in bl"):
        diagonals(model)


def test_nothing_off_the_diagonal():
    """Rounding may make its sum of squares negative, which has no root."""
    heads = _heads(untrained())
    assert (heads.off_square > 0).all()
    rounded = replace(heads, diagonal=torch.sqrt(heads.spectrum.square().sum(-1, keepdim=True) * (1 + 1e-7)))
    assert (rounded.off_square == 0).all()
    assert (rounded.off_sd == 0).all()
