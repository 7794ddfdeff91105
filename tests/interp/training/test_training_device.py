"""Training on another device and in lower precision, checked where there is no GPU.

The tests' own device is a pretended one: tensors there say that they are on `meta`, hold their numbers all the same,
and refuse to meet a tensor of the CPU in one operation, as those on a GPU do.
"""

import dataclasses
import importlib
import json
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import texts
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import interp
import interp.training.sweeps
from case_studies.frame.claims import Claim, Measurement
from case_studies.frame.evidence import ModelSpec
from case_studies.frame.study import Study, run_study
from hooks import make_model
from hooks.checkpoint import read_tensors
from interp import TrainSettings
from interp.cli.main import main
from interp.core.devices import check_device, device_of, devices, on_device
from interp.evaluation.evaluate import score_batch
from interp.tasks import Dyck, Lego, Template, Text
from interp.training import Mimicking, TrainingRun
from interp.training.settings import recipe_for
from interp.training.sweeps import TrainJob, train_to_disk

PRETENDED = torch.device("meta")


class There(torch.Tensor):
    """A tensor on the pretended device, around the one of the CPU that holds its numbers."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=PRETENDED
        )

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return run_there(op, args, kwargs or {})


def run_there(op, args, kwargs):
    """What an operation gives: computed on the CPU, on the pretended device where its inputs were or it says so."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    inside = any(isinstance(tensor, There) for tensor in tensors)
    outside = any(tensor.ndim and not isinstance(tensor, There) for tensor in tensors)
    moves = op in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
    # as on a GPU: a number without axes may come from the CPU, and so may an index
    if inside and outside and not moves and "index" not in op.__name__:
        raise RuntimeError(f"{op}: tensors of the CPU and of the pretended device in one operation")
    asked = kwargs.get("device")
    there = inside if asked is None else torch.device(asked) == PRETENDED
    here = {name: "cpu" if name == "device" else value for name, value in kwargs.items()}
    result = op(*tree_map(held, args), **tree_map(held, here))
    if op.__name__.split(".")[0].endswith("_") and isinstance(args[0], torch.Tensor):  # in place
        return args[0]
    return tree_map(lambda leaf: There(leaf) if there and isinstance(leaf, torch.Tensor) else leaf, result)


def held(leaf):
    return leaf.held if isinstance(leaf, There) else leaf


class Pretending(TorchDispatchMode):
    """What is made on, or sent to, the pretended device from the CPU."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        asked = kwargs.get("device")
        if any(isinstance(t, There) for t in tensors) or (asked is not None and torch.device(asked) == PRETENDED):
            return run_there(op, args, kwargs)
        return op(*args, **kwargs)


class WrittenOut(TorchFunctionMode):
    """`torch.tensor([...], device=...)`, which passes no operation that could be watched."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.tensor and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return function(*args, **kwargs).to(device)
        return function(*args, **kwargs)


@pytest.fixture
def pretended(monkeypatch):
    """The name of a device that is there and is not the CPU."""
    monkeypatch.setattr("interp.core.devices.devices", lambda: ("cpu", "meta"))
    adam = importlib.import_module("torch.optim.adam")
    monkeypatch.setattr(adam, "_device_dtype_check_for_fused", lambda parameter: None)
    with Pretending(), WrittenOut():
        yield "meta"


class Stopped(Exception):
    """Raised in the middle of a run, as a crash would be."""


def stop_at(step):
    def stop(record):
        if record["steps_done"] == step:
            raise Stopped

    return stop


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


