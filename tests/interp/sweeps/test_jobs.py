import pytest
from short_runs import new_model, same_weights

from interp import TrainSettings
from interp.core.processes import in_processes
from interp.sweeps.jobs import TrainJob, train_to_disk
from interp.tasks import Lego
from interp.training import TrainingRun
from interp.training.trainer import Diverged


def test_jobs_on_a_gpu_run_in_one_process(pretended, tmp_path, monkeypatch):
    requested, task = [], Lego(n_vars=3)

    def here(calls, *, n_jobs):
        requested.append(n_jobs)
        return in_processes(calls, n_jobs=1)

    monkeypatch.setattr("interp.sweeps.jobs.in_processes", here)

    def jobs(folder, *places):
        config = new_model(task).cfg
        settings = TrainSettings(steps=1, batch_size=6, eval_every=2, n_eval=6)
        return {
            f"{seed}": TrainJob(
                task=task,
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
    assert requested == [3, 1]
    for seed in ("0", "1", "2"):
        cpu, gpu = (TrainingRun.load(tmp_path / where / seed).model for where in ("cpu", "gpu"))
        assert same_weights(cpu, gpu)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({"learning_rate": 1e30, "clip_norm": 1e30, "steps": 3}, Diverged), ({"depth_range": (1, 9)}, ValueError)],
)
def test_errors_name_the_job_and_keep_whether_it_diverged(tmp_path, settings, kind):
    task = Lego(n_vars=2)
    small = TrainSettings(**{"steps": 1, "batch_size": 4, "n_eval": 4} | settings)
    job = TrainJob(task=task, config=new_model(task).cfg, settings=small, seed=0, folder=tmp_path / "a")
    with pytest.raises(ValueError, match=r"^the job: ") as raised:
        train_to_disk({"the job": job}, n_jobs=1)
    assert type(raised.value) is kind
