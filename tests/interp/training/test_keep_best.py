"""Training on templates: the best weights are kept, a_h and b_h have their own rates, what does not fit is refused."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
from short_runs import Stopped, same_weights, stop_at
from torch.nn.utils import clip_grad_norm_

import interp
from hooks import make_model
from hooks.model.checkpoint import load_checkpoint, read_tensors
from interp import TrainSettings
from interp.core.randomness import derived_generator
from interp.reporting.sections import _task_line
from interp.tasks import Template
from interp.tasks.base import logits_at_targets
from interp.training import TrainingRun
from interp.training.folder import RunFolder
from interp.training.run import best_record

TASK = Template(train=6, validation=5, test=5)
SETTINGS = TrainSettings(
    steps=12, warmup_steps=2, decay_share=0.0, batch_size=6, n_train=6, learning_rate=0.04, keep="best",
    eval_every=2, checkpoint_every=3, n_eval=40,
)  # fmt: skip
"""Six strings, known by heart at once: validation loss goes down, then up."""
SIZES = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 8}


def new_model(task=TASK, seed=2, **sizes):
    return make_model(interp.config_for(task, **{**SIZES, **sizes}), seed=seed)


@torch.no_grad()
def validation_of(model, task=TASK, n=40):
    """Squared error of the answers at [CLS], and how many are nearer to the right number, on validation strings."""
    batch = task.sample(n, generator=derived_generator(0, "validation"), split="validation")
    answers = model(batch.tokens)[:, -1, 0]
    wanted = torch.tensor([task.labelled[index].label for index in batch.template.tolist()])
    return float(((answers - wanted) ** 2).mean()), float((answers.sign() == wanted).double().mean())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return interp.train(new_model(), TASK, SETTINGS, folder=folder), folder


@pytest.fixture(scope="module")
def best(run):
    losses = [record["validation_loss"][0] for record in run[0].history]
    index = int(np.argmin(losses))
    assert 0 < index < len(losses) - 1  # there is a best that is neither the first nor the last
    return run[0].history[index]


def test_the_model_has_the_lowest_validation_loss(run, best):
    loss, accuracy = validation_of(run[0].model)
    assert loss == pytest.approx(best["validation_loss"][0], rel=1e-5)
    assert accuracy == pytest.approx(best["accuracy"][0])
    assert run[0].final_accuracy == best["accuracy"]
    assert not run[0].model.training
    shorter = dataclasses.replace(SETTINGS, steps=best["steps_done"], keep="last")  # same rates: nothing decays
    assert same_weights(interp.train(new_model(), TASK, shorter).model, run[0].model)


def test_the_last_model_is_kept_by_default(run, best):
    last = interp.train(new_model(), TASK, dataclasses.replace(SETTINGS, keep="last"))
    assert TrainSettings().keep == "last"
    assert [r["validation_loss"] for r in last.history] == [r["validation_loss"] for r in run[0].history]
    assert not same_weights(last.model, run[0].model)
    assert validation_of(last.model)[0] == pytest.approx(last.history[-1]["validation_loss"][0], rel=1e-5)
    assert last.final_accuracy == last.history[-1]["accuracy"]


def test_a_finished_folder_has_only_the_best_model(run):
    trained, folder = run
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "metrics.jsonl", "model.safetensors"]
    assert same_weights(load_checkpoint(folder / "model.safetensors"), trained.model)
    loaded = TrainingRun.load(folder)
    assert loaded.final_accuracy == trained.final_accuracy
    assert same_weights(interp.train(new_model(), TASK, SETTINGS, folder=folder).model, trained.model)
    assert same_weights(interp.train(new_model(), TASK, SETTINGS).model, trained.model)  # with or without


# evaluations after every second step, states after every third: 2 stops before any state, 6 before the state of the
# same step, 8 and 10 between two
@pytest.mark.parametrize("step", [2, 4, 6, 8, 10])
def test_an_interrupted_run_ends_with_the_same_best(run, tmp_path, step):
    with pytest.raises(Stopped):
        interp.train(new_model(), TASK, SETTINGS, folder=tmp_path, on_record=stop_at(step))
    assert (tmp_path / "best.safetensors").exists()
    resumed = interp.train(new_model(), TASK, SETTINGS, folder=tmp_path)
    assert same_weights(resumed.model, run[0].model)
    assert same_weights(load_checkpoint(tmp_path / "model.safetensors"), run[0].model)
    assert resumed.final_accuracy == run[0].final_accuracy
    assert not (tmp_path / "best.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "call"), [("save_best", 2), ("append_metrics", "best"), ("save_state", 2), ("finish", 1)]
)
def test_a_crash_while_writing_does_not_change_the_result(run, best, tmp_path, monkeypatch, name, call):
    """A crash between writing the best model and writing its metrics record."""
    write, calls = getattr(RunFolder, name), []

    def once(self, *args):
        calls.append(args)
        if len(calls) == (best["steps_done"] // 2 if call == "best" else call):
            raise Stopped
        write(self, *args)

    monkeypatch.setattr(RunFolder, name, once)
    with pytest.raises(Stopped):
        interp.train(new_model(), TASK, SETTINGS, folder=tmp_path)
    monkeypatch.undo()
    resumed = interp.train(new_model(), TASK, SETTINGS, folder=tmp_path)
    assert same_weights(resumed.model, run[0].model)
    assert resumed.final_accuracy == run[0].final_accuracy


def test_the_best_model_so_far_is_on_disk_after_an_interruption(run, tmp_path):
    with pytest.raises(Stopped):
        interp.train(new_model(), TASK, SETTINGS, folder=tmp_path, on_record=stop_at(10))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    lowest = min(line["validation_loss"][0] for line in lines)
    assert validation_of(load_checkpoint(tmp_path / "best.safetensors"))[0] == pytest.approx(lowest, rel=1e-5)
    again = interp.train(new_model(), TASK, dataclasses.replace(SETTINGS, steps=1), folder=tmp_path, fresh=True)
    assert [record["steps_done"] for record in again.history] == [1]  # fresh forgets the best too
    assert not same_weights(again.model, run[0].model)


def test_best_record_averages_outcomes_and_takes_the_first_of_ties():
    records = [
        {"validation_loss": loss, "at": index} for index, loss in enumerate(([3, 1], [0, 2.5], [1, 1.5], [9, 0]))
    ]
    assert best_record(records)["at"] == 1
    unasked = [{"validation_loss": [float("nan"), 1], "at": 0}, {"validation_loss": [0.5, 0.6], "at": 1}]
    assert best_record(unasked)["at"] == 1
    assert best_record(unasked[::-1])["at"] == 1


def test_validation_loss_is_reported_per_outcome(run):
    task = interp.tasks.Lego(n_vars=2, sentence_format="compact")
    settings = TrainSettings(steps=2, batch_size=4, eval_every=1, n_eval=30)
    model = make_model(interp.config_for(task, n_layers=1, d_model=8, n_heads=2))
    trained = interp.train(model, task, settings)
    assert all(len(record["validation_loss"]) == 2 for record in trained.history)
    batch = task.sample(30, generator=derived_generator(0, "validation"), split="validation")
    chances = logits_at_targets(trained.model(batch.tokens), batch).softmax(-1)
    by_hand = [-chances[:, target].gather(1, batch.labels[:, target, None]).log().mean().item() for target in (0, 1)]
    assert trained.history[-1]["validation_loss"] == pytest.approx(by_hand, rel=1e-5)
    assert len(run[0].history[-1]["validation_loss"]) == 1


def one_step(**rates):
    """Every parameter's move in the first step of AdamW without decay, and what it must be: rate x sign, nearly."""
    model = new_model(qk_identity=True, vo_identity=True, n_layers=2)
    before = copy.deepcopy(model.state_dict())
    settings = dataclasses.replace(SETTINGS, steps=1, warmup_steps=0, weight_decay=0.0, keep="last", **rates)
    interp.train(model, TASK, settings)
    return {name: value - before[name] for name, value in model.state_dict().items()}