def same_weights(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    assert list(ours) == list(theirs)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def without_seconds(history):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


@pytest.mark.parametrize(
    "case", [next(iter(CASES)), *(pytest.param(name, marks=pytest.mark.slow) for name in [*CASES][1:])]
)
def test_training_elsewhere_is_the_same_and_ends_on_the_cpu(case, pretended):
    task, sizes, more = CASES[case]
    settings = TrainSettings(**{**SHORT, **({} if "curriculum" not in more else {"steps": 1}), **more})
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


def test_a_hidden_tensor_of_the_cpu_would_be_noticed(pretended, monkeypatch):
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
def test_a_run_resumes_there_to_the_same_bits(keep, pretended, tmp_path):
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


def test_without_a_device_training_happens_where_the_model_is(pretended):
    here = interp.train(new_model(LEGO, SMALL), LEGO, TrainSettings(**SHORT))
    model = new_model(LEGO, SMALL).to(pretended)
    run = interp.train(model, LEGO, TrainSettings(**SHORT))
    assert device_of(model).type == pretended
    assert without_seconds(here.history) == without_seconds(run.history)
    assert same_weights(here.model, model.to("cpu"))


def test_evaluation_follows_the_model_and_answers_on_the_cpu(pretended, generator):
    model = new_model(LEGO, SMALL)
    batch = LEGO.sample(20, generator=generator)
    here = score_batch(model, LEGO, batch)
    whole = interp.evaluate(model, LEGO, n=50)
    there = score_batch(model.to(pretended), LEGO, batch)
    for name in ("right", "loss", "total"):
        assert getattr(there, name).device.type == "cpu"
        assert torch.equal(getattr(here, name), getattr(there, name))
    assert str(interp.evaluate(model, LEGO, n=50)) == str(whole)


def test_a_batch_moves_as_a_whole(pretended, generator):
    batch = LEGO.sample(3, generator=generator, n_vars=2)
    there = batch.to(pretended)
    assert type(there) is type(batch)
    for field in dataclasses.fields(batch):
        value, moved = getattr(batch, field.name), getattr(there, field.name)
        if value is None:
            assert moved is None
        else:
            assert (value.device.type, moved.device.type) == ("cpu", pretended)
            assert torch.equal(value, moved.to("cpu"))
    assert batch.position_ids is not None  # there was an optional one to move


def test_a_model_comes_back_from_its_device(pretended):
    model = new_model(LEGO, SMALL)

    def stop_there():
        with on_device(model, torch.device(pretended)):
            assert device_of(model).type == pretended
            raise Stopped

    with pytest.raises(Stopped):
        stop_there()
    assert device_of(model).type == "cpu"


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (
            "cuda",
            r"device is 'cuda', not available; choose one of cpu\. Torch sees no GPU \(torch\.cuda\.is_available",
        ),
        ("cuda:1", "device is 'cuda:1', not available; choose one of cpu. Torch sees no GPU"),
        ("meta", "device is 'meta', not available; choose one of cpu"),
        ("gpu", "device is 'gpu', not a device name; choose one of cpu"),
        ("", "device is '', not a device name"),
    ],
)
def test_a_device_that_is_not_there_is_refused(device, text, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=text):
        interp.train(new_model(LEGO, SMALL), LEGO, TrainSettings(**SHORT), folder=tmp_path, device=device)
    assert not list(tmp_path.iterdir())


def test_which_devices_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices() == ("cpu",)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices() == ("cpu", "cuda:0", "cuda:1")
    for name in ("cpu", "cpu:0", "cuda", "cuda:0", "cuda:1"):
        assert check_device(name) == torch.device(name)
    with pytest.raises(ValueError, match=r"device is 'cuda:2', not available; choose one of cpu, cuda:0, cuda:1\.$"):
        check_device("cuda:2")


def test_jobs_for_a_gpu_run_one_after_the_other(pretended, tmp_path, monkeypatch):
    asked = []
    parallel = interp.training.sweeps.Parallel
    monkeypatch.setattr(
        "interp.training.sweeps.Parallel", lambda **options: asked.append(options["n_jobs"]) or parallel(n_jobs=1)
    )

    def jobs(folder, *places):
        config = new_model(LEGO, SMALL).cfg
        settings = TrainSettings(**{**SHORT, "steps": 1})
        return {
            f"{seed}": TrainJob(
                task=LEGO,
                config=config,
                settings=settings,
                seed=seed,
                folder=tmp_path / folder / str(seed),
                device=place,
            )
            for seed, place in enumerate(places)
        }

    train_to_disk(jobs("cpu", None, "cpu", "cpu:0"), n_jobs=3)
    train_to_disk(jobs("gpu", None, "cpu", pretended), n_jobs=3)
    assert asked == [3, 1]
    for seed in ("0", "1", "2"):
        cpu, gpu = (TrainingRun.load(tmp_path / where / seed).model for where in ("cpu", "gpu"))
        assert same_weights(cpu, gpu)


def test_a_study_trains_where_it_is_told_and_its_keys_do_not_know(tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr("interp.training.sweeps.train", lambda *given, **options: jobs.append(options["device"]))
    spec = ModelSpec(task=LEGO, config=new_model(LEGO, SMALL).cfg, settings=TrainSettings(**SHORT), seed=0)
    claim = Claim(
        id="some",
        source="Toy",
        statement="It is so.",
        rule="Always.",
        measure=lambda evidence: Measurement(value=0.0, low=0.0, high=0.0, n=1, unit="draws"),
        judge=lambda measured: "reproduced",
        needs=["all"],
    )
    study = Study(name="toy", title="Toy", lead="Nothing.", claims=[claim], groups=lambda size: {"all": [spec]})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="device is 'cuda', not available; choose one of cpu"):
        run_study(study, folder=tmp_path / "none", device="cuda")
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr("interp.core.devices.devices", lambda: ("cpu", "cuda:0"))
    for device in ("cuda", None):
        run_study(study, folder=tmp_path, n_jobs=2 if device else 1, device=device, fresh=True)
    assert jobs == ["cuda", None]
    assert "device" not in json.dumps(spec.description)


