"""The matrices of a trained layer, against its activations."""

import pytest
import torch

from hooks import Transformer, TransformerConfig
from interp.theory.pruning.target import layer_maps


def test_layer_maps_reproduce_the_layer():
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