@pytest.mark.parametrize(
    ("rates", "faster"),
    [
        ({"qk_identity_rate": 5.0}, {"attention.a": 5.0}),
        ({"vo_identity_rate": 0.25}, {"attention.b": 0.25}),
        ({"qk_identity_rate": 3.0, "vo_identity_rate": 7.0}, {"attention.a": 3.0, "attention.b": 7.0}),
        ({"qk_identity_rate": 3.0, "vo_identity_rate": 3.0}, {"attention.a": 3.0, "attention.b": 3.0}),
    ],
)
def test_identity_rates_affect_only_the_identity_scalars(rates, faster):
    alike, found = one_step(), one_step(**rates)
    scaled = 0
    for name, moved in found.items():
        times = next((value for end, value in faster.items() if name.endswith(end)), 1.0)
        torch.testing.assert_close(moved, times * alike[name], rtol=1e-4, atol=1e-7)
        scaled += times != 1
    assert scaled == 2 * len(faster)  # one of a sort in each layer
    assert all(alike[name].abs().max() > 1e-3 for name in found if name.endswith(("attention.a", "attention.b")))


def test_one_step_equals_adamw_by_hand():
    model, twin = new_model(qk_identity=True, vo_identity=True), new_model(qk_identity=True, vo_identity=True)
    settings = dataclasses.replace(
        SETTINGS, steps=1, warmup_steps=0, keep="last", vo_identity_rate=4.0, weight_decay=0.1, clip_norm=0.01
    )
    interp.train(model, TASK, settings)
    fixed = TASK.sample(6, generator=derived_generator(0, "fixed set"))
    batch = fixed.select(torch.randperm(6, generator=derived_generator(0, "epoch", 0)))
    twin.train()
    TASK.loss(twin(batch.tokens), batch).backward()
    clip_grad_norm_(twin.parameters(), 0.01)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            rate = 0.04 * (4 if name == "weights.0.attention.b" else 1)
            # AdamW's first step: both moments, corrected for their start at 0, are those of this gradient
            parameter.copy_(parameter * (1 - rate * 0.1) - rate * parameter.grad / (parameter.grad.abs() + 1e-8))
            torch.testing.assert_close(dict(model.named_parameters())[name], parameter, rtol=1e-4, atol=1e-6)


