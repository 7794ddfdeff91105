"""Replaced edges against a separate forward pass for each, on every architecture; which edges there are; errors."""

from dataclasses import replace

import pytest
import torch
from edge_reference import brute_force, points_on_demand
from families import MODELS, TRANSFORMERS, model_of, tokens_of

from hooks.interventions.edge_engine import EdgeEngine
from hooks.model.layers import take

FAMILIES = [*TRANSFORMERS, "minimal", "encoder"]


def deeper(name):
    cfg = MODELS[name]
    return cfg if name in ("points on demand", "minimal") else replace(cfg, n_layers=2)


def plain(name):
    model = model_of(deeper(name)).eval()
    for setter in ("set_use_split_qkv_input", "set_use_attn_result", "set_use_hook_mlp_in"):
        if name == "points on demand":
            getattr(model, setter)(False)
    return model


def other_outputs(engine, seed=0):
    """Random outputs in place of every part."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(values.shape, generator=generator) for name, values in engine.cache.items()}


def replaced(engine, new_outputs):
    return {
        (sender, receiver): logits
        for receiver, senders, by_sender in engine.each_receiver(new_outputs)
        for sender, logits in zip(senders, by_sender, strict=True)
    }


def test_senders_and_receivers_have_names():
    engine = EdgeEngine(plain("pre_ln"), tokens_of(plain("pre_ln"), 5))
    assert list(map(str, engine.senders)) == ["embedding", "0.0", "0.1", "0 MLP", "1.0", "1.1", "1 MLP"]
    names = [f"{sender} > {receiver}" for sender, receiver in engine.edges]
    assert names[:7] == [
        *(f"embedding > 0.{head} {letter}" for head in (0, 1) for letter in "qkv"),
        "embedding > 0 MLP",
    ]
    assert names[-2:] == ["1.1 > read-out", "1 MLP > read-out"]
    # 6 into the heads of layer 0, 3 into its MLP, 4 x 6 into the heads of layer 1, 6 into its MLP, 7 into the read-out
    assert len(names) == len(set(names)) == 6 + 3 + 24 + 6 + 7


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_to_a_separate_pass_for_each_edge(family):
    model = plain(family)
    tokens = tokens_of(model, 5, n=3)
    engine, separate = EdgeEngine(model, tokens), points_on_demand(model)
    new_outputs = other_outputs(engine)
    logits = replaced(engine, new_outputs)
    assert list(logits) == engine.edges
    for edge in engine.edges:
        expected = brute_force(separate, tokens, new_outputs, edge)
        scale = expected.abs().max().clamp_min(1)
        torch.testing.assert_close(
            logits[edge] / scale, expected / scale, rtol=0, atol=1e-5, msg=lambda m, e=edge: f"{e[0]} > {e[1]}: {m}"
        )
        assert not torch.equal(logits[edge], engine.logits)  # every edge that is listed has an effect


@pytest.mark.parametrize("family", ["pre_ln", "causal", "post_ln", "a I and b I", "patterns", "tied", "attention_only"])
def test_positions_that_are_read_and_padding(family):
    model = plain(family)
    tokens = tokens_of(model, 6, n=3)
    read_at = torch.tensor([[0, 3], [1, 2], [3, 3]])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, 4:] = mask[1, 5:] = False
    engine = EdgeEngine(model, tokens, read_at=read_at, attention_mask=mask)
    separate = points_on_demand(model)
    new_outputs = other_outputs(engine)
    for edge, logits in replaced(engine, new_outputs).items():
        expected = take(brute_force(separate, tokens, new_outputs, edge, attention_mask=mask), read_at)
        scale = expected.abs().max().clamp_min(1)
        torch.testing.assert_close(logits / scale, expected / scale, rtol=0, atol=1e-5)


def test_one_output_for_all_sequences():
    model = plain("pre_ln")
    tokens = tokens_of(model, 5, n=3)
    engine, separate = EdgeEngine(model, tokens), points_on_demand(model)
    means = {name: values.mean(0, keepdim=True) for name, values in engine.cache.items()}
    expanded = {name: mean.expand_as(engine.cache[name]) for name, mean in means.items()}
    for edge, logits in replaced(engine, means).items():
        torch.testing.assert_close(logits, brute_force(separate, tokens, expanded, edge), rtol=0, atol=1e-5)


def test_the_clean_outputs_change_nothing():
    for family in ("pre_ln", "post_ln", "dyck", "pathways"):
        model = plain(family)
        engine = EdgeEngine(model, tokens_of(model, 5))
        for logits in replaced(engine, dict(engine.cache)).values():
            torch.testing.assert_close(logits, engine.logits, rtol=0, atol=2e-5)


def test_what_an_edge_cannot_pass():
    """An MLP without residual connection is the only part that later inputs read; hard-coded heads have only values."""
    dyck = EdgeEngine(plain("dyck"), tokens_of(plain("dyck"), 5))
    assert {str(sender) for sender, receiver in dyck.edges if receiver.layer == 1 and receiver.head == 0} == {"0 MLP"}
    assert [str(sender) for sender, receiver in dyck.edges if receiver.kind == "read-out"] == ["1 MLP"]
    patterns = EdgeEngine(plain("patterns"), tokens_of(plain("patterns"), 5))
    assert {receiver.kind for _, receiver in patterns.edges if receiver.head == 0} == {"value"}
    assert {receiver.kind for _, receiver in patterns.edges if receiver.head == 1} == {"query", "key", "value"}


def test_a_hook_in_a_layer_is_refused():
    model = plain("pre_ln")
    model.add_hook("blocks.1.attn.hook_z", lambda z, hook: None)
    with pytest.raises(ValueError, match=r"a hook is attached to blocks\.1\.attn\.hook_z, which replaced edges"):
        EdgeEngine(model, tokens_of(model, 5))
    model.reset_hooks()
    model.block(0).mlp.w_in.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"a torch hook is attached to mlp\.w_in of layer 0"):
        EdgeEngine(model, tokens_of(model, 5))
