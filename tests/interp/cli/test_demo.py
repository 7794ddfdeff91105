import dataclasses
from pathlib import Path

import pytest

import interp
from interp.cli.demo import TASK, demo_jobs, run_demo
from interp.training.run import TrainingRun
from interp.training.sweeps import train_to_disk

SEEDS = (0, 1, 2)


@pytest.fixture(scope="session")
def demo_runs(tmp_path_factory):
    """The demo's model from each seed, and seed 0's control: four trainings, two at a time."""
    folder = tmp_path_factory.mktemp("demo")
    jobs = {f"model {seed}": demo_jobs(folder / str(seed), seed)["model"] for seed in SEEDS}
    jobs["control"] = demo_jobs(folder / "0", 0)["control"]
    train_to_disk(jobs)
    return folder, {name: TrainingRun.load(job.folder) for name, job in jobs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_variable_is_learned(demo_runs, seed):
    result = interp.evaluate(demo_runs[1][f"model {seed}"].model, TASK, n=10_000)
    assert result.n == 10_000
    assert (result.accuracy >= 0.99).all(), result


@pytest.mark.slow
def test_the_page_shows_model_and_control(demo_runs, capsys):
    folder, runs = demo_runs
    page = run_demo(Path(folder / "0"), seed=0)
    text = page.read_text()
    assert "no association bias" in text
    assert "after mimicking" in text
    control = interp.evaluate(runs["control"].model, TASK, n=10_000)
    assert f"{control.accuracy[2]:.4f}" in text
    printed = capsys.readouterr().out
    assert printed.count("\n") < 40  # one screen


@pytest.mark.slow
def test_probes_percolate_and_the_output_follows(demo_runs):
    probes = interp.probe(demo_runs[1]["model 0"].model, TASK, verify=True)
    assert (probes.low[-1] > 0.98).all()  # every value is readable in the end
    assert (probes.high[0] < 0.6).all()  # none in the embedding
    first_readable = (probes.accuracy > 0.9).argmax(0)
    assert (first_readable[0] < first_readable[1:]).all()  # the root comes first
    assert (probes.causal["low"][-1] > 0.9).all()
    assert (probes.causal["follows"][0] < 0.3).all()
    assert probes.causal["weights"].max() < 0.05  # docs/probing.md reports this of the demo model


def test_the_control_differs_in_the_bias_alone(tmp_path):
    jobs = demo_jobs(tmp_path, seed=0)
    settings = jobs["model"].settings
    assert settings.association == "mimic"
    assert dataclasses.replace(settings, association="none") == jobs["control"].settings
    assert jobs["model"].config == jobs["control"].config
