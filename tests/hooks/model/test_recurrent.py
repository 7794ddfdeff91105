"""Recurrent networks: against their recurrence step by step, causality, checkpoints, hook points, invalid input."""

import json

import pytest
import torch
from torch import sigmoid, tanh

import interp
from hooks import Recurrent, RecurrentConfig, load_checkpoint, make_model, save_checkpoint
from hooks.model.architectures import config_from_dict
from interp.core.verbs import prepare_model
from interp.probing.probe import NEEDS
from interp.tasks import Template
from interp.training.settings import TrainSettings

SIZES = {"d_vocab": 7, "n_ctx": 4, "d_vocab_out": 3, "width": 10, "d_embed": 5}
CELLS = ["rnn", "lstm"]


@pytest.fixture
def strings():
    return torch.randint(7, (6, 4), generator=torch.Generator().manual_seed(4))


def filled(cell):
    """No parameter is zero, so that a forgotten one shows; double precision."""
    model = Recurrent(RecurrentConfig(**SIZES, cell=cell)).double().eval()
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def step_by_step(model, string):
    """Hidden states of one string, from the textbook equations."""
    of = dict(model.recurrence.named_parameters())
    hidden = memory = torch.zeros(model.cfg.width, dtype=torch.float64)
    states = []
    for token in string.tolist():
        x = of["weight_ih_l0"] @ model.embed[token] + of["bias_ih_l0"]
        x = x + of["weight_hh_l0"] @ hidden + of["bias_hh_l0"]
        if model.cfg.cell == "rnn":
            hidden = x.clamp_min(0)
        else:
            write, forget, new, out = x.chunk(4)
            memory = sigmoid(forget) * memory + sigmoid(write) * tanh(new)
            hidden = sigmoid(out) * tanh(memory)
        states.append(hidden)
    return torch.stack(states)


@pytest.mark.parametrize("cell", CELLS)
def test_equals_its_recurrence(strings, cell):
    model = filled(cell)
    answers, cache = model.run_with_cache(strings)
    assert answers.shape == (6, 4, 3)
    for index, string in enumerate(strings):
        states = step_by_step(model, string)
        torch.testing.assert_close(cache["hook_hidden"][index], states, atol=1e-10, rtol=0)
        expected = states @ model.read_out.weight.T + model.read_out.bias
        torch.testing.assert_close(answers[index], expected, atol=1e-10, rtol=0)
    assert torch.equal(cache["hook_embed"], model.embed[strings])
    assert torch.equal(model(strings), answers)  # no state is kept between calls


@pytest.mark.parametrize("cell", CELLS)
def test_outputs_depend_on_the_tokens_up_to_them(strings, cell):
    model = filled(cell)
    changed = strings.clone()
    changed[:, 2] = (changed[:, 2] + 1) % 7
    same = torch.isclose(model(strings), model(changed)).all(-1).all(0)
    assert same.tolist() == [True, True, False, False]
    torch.testing.assert_close(model(strings[:, :2]), model(strings)[:, :2])


