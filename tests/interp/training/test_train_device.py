"""Training on another device and in lower precision, checked where there is no GPU.

The tests' own device is a pretended one: tensors there say that they are on `meta`, hold their numbers all the same,
and refuse to meet a tensor of the CPU in one operation, as those on a GPU do.
"""

import dataclasses
import math
import warnings
from typing import Any

import pytest
import texts
import torch
from short_runs import Stopped, same_weights, stop_at, without_seconds

import interp
import interp.sweeps.parallel
from hooks import make_model
from hooks.model.checkpoint import read_tensors
from interp import TrainSettings
from interp.core.devices import device_of
from interp.evaluation.evaluate import score_batch
from interp.tasks import Dyck, Lego, Template, Text
from interp.training import Mimicking

SHORT: dict[str, Any] = {
    "steps": 2,
    "warmup_steps": 1,
    "batch_size": 6,
    "eval_every": 2,
    "n_eval": 6,
    "checkpoint_every": 2,
}
MIMIC: dict[str, Any] = {"association": "mimic", "mimicking": Mimicking(steps=2, batch_size=4)}


CLAUSES: dict[str, Any] = {
    "association": "mimic",
    "mimicking": Mimicking(steps=2, batch_size=4, local_target="clause", tokens="random"),
}
LEGO, WORDS = Lego(n_vars=3), Dyck(length=8, words="complete")


SMALL: dict[str, Any] = {"n_layers": 2, "d_model": 16, "n_heads": 2}
IDENTITY = {**SMALL, "qk_identity": True, "vo_identity": True}


MASKED = Text(corpus=texts.corpus(), objective="masked", next_sentence=True, n_ctx=64, vocab_size=300)
NEXT = Text(corpus=texts.corpus(), n_ctx=64, vocab_size=300)


CASES: dict[str, Any] = {
    "mimicking, curriculum": (LEGO, SMALL, {**MIMIC, "curriculum": ((2, 1), (3, 1))}),
    "mimicking clauses, depths, best": (
        LEGO,
        {**SMALL, "tied": True},
        {**CLAUSES, "depth_range": (1, 2), "keep": "best"},
    ),
    "query-key copy, fixed set": (LEGO, SMALL, {"association": "query_key", "n_train": 20}),
    "padded brackets, contrastive": (WORDS, {"n_ctx": 30}, {"contrastive": 0.3}),
    "frozen first layer": (Dyck(length=8), "dyck_minimal", {}),
    "real labels": (Template(), IDENTITY, {"vo_identity_rate": 10.0, "qk_identity_rate": 2.0}),
    "symbols": (Template(templates="copy"), SMALL, {}),
    "no attention": (Template(), "fully_connected", {}),
    "next tokens, fused": (NEXT, SMALL, {}),
    "masked tokens, two sentences, fused": (MASKED, SMALL, {}),
}


def new_model(task, sizes, seed=0):
    family, sizes = (sizes, {}) if isinstance(sizes, str) else (None, sizes)
    if isinstance(task, Template) and family is None:
        family, sizes = "template", {**sizes, "d_head": 8, "d_mlp": 16}
    return make_model(interp.config_for(task, family, **sizes), seed=seed)


@pytest.mark.parametrize(
    "case", [next(iter(CASES)), *(pytest.param(name, marks=pytest.mark.slow) for name in [*CASES][1:])]
)
def test_training_on_a_device_gives_the_same_model_on_the_cpu(case, pretended):
    task, sizes, more = CASES[case]
    # a curriculum has its own steps
    shared = {name: value for name, value in SHORT.items() if not ("curriculum" in more and name == "steps")}
    settings = TrainSettings(**{**shared, **more})
    here = interp.train(new_model(task, sizes), task, settings)
    there = interp.train(new_model(task, sizes), task, settings, device=pretended)
    if "fused" in case:  # which of several kernels torch takes for that is the device's affair
        pairs = zip(here.history, there.history, strict=True)
        assert all(a["loss"] == pytest.approx(b["loss"], rel=1e-4) for a, b in pairs)
    else:
        assert same_weights(here.model, there.model)
        assert without_seconds(here.history) == without_seconds(there.history)
    assert {str(value.device) for value in there.model.state_dict().values()} == {"cpu"}
    assert not same_weights(there.model, new_model(task, sizes))


def test_the_fake_device_refuses_cpu_tensors(pretended, monkeypatch):
    hidden = torch.full((len(LEGO.targets),), 2.0)
    loss = Lego.loss
    monkeypatch.setattr(Lego, "loss", lambda self, logits, batch: loss(self, logits, batch) * hidden.sum(0))
    interp.train(
        new_model(LEGO, SMALL), LEGO, TrainSettings(**SHORT), device=pretended
    )  # one number may come from there
    monkeypatch.setattr(Lego, "loss", lambda self, logits, batch: (loss(self, logits, batch) * hidden).mean())
    with pytest.raises(RuntimeError, match="tensors of the CPU and of the pretended device"):
        interp.train(new_model(LEGO, SMALL), LEGO, TrainSettings(**SHORT), device=pretended)


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")
@pytest.mark.parametrize("keep", ["last", pytest.param("best", marks=pytest.mark.slow)])
def test_a_run_resumes_on_a_device_to_the_same_bits(keep, pretended, tmp_path):
    settings = TrainSettings(**{**SHORT, **MIMIC, "steps": 3, "keep": keep})
    whole = interp.train(new_model(LEGO, SMALL), LEGO, settings)
    model = new_model(LEGO, SMALL)
    with pytest.raises(Stopped):
        interp.train(model, LEGO, settings, folder=tmp_path, on_record=stop_at(4), device=pretended)
    assert device_of(model).type == "cpu"  # also where training broke off
    tensors, described = read_tensors(tmp_path / "state.safetensors", kind="training state")
    assert described["steps_done"] == 2
    assert {str(tensor.device) for tensor in tensors.values()} == {"cpu"}
    resumed = interp.train(new_model(LEGO, SMALL), LEGO, settings, folder=tmp_path, device=pretended)
    assert same_weights(whole.model, resumed.model)
    assert without_seconds(whole.history) == without_seconds(resumed.history)
    # the finished run is loaded, there as here
    loaded = interp.train(new_model(LEGO, SMALL), LEGO, settings, folder=tmp_path, device=pretended)
    assert same_weights(whole.model, loaded.model)
    assert device_of(loaded.model).type == "cpu"


