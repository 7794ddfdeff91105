"""Models trained stacked are those trained alone."""

import json
from dataclasses import replace

import pytest
import torch

import interp
from hooks import make_model
from interp import TrainSettings
from interp.tasks import Dyck, Lego, Template
from interp.training import Mimicking, stacked
from interp.training.folder import RunFolder
from interp.training.jobs import TrainJob, train_to_disk
from interp.training.stacked import Stack, cannot_stack, models_in, train_stacked
from interp.training.trainer import Diverged, Trainer

LEGO = Lego(n_vars=3, sentence_format="compact")
SMALL = {"n_layers": 3, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 16}
PLAIN = TrainSettings(steps=50, tokens_per_step=256, eval_every=25, n_eval=50, warmup_steps=5)
MIMIC = replace(PLAIN, steps=30, association="mimic", mimicking=Mimicking(steps=20, batch_size=16))
CURRICULUM = replace(PLAIN, curriculum=((1, 10), (2, 20), (3, 20)))
DEPTHS = replace(PLAIN, depth_range=(1, 3))
IDENTITY = replace(PLAIN, qk_identity_rate=3.0, vo_identity_rate=0.5)
CASES = {
    "lego": (LEGO, "lego", SMALL, PLAIN),
    "mimicking": (LEGO, "lego", SMALL, MIMIC),
    "query_key": (LEGO, "lego", SMALL, replace(PLAIN, association="query_key")),
    "curriculum": (LEGO, "lego", SMALL, CURRICULUM),
    "tied": (LEGO, "lego", {**SMALL, "tied": True}, CURRICULUM),
    "depths": (LEGO, "lego", SMALL, DEPTHS),
    "tied depths": (LEGO, "lego", {**SMALL, "tied": True}, DEPTHS),
    "a I, b I": (LEGO, "lego", {**SMALL, "qk_identity": True, "vo_identity": True}, IDENTITY),
    "fixed set": (LEGO, "lego", SMALL, replace(PLAIN, n_train=40, keep="best", eval_every=10)),
    "dyck": (Dyck(length=10), "dyck_gpt", {"n_layers": 2, "d_model": 16, "d_mlp": 16}, PLAIN),
    "padded dyck": (Dyck(length=10, words="complete"), "dyck_gpt", {"n_layers": 1, "d_model": 16, "d_mlp": 16}, PLAIN),
    "template": (Template(), "template", {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_head": 16}, PLAIN),
}


def trainers(case, n=3, files=lambda seed: None):
    task, family, sizes, settings = CASES[case]
    found = {}
    for seed in range(n):
        model = make_model(interp.config_for(task, family, **sizes), seed=seed).double()
        rates = replace(settings, learning_rate=1e-3 * (1 + seed))
        found[str(seed)] = Trainer(model, task, rates, seed, files(seed), None)
    return found


@pytest.mark.parametrize("case", CASES)
def test_stacked_models_equal_those_trained_alone(case):
    together, alone = trainers(case), trainers(case)
    assert sorted(Stack(together).run()) == [("0", None), ("1", None), ("2", None)]
    for name, one in alone.items():
        one.run()
        for (which, found), expected in zip(
            together[name].model.state_dict().items(), one.model.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5, msg=lambda text, at=which: f"{at}: {text}")
        without = [{key: value for key, value in record.items() if key != "seconds"} for record in one.history]
        for found, expected in zip(together[name].history, without, strict=True):
            assert found["accuracy"] == pytest.approx(expected["accuracy"], nan_ok=True)
            assert found["loss"] == pytest.approx(expected["loss"])
            assert (found["stage"], found["phase"]) == (expected["stage"], expected["phase"])


def test_in_passes_of_fewer_models_the_weights_are_the_same():
    together, parts = trainers("curriculum", n=5), trainers("curriculum", n=5)
    list(Stack(together).run())
    list(Stack(parts, at_once=2).run())
    for name, one in together.items():
        torch.testing.assert_close(dict(parts[name].model.named_parameters()), dict(one.model.named_parameters()))


def test_when_memory_runs_out_fewer_models_are_computed_at_once(monkeypatch):
    sizes, joint = [], stacked._joint_losses

    def small(these, names, planned):
        sizes.append(len(these))
        losses = joint(these, names, planned)
        if len(these) > 2:  # in the backward pass, when some gradients are there
            raise torch.OutOfMemoryError("no memory")
        return losses

    together, alone = trainers("lego", n=5), trainers("lego", n=5)
    monkeypatch.setattr(stacked, "_joint_losses", small)
    list(Stack(together).run())
    assert sizes[:4] == [5, 2, 2, 1]
    assert set(sizes[1:]) == {2, 1}
    for name, one in alone.items():
        one.run()
        torch.testing.assert_close(dict(together[name].model.named_parameters()), dict(one.model.named_parameters()))
    monkeypatch.setattr(stacked, "_joint_losses", lambda *given: exec("raise torch.OutOfMemoryError('no memory')"))
    with pytest.raises(torch.OutOfMemoryError):
        list(Stack(trainers("lego", n=1)).run())


def test_one_that_diverges_leaves_the_others_alone():
    together, alone = trainers("lego"), trainers("lego")
    with torch.no_grad():
        next(together["1"].model.parameters()).fill_(float("nan"))
    ended = dict(Stack(together).run())
    assert isinstance(ended.pop("1"), Diverged)
    assert ended == {"0": None, "2": None}
    for name in ended:
        alone[name].run()
        torch.testing.assert_close(
            dict(together[name].model.named_parameters()), dict(alone[name].model.named_parameters())
        )


def jobs(folder, n=3, **changed):
    config = interp.config_for(LEGO, "lego", **SMALL)
    settings = replace(MIMIC, checkpoint_every=10, snapshots=(0, 15, 50))
    fields = {"task": LEGO, "config": config, "settings": settings, **changed}
    return {f"{seed}": TrainJob(**fields, seed=seed, folder=folder / f"{seed}") for seed in range(n)}


def test_the_folders_are_those_of_runs_trained_alone(tmp_path):
    outcomes = {}
    train_stacked(jobs(tmp_path / "stacked"), on_outcome=outcomes.__setitem__)
    assert outcomes == dict.fromkeys("012")
    train_to_disk(jobs(tmp_path / "alone"), n_jobs=1)
    for name in outcomes:
        one, other = (RunFolder(tmp_path / kind / name) for kind in ("stacked", "alone"))
        assert one.finished
        assert one.snapshots.steps == other.snapshots.steps == (0, 15, 50)
        manifests = [{**run.read_manifest(), "time": 0} for run in (one, other)]
        assert manifests[0].pop("stacked") == 3
        assert manifests[0] == manifests[1]
        assert {path.name for path in one.path.iterdir()} == {path.name for path in other.path.iterdir()}
        for found, expected in zip(one.read_metrics(), other.read_metrics(), strict=True):
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-3)  # in single precision
    outcomes.clear()
    train_stacked(jobs(tmp_path / "stacked"), on_outcome=outcomes.__setitem__)  # all are there
    assert outcomes == dict.fromkeys("012")


def test_interrupted_it_resumes_with_the_same_weights(tmp_path, monkeypatch):
    train_stacked(jobs(tmp_path / "whole"))
    advance = Trainer.advance

    def stop(self, loss):
        if self.seed == 1 and self.done == 33:
            raise KeyboardInterrupt
        return advance(self, loss)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", stop)
        with pytest.raises(KeyboardInterrupt) as error:
            train_stacked(jobs(tmp_path / "parts"))
    assert [note.split(" of 50")[0] for note in error.value.__notes__[-3:]] == [
        f"training stopped at step {step}" for step in (34, 33, 33)
    ]
    train_stacked(jobs(tmp_path / "parts"))
    for name in "012":
        whole, parts = (RunFolder(tmp_path / kind / name) for kind in ("whole", "parts"))
        assert whole.model_path.read_bytes() == parts.model_path.read_bytes()
        steps = [[json.loads(line)["steps_done"] for line in run.metrics_path.open()] for run in (whole, parts)]
        assert steps[0] == steps[1]


def test_a_folder_in_use_is_left_to_the_other_process(tmp_path):
    outcomes = {}
    with RunFolder(tmp_path / "1").writing():
        train_stacked(jobs(tmp_path), on_outcome=outcomes.__setitem__)
    assert "writes to" in str(outcomes.pop("1"))
    assert outcomes == {"0": None, "2": None}
    assert not RunFolder(tmp_path / "1").finished


def test_what_cannot_be_stacked_is_named(tmp_path, monkeypatch):
    one, two = jobs(tmp_path, n=2).values()
    assert cannot_stack(one) == ""
    paper = Lego(n_vars=3)
    hybrid = interp.config_for(paper, "hybrid", n_layers=1)
    assert "depends on the values of tokens" in cannot_stack(replace(one, task=paper, config=hybrid, settings=PLAIN))
    pulled = cannot_stack(replace(one, task=Dyck(), settings=replace(PLAIN, contrastive=0.3)))
    assert pulled == "the contrastive loss draws another length for each model"
    wide = interp.config_for(LEGO, "fully_connected", width=8)
    assert cannot_stack(replace(one, config=wide, settings=PLAIN)) == "it is not a transformer"
    with pytest.raises(ValueError, match="one config; that of b differs"):
        train_stacked({"a": one, "b": replace(two, config=hybrid)})

    def drawn(config, seed=0):
        model = make_model(config, seed=seed)
        model.register_buffer("fixed", torch.randn(3, generator=torch.Generator().manual_seed(seed)))
        return model

    with monkeypatch.context() as patch:
        patch.setattr(stacked, "make_model", drawn)
        assert cannot_stack(one) == "its models have buffers that differ"
    brackets = replace(one, task=Dyck(), config=interp.config_for(Dyck(), "dyck_gpt"), settings=PLAIN)
    pulled = replace(brackets, settings=replace(PLAIN, contrastive=0.3), folder=tmp_path / "pulled")
    with pytest.raises(ValueError, match="cannot be trained stacked: the contrastive loss"):
        train_stacked({"a": brackets, "b": pulled})
    with pytest.raises(ValueError, match="one device; that of b differs"):
        train_stacked({"a": one, "b": replace(two, device="cpu")})
    with pytest.raises(ValueError, match="cannot be trained stacked: it is not a transformer"):
        train_stacked({"a": replace(one, config=wide, settings=PLAIN)})


def test_the_number_of_models_in_memory():
    cfg = interp.config_for(LEGO, "lego", n_layers=6, d_model=64, n_heads=4)
    one = models_in(10**9, cfg, (100, 20))
    assert one > 1
    assert models_in(2 * 10**9, cfg, (100, 20)) == pytest.approx(2 * one, abs=1)
    assert models_in(10**9, cfg, (200, 20)) == pytest.approx(one / 2, abs=1)
    assert models_in(1, cfg, (100, 20)) == 1
