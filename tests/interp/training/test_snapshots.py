"""Snapshots: the models of chosen steps, whether or not the training is interrupted."""

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given
from short_runs import Stopped, same_weights, stop_at

import interp
from hooks import make_model
from hooks.files import Unreadable
from interp import TrainSettings
from interp.tasks import Lego
from interp.training import Mimicking, TrainingRun
from interp.training.snapshots import has_changed, snapshot_steps

TASK = Lego(n_vars=2, sentence_format="compact")
SETTINGS = TrainSettings(
    steps=12, batch_size=16, warmup_steps=2, eval_every=2, checkpoint_every=3, n_eval=50, association="mimic",
    mimicking=Mimicking(steps=4, batch_size=8), snapshots=6,
)  # fmt: skip
STEPS = (0, 1, 2, 4, 8, 16)


def new_model(**sizes):
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 8, **sizes}
    return make_model(interp.config_for(TASK, "lego", **sizes), seed=2)


def trained(folder, settings=SETTINGS, **options):
    return interp.train(new_model(), TASK, settings, folder=folder, **options)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "snapshots").iterdir())}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("whole"))


def test_snapshots_are_the_models_of_their_steps(run):
    assert run.snapshots == TrainingRun.load(run.folder).snapshots == STEPS
    assert same_weights(run.load_snapshot(0), new_model())
    assert same_weights(run.load_snapshot(16), run.model)
    longer = dataclasses.replace(SETTINGS, snapshots=(4,), steps=30)
    first = trained(run.folder / "longer", longer)
    assert same_weights(first.load_snapshot(4), run.load_snapshot(4))  # mimicking alone, whatever follows
    assert not same_weights(run.load_snapshot(8), run.load_snapshot(16))
    assert not run.load_snapshot(4).training


def test_the_trained_model_is_the_same_without(run, tmp_path):
    for snapshots in (None, "on change"):
        other = trained(tmp_path / str(snapshots), dataclasses.replace(SETTINGS, snapshots=snapshots))
        assert same_weights(other.model, run.model)
        assert [one["accuracy"] for one in other.history] == [one["accuracy"] for one in run.history]
    assert trained(tmp_path / "None", dataclasses.replace(SETTINGS, snapshots=None)).snapshots == ()


@pytest.fixture(scope="module", params=[6, tuple(range(17)), "on change"], ids=["some", "all", "on change"])
def uninterrupted(request, tmp_path_factory):
    settings = dataclasses.replace(SETTINGS, snapshots=request.param, learning_rate=0.03)
    return settings, contents(trained(tmp_path_factory.mktemp("uninterrupted"), settings).folder)


@pytest.mark.parametrize("step", [4, 14])
def test_an_interrupted_run_ends_with_the_same_snapshots(uninterrupted, tmp_path, step):
    settings, snapshots = uninterrupted
    with pytest.raises(Stopped):
        trained(tmp_path / "stopped", settings, on_record=stop_at(step))
    later = tmp_path / "stopped/snapshots/step-00000015.safetensors"  # as of a run whose state is older
    later.write_bytes(b"half")
    (later.parent / ".step-00000016.safetensors.tmp").write_bytes(b"half")
    trained(tmp_path / "stopped", settings)
    assert contents(tmp_path / "stopped") == snapshots


def test_snapshots_on_change_are_where_accuracy_has_moved(tmp_path):
    settings = dataclasses.replace(
        SETTINGS, snapshots="on change", learning_rate=0.02, steps=100, association="none", eval_every=10
    )
    run = trained(tmp_path, settings)
    assert {0, 100} < set(run.snapshots)
    accuracy = {record["steps_done"]: record["accuracy"] for record in run.history}
    before = run.history[0]["accuracy"]
    for step in run.snapshots[1:-1]:
        assert has_changed(before, accuracy[step], 50) or step == run.snapshots[1]
        before = accuracy[step]
    assert len(run.snapshots) < len(run.history)


