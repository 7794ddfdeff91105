"""Checkpoints and run folders written by an earlier version still open, and compute the same.

`tests/data/version_0_1_0` was written by the version in which hard-coded heads had two config fields. Its checkpoints
hold every kind of head, given per layer or once, tied or not; `expected.safetensors` their logits.
"""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import interp
from hooks import load_checkpoint
from interp.tasks import Lego
from interp.training import TrainingRun, TrainSettings

BEFORE = Path(__file__).parent / "data" / "version_0_1_0"
EXPECTED = load_file(BEFORE / "expected.safetensors")
TASK = Lego(n_vars=2, sentence_format="compact")


@pytest.mark.parametrize("path", sorted((BEFORE / "checkpoints").iterdir()), ids=lambda path: path.name)
def test_a_checkpoint_gives_the_same_logits(path):
    model = load_checkpoint(path).eval()
    with torch.no_grad():
        plain = model(EXPECTED["tokens"])
        masked = model(EXPECTED["tokens"], attention_mask=EXPECTED["mask"])
    torch.testing.assert_close(plain, EXPECTED[f"{path.name}.plain"], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(masked, EXPECTED[f"{path.name}.masked"], atol=1e-6, rtol=1e-5)


def test_a_run_folder_opens():
    run = TrainingRun.load(BEFORE / "run")
    assert run.manifest["task"]["task"] == "lego"
    assert [record["steps_done"] for record in run.history] == [3, 6]
    assert 0 <= interp.evaluate(run.model, TASK, n=20).accuracy.min() <= 1


def test_an_unfinished_run_resumes_to_the_weights_of_an_uninterrupted_one(tmp_path):
    shutil.copytree(BEFORE / "unfinished", tmp_path / "run")
    model = TrainingRun.load(BEFORE / "run").model
    fresh = type(model)(model.cfg, seed=1)
    settings = TrainSettings(steps=9, n_eval=20, eval_every=3, checkpoint_every=2)
    run = interp.train(fresh, TASK, settings, seed=3, folder=tmp_path / "run")
    assert [record["steps_done"] for record in run.history] == [3, 6, 9]
    weights = torch.cat([value.flatten() for _, value in sorted(run.model.state_dict().items())])
    # another processor rounds otherwise, and Adam makes whole steps of the smallest gradients
    before = load_file(BEFORE / "unfinished" / "state.safetensors")
    before = torch.cat([before[f"model/{name}"].flatten() for name in sorted(run.model.state_dict())])
    changed = (EXPECTED["run.weights"] - before).norm()
    assert (weights - EXPECTED["run.weights"]).norm() < 0.01 * changed
