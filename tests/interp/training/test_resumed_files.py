"""What a run resumes from is its own: state, best model and snapshots of another run are refused."""

import dataclasses
import shutil

import pytest
from short_runs import SHORT, Stopped, new_model, stop_at

import interp
from hooks import save_checkpoint
from interp.training.identity import ForeignRun

BEST = dataclasses.replace(SHORT, keep="best", snapshots="on change")


def stopped(task, folder, *, seed=0):
    with pytest.raises(Stopped):
        interp.train(new_model(task), task, BEST, folder=folder, seed=seed, on_record=stop_at(16))


@pytest.mark.parametrize("name", ["state.safetensors", "best.safetensors"])
def test_a_state_of_another_run_is_refused(tiny, tmp_path, name):
    for seed in (0, 1):
        stopped(tiny, tmp_path / str(seed), seed=seed)
    shutil.copy(tmp_path / "1" / name, tmp_path / "0")
    with pytest.raises(ValueError, match=rf"0/{name} is of another training run than its manifest\.json"):
        interp.train(new_model(tiny), tiny, BEST, folder=tmp_path / "0", seed=0)


def test_a_snapshot_that_was_exchanged_is_found_when_training_goes_on(tiny, tmp_path):
    stopped(tiny, tmp_path)
    for path in (tmp_path / "snapshots").iterdir():
        save_checkpoint(new_model(tiny, seed=5), path)
    with pytest.raises(ForeignRun, match=r"step-.* is not the file that this run wrote"):
        interp.train(new_model(tiny), tiny, BEST, folder=tmp_path)
