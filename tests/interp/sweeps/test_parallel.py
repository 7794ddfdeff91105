from dataclasses import replace

import pytest
from short_runs import new_model, same_weights

from interp import TrainSettings
from interp.core.processes import in_processes
from interp.sweeps.parallel import train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego
from interp.training import TrainingRun
from interp.training.train import Diverged


def test_models_on_a_gpu_run_in_one_process(pretended, tmp_path, monkeypatch):
    requested, task = [], Lego(n_vars=3)

    def here(calls, *, n_jobs):
        requested.append(n_jobs)
        return in_processes(calls, n_jobs=1)

    monkeypatch.setattr("interp.sweeps.parallel.in_processes", here)

    settings = TrainSettings(steps=1, batch_size=6, eval_every=2, n_eval=6)
    base = ModelSpec(task=task, config=new_model(task).cfg, settings=settings, seed=0)

    def train_three(name, device):
        specs = {tmp_path / name / str(seed): replace(base, seed=seed) for seed in range(3)}
        train_to_disk(specs, n_jobs=3, device=device)

    train_three("cpu", None)
    train_three("named", "cpu:0")
    train_three("gpu", pretended)
    assert requested == [3, 3, 1]
    for seed in ("0", "1", "2"):
        cpu, gpu = (TrainingRun.load(tmp_path / where / seed).model for where in ("cpu", "gpu"))
        assert same_weights(cpu, gpu)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({"learning_rate": 1e30, "clip_norm": 1e30, "steps": 3}, Diverged), ({"depth_range": (1, 9)}, ValueError)],
)
def test_errors_name_the_model_and_keep_whether_it_diverged(tmp_path, settings, kind):
    task = Lego(n_vars=2)
    small = TrainSettings(**{"steps": 1, "batch_size": 4, "n_eval": 4} | settings)
    spec = ModelSpec(task=task, config=new_model(task).cfg, settings=small, seed=3)
    with pytest.raises(ValueError, match=r"^model a \(seed 3\): ") as raised:
        train_to_disk({tmp_path / "a": spec}, n_jobs=1)
    assert type(raised.value) is kind