def test_training_without_a_device_uses_that_of_the_model(pretended):
    here = interp.train(new_model(LEGO, SMALL), LEGO, TrainSettings(**SHORT))
    model = new_model(LEGO, SMALL).to(pretended)
    run = interp.train(model, LEGO, TrainSettings(**SHORT))
    assert device_of(model).type == pretended
    assert without_seconds(here.history) == without_seconds(run.history)
    assert same_weights(here.model, model.to("cpu"))


def test_evaluation_runs_on_the_device_of_the_model(pretended, generator):
    model = new_model(LEGO, SMALL)
    batch = LEGO.sample(20, generator=generator)
    here = score_batch(model, LEGO, batch)
    whole = interp.evaluate(model, LEGO, n=50)
    there = score_batch(model.to(pretended), LEGO, batch)
    for name in ("right", "loss", "total"):
        assert getattr(there, name).device.type == "cpu"
        assert torch.equal(getattr(here, name), getattr(there, name))
    assert str(interp.evaluate(model, LEGO, n=50)) == str(whole)


@pytest.mark.parametrize(
    ("capabilities", "is_slow"),
    [
        ({"cpu_name": "x", "avx2": True}, True),
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, True),
        ({"avx512_bf16": True}, False),
        ({"arm_bf16": True, "neon": True}, False),
    ],
)
def test_bfloat16_on_a_processor_without_its_units_gives_a_warning(monkeypatch, capabilities, is_slow):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    settings = {**SHORT, "steps": 1}
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        interp.train(new_model(LEGO, SMALL), LEGO, TrainSettings(**settings, precision="bfloat16"))
        interp.train(new_model(LEGO, SMALL), LEGO, TrainSettings(**settings))
    texts = [str(warning.message) for warning in raised if "bfloat16" in str(warning.message)]
    assert len(texts) == is_slow
    assert all("Use precision='float32'" in text for text in texts)


def test_weights_stay_float32_in_bfloat16_training():
    task = Lego(n_vars=2, sentence_format="compact")
    settings = TrainSettings(
        steps=50, warmup_steps=5, learning_rate=4e-3, batch_size=64, eval_every=25, n_eval=100, precision="bfloat16"
    )
    model = new_model(task, {"n_layers": 2, "d_model": 32, "n_heads": 2})
    seen = []
    model.blocks[0].hook_attn_out.register_forward_hook(
        lambda point, given, out: seen.append((model.training, out.dtype))
    )
    run = interp.train(model, task, settings)
    assert {dtype for training, dtype in seen if training} == {torch.bfloat16}
    assert {dtype for training, dtype in seen if not training} == {torch.float32}  # every evaluation
    assert {value.dtype for value in run.model.state_dict().values()} == {torch.float32}
    losses = [sum(record["validation_loss"]) / 2 for record in run.history]
    assert losses[-1] < 0.8 * math.log(2)  # an even guess has log 2


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_model_trains_in_bfloat16(case):
    task, sizes, more = CASES[case]
    settings = TrainSettings(**{**SHORT, **more, "precision": "bfloat16"})
    losses = []
    model = interp.train(
        new_model(task, sizes), task, settings, on_record=lambda record: losses.append(record["loss"])
    ).model
    exact = []
    interp.train(
        new_model(task, sizes),
        task,
        dataclasses.replace(settings, precision="float32"),
        on_record=lambda record: exact.append(record["loss"]),
    )
    assert losses != exact
    assert losses == pytest.approx(exact, rel=0.1)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


def test_the_loss_is_taken_in_float32(monkeypatch):
    seen = []
    loss = Lego.loss
    monkeypatch.setattr(
        Lego,
        "loss",
        lambda self, logits, batch: (
            seen.append((logits.dtype, torch.is_autocast_enabled("cpu"))) or loss(self, logits, batch)
        ),
    )
    interp.train(new_model(LEGO, SMALL), LEGO, TrainSettings(**SHORT, precision="bfloat16"))
    assert set(seen) == {(torch.float32, False)}


@pytest.mark.parametrize("stop", [2, 4])
def test_a_run_in_bfloat16_resumes_to_the_same_bits(stop, tmp_path):
    settings = TrainSettings(**{**SHORT, **MIMIC, "steps": 3, "precision": "bfloat16", "decay": "cosine"})
    whole = interp.train(new_model(LEGO, SMALL), LEGO, settings)
    with pytest.raises(Stopped):
        interp.train(new_model(LEGO, SMALL), LEGO, settings, folder=tmp_path, on_record=stop_at(stop))
    resumed = interp.train(new_model(LEGO, SMALL), LEGO, settings, folder=tmp_path, device="cpu")
    assert same_weights(whole.model, resumed.model)
    with pytest.raises(ValueError, match=r"settings\.precision is 'bfloat16', not the default"):
        interp.train(new_model(LEGO, SMALL), LEGO, dataclasses.replace(settings, precision="float32"), folder=tmp_path)
