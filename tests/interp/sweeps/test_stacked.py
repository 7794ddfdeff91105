"""Models trained stacked are those trained alone."""

import json
from dataclasses import replace
from functools import cache

import pytest
import torch

import interp
from hooks import make_model
from interp import TrainSettings
from interp.sweeps import stacked
from interp.sweeps.parallel import train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.sweeps.stacked import Stack, models_that_fit, train_stacked, why_not_stacked
from interp.tasks import Dyck, Lego, Template
from interp.training import Mimicking
from interp.training.folder import RunFolder
from interp.training.train import Diverged, Trainer

LEGO = Lego(n_vars=3, sentence_format="compact")
SMALL = {"n_layers": 3, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 16}
PLAIN = TrainSettings(steps=8, tokens_per_step=64, eval_every=4, n_eval=20, warmup_steps=3)
MIMIC = replace(PLAIN, association="mimic", mimicking=Mimicking(steps=6, batch_size=8))
CURRICULUM = replace(PLAIN, curriculum=((1, 2), (2, 3), (3, 3)))
DEPTHS = replace(PLAIN, depth_range=(1, 3))
IDENTITY = replace(PLAIN, qk_identity_rate=3.0, vo_identity_rate=0.5)
CASES = {
    "lego": (LEGO, "lego", SMALL, replace(PLAIN, clip_norm=100.0)),
    "mimicking": (LEGO, "lego", SMALL, MIMIC),
    "query_key": (LEGO, "lego", SMALL, replace(PLAIN, association="query_key")),
    "curriculum": (LEGO, "lego", SMALL, CURRICULUM),
    "tied": (LEGO, "lego", {**SMALL, "tied": True}, CURRICULUM),
    "depths": (LEGO, "lego", SMALL, DEPTHS),
    "tied depths": (LEGO, "lego", {**SMALL, "tied": True}, DEPTHS),
    "a I, b I": (LEGO, "lego", {**SMALL, "qk_identity": True, "vo_identity": True}, IDENTITY),
    "fixed set": (LEGO, "lego", SMALL, replace(PLAIN, n_train=40, keep="best", eval_every=3)),
    "read at targets": (Lego(n_vars=3), "lego", SMALL, replace(CURRICULUM, read_at="targets", depth_range=(1, 3))),
    "dyck": (Dyck(length=10), "dyck_gpt", {"n_layers": 2, "d_model": 16, "d_mlp": 16}, PLAIN),
    "padded dyck": (Dyck(length=10, words="complete"), "dyck_gpt", {"n_layers": 1, "d_model": 16, "d_mlp": 16}, PLAIN),
    "template": (Template(), "template", {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_head": 16}, PLAIN),
}


def trainer(case, seed):
    task, family, sizes, settings = CASES[case]
    model = make_model(interp.config_for(task, family, **sizes), seed=seed).double()
    return Trainer(model, task, replace(settings, learning_rate=1e-3 * (1 + seed)), seed, None, None)


def trainers(case, n=3):
    return [trainer(case, seed) for seed in range(n)]


@cache
def trained_alone(case, seed):
    """A finished trainer. Do not change its weights."""
    alone = trainer(case, seed)
    alone.run()
    return alone


def assert_trained_as_alone(case, stack):
    for trainer in stack:
        alone = trained_alone(case, trainer.seed)
        torch.testing.assert_close(dict(trainer.model.named_parameters()), dict(alone.model.named_parameters()))


@pytest.mark.parametrize("case", CASES)
def test_stacked_models_equal_those_trained_alone(case):
    stack = trainers(case, n=2)
    assert dict(Stack(stack).run()) == dict.fromkeys(stack)
    for stacked_trainer in stack:
        alone = trained_alone(case, stacked_trainer.seed)
        weights, expected_weights = (run.model.state_dict() for run in (stacked_trainer, alone))
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-5)
        for record, expected in zip(stacked_trainer.history, alone.history, strict=True):
            assert record["accuracy"] == pytest.approx(expected["accuracy"], nan_ok=True)
            assert record["loss"] == pytest.approx(expected["loss"])
            assert (record["stage"], record["phase"]) == (expected["stage"], expected["phase"])


def test_in_passes_of_fewer_models_the_weights_are_the_same():
    stack = trainers("curriculum", n=5)
    list(Stack(stack, models_per_pass=2).run())
    assert_trained_as_alone("curriculum", stack)


def test_when_memory_runs_out_fewer_models_are_computed_at_once(monkeypatch):
    sizes, joint_losses = [], stacked._joint_losses

    def out_of_memory_above_two(trainers, inputs):
        sizes.append(len(trainers))
        losses = joint_losses(trainers, inputs)
        if len(trainers) > 2:  # in the backward pass, when some gradients are there
            raise torch.OutOfMemoryError("no memory")
        return losses

    def out_of_memory(*arguments):
        raise torch.OutOfMemoryError("no memory")

    stack = trainers("lego", n=5)
    monkeypatch.setattr(stacked, "_joint_losses", out_of_memory_above_two)
    list(Stack(stack).run())
    assert sizes[:4] == [5, 2, 2, 1]
    assert set(sizes[1:]) == {2, 1}
    assert_trained_as_alone("lego", stack)
    monkeypatch.setattr(stacked, "_joint_losses", out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        list(Stack(trainers("lego", n=1)).run())


def test_one_that_diverges_leaves_the_others_alone():
    stack = trainers("lego")
    with torch.no_grad():
        next(stack[1].model.parameters()).fill_(float("nan"))
    outcomes = dict(Stack(stack).run())
    assert isinstance(outcomes.pop(stack[1]), Diverged)
    assert outcomes == {stack[0]: None, stack[2]: None}
    assert_trained_as_alone("lego", outcomes)


def specs(folder, n=3):
    config = interp.config_for(LEGO, "lego", **SMALL)
    settings = replace(MIMIC, checkpoint_every=4, snapshots=(0, 4, 14))
    return {folder / f"{seed}": ModelSpec(task=LEGO, config=config, settings=settings, seed=seed) for seed in range(n)}


def outcomes_of(stacked_specs):
    outcomes = {}
    train_stacked(stacked_specs, on_outcome=outcomes.__setitem__)
    return {folder.name: error for folder, error in outcomes.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder of three models trained stacked."""
    folder = tmp_path_factory.mktemp("stacked")
    assert outcomes_of(specs(folder)) == dict.fromkeys("012")
    return folder


def test_the_folders_are_those_of_runs_trained_alone(whole, tmp_path):
    train_to_disk(specs(tmp_path), n_jobs=1)
    for name in "012":
        run, expected = (RunFolder(folder / name) for folder in (whole, tmp_path))
        assert run.finished
        assert run.snapshots.steps == expected.snapshots.steps == (0, 4, 14)
        manifest, expected_manifest = ({**folder.read_manifest(), "time": 0, "sha256": 0} for folder in (run, expected))
        assert manifest == {**expected_manifest, "stacked": 3}
        assert {path.name for path in run.path.iterdir()} == {path.name for path in expected.path.iterdir()}
        for record, expected_record in zip(run.read_metrics(), expected.read_metrics(), strict=True):
            assert record["loss"] == pytest.approx(expected_record["loss"], rel=1e-3)  # in single precision
    assert outcomes_of(specs(whole)) == dict.fromkeys("012")  # all are there


def test_interrupted_it_resumes_with_the_same_weights(whole, tmp_path, monkeypatch):
    advance = Trainer.advance

    def stop(self, loss):
        if self.seed == 1 and self.step == 10:
            raise KeyboardInterrupt
        return advance(self, loss)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", stop)
        with pytest.raises(KeyboardInterrupt) as error:
            train_stacked(specs(tmp_path))
    assert error.value.__notes__ == ["interrupted at 30 of 42 (training 3 models as one)"]
    train_stacked(specs(tmp_path))
    for name in "012":
        run, expected = (RunFolder(folder / name) for folder in (tmp_path, whole))
        assert run.model_path.read_bytes() == expected.model_path.read_bytes()
        steps, expected_steps = (
            [json.loads(line)["steps_done"] for line in folder.metrics_path.open()] for folder in (run, expected)
        )
        assert steps == expected_steps


def test_a_folder_in_use_is_left_to_the_other_process(tmp_path):
    with RunFolder(tmp_path / "1").writing():
        outcomes = outcomes_of(specs(tmp_path))
    assert "writes to" in str(outcomes.pop("1"))
    assert outcomes == {"0": None, "2": None}
    assert not RunFolder(tmp_path / "1").finished


def test_what_cannot_be_stacked_is_named(tmp_path, monkeypatch):
    one, two = specs(tmp_path, n=2).values()
    assert why_not_stacked(one) == ""
    paper = Lego(n_vars=3)
    hybrid = interp.config_for(paper, "hybrid", n_layers=1)
    assert "depends on the values of tokens" in why_not_stacked(replace(one, task=paper, config=hybrid, settings=PLAIN))
    pulled = why_not_stacked(replace(one, task=Dyck(), settings=replace(PLAIN, contrastive=0.3)))
    assert pulled == "the contrastive loss draws another length for each model"
    wide = interp.config_for(LEGO, "fully_connected", width=8)
    assert why_not_stacked(replace(one, config=wide, settings=PLAIN)) == "it is not a transformer"
    with pytest.raises(ValueError, match="one config; that of b differs"):
        train_stacked({tmp_path / "a": one, tmp_path / "b": replace(two, config=hybrid)})

    def drawn(config, seed=0):
        model = make_model(config, seed=seed)
        model.register_buffer("fixed", torch.randn(3, generator=torch.Generator().manual_seed(seed)))
        return model

    with monkeypatch.context() as patch:
        patch.setattr(stacked, "make_model", drawn)
        assert why_not_stacked(one) == "its models have buffers that differ"
    brackets = replace(one, task=Dyck(), config=interp.config_for(Dyck(), "dyck_gpt"), settings=PLAIN)
    pulled = replace(brackets, settings=replace(PLAIN, contrastive=0.3))
    with pytest.raises(ValueError, match="cannot be trained stacked: the contrastive loss"):
        train_stacked({tmp_path / "a": brackets, tmp_path / "b": pulled})
    with pytest.raises(ValueError, match="cannot be trained stacked: it is not a transformer"):
        train_stacked({tmp_path / "a": replace(one, config=wide, settings=PLAIN)})


def test_the_number_of_models_that_fit_memory():
    cfg = interp.config_for(LEGO, "lego", n_layers=6, d_model=64, n_heads=4)
    one = models_that_fit(10**9, cfg, (100, 20))
    assert one > 1
    assert models_that_fit(2 * 10**9, cfg, (100, 20)) == pytest.approx(2 * one, abs=1)
    assert models_that_fit(10**9, cfg, (200, 20)) == pytest.approx(one / 2, abs=1)
    assert models_that_fit(1, cfg, (100, 20)) == 1
