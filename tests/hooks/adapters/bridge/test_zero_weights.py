"""Capabilities of bridges with zero weights: a hook point that nothing reads is not one that ignores edits."""

import warnings
from functools import cache

import pytest
import torch
from bridges import D_VOCAB, bridge_of

import hooks
import interp
from hooks.adapters.bridge.capabilities import capabilities_of
from interp.core.verbs import needs_of_verbs
from interp.tasks import Dyck

TRANSFORMER_ONLY = {verb: needs.only_transformer for verb, needs in needs_of_verbs().items() if needs.only_transformer}

PARTS = {"W_O": ".attn._original_component.o.", "W_V": ".attn._original_component.v.", "layer": ""}


def native(direction, part="layer", layers=(), **sizes):
    bridge = bridge_of("native", attention_dir=direction, **sizes)
    for layer in layers:
        for name, parameter in bridge.named_parameters():
            if name.startswith(f"layers.{layer}.") and PARTS[part] in name:
                parameter.data.zero_()
    return bridge


def table(bridge):
    """Capabilities without the reasons: of a branch without effect no test sees that it is one."""
    found = hooks.from_bridge(bridge).capabilities
    rows = [(row["site"], row["read"].split(" ")[0], row["edit"].split(" ")[0]) for row in found.rows()]
    return found.attention, found.attention_mask.state, found.position_ids.state, rows


def obstacles(bridge):
    return {verb for verb, why in interp.supported_verbs(bridge).obstacles.items() if why} - {
        *TRANSFORMER_ONLY,
        "edges",
    }


@cache
def table_of_random_weights(direction):
    return table(native(direction))


@pytest.mark.parametrize("part", ["W_O", "W_V"])
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_zero_heads_do_not_change_the_table(part, direction):
    bridge = native(direction, part, [0, 1])
    assert table(bridge) == table_of_random_weights(direction)
    assert hooks.from_bridge(bridge).cfg.attention == direction


@pytest.mark.parametrize(("direction", "layers"), [("causal", [1]), ("bidirectional", [0]), ("bidirectional", [0, 1])])
def test_zero_layers_are_accepted_by_every_verb(direction, layers):
    task = Dyck(n_types=2, max_depth=3, length=4)
    bridge = native(direction, "layer", layers, n_layers=len(layers) + (layers == [1]), d_vocab=task.d_vocab)
    assert obstacles(bridge) == set()
    assert hooks.from_bridge(bridge).cfg.attention == direction
    found = interp.ablate_heads(bridge, task, n=8)
    zero = {
        head for (head,), rise in zip(found.heads, found.loss_rise.value, strict=True) if not rise[rise == rise].any()
    }
    assert zero == {(layer, head) for layer in layers for head in range(4)}


def test_all_weights_zero():
    bridge = native("bidirectional")
    for parameter in bridge.parameters():
        parameter.data.zero_()
    assert hooks.from_bridge(bridge).cfg.attention == "bidirectional"
    assert obstacles(bridge) == {
        "patch of MLPs",
        "ablate",
        "audit_parts",
    }  # an edit of hook_mlp_out cannot be seen to act


@pytest.mark.parametrize("part", ["value", "attention"])
def test_an_ignored_edit_is_refused_also_where_it_would_have_no_effect(part):
    """Edits of the pattern of a BERT bridge are ignored; that is found with weights of zero as well."""
    bridge = bridge_of("bert")
    for name, parameter in bridge.original_model.named_parameters():
        if "encoder.layer" in name and f".{part}" in name.replace("._original_component", "") and "Norm" not in name:
            parameter.data.zero_()
    model = hooks.from_bridge(bridge)
    for layer in (0, 1):
        assert model.capabilities.cell(f"blocks.{layer}.attn.hook_pattern", "edit").state == "ignored"
        assert model.capabilities.cell(f"blocks.{layer}.attn.hook_z", "edit").ok
    half = ("blocks.0.attn.hook_pattern", lambda activation, hook: activation / 2)
    with pytest.raises(ValueError, match=r"hook_pattern would be ignored by this model\. Edit blocks.0.attn.hook_z"):
        model.run_with_hooks(torch.zeros(1, 4, dtype=torch.long), fwd_hooks=[half])


def test_a_pattern_with_later_keys_is_refused_if_it_is_not_applied():
    """With values of zero, any pattern gives the same z; with others in their place, only the right one does."""
    bridge = bridge_of("bert")
    for name, parameter in bridge.original_model.named_parameters():
        if ".value." in name.replace("._original_component", ""):
            parameter.data.zero_()
    assert hooks.from_bridge(bridge).capabilities.cell("blocks.0.attn.hook_pattern", "read").ok
    bridge.hook_dict["blocks.0.attn.hook_pattern"].add_hook(lambda pattern, hook: torch.full_like(pattern, 1 / 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TransformerLens: the edit is discarded
        found = capabilities_of(bridge, torch.arange(18).view(3, 6) % D_VOCAB)
    cell = found.cell("blocks.0.attn.hook_pattern", "read")
    assert str(cell) == "wrong copy (it attends to later keys, which the logits do not depend on)"


@pytest.mark.parametrize("kind", ["gpt2", "native"])
def test_positions_are_tested_in_a_short_context(kind):
    bridge = bridge_of(kind)
    bridge.cfg.n_ctx = 6
    size = 6
    tables = [one for one in bridge.parameters() if one.ndim == 2 and len(one) == 40]
    for one in tables:
        one.data = one.data[:size].clone()
    assert tables
    model = hooks.from_bridge(bridge)
    assert model.capabilities.position_ids.state == "works"
    tokens = torch.randint(2, D_VOCAB, (3, 6), generator=torch.Generator().manual_seed(4))
    count = torch.arange(6)[None]
    assert torch.equal(model(tokens, position_ids=count), model(tokens))
    assert not torch.allclose(model(tokens, position_ids=count.flip(1)), model(tokens), atol=1e-3)


@pytest.mark.parametrize("error", [IndexError, AssertionError])
def test_a_mask_that_raises_is_a_missing_mask(error):
    bridge = bridge_of("native")
    forward = bridge.forward

    def refuse(tokens, attention_mask=None, **inputs):
        if attention_mask is not None:
            raise error("no mask here")
        return forward(tokens, **inputs)

    bridge.forward = refuse
    found = hooks.from_bridge(bridge).capabilities.attention_mask
    assert found.state == "missing"
    assert "the model refuses it: " in found.reason
    assert "no mask here" in found.reason


@pytest.mark.parametrize("part", ["W_O", "W_V"])
def test_a_mask_is_tested_where_nothing_reads_the_heads(part):
    """Padding that only heads or patterns see: no logit depends on it, but a head's score would."""
    bridge = native("bidirectional", part, [0, 1])
    forward = bridge.forward
    bridge.forward = lambda tokens, attention_mask=None, **inputs: forward(tokens, **inputs)
    assert str(hooks.from_bridge(bridge).capabilities.attention_mask) == "ignored (real tokens see padding)"
