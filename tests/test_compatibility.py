"""Checkpoints and run folders written by an earlier version still open, and compute the same.

`tests/data/version_0_1_0.tar.xz` was written by the version in which hard-coded heads had two config fields. Its
checkpoints hold every kind of head, given per layer or once, tied or not; `expected.safetensors` their logits.
"""

import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import interp
from hooks import load_checkpoint
from interp.tasks import Lego
from interp.training import TrainingRun, TrainSettings

NAME = "version_0_1_0"
PACKED = Path(__file__).parent / "data" / f"{NAME}.tar.xz"
TASK = Lego(n_vars=2, sentence_format="compact")
with tarfile.open(PACKED) as archive:
    CHECKPOINTS = sorted(Path(name).name for name in archive.getnames() if f"{NAME}/checkpoints/" in name)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(PACKED) as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME


@pytest.fixture(scope="module")
def expected(before):
    return load_file(before / "expected.safetensors")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_gives_the_same_logits(name, before, expected):
    model = load_checkpoint(before / "checkpoints" / name).eval()
    with torch.no_grad():
        plain = model(expected["tokens"])
        masked = model(expected["tokens"], attention_mask=expected["mask"])
    torch.testing.assert_close(plain, expected[f"{name}.plain"], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(masked, expected[f"{name}.masked"], atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:the runs in .* stored no hashes")
def test_a_run_folder_opens(before):
    run = TrainingRun.load(before / "run")
    assert run.manifest["task"]["task"] == "lego"
    assert [record["steps_done"] for record in run.history] == [3, 6]
    assert 0 <= interp.evaluate(run.model, TASK, n=20).accuracy.value.min() <= 1


@pytest.mark.filterwarnings("ignore:the runs in .* stored no hashes")
def test_an_unfinished_run_resumes_to_the_weights_of_an_uninterrupted_one(tmp_path, before, expected):
    shutil.copytree(before / "unfinished", tmp_path / "run")
    model = TrainingRun.load(before / "run").model
    fresh = type(model)(model.cfg, seed=1)
    settings = TrainSettings(steps=9, n_eval=20, eval_every=3, checkpoint_every=2)
    run = interp.train(fresh, TASK, settings, seed=3, folder=tmp_path / "run")
    assert [record["steps_done"] for record in run.history] == [3, 6, 9]
    weights = torch.cat([value.flatten() for _, value in sorted(run.model.state_dict().items())])
    # another processor rounds otherwise, and Adam makes whole steps of the smallest gradients
    state = load_file(before / "unfinished" / "state.safetensors")
    start = torch.cat([state[f"model/{name}"].flatten() for name in sorted(run.model.state_dict())])
    changed = (expected["run.weights"] - start).norm()
    assert (weights - expected["run.weights"]).norm() < 0.01 * changed