def test_the_commands_hand_the_device_on(tmp_path, monkeypatch):
    asked = []
    study = SimpleNamespace(
        title="Toy", listing=None, run=lambda **options: asked.append(options["device"]) or SimpleNamespace(page="page")
    )
    monkeypatch.setattr("interp.cli.main._studies", lambda: {"toy": SimpleNamespace(value="toy", load=lambda: study)})
    monkeypatch.setattr("interp.training.train.train", lambda *given, device, **options: asked.append(device))
    for place in (["--device", "cuda:1"], []):
        for command in (["reproduce", "toy"], ["train", "lego", "--out", str(tmp_path / "run"), "--n-vars", "2"]):
            monkeypatch.setattr("sys.argv", ["interp", *command, *place])
            with pytest.raises(SystemExit) as stopped:
                main()
            assert not stopped.value.code
    assert asked == ["cuda:1", "cuda:1", None, None]


def test_a_command_says_in_one_line_that_there_is_no_gpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["interp", "train", "lego", "--out", str(tmp_path / "run"), "--device", "cuda"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "error: device is 'cuda', not available; choose one of cpu" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_bfloat16_trains_and_the_weights_stay_float32():
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
    with pytest.raises(ValueError, match=r"settings\.precision is 'bfloat16', not None"):
        interp.train(new_model(LEGO, SMALL), LEGO, dataclasses.replace(settings, precision="float32"), folder=tmp_path)


def test_cosine_over_all_steps_is_torchs_cosine_annealing():
    settings = TrainSettings(steps=40, learning_rate=3e-3, warmup_steps=0, decay_share=1.0, decay="cosine")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
    for step in range(40):
        assert settings.learning_rate_at(step) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        schedule.step()


@given(
    steps=st.integers(1, 200),
    warmup=st.integers(0, 50),
    share=st.floats(0, 1),
    decay=st.sampled_from(["linear", "cosine"]),
)
def test_the_rate_rises_stays_and_falls(steps, warmup, share, decay):
    settings = TrainSettings(steps=steps, learning_rate=1.0, warmup_steps=warmup, decay_share=share, decay=decay)
    rates = [settings.learning_rate_at(step) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    top = rates.index(max(rates))
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    flat = range(max(warmup, 1), min(steps, math.ceil(steps - max(1.0, share * steps))))
    assert all(rates[step] == 1 for step in flat)
    assert settings.learning_rate_at(steps) == pytest.approx(0, abs=1e-12)
    # half way down either is at one half
    middle = steps - max(1.0, share * steps) / 2
    if middle == int(middle) and middle + 1 >= max(1, warmup):
        assert settings.learning_rate_at(int(middle)) == pytest.approx(0.5)


def test_descriptions_and_keys_of_earlier_runs_stay_as_they_were():
    """The keys were written down before the two settings existed."""
    for task, settings, key in [
        (Lego(n_vars=3), TrainSettings(), "c6be01553d9d2981e0cd"),
        (Lego(n_vars=3), recipe_for(Lego(n_vars=3)), "21bff448ca69ea4b2c4a"),
        (Dyck(), recipe_for(Dyck()), "990deb53897b14210623"),
        (Template(), TrainSettings(), "675a0b81ad9bd655e3aa"),
    ]:
        assert ModelSpec(task=task, config=interp.config_for(task), settings=settings, seed=1).key == key
    assert not {"precision", "decay"} & set(TrainSettings().to_dict())


@given(precision=st.sampled_from(["float32", "bfloat16"]), decay=st.sampled_from(["linear", "cosine"]))
def test_settings_survive_their_description(precision, decay):
    settings = TrainSettings(precision=precision, decay=decay, betas=(0.8, 0.9))
    described = json.loads(json.dumps(settings.to_dict()))
    assert TrainSettings.from_dict(described) == settings
    assert ("precision" in described, "decay" in described) == (precision != "float32", decay != "linear")


def test_other_precision_or_decay_is_another_model():
    config = new_model(LEGO, SMALL).cfg
    changes = [{}, {"precision": "bfloat16"}, {"decay": "cosine"}]
    keys = {ModelSpec(task=LEGO, config=config, settings=TrainSettings(**one), seed=0).key for one in changes}
    assert len(keys) == 3


def test_unknown_choices_are_refused(as_a_user):
    with pytest.raises(ValueError, match="precision is 'float16'; choose one of float32, bfloat16"):
        TrainSettings(precision=cast(Any, "float16"))
    with pytest.raises(ValueError, match="decay is 'step'; choose one of linear, cosine"):
        TrainSettings(decay=cast(Any, "step"))
