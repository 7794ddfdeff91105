"""Ablation of MLPs, neurons and heads together."""

import numpy as np
import pytest
from own_models import MAPS, PlainModel, own_model, transformer
from rounding import assert_equal_up_to_rounding

import hooks
import interp
from hooks.model.layers import take
from interp.core.randomness import derived_generator
from interp.core.sample import reference_batch
from interp.tasks import Lego

TASK = Lego(n_vars=2, sentence_format="compact", alphabet="abcd")
N = 24
NAMES = {"layers": "layers", "attention": MAPS, "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
MODELS = {
    "native": lambda: transformer(TASK),
    "b": lambda: transformer(TASK, vo_identity=True),
    "post_ln": lambda: transformer(TASK, block="post_ln"),
    "tied": lambda: transformer(TASK, tied=True),
    "bridge": lambda: hooks.from_bridge(own_model(transformer(TASK))),
    "module": lambda: hooks.from_module(PlainModel(transformer(TASK).cfg).eval(), **NAMES),
}


def loss(model, fwd_hooks):
    batch = TASK.sample(N, generator=derived_generator(0, "ablate"), split="test")
    logits = model.run_with_hooks(batch.tokens, fwd_hooks=fwd_hooks)
    score = TASK.score(take(logits, batch.target_positions), batch)
    return (score.loss.sum(0) / score.total.sum(0)).detach().numpy()


def replaced(name, value, index=None):
    def edit(activation, hook):
        edited = activation.clone()
        if index is None:
            edited[:] = value
        else:
            edited[:, :, index] = value[:, :, index]
        return edited

    return name, edit


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.mark.parametrize("method", ["mean", "zero"])
def test_mlps_are_those_of_hooks_by_hand(model, method):
    model_in_use = model if hasattr(model, "run_with_hooks") else hooks.from_bridge(model)
    _, cache = model_in_use.run_with_cache(reference_batch(TASK, 0).tokens)
    result = interp.ablate(model, TASK, method=method, n=N)
    assert result.names == ("0 MLP", "1 MLP")
    before = loss(model_in_use, [])
    for layer in range(2):
        name = f"blocks.{layer}.hook_mlp_out"
        value = cache[name].mean(0, keepdim=True) * (method == "mean")
        expected = loss(model_in_use, [replaced(name, value)]) - before
        np.testing.assert_allclose(result.loss_rise.value[layer], expected, atol=1e-5)
        assert np.abs(expected).max() > 1e-5


def test_heads_mlps_and_neurons_together():
    """Later parts are replaced as they are under the edits of earlier ones; the mean does not depend on these."""
    model = transformer(TASK)
    _, cache = model.run_with_cache(reference_batch(TASK, 0).tokens)
    sets = {"all kinds": ["1 MLP 3", "0.1", "1 MLP 5", "0 MLP"], "a head": ["0.1"]}
    result = interp.ablate(model, TASK, parts=sets, n=N)
    mean = {name: cache[name].mean(0, keepdim=True) for name in cache}
    head = replaced("blocks.0.attn.hook_z", mean["blocks.0.attn.hook_z"], [1])
    edits = [head, replaced("blocks.0.hook_mlp_out", mean["blocks.0.hook_mlp_out"])]
    edits.append(replaced("blocks.1.mlp.hook_post", mean["blocks.1.mlp.hook_post"], [3, 5]))
    before = loss(model, [])
    np.testing.assert_allclose(result.loss_rise.value[0], loss(model, edits) - before, atol=1e-5)
    np.testing.assert_allclose(result.loss_rise.value[1], loss(model, [head]) - before, atol=1e-5)
    assert result.parts == (("1 MLP 3", "0.1", "1 MLP 5", "0 MLP"), ("0.1",))


@pytest.mark.parametrize("n", [N, "all"])
def test_heads_are_those_of_ablate_heads(n):
    model = transformer(TASK)
    parts = interp.ablate(model, TASK, parts="heads", method="resample", n=n)
    heads = interp.ablate_heads(model, TASK, method="resample", n=n)
    np.testing.assert_allclose(parts.drop.value, heads.drop.value, atol=1e-6)
    np.testing.assert_allclose(parts.loss_rise.value, heads.loss_rise.value, atol=1e-5)
    assert parts.names == heads.names
    assert parts.drop.exact == (n == "all")


@pytest.mark.parametrize("method", ["mean", "zero"])
def test_the_embedding_is_that_of_hooks_by_hand(model, method):
    model_in_use = model if hasattr(model, "run_with_hooks") else hooks.from_bridge(model)
    _, cache = model_in_use.run_with_cache(reference_batch(TASK, 0).tokens)
    result = interp.ablate(model, TASK, parts={"all": ["embedding"]}, method=method, n=N)
    name = "blocks.0.hook_resid_pre"
    value = cache[name].mean(0, keepdim=True) if method == "mean" else 0.0
    np.testing.assert_allclose(
        result.loss_rise.value[0], loss(model_in_use, [replaced(name, value)]) - loss(model_in_use, []), atol=1e-5
    )


def test_all_neurons_are_the_mlp_without_its_bias():
    model = transformer(TASK)
    for layer in range(2):
        model.block(layer).mlp.w_out.bias.data.zero_()
    neurons = {"neurons": [f"0 MLP {index}" for index in range(model.cfg.d_mlp)], "whole": ["0 MLP"]}
    result = interp.ablate(model, TASK, parts=neurons, method="zero", n=N)
    np.testing.assert_allclose(result.loss_rise.value[0], result.loss_rise.value[1], atol=1e-5)


def test_jobs_give_the_same(monkeypatch):
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", 40)
    model = transformer(TASK)
    results = [interp.ablate(model, TASK, parts="each", n=N, n_jobs=n_jobs) for n_jobs in (1, 2)]
    assert_equal_up_to_rounding(results[0].loss_rise.value, results[1].loss_rise.value, terms=model.cfg.d_mlp)


def test_what_is_shown():
    result = interp.ablate(transformer(TASK), TASK, parts="each", n=N)
    assert "accuracy with parts set to mean; 24 sequences" in str(result)
    assert list(result.to_dataframe()["set"].unique()) == ["0.0", "0.1", "1.0", "1.1", "0 MLP", "1 MLP"]
    assert "0 MLP" in result.plot().to_json()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": "neurons"}, "parts is 'neurons'; it must be 'mlps' or 'heads' or 'each' or a mapping"),
        ({"parts": {}}, "parts is {}; give"),
        ({"parts": {"empty": []}}, r"parts\['empty'\] is \[\]; give names"),
        ({"parts": {"text": "0 MLP"}}, r"parts\.text is '0 MLP'; it must be a list"),
        ({"parts": {"twice": ["0.1", "0.1"]}}, r"parts\['twice'\]"),
        ({"parts": {"far": ["2 MLP"]}}, "'2 MLP' is in no model with 2 layers"),
        ({"parts": {"far": ["0 MLP 64"]}}, "'0 MLP 64'; the MLPs of this model have 32 neurons"),
        ({"parts": {"input": ["1.0 q"]}}, r"parts has '1.0 q'; parts that are replaced are heads \(0.1\)"),
        ({"parts": {"other": ["read-out"]}}, "parts has 'read-out'; parts that are replaced"),
        ({"parts": {"other": ["first"]}}, "parts has 'first'; parts that are replaced are heads"),
        ({"parts": {"none": ["0 MLP"]}}, "parts has a set of the name 'none'"),
        ({"parts": {"two\nlines": ["0 MLP"]}}, "give it a name of one line"),
        ({"method": "uniform"}, "method is 'uniform'; choose one of zero, mean, resample"),
        ({"n": 4}, "n is 4; at least 8 sequences"),
    ],
)
def test_errors(options, words):
    with pytest.raises(ValueError, match=words):
        interp.ablate(transformer(TASK), TASK, **options)


def test_a_model_without_mlps():
    model = hooks.Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16, d_mlp=0))
    with pytest.raises(ValueError, match="MLPs"):
        interp.ablate(model, TASK, n=N)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_hook_where_passes_resume_would_act_twice(model, layer):
    model_in_use = model if hasattr(model, "run_with_hooks") else hooks.from_bridge(model)
    model_in_use.hook_dict[f"blocks.{layer}.hook_resid_pre"].add_hook(lambda activation, hook: 2 * activation)
    for verb in (interp.ablate, interp.ablate_heads, *([interp.patch] if layer == 0 else [])):
        with pytest.raises(ValueError, match=rf"a hook is attached to blocks\.{layer}\.hook_resid_pre, from which"):
            verb(model_in_use, TASK, n=N)
