"""Fully connected networks: against matrices on one-hot strings, checkpoints, hook points, invalid input."""

import json

import pytest
import torch
import torch.nn.functional as F

from hooks import (
    FullyConnected,
    FullyConnectedConfig,
    Transformer,
    TransformerConfig,
    load_checkpoint,
    make_model,
    save_checkpoint,
    verify,
)
from hooks.model.architectures import config_from_dict

SIZES = {"d_vocab": 7, "n_ctx": 4, "d_vocab_out": 3, "width": 10, "d_embed": 5}
INPUTS = ["one_hot", "one_hot_and_equality", "shared_embedding"]


@pytest.fixture
def strings():
    return torch.randint(7, (6, 4), generator=torch.Generator().manual_seed(4))


def filled(**settings):
    """No parameter is zero, so that a forgotten one shows; double precision."""
    model = FullyConnected(FullyConnectedConfig(**{**SIZES, **settings})).double().eval()
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def inputs_of(model, string):
    """The input vector of one string, entry by entry, and the matrix that reads it."""
    tokens, d_vocab = string.tolist(), model.cfg.d_vocab
    if model.cfg.inputs == "shared_embedding":
        return torch.cat([model.embed[token] for token in tokens]), model.first.weight.T
    x = [float(token == id) for token in tokens for id in range(d_vocab)]
    matrix = model.columns
    if model.cfg.inputs == "one_hot_and_equality":
        hot = torch.tensor(x).view(len(tokens), d_vocab)
        x += (hot @ hot.T).flatten().tolist()
        matrix = torch.cat([matrix, model.first.weight.T])
    return torch.tensor(x, dtype=torch.float64), matrix


def by_matrices(model, string):
    x, matrix = inputs_of(model, string)
    x = x @ matrix + model.first.bias
    for layer in model.later:
        x = layer.weight @ x.clamp_min(0) + layer.bias
    return x


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("inputs", INPUTS)
def test_equals_its_matrices(strings, inputs, depth):
    model = filled(inputs=inputs, depth=depth)
    answers = model(strings)
    assert answers.shape == (6, 4, 3)
    for row, string in zip(answers, strings, strict=True):
        expected = by_matrices(model, string)
        for position in range(4):
            torch.testing.assert_close(row[position], expected, atol=1e-10, rtol=0)
    assert len(list(model.later)) == depth - 1
    assert answers.std(0).min() > 1e-3  # different strings have different outputs


def test_every_parameter_is_trained(strings):
    for inputs in INPUTS:
        model = filled(inputs=inputs)
        model(strings).square().sum().backward()
        assert all(p.grad.abs().sum() > 0 for p in model.parameters() if p.numel())


@pytest.mark.parametrize("inputs", INPUTS)
def test_unseen_symbols_at_the_start(inputs):
    """Renaming symbols leaves X X^T alone: without columns of symbols the answer is about equal symbols, or nothing."""
    model = filled(inputs=inputs)
    if inputs != "shared_embedding":
        model.columns.data.zero_()
    answers = model(torch.tensor([[0, 1, 0, 2], [3, 4, 3, 5], [0, 1, 1, 2]]))
    assert torch.allclose(answers[0], answers[1]) == (inputs != "shared_embedding")
    assert torch.allclose(answers[0], answers[2]) == (inputs == "one_hot")


@pytest.mark.parametrize("inputs", INPUTS)
def test_initial_weights(inputs):
    cfg = FullyConnectedConfig(d_vocab=40, n_ctx=5, width=300, inputs=inputs)
    before = torch.get_rng_state()
    one, again, other = (FullyConnected(cfg, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    first = {"one_hot": 200, "one_hot_and_equality": 200 + 25, "shared_embedding": 320}[inputs]  # all inputs together
    fan_ins = {"columns": first, "first.weight": first}
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
        if weight.ndim == 1:
            assert (weight == 0).all()
        elif weight.numel() > 1000:  # enough to estimate its spread
            assert not torch.equal(weight, other.state_dict()[name])
            std = 1.0 if name == "embed" else (3 * fan_ins.get(name, 300)) ** -0.5
            assert abs(weight.std() / std - 1) < 5 / (2 * weight.numel()) ** 0.5, name
            assert name == "embed" or weight.abs().max() <= 3**0.5 * std


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("inputs", INPUTS)
def test_checkpoint_gives_the_same_model_back(strings, tmp_path, inputs, dtype):
    model = filled(inputs=inputs, depth=2).to(dtype)
    save_checkpoint(model, tmp_path / "model")
    loaded = load_checkpoint(tmp_path / "model", cfg=model.cfg)
    assert isinstance(loaded, FullyConnected)
    assert loaded.cfg == model.cfg
    assert not loaded.training
    assert torch.equal(loaded(strings), model(strings))
    assert loaded(strings).dtype == dtype
    other = FullyConnectedConfig(**{**SIZES, "inputs": inputs, "depth": 3})
    with pytest.raises(ValueError, match=r"has another config: depth is 2, not 3\."):
        load_checkpoint(tmp_path / "model", cfg=other)
    transformer = TransformerConfig(d_vocab=7, d_model=4, n_heads=1)
    with pytest.raises(ValueError, match=r"has another config: .*n_heads is None, not 1"):
        load_checkpoint(tmp_path / "model", cfg=transformer)


def test_a_config_names_its_architecture(tmp_path):
    cfg = FullyConnectedConfig(**SIZES, inputs="shared_embedding", depth=4)
    stored = json.loads(json.dumps(cfg.to_dict()))
    assert config_from_dict(stored) == cfg
    assert isinstance(make_model(cfg), FullyConnected)
    of_transformer = TransformerConfig(d_vocab=7, d_model=4, n_heads=1)
    assert config_from_dict(json.loads(of_transformer.to_json())) == of_transformer
    model = make_model(of_transformer, seed=3)
    assert isinstance(model, Transformer)
    assert torch.equal(model.W_E, Transformer(of_transformer, seed=3).W_E)
    assert torch.equal(make_model(cfg, seed=3).embed, FullyConnected(cfg, seed=3).embed)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"architecture": "lstm"},
            "the config is of architecture 'lstm'; this unmyopic knows transformer, encoder, fully_connected",
        ),
        (
            {"architecture": "fully_connected", **SIZES, "dropout": 0.1},
            r"the FullyConnectedConfig has unknown fields 'dropout'; was it written by a newer unmyopic",
        ),
        ({"d_vocab": 3, "d_model": 4, "n_heads": 1, "width": 3}, r"the TransformerConfig has unknown fields 'width'"),
        ({"architecture": "fully_connected", **SIZES, "n_ctx": 0}, "n_ctx is 0; it must be at least 1"),
    ],
)
def test_unknown_architectures_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        config_from_dict(values)