@pytest.mark.parametrize("cell", CELLS)
def test_initial_weights(cell):
    cfg = RecurrentConfig(d_vocab=40, n_ctx=5, cell=cell)
    before = torch.get_rng_state()
    one, again, other = (make_model(cfg, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
        if name == "read_out.bias":
            assert (weight == 0).all()
            continue
        assert not torch.equal(weight, other.state_dict()[name])
        std = 1.0 if name == "embed" else (3 * 128) ** -0.5
        assert abs(weight.std() / std - 1) < 5 / (2 * weight.numel()) ** 0.5, name
        assert name == "embed" or weight.abs().max() <= 128**-0.5


@pytest.mark.parametrize("cell", CELLS)
def test_checkpoint_gives_the_same_model_back(strings, tmp_path, cell):
    model = filled(cell)
    save_checkpoint(model, tmp_path / "model")
    loaded = load_checkpoint(tmp_path / "model", cfg=model.cfg)
    assert isinstance(loaded, Recurrent)
    assert not loaded.training
    assert torch.equal(loaded(strings), model(strings))
    other = RecurrentConfig(**{**SIZES, "cell": cell, "width": 11})
    with pytest.raises(ValueError, match=r"has another config: width is 10, not 11\."):
        load_checkpoint(tmp_path / "model", cfg=other)


def test_a_config_names_its_architecture():
    cfg = RecurrentConfig(**SIZES, cell="lstm")
    stored = json.loads(json.dumps(cfg.to_dict()))
    assert stored["architecture"] == "recurrent"
    assert config_from_dict(stored) == cfg
    with pytest.raises(ValueError, match=r"the RecurrentConfig has unknown fields 'layers'"):
        config_from_dict({**stored, "layers": 2})
    assert (cfg.attention, cfg.n_layers, cfg.n_heads, cfg.head_patterns) == ("causal", 0, 0, ())


@pytest.mark.parametrize("name", ["d_vocab", "n_ctx", "d_vocab_out", "width", "d_embed"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
        RecurrentConfig(**{**SIZES, name: 0})


@pytest.mark.usefixtures("as_a_user")
def test_other_bad_input_is_refused(strings):
    with pytest.raises(ValueError, match="cell is 'gru'; choose one of rnn, lstm"):
        RecurrentConfig(**SIZES, cell="gru")
    model = filled("rnn")
    reads = r"this network reads \(batch, pos\), 1 to 4 positions"
    for wrong, shape in ((strings.repeat(1, 2), r"\(6, 8\)"), (strings[0], r"\(4,\)"), (strings[:, :0], r"\(6, 0\)")):
        with pytest.raises(ValueError, match=rf"tokens is {shape}; {reads}"):
            model(wrong)
    with pytest.raises(ValueError, match=r"tokens holds ids from [0-9]+ to [0-9]+; d_vocab of this model is 7"):
        model(strings + 7)
    with pytest.raises(ValueError, match="attention_mask was given; a recurrent network reads no padding"):
        model(strings, torch.ones_like(strings))
    with pytest.raises(ValueError, match="depth was given; a recurrent network reads no padding and has one layer"):
        model(strings, depth=1)


@pytest.mark.parametrize("cell", CELLS)
def test_hook_points_fire_once_and_act(strings, cell):
    model = filled(cell)
    assert list(model.hook_dict) == ["hook_embed", "hook_hidden"]
    clean = model(strings)
    for name in model.hook_dict:
        fired = []

        def zero(activation, hook, fired=fired):
            fired.append(hook.name)
            return torch.zeros_like(activation)

        answers = model.run_with_hooks(strings, fwd_hooks=[(name, zero)])
        assert fired == [name]
        assert torch.allclose(answers, answers[:1].expand_as(answers))  # the tokens have no effect
        assert not torch.allclose(answers, clean)
    assert torch.equal(answers, model.read_out.bias.expand_as(answers))
    assert torch.equal(model(strings), clean)


@pytest.mark.parametrize("cell", CELLS)
def test_training_is_the_same_for_the_same_seed_and_resumes_from_a_folder(tmp_path, cell):
    task = Template(train=8)
    settings = TrainSettings(steps=4, batch_size=8, n_train=8, eval_every=2, n_eval=10)
    cfg = interp.config_for(task, cell, width=6, d_embed=5)
    assert (cfg.cell, cfg.d_vocab_out) == (cell, 1)
    one, again, other = (interp.train(make_model(cfg), task, settings, seed=seed) for seed in (0, 0, 1))
    stored = interp.train(make_model(cfg), task, settings, folder=tmp_path)
    loaded = interp.train(make_model(cfg), task, settings, folder=tmp_path)
    weights = [run.model.state_dict() for run in (one, again, stored, loaded, other)]
    for name, weight in weights[0].items():
        assert all(torch.equal(weight, same[name]) for same in weights[1:4]), name
    assert any(not torch.equal(weight, weights[4][name]) for name, weight in weights[0].items())
    untrained = make_model(cfg).state_dict()
    assert all(not torch.equal(weight, untrained[name]) for name, weight in weights[0].items())
    assert 0 <= interp.evaluate(one.model, task, n=20).accuracy[0] <= 1


def test_a_recurrent_network_learns_next_tokens():
    """Its output depends on earlier tokens only, so it may be trained on a causal task."""
    task = Template(templates="symbolic_programs", form="next_token", train=8)
    settings = TrainSettings(steps=2, batch_size=8, eval_every=2, n_eval=10)
    interp.train(make_model(interp.config_for(task, "rnn", width=6)), task, settings)


def test_verbs_for_transformers_refuse_it():
    with pytest.raises(ValueError, match="this model is a recurrent network: it has no attention heads"):
        prepare_model(filled("rnn"), NEEDS)
    with pytest.raises(ValueError, match="the source is a recurrent network, which has no weights of a transformer"):
        interp.pretrained(Template(), filled("lstm"))
