"""Replaced edges of a wrapped model against those of our own model and against a computation by hand."""

import pytest
import torch
from bridges import D_VOCAB, bridge_of, hugging_face
from test_edge_engine import other_outputs, replaced

import hooks
from hooks.interventions.bridge_edge_engine import BridgeEdgeEngine
from hooks.interventions.edge_engine import EdgeEngine, Receiver, Sender

TOKENS = torch.randint(D_VOCAB, (3, 6), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]])
READ_AT = torch.tensor([[1, 3], [0, 3], [2, 4]])


def names(engine):
    return [f"{sender} > {receiver}" for sender, receiver in engine.edges]


@pytest.mark.parametrize("compatible", [False, True])
def test_equal_to_our_own_model_with_the_same_weights(compatible):
    bridge = bridge_of("gpt2")
    if compatible:  # folds norms into the weights: hook points are kept, what parts write is another
        bridge.enable_compatibility_mode(disable_warnings=True, no_processing=True)
    own = EdgeEngine(hooks.from_huggingface(hugging_face("gpt2")), TOKENS, read_at=READ_AT, attention_mask=MASK)
    engine = BridgeEdgeEngine(hooks.from_bridge(bridge), TOKENS, read_at=READ_AT, attention_mask=MASK)
    assert names(engine) == names(own)
    torch.testing.assert_close(engine.logits, own.logits, rtol=0, atol=1e-5)
    instead = {name: values for name, values in other_outputs(own).items() if name in engine.cache}
    expected = replaced(own, {**own.cache, **instead})
    logits = replaced(engine, instead)
    assert list(logits) == engine.edges
    for edge in engine.edges:
        torch.testing.assert_close(logits[edge], expected[edge], rtol=0, atol=2e-5)


@torch.no_grad()
def test_layers_of_parallel_attention_and_mlp():
    bridge = bridge_of("neox")
    model = hooks.from_bridge(bridge)
    engine = BridgeEdgeEngine(model, TOKENS)
    # Attention and MLP read the same stream
    assert "0.1 > 1 MLP" in names(engine)
    assert not {f"{layer}.{head} > {layer} MLP" for layer in (0, 1) for head in range(4)} & set(names(engine))
    instead = other_outputs(engine)
    logits = replaced(engine, instead)
    # Queries and MLP of layer 1 with another output of head 0.2, by the modules inside
    block = bridge.original_model.gpt_neox.layers[1]
    change = (instead["blocks.0.attn.hook_z"] - engine.cache["blocks.0.attn.hook_z"])[:, :, 2]
    stream = engine.cache["blocks.1.hook_resid_pre"] + change @ model.blocks[0].attn.W_O[2]
    norms = [getattr(block, name).original_component for name in ("input_layernorm", "post_attention_layernorm")]
    attention = model.blocks[1].attn
    queries = norms[0](stream) @ attention.W_Q[3] + attention.b_Q[3]

    def set_queries(activation, hook):
        edited = activation.clone()
        edited[:, :, 3] = queries
        return edited

    expected = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.1.attn.hook_q", set_queries)])
    torch.testing.assert_close(logits[Sender(0, 2), Receiver("query", 1, 3)], expected, rtol=0, atol=1e-5)
    mlp_out = block.mlp(norms[1](stream))
    expected = model.run_with_hooks(
        TOKENS, fwd_hooks=[("blocks.1.hook_mlp_out", lambda activation, hook: mlp_out.clone())]
    )
    torch.testing.assert_close(logits[Sender(0, 2), Receiver("MLP", 1)], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("is_on", [False, True])
def test_the_settings_of_the_bridge_stay(is_on):
    bridge = bridge_of("gpt2")
    bridge.set_use_split_qkv_input(is_on)
    engine = BridgeEdgeEngine(hooks.from_bridge(bridge), TOKENS, chosen={"0.1 > 1.0 q", "0 MLP > read-out"})
    assert list(map(str, (receiver for receiver, _, _ in engine.each_receiver(other_outputs(engine))))) == [
        "1.0 q",
        "read-out",
    ]
    assert (bridge.cfg.use_split_qkv_input, bridge.cfg.use_hook_mlp_in) == (is_on, False)


@pytest.mark.parametrize("inside", [False, True])
def test_hooks_in_layers_are_refused(inside):
    bridge = bridge_of("gpt2")
    model = hooks.from_bridge(bridge)
    (bridge if inside else model).add_hook("blocks.1.hook_mlp_out", lambda activation, hook: activation)
    with pytest.raises(ValueError, match="a hook is attached to blocks"):
        BridgeEdgeEngine(model, TOKENS)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("llama", "several heads share keys and values"),
        ("native", "the model refuses them: use_split_qkv_input"),
        ("bert", "the output of layer 0 is not the sum"),
    ],
)
def test_models_without_split_inputs(kind, reason):
    cell = hooks.from_bridge(bridge_of(kind)).capabilities.split_inputs
    assert not cell.ok
    assert cell.reason.startswith(reason)


def ignore_query_inputs(block):
    """The hooks run, but queries are computed from the stream before them."""
    fork = block.attn._fork_and_norm_per_head

    def fork_without_hooks(source, hook, n_heads):
        forked = fork(source, hook, n_heads)
        return fork(source, lambda x: x, n_heads) if "q_input" in hook.name else forked

    block.attn._fork_and_norm_per_head = fork_without_hooks


def share_inputs(block):
    """Keys are computed from what the hooks of the queries give."""
    fork, stored = block.attn._fork_and_norm_per_head, {}

    def fork_once(source, hook, n_heads):
        if "q_input" in hook.name:
            stored["queries"] = fork(source, hook, n_heads)
        forked = fork(source, hook, n_heads)
        return stored["queries"] if "k_input" in hook.name else forked

    block.attn._fork_and_norm_per_head = fork_once


def ignore_mlp_inputs(block):
    """The hooks run, but the MLP reads the stream before them."""
    stored = {}
    block.ln2.register_forward_pre_hook(lambda module, args: stored.update(args=args), prepend=True)
    block.ln2.register_forward_pre_hook(lambda module, args: stored["args"])


@pytest.mark.parametrize(
    ("break_block", "reason"),
    [
        (ignore_query_inputs, "an edit of blocks.1.attn.hook_q_input has another effect on hook_q"),
        (share_inputs, "an edit of blocks.1.attn.hook_q_input has another effect on hook_k"),
        (ignore_mlp_inputs, "an edit of blocks.1.hook_mlp_in has another effect on hook_mlp_out"),
    ],
)
def test_an_input_that_does_not_follow_edits_is_noticed(break_block, reason):
    bridge = bridge_of("gpt2")
    bridge(TOKENS)  # the first pass attaches the hook points of the MLP
    break_block(bridge.blocks[1])
    assert hooks.from_bridge(bridge).capabilities.split_inputs.reason == reason