@pytest.mark.parametrize("name", ["d_vocab", "n_ctx", "d_vocab_out", "width", "depth", "d_embed"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is -1; it must be at least 1"):
        FullyConnectedConfig(**{**SIZES, name: -1})


@pytest.mark.usefixtures("as_a_user")
def test_other_bad_input_is_refused(strings):
    with pytest.raises(ValueError, match="inputs is 'embedding'; choose one of one_hot, one_hot_and_equality, shared"):
        FullyConnectedConfig(**SIZES, inputs="embedding")
    model = filled()
    for wrong, shape in ((strings[:, :3], r"\(6, 3\)"), (strings[0], r"\(4,\)"), (strings[None], r"\(1, 6, 4\)")):
        with pytest.raises(ValueError, match=rf"tokens is {shape}; this network reads \(batch, 4\)"):
            model(wrong)
    for inputs in INPUTS:
        with pytest.raises(ValueError, match=r"tokens holds ids from [0-9]+ to 7; d_vocab of this model is 7"):
            filled(inputs=inputs)(strings + (strings == strings.max()) * (7 - strings.max()))


@pytest.mark.parametrize("inputs", INPUTS)
def test_hook_points_fire_once_and_act(strings, inputs):
    model = filled(inputs=inputs, depth=3)
    assert list(model.hook_dict) == ["hook_pre.0", "hook_pre.1"]
    clean, cache = model.run_with_cache(strings)
    x, matrix = inputs_of(model, strings[2])
    torch.testing.assert_close(cache["hook_pre.0"][2], x @ matrix + model.first.bias, atol=1e-10, rtol=0)
    second = F.relu(cache["hook_pre.0"]) @ model.later[0].weight.T + model.later[0].bias
    torch.testing.assert_close(cache["hook_pre.1"], second, atol=1e-10, rtol=0)
    for name in model.hook_dict:
        fired = []

        def off(activation, hook, fired=fired):
            fired.append(hook.name)
            return -activation.abs()  # every ReLU is shut

        answers = model.run_with_hooks(strings, fwd_hooks=[(name, off)])
        assert fired == [name]
        expected = model.later[1].bias if name == "hook_pre.1" else None
        if expected is None:
            expected = model.later[1].weight @ F.relu(model.later[0].bias) + model.later[1].bias
        torch.testing.assert_close(answers, expected.expand_as(answers), atol=1e-10, rtol=0)
        assert not torch.allclose(answers, clean)
    assert torch.equal(model(strings), clean)


def test_it_has_the_config_fields_of_a_model_without_attention():
    cfg = FullyConnectedConfig(**SIZES)
    assert (cfg.attention, cfg.n_layers, cfg.n_heads, cfg.head_patterns) == ("bidirectional", 0, 0, ())
    assert cfg.d_model == 10
    assert len({cfg, FullyConnectedConfig(**SIZES)}) == 1


def test_verify_says_what_it_is_for(as_a_user):
    with pytest.raises(
        ValueError, match=r"model is a FullyConnected; verify checks the hook points of a hooks\.Transformer"
    ):
        verify(filled())


def test_a_config_may_name_its_architecture():
    cfg = TransformerConfig(d_vocab=5, d_model=4, n_heads=2)
    assert config_from_dict({"architecture": "transformer", **cfg.to_dict()}) == cfg
