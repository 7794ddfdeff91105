"""Passes that resume: hooks of the caller's see every position, and batches are run in parts."""

import pytest
import torch

from hooks import Transformer, TransformerConfig
from hooks.interventions.ablation_engine import AblationEngine, every_head
from hooks.interventions.clean_pass import CleanPass
from hooks.interventions.edge_engine import EdgeEngine
from hooks.interventions.part_engine import Mlp, PartEngine
from hooks.model.layers import take

TOKENS = torch.randint(0, 7, (5, 6), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(6) < torch.tensor([6, 4, 5, 6, 6])[:, None]
READ_AT = torch.tensor([[3, 1], [0, 3], [2, 2], [5, 3], [4, 0]])
HEAD = (0, 1)


@pytest.fixture
def model():
    return Transformer(TransformerConfig(d_vocab=7, d_model=12, n_heads=3, n_layers=2, n_ctx=6), seed=3).eval()


def set_third(activation, hook):
    """A hook of the caller's that acts at one position."""
    edited = activation.clone()
    edited[:, 2] = 1.0
    return edited


def zero_head(activation, hook):
    edited = activation.clone()
    edited[:, :, HEAD[1]] = 0.0
    return edited


def at_the_end(model):
    """Every hook point of the last layer and the read-out at which a hook is not refused."""
    refused = ("hook_resid_pre", "hook_attn_out", "attn.hook_result")
    names = [name for name in model.hook_dict if name.startswith(("blocks.1.", "ln_final."))]
    by_position = [name for name in names if not name.endswith(("scores", "pattern", *refused))]
    assert len(by_position) > 10
    return by_position


def test_a_hook_of_the_last_layer_sees_every_position(model):
    """It acts where it acts in a full pass, whatever positions are read."""
    for point in at_the_end(model):
        model.reset_hooks()
        model.add_hook(point, set_third)
        hooks = [(f"blocks.{HEAD[0]}.attn.hook_z", zero_head)]
        expected = take(model.run_with_hooks(TOKENS, attention_mask=MASK, fwd_hooks=hooks), READ_AT)
        model.add_hook(point, set_third)
        engine = AblationEngine(model, TOKENS, read_at=READ_AT, attention_mask=MASK)
        logits = dict(engine.each_head(lambda layer, clean: torch.zeros_like(clean.z)))[HEAD]
        torch.testing.assert_close(logits, expected, msg=lambda text, point=point: f"{point}: {text}")
        parts = PartEngine(model, TOKENS, read_at=READ_AT, attention_mask=MASK)
        ((_, logits),) = parts.each_edit([[HEAD]], lambda name, output: torch.zeros_like(output))
        torch.testing.assert_close(logits, expected, msg=lambda text, point=point: f"{point}, parts: {text}")


def test_replaced_heads_of_a_hooked_last_layer(model):
    """Heads of the last layer are replaced before the caller's hook acts on what follows."""
    model.add_hook("blocks.1.hook_resid_post", set_third)
    engine = AblationEngine(model, TOKENS, read_at=READ_AT)
    unedited = engine.each_set([[head] for head in every_head(model)], lambda layer, clean: clean.z)
    assert max(float((logits - engine.logits).abs().max()) for _, logits in unedited) < 1e-5


def test_edges_refuse_a_hook_in_the_read_out(model):
    model.add_hook("ln_final.hook_normalized", set_third)
    with pytest.raises(ValueError, match=r"a hook is attached to the read-out.*Remove it"):
        EdgeEngine(model, TOKENS, read_at=READ_AT)
    EdgeEngine(model, TOKENS)  # all positions are read


def test_a_torch_hook_in_the_read_out_sees_every_position(model):
    lengths = []
    model.unembed.register_forward_hook(lambda module, inputs, logits: lengths.append(logits.shape[1]))
    engine = PartEngine(model, TOKENS, read_at=READ_AT)
    list(engine.each_edit([[Mlp(0)]], lambda name, output: torch.zeros_like(output)))
    assert set(lengths) == {TOKENS.shape[1]}


def test_a_pass_in_parts_is_one_pass(model):
    one_pass, in_parts = (
        CleanPass(model, TOKENS, ["blocks.0.hook_resid_post"], read_at=READ_AT, size=size, attention_mask=MASK)
        for size in (None, 2)
    )
    torch.testing.assert_close(in_parts.logits, one_pass.logits)
    torch.testing.assert_close(in_parts.cache["blocks.0.hook_resid_post"], one_pass.cache["blocks.0.hook_resid_post"])
    rows = torch.tensor([4, 1, 1])
    resumed = in_parts.resume(in_parts.cache["blocks.0.hook_resid_post"][rows], 1, rows=rows)
    torch.testing.assert_close(resumed, one_pass.logits[rows])
    copies = one_pass.resume(one_pass.cache["blocks.0.hook_resid_post"].repeat(2, 1, 1), 1)
    torch.testing.assert_close(copies, one_pass.logits.repeat(2, 1, 1))