def test_what_counts_as_a_change():
    assert not has_changed([0.5, 0.5], [0.55, 0.5], 100)
    assert has_changed([0.5, 0.5], [0.75, 0.5], 100)
    assert not has_changed([0.5, 0.5], [0.65, 0.5], 100)  # 2.14 standard errors: not enough for one of two outcomes
    assert has_changed([0.5], [0.65], 100)
    assert not has_changed([1.0, np.nan], [1.0, np.nan], 100)
    assert has_changed([1.0], [0.9], 100)


@given(st.integers(1, 3000).flatmap(lambda total: st.tuples(st.just(total), st.integers(2, min(total + 1, 60)))))
@example((1, 2))
@example((59, 60))
def test_a_number_of_snapshots_is_spread_over_all_orders_of_magnitude(drawn):
    total, number = drawn
    steps = snapshot_steps(number, total)
    assert (len(steps), steps[0], steps[-1]) == (number, 0, total)
    assert (np.diff(steps) > 0).all()
    if 2 < number <= np.log2(total):
        np.testing.assert_allclose(np.diff(np.log(steps[1:])), np.log(total) / (number - 2), atol=0.5)


def test_settings_without_snapshots_are_described_as_before():
    assert "snapshots" not in TrainSettings().to_dict()
    for snapshots in (5, (0, 3), "on change"):
        settings = TrainSettings(snapshots=snapshots)
        assert TrainSettings.from_dict(settings.to_dict()) == settings


def test_snapshots_of_tied_weights_are_stored_once(tmp_path):
    sizes = []
    for layers in (1, 6):
        folder = tmp_path / str(layers)
        interp.train(new_model(n_layers=layers, tied=True), TASK, SETTINGS, folder=folder)
        sizes.append((folder / "snapshots/step-00000016.safetensors").stat().st_size)
    assert sizes[1] < 1.1 * sizes[0]


def test_a_fresh_run_removes_the_old_snapshots(tmp_path):
    trained(tmp_path)
    again = trained(tmp_path, dataclasses.replace(SETTINGS, snapshots=(3,)), fresh=True)
    assert again.snapshots == (3,)
    trained(tmp_path, dataclasses.replace(SETTINGS, snapshots=None), fresh=True)
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize(
    ("snapshots", "words"),
    [
        (1, "snapshots is 1"),
        ((3, 2), "each once and in order"),
        ((-1, 2), "from 0 on"),
        ((), "give steps"),
    ],
)
def test_bad_snapshots_are_refused(snapshots, words):
    with pytest.raises(ValueError, match=words):
        TrainSettings(snapshots=snapshots)


@pytest.mark.parametrize(
    ("snapshots", "words"), [((3, 17), "step 17; this training ends at step 16"), (18, "16 steps, so at most 17")]
)
def test_snapshots_after_the_end_are_refused(tmp_path, snapshots, words):
    with pytest.raises(ValueError, match=words):
        trained(tmp_path, dataclasses.replace(SETTINGS, snapshots=snapshots))
    assert not list(tmp_path.iterdir())


def test_snapshots_need_a_folder_and_a_step_that_is_there(run, tmp_path):
    with pytest.raises(ValueError, match="give folder"):
        interp.train(new_model(), TASK, SETTINGS)
    with pytest.raises(ValueError, match=r"step is 3, of which .* it has those of 0, 1, 2, 4, 8, 16"):
        run.load_snapshot(3)
    without = interp.train(new_model(), TASK, dataclasses.replace(SETTINGS, snapshots=None))
    assert without.snapshots == ()
    with pytest.raises(ValueError, match="no folder"):
        without.load_snapshot(0)
    damaged = trained(tmp_path)
    path = tmp_path / "snapshots/step-00000004.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(Unreadable, match="cut short"):
        damaged.load_snapshot(4)
    assert torch.isfinite(damaged.load_snapshot(8)(torch.zeros(1, 3, dtype=torch.long))).all()
