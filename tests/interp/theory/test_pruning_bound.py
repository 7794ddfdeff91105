"""The maps of a layer are its function, and errors grow no faster than they are said to."""

import pytest
import torch

from hooks import Transformer, TransformerConfig
from interp.theory.pruning.layers import Growth, LayerMasks, Projection, grow
from interp.theory.pruning.target import LayerMaps, layer_maps

EXACT = {"residual": 1.0, "first_norm": 2.0, "second_norm": 3.0, "first_error": 0.0, "second_error": 0.0}


def masks(*, from_stream=1.5, from_norm=0.5, score_error=0.0, write_error=0.0, attention=None, **errors):
    made = Projection(**{**EXACT, **errors}, from_stream=from_stream, from_norm=from_norm)
    return LayerMasks(masks={}, projection=made, score_error=score_error, write_error=write_error, maps=attention)


def maps(score=0.0, write=1.0):
    """One head on a stream of two; what it writes is centred already."""
    out = torch.tensor([[write, 0, 0], [-write, 0, 0]], dtype=torch.float64) / 2**0.5
    form = torch.zeros(3, 3, dtype=torch.float64)
    form[0, 0] = score
    one = torch.ones(2, dtype=torch.float64)
    return LayerMaps(score=form[None], write=out[None], gain=one, bias=0 * one, w_in=None, w_out=None)


def error_after(kept, *, radius=2.0, error=0.1, eps=0.25):
    return grow(Growth(radius=radius, error=error), kept, d_model=8, eps=eps).error


def test_without_faults_an_error_grows_by_the_slope():
    assert error_after(masks()) == pytest.approx(1.5 * 0.1)
    assert grow(Growth(radius=2.0, error=0.0), masks(), d_model=8, eps=1.0).radius == 3.0


def test_faults_of_the_projection_are_added():
    assert error_after(masks(first_error=0.01), error=0.0) == pytest.approx(3 * 0.01 * 2)
    assert error_after(masks(second_error=0.01), error=0.0) == pytest.approx(0.01 * 2 * 2)
    both = error_after(masks(first_error=0.01, second_error=0.02), error=0.1)
    assert both == pytest.approx(1.5 * 0.1 + (3 * 0.01 + 0.02 * 2.01) * 2.1)
    assert error_after(masks(first_error=0.01, residual=2.0), error=0.0) == pytest.approx(3 * 0.01 * 4)


def test_attention_hands_an_error_through_the_norm():
    """What heads write is off by the error, twice; the norm makes 1 / sqrt(eps) of it."""
    through = 0.5 * 2**0.5 * 0.1
    assert error_after(masks(attention=maps())) == pytest.approx(1.5 * 0.1 + through / 0.25**0.5)
    assert error_after(masks(attention=maps()), eps=1e-4) == pytest.approx(1.5 * 0.1 + through / 1e-2)
    assert error_after(masks(attention=maps(write=3.0))) == pytest.approx(1.5 * 0.1 + 3 * through / 0.5)
    moved = 0.1 + 2.1 * 4 * (2 + 2.1) * 0.1  # and the pattern moves with the scores
    assert error_after(masks(attention=maps(score=4.0))) == pytest.approx(1.5 * 0.1 + 0.5 * 2**0.5 * moved / 0.5)


def test_faults_of_attention_are_added():
    assert error_after(masks(write_error=0.01, attention=maps()), error=0.0) == pytest.approx(
        0.5 * 2**0.5 * 0.01 * 2 / 0.5
    )
    assert error_after(masks(score_error=0.01, attention=maps()), error=0.0) == pytest.approx(
        0.5 * 2**0.5 * 2 * 0.01 * 4 / 0.5
    )


def test_maps_are_what_the_layer_does():
    cfg = TransformerConfig(
        d_vocab=5, d_model=6, n_heads=2, d_head=4, n_layers=1, d_mlp=7, block="dyck", activation="relu",
        qk_identity=True, vo_identity=True, attention="causal",
    )  # fmt: skip
    model = Transformer(cfg).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    found = layer_maps(model, 0)
    _, cache = model.run_with_cache(torch.tensor([[0, 3, 1, 4]]))
    x = torch.cat([cache["blocks.0.hook_resid_pre"], torch.ones(1, 4, 1)], -1)
    scores = torch.einsum("bkd, hde, bqe -> bhqk", x, found.score, x)
    torch.testing.assert_close(
        scores.masked_fill(~torch.ones(4, 4, dtype=torch.bool).tril(), -torch.inf).softmax(-1),
        cache["blocks.0.attn.hook_pattern"],
    )
    assert (found.score[:, -1] == 0).all()  # what is the same for all keys
    written = torch.einsum("bhqk, bkd, hmd -> bqm", cache["blocks.0.attn.hook_pattern"], x, found.write)
    torch.testing.assert_close(written, cache["blocks.0.hook_attn_out"])
    torch.testing.assert_close(
        torch.einsum("bhqk, bkd, hmd -> bqm", cache["blocks.0.attn.hook_pattern"], x, found.centred),
        written - written.mean(-1, keepdim=True),
    )
    mid = torch.cat([cache["blocks.0.hook_resid_mid"], torch.ones(1, 4, 1)], -1)
    hidden = torch.cat([(mid @ found.w_in.T).relu(), torch.ones(1, 4, 1)], -1)
    torch.testing.assert_close(hidden @ found.w_out.T, cache["blocks.0.hook_resid_post"])
    assert set(found.norms()) == {"score.0", "score.1", "write.0", "write.1", "gain", "w_in", "w_out"}
    assert found.norms()["w_in"] == pytest.approx(torch.linalg.svdvals(found.w_in).max().item())
