"""Edges between layers, and those within some: a separate pass for each, what a loop has, wrapped models, errors."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from bridges import bridge_of, hugging_face
from own_models import transformer

import interp
from hooks import Transformer, from_bridge, from_huggingface, from_module
from hooks.interventions.edge_engine import EdgeEngine
from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.core.sample import reference_batch
from interp.heads import edges as edges_module
from interp.known_answers.lego.loop import lego_loop
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets

TASK = Lego(n_vars=3, sentence_format="compact")
CHAIN = Lego(n_vars=2)
N = 16


@pytest.fixture(scope="module")
def parts():
    return interp.edges(transformer(TASK), TASK, n=N)


@pytest.fixture(scope="module")
def of_loop():
    return interp.edges(lego_loop(CHAIN), CHAIN, between="layers", n=96)


def separate_pass(model, tokens, clean, means, sender, receiver):
    """Logits with one edge between layers replaced: two passes with hooks."""
    n_layers = model.cfg.n_layers
    point = "blocks.0.hook_resid_pre"

    def written(cache, index):
        prefix = f"blocks.{index}."
        return cache[f"{prefix}hook_resid_post"] - cache[f"{prefix}hook_resid_pre"]

    if sender == "embedding":
        change = means[point].mean(0) - clean[point]
    else:
        index = int(sender.split()[1])
        change = written(means, index).mean(0) - written(clean, index)
    if receiver == "read-out":
        last = f"blocks.{n_layers - 1}.hook_resid_post"
        return model.run_with_hooks(tokens, fwd_hooks=[(last, lambda stream, hook: stream + change)])
    layer = int(receiver.split()[1])
    before, after = f"blocks.{layer}.hook_resid_pre", f"blocks.{layer}.hook_resid_post"
    with model.hooks([(before, lambda stream, hook: stream + change)]):
        _, cache = model.run_with_cache(tokens)
    post = cache[after] - change
    return model.run_with_hooks(tokens, fwd_hooks=[(after, lambda stream, hook: post)])


@pytest.mark.parametrize("sizes", [{}, {"block": "no_norm", "attention": "causal"}, {"tied": True}, {"d_mlp": 0}])
@torch.no_grad()
def test_equal_to_a_separate_pass_for_each_edge(sizes):
    model = Transformer(interp.config_for(TASK, n_layers=3, n_heads=2, d_model=16, **sizes), seed=1).eval()
    result = interp.edges(model, TASK, between="layers", n=N)
    assert result.names[:3] == ("embedding > layer 0", "embedding > layer 1", "layer 0 > layer 1")
    assert len(result.names) == 10
    batch = inputs_or_sample(TASK, N, generator=derived_generator(0, "edges"))
    clean_logits, clean = model.run_with_cache(batch.tokens)
    _, means = model.run_with_cache(reference_batch(TASK, 0).tokens)
    loss = TASK.score(logits_at_targets(clean_logits, batch), batch).loss
    for index, edge in enumerate(zip(result.senders, result.receivers, strict=True)):
        logits = separate_pass(model, batch.tokens, clean, means, *edge)
        rise = TASK.score(logits_at_targets(logits, batch), batch).loss - loss
        np.testing.assert_allclose(result.loss_rise[index], rise.mean(0), atol=1e-5)
        assert np.abs(result.loss_rise[index]).max() > 1e-6


LAYERS = {"gpt2": "transformer.h", "llama": "model.layers", "neox": "gpt_neox.layers", "gemma2": "model.layers"}
"""Of models of `transformers`: layers in rows, rotary positions with shared keys, parallel layers, norms of what is
added."""


def gemma2():
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1}
    sizes |= {"head_dim": 8, "intermediate_size": 24, "max_position_embeddings": TASK.n_ctx, "vocab_size": TASK.d_vocab}
    config = transformers.Gemma2Config(**sizes, initializer_range=0.4, attn_implementation="eager", pad_token_id=None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.Gemma2ForCausalLM(config).eval()
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.data += 0.3 * torch.randn(parameter.shape)
    return model


def wrapped(kind):
    """A model of `transformers` and a wrapper of one with the same weights."""
    if kind != "gemma2":
        return hugging_face(kind, d_vocab=TASK.d_vocab), bridge_of(kind, d_vocab=TASK.d_vocab)
    names = {"layers": LAYERS[kind], "attention": {name: f"self_attn.{name}_proj" for name in "qkvo"}}
    options = {"untrained": gemma2, "forward": lambda module, tokens, **inputs: module(tokens, **inputs).logits}
    return gemma2(), from_module(gemma2(), **names, **options, d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, n_heads=2)


def plain_pass(module, kind, tokens, *, before=None, after=None):
    """Logits and streams of a pass with the input or the output of a layer changed, by hooks of torch."""
    layers, streams = module.get_submodule(LAYERS[kind]), []

    def enter(index):
        def change_input(layer, inputs):
            stream = inputs[0] + (before or {}).get(index, 0)
            streams.append(stream)
            return (stream, *inputs[1:])

        return change_input

    def leave(index):
        def change_output(layer, inputs, output):
            is_tuple = isinstance(output, tuple)
            stream = (output[0] if is_tuple else output) + (after or {}).get(index, 0)
            if index == len(layers) - 1:
                streams.append(stream)
            return (stream, *output[1:]) if is_tuple else stream

        return change_output

    with ExitStack() as stack:
        for index, layer in enumerate(layers):
            for handle in (layer.register_forward_pre_hook(enter(index)), layer.register_forward_hook(leave(index))):
                stack.callback(handle.remove)
        return module(tokens).logits, streams


@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_wrapped_models_equal_hooks_of_torch(kind):
    module, model = wrapped(kind)
    result = interp.edges(model, TASK, between="layers", n=8)
    batch = inputs_or_sample(TASK, 8, generator=derived_generator(0, "edges"))
    clean_logits, clean = plain_pass(module, kind, batch.tokens)
    _, of_means = plain_pass(module, kind, reference_batch(TASK, 0).tokens)
    n_layers = len(clean) - 1
    changes = {"embedding": of_means[0].mean(0) - clean[0]}
    for layer in range(n_layers):
        mean_written = (of_means[layer + 1] - of_means[layer]).mean(0)
        changes[f"layer {layer}"] = mean_written - (clean[layer + 1] - clean[layer])
    loss = TASK.score(logits_at_targets(clean_logits, batch), batch).loss
    assert len(result.names) == (n_layers + 1) * (n_layers + 2) / 2
    for index, (sender, receiver) in enumerate(zip(result.senders, result.receivers, strict=True)):
        change = changes[sender]
        edits = {"after": {n_layers - 1: change}}
        if receiver != "read-out":
            layer = int(receiver.split()[1])
            edits = {"before": {layer: change}, "after": {layer: -change}}
        logits, _ = plain_pass(module, kind, batch.tokens, **edits)
        rise = TASK.score(logits_at_targets(logits, batch), batch).loss - loss
        np.testing.assert_allclose(result.loss_rise[index], rise.mean(0), rtol=0, atol=5e-5)
        assert np.abs(result.loss_rise[index]).max() > 1e-3


@pytest.mark.parametrize(("n", "method"), [(12, "mean"), (12, "zero"), (12, "resample"), ("all", "mean")])
def test_a_bridge_equals_our_own_model_with_the_same_weights(n, method):
    task = Lego(n_vars=2, alphabet="ab") if n == "all" else TASK
    ours = from_huggingface(hugging_face("gpt2", d_vocab=task.d_vocab))
    results = [
        interp.edges(model, task, between="layers", method=method, n=n)
        for model in (bridge_of("gpt2", d_vocab=task.d_vocab), ours)
    ]
    theirs, expected = results
    assert theirs.names == expected.names
    assert np.abs(expected.loss_rise.value).max() > 0.1
    for name in ("drop", "loss_rise"):
        np.testing.assert_allclose(getattr(theirs, name).value, getattr(expected, name).value, rtol=0, atol=5e-5)
    assert theirs.drop.exact == (n == "all")


def test_a_layer_that_writes_zero_writes_no_bias_either():
    model = Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16), seed=1).eval()
    model.weights[0].attention.o.bias.data.normal_(generator=torch.Generator().manual_seed(0))
    result = interp.edges(model, TASK, between="layers", method="zero", n=N)
    batch = inputs_or_sample(TASK, N, generator=derived_generator(0, "edges"))
    with torch.no_grad():
        logits, cache = model.run_with_cache(batch.tokens)
        logits_without = model.read_out(cache["blocks.0.hook_resid_pre"])
    losses = [TASK.score(logits_at_targets(values, batch), batch).loss.mean(0) for values in (logits_without, logits)]
    row = result.names.index("layer 0 > read-out")
    np.testing.assert_allclose(result.loss_rise[row], losses[0] - losses[1], atol=1e-5)


def test_hooks_of_the_caller_in_a_wrapped_model_are_refused():
    model = from_bridge(bridge_of("gpt2", d_vocab=TASK.d_vocab))
    for hooked in (model, model.bridge):
        with (
            hooked.hooks(fwd_hooks=[("blocks.1.hook_mlp_out", lambda activation, hook: activation)]),
            pytest.raises(ValueError, match=r"a hook is attached to blocks\.1\.\S+, which replaced edges do not pass"),
        ):
            interp.edges(model, TASK, between="layers", n=8)


def test_layers_that_do_not_add_are_refused_by_name():
    with pytest.raises(
        ValueError, match=r"edges between layers does not accept .*the output of layer 0 is not the sum"
    ):
        interp.edges(bridge_of("bert", d_vocab=TASK.d_vocab), TASK, between="layers")


def test_the_layers_of_a_loop_and_the_parts_of_its_needed_pairs(of_loop):
    """The chain is embedding, layer 0, layer 1, layer 2: what is needed between parts is within needed layers."""
    assert {"embedding > layer 0", "layer 0 > layer 1", "layer 1 > layer 2", "layer 2 > read-out"} <= set(
        of_loop.needed
    )
    assert of_loop.sentences()[0].startswith(f"{len(of_loop.needed)} of 10 edges are needed")
    model = lego_loop(CHAIN)
    inside = interp.edges(model, CHAIN, within=["layer 0 > layer 1", "layer 2 > read-out"], n=96)
    every = interp.edges(model, CHAIN, n=96)
    assert set(inside.needed) >= {"0 MLP > 1.0 v", "2 MLP > read-out"}
    assert set(inside.senders) == {"0.0", "0.1", "0 MLP", "2.0", "2.1", "2 MLP"}
    rows = [every.names.index(name) for name in inside.names]
    np.testing.assert_allclose(inside.loss_rise.value, every.loss_rise.value[rows], atol=1e-9)
    # The level is over these edges only
    assert (inside.p_needed <= every.p_needed[rows] + 1e-12).all()


def test_within_names_parts_layers_and_both(parts):
    model = transformer(TASK)
    names = ["0.1 > layer 1", "embedding > read-out", "0 MLP > 1 MLP", "layer 1 > layer 1"]
    result = interp.edges(model, TASK, within=names, n=N)
    expected = {name for name in parts.names if name.startswith("0.1 > 1")}
    expected |= {"embedding > read-out", "0 MLP > 1 MLP", "1.0 > 1 MLP", "1.1 > 1 MLP"}
    assert set(result.names) == expected
    rows = [parts.names.index(name) for name in result.names]
    np.testing.assert_allclose(result.loss_rise.value, parts.loss_rise.value[rows], atol=1e-6)
    single = interp.edges(model, TASK, within=[parts.names[0]], n=N)
    np.testing.assert_allclose(single.loss_rise.value, parts.loss_rise.value[:1], atol=1e-6)


@pytest.mark.parametrize("block", ["post_ln", "dyck", "minimal"])
def test_within_on_blocks_that_do_not_add(block):
    model = Transformer(interp.config_for(TASK, n_layers=2, n_heads=2, d_model=16, block=block), seed=2).eval()
    every = interp.edges(model, TASK, n=8)
    for name in every.names[::5]:
        result = interp.edges(model, TASK, within=[name], n=8)
        assert result.names == (name,)
        np.testing.assert_allclose(result.loss_rise[0], every.loss_rise[every.names.index(name)], atol=1e-6)


def test_applied_layers_of_a_tied_model_are_those_of_equal_blocks():
    """An untied model with the same block in every layer has the same edges with the same costs."""
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16}
    tied = Transformer(interp.config_for(TASK, **sizes, tied=True), seed=1)
    untied = Transformer(interp.config_for(TASK, **sizes), seed=1)
    state = untied.state_dict()
    shared = tied.state_dict()
    for name in state:
        state[name] = shared[name if name in shared else name.replace("weights.1.", "weights.0.")]
    untied.load_state_dict(state)
    for between in ("parts", "layers"):
        of_tied, of_untied = (interp.edges(model, TASK, between=between, n=8) for model in (tied, untied))
        assert of_tied.names == of_untied.names
        np.testing.assert_allclose(of_tied.loss_rise.value, of_untied.loss_rise.value, atol=1e-6)


def test_results_do_not_depend_on_the_memory(parts, monkeypatch):
    monkeypatch.setattr(edges_module, "MOST_NUMBERS", 8 * 8 * 16 * 40)
    again = interp.edges(transformer(TASK), TASK, n=N)
    np.testing.assert_allclose(again.loss_rise.value, parts.loss_rise.value, atol=1e-6)


def test_many_edges_are_announced(monkeypatch):
    monkeypatch.setattr(edges_module, "MANY_EDGES", 45)
    with pytest.warns(UserWarning, match=r"46 edges take about 23 passes over 8 sequences, at most \d+ minutes here"):
        interp.edges(transformer(TASK), TASK, n=8)
    interp.edges(transformer(TASK), TASK, n=8, between="layers")  # and few are not


def test_a_circuit_needs_every_edge(of_loop):
    message = "these are edges between layers, or only some edges; a circuit needs every edge between parts"
    with pytest.raises(ValueError, match=message):
        of_loop.circuit(n=16)
    some = interp.edges(lego_loop(CHAIN), CHAIN, within=["0 MLP > read-out"], n=64)
    with pytest.raises(ValueError, match=message):
        some.circuit(n=16)


def test_errors():
    model = transformer(TASK)
    with pytest.raises(ValueError, match="between is 'heads'; choose one of parts, layers"):
        interp.edges(model, TASK, between="heads")  # type: ignore[arg-type]
    for name in ("layer 9 > layer 10", "0.0 > 0.1 q", "embedding", "1 MLP > layer 0"):
        with pytest.raises(
            ValueError, match=f"within has '{name}', which is no edge of this model; give names such as"
        ):
            interp.edges(model, TASK, within=["embedding > layer 0", name], n=8)
    with pytest.raises(ValueError, match="within is"):
        interp.edges(model, TASK, within=[], n=8)
    with pytest.raises(ValueError, match="within chooses among edges between parts, but between is 'layers'"):
        interp.edges(model, TASK, between="layers", within=["embedding > layer 0"])
    post_ln = Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16, block="post_ln"), seed=0)
    with pytest.raises(
        ValueError, match=r"the model's block is 'post_ln', whose layers do not add .* Use between='parts'"
    ):
        interp.edges(post_ln, TASK, between="layers")


def test_the_engine_passes_only_what_is_chosen():
    model, tokens = transformer(TASK), inputs_or_sample(TASK, 4, generator=derived_generator(0, "edges")).tokens
    engine = EdgeEngine(model, tokens, chosen={"0.1 > 1.0 q"})
    _, cache = model.run_with_cache(tokens)
    new_outputs = {name: torch.zeros_like(values[:1]) for name, values in cache.items()}
    ((receiver, senders, logits),) = engine.each_receiver(new_outputs)
    assert (str(receiver), [*map(str, senders)], len(logits)) == ("1.0 q", ["0.1"], 1)
    assert [f"{sender} > {receiver}" for sender, receiver in engine.edges] == ["0.1 > 1.0 q"]


def test_saved_and_loaded(of_loop, tmp_path):
    of_loop.save(tmp_path / "edges.json")
    loaded = interp.heads.EdgesResult.load(tmp_path / "edges.json")
    assert str(loaded) == str(of_loop) == str(replace(of_loop))
    assert loaded.plot().to_json() == of_loop.plot().to_json()