def test_identity_rates_are_kept_on_resume(tmp_path):
    rates = dataclasses.replace(SETTINGS, qk_identity_rate=3.0, vo_identity_rate=0.5)
    model, twin = (new_model(qk_identity=True, vo_identity=True) for _ in range(2))
    whole = interp.train(model, TASK, rates)
    with pytest.raises(Stopped):
        interp.train(copy.deepcopy(twin), TASK, rates, folder=tmp_path, on_record=stop_at(8))
    assert read_tensors(tmp_path / "state.safetensors", kind="training state")[1]["steps_done"] == 6
    assert same_weights(interp.train(twin, TASK, rates, folder=tmp_path).model, whole.model)


def test_a_report_lists_the_templates(run):
    assert _task_line(run[0], run[0].task) == "templates: aba -> +1, abb -> -1; real labels, 6 training symbols"
    stored = TrainingRun.load(run[1])  # lists where tuples were
    assert _task_line(stored, run[0].task) == _task_line(run[0], run[0].task)
    stored.manifest["task"] = Template(templates="majority", train=("x", "y")).describe()
    assert "and 12 more; real labels, 2 training symbols" in _task_line(stored, run[0].task)


@pytest.mark.parametrize(
    ("task", "family", "sizes"),
    [
        (TASK, "fully_connected", {"width": 8, "inputs": "one_hot_and_equality"}),
        (TASK, "lstm", {"width": 8}),
        (Template(templates="copy", train=6), "template_copy", {"d_model": 8, "n_heads": 2, "d_head": 4}),
        (Template(templates="symbolic_programs", form="next_token", train=6), "template", SIZES),
    ],
    ids=["numbers", "a recurrent network", "a symbol", "every token"],
)
def test_models_of_every_family_train_and_resume(task, family, sizes, tmp_path):
    settings = dataclasses.replace(SETTINGS, steps=6)
    whole = interp.train(make_model(interp.config_for(task, family, **sizes)), task, settings)
    untrained = make_model(whole.model.cfg)
    assert not same_weights(whole.model, untrained)
    with pytest.raises(Stopped):
        interp.train(untrained, task, settings, folder=tmp_path, on_record=stop_at(4))
    again = interp.train(make_model(whole.model.cfg), task, settings, folder=tmp_path)
    assert same_weights(again.model, whole.model)
    assert same_weights(TrainingRun.load(tmp_path).model, whole.model)


@pytest.fixture(scope="module", params=["fully_connected", "rnn", "lstm"])
def flat(request):
    return make_model(interp.config_for(TASK, request.param, width=8))


@pytest.mark.parametrize("association", ["mimic", "query_key"])
def test_association_is_refused_without_attention(flat, association):
    words = f"association is '{association}', but this model has no attention; leave it 'none'"
    with pytest.raises(ValueError, match=words):
        interp.train(flat, TASK, dataclasses.replace(SETTINGS, association=association))


@pytest.mark.parametrize("verb", ["ablate_heads", "classify_heads", "probe", "show_attention"])
@pytest.mark.usefixtures("as_a_user")
def test_verbs_refuse_a_model_without_attention(flat, verb):
    words = f"this model is a {flat.cfg.kind}: it has no attention heads and no residual stream to read. Train a"
    with pytest.raises(ValueError, match=words):
        getattr(interp, verb)(flat, TASK)


def test_a_model_without_attention_is_evaluated(flat):
    assert interp.evaluate(flat, TASK, n=40).n == 40


def test_records_during_mimicking_are_not_kept_as_best():
    def record(phase, loss):
        return {"phase": phase, "validation_loss": [loss]}

    early, late = record("mimic", 0.1), record("task", 0.4)
    assert best_record([early]) is early
    assert best_record([early, late, record("task", 0.5)]) is late
