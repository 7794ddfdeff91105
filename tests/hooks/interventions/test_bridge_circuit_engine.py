"""Sets of replaced edges of a wrapped model, against our own model with the same weights."""

import pytest
import torch
from bridges import D_VOCAB, bridge_of, hugging_face
from test_edge_engine import other_outputs

import hooks
from hooks.interventions.bridge_circuit_engine import BridgeCircuitEngine
from hooks.interventions.bridge_edge_engine import BridgeEdgeEngine
from hooks.interventions.circuit_engine import CircuitEngine

TOKENS = torch.randint(D_VOCAB, (3, 6), generator=torch.Generator().manual_seed(0))
OPTIONS = {
    "read_at": torch.tensor([[1, 3], [0, 3], [2, 4]]),
    "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]]),
}


def logits_of(engine, sets, outputs):
    """Logits of each set, by what every part writes instead."""
    return dict(engine.each_edit(sets, lambda point, activation: outputs[point]))


def sets_of(n_edges):
    generator = torch.Generator().manual_seed(1)
    random_sets = [torch.rand(n_edges, generator=generator) < share for share in (0.1, 0.5, 0.9)]
    return [torch.zeros(n_edges, dtype=torch.bool), torch.ones(n_edges, dtype=torch.bool), *random_sets]


@pytest.mark.parametrize("compatible", [False, True])
def test_equal_to_our_own_model_with_the_same_weights(compatible):
    bridge = bridge_of("gpt2")
    if compatible:  # folds norms into the weights: hook points are kept, what parts write is another
        bridge.enable_compatibility_mode(disable_warnings=True, no_processing=True)
    our_engine = CircuitEngine(hooks.from_huggingface(hugging_face("gpt2")), TOKENS, **OPTIONS)
    engine = BridgeCircuitEngine(hooks.from_bridge(bridge), TOKENS, **OPTIONS)
    sets = sets_of(len(our_engine.edges))
    instead = {name: values for name, values in other_outputs(our_engine).items() if name in engine.cache}
    expected, logits = logits_of(our_engine, sets, instead), logits_of(engine, sets, instead)
    assert list(logits) == list(range(len(sets)))
    for index in logits:
        torch.testing.assert_close(logits[index], expected[index], rtol=0, atol=5e-5)
    assert not torch.allclose(logits[2], logits[3], atol=1e-2)


def test_one_edge_is_that_of_the_engine_of_edges():
    """Also where attention and MLP read the same stream."""
    model = hooks.from_bridge(bridge_of("neox"))
    edges, engine = BridgeEdgeEngine(model, TOKENS), BridgeCircuitEngine(model, TOKENS)
    instead = other_outputs(engine)
    chosen = [3, 17, len(engine.edges) - 2]
    sets = [torch.arange(len(engine.edges)) == index for index in chosen]
    logits = logits_of(engine, sets, instead)
    expected = dict(edges.each_edit(edges.edges, lambda point, activation: instead[point]))
    for place, index in enumerate(chosen):
        torch.testing.assert_close(logits[place], expected[index], rtol=0, atol=2e-5)


def test_the_bridge_is_as_before():
    bridge = bridge_of("gpt2")
    model = hooks.from_bridge(bridge)
    before = model(TOKENS)
    engine = BridgeCircuitEngine(model, TOKENS)
    logits_of(engine, sets_of(len(engine.edges)), other_outputs(engine))
    assert torch.equal(model(TOKENS), before)
    assert (bridge.cfg.use_split_qkv_input, bridge.cfg.use_hook_mlp_in) == (False, False)
