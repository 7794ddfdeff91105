"""`interp sweep FILE`."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import interp as package
from interp.cli.sweep import read_sweep, slurm_script
from interp.sweeps import ModelSpec, Sweep, SweepRuns
from interp.tasks import Lego
from interp.training.settings import recipe_for

ROOT = Path(__file__).parents[3]
TEXT = """
[task]
name = "lego"
n_vars = 2
sentence_format = "compact"

[model]
n_layers = 1
d_model = 8
n_heads = 2
d_head = 4
d_mlp = 8

[settings]
steps = 4
curriculum = []
association = "none"
eval_every = 4
n_eval = 20
betas = [0.9, 0.95]

[vary]
seed = [0, 1]
settings.learning_rate = [1e-3, 1e30]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(TEXT)
    return path


def test_a_file_describes_the_same_models_as_values(file):
    task = Lego(n_vars=2, sentence_format="compact")
    config = package.config_for(task, n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=8)
    settings = replace(recipe_for(task), curriculum=(), steps=4, association="none", eval_every=4, n_eval=20)
    base = ModelSpec(task=task, config=config, settings=replace(settings, betas=(0.9, 0.95)), seed=0)
    expected = Sweep(base, {"settings.learning_rate": [1e-3, 1e30], "seed": [0, 1]})
    grid = read_sweep(file)
    assert grid.keys == expected.keys
    file.write_text(TEXT.replace("settings.learning_rate", "model.n_layers").replace("1e-3, 1e30", "1, 2"))
    assert read_sweep(file)[2].config == replace(config, n_layers=2)
    file.write_text(TEXT.replace("settings.learning_rate = [1e-3, 1e30]", "task.clause_order = ['random', 'chain']"))
    assert [read_sweep(file)[i].task.clause_order for i in (0, 2)] == ["random", "chain"]


def test_the_command_trains_lists_and_resumes(file, interp):
    process = interp("sweep", file, "--out", "runs", "--list")
    assert process.stdout.splitlines()[-1] == "4 models in runs: 4 missing"
    process = interp("sweep", file, "--out", "runs", "--job", "1", "--jobs", "1", "--json")
    (model,) = json.loads(process.stdout)["result"]["models"]
    assert (model["seed"], model["status"]) == (1, "trained")
    process = interp("sweep", file, "--out", "runs", "--jobs", "1")
    assert process.returncode == 1
    assert "4 models in runs: 2 trained, 2 failed" in process.stdout
    assert "failed: learning_rate 1e+30, seed 0: Diverged" in process.stdout
    assert "learning_rate 1e+30, seed 0 failed: the loss is" in process.stdout
    listed = json.loads(interp("sweep", file, "--out", "runs", "--list", "--json").stdout)["result"]["models"]
    assert [row["status"] for row in listed] == ["trained", "trained", "failed", "failed"]
    script = interp("sweep", file, "--out", "runs", "--slurm").stdout.splitlines()
    assert script[1] == "#SBATCH --array=2-3"
    assert script[3].startswith(f"interp sweep {file} --out ")
    assert script[3].endswith("/runs --jobs 1 --job $SLURM_ARRAY_TASK_ID")
    stacked = interp("sweep", file, "--out", "stacked", "--stacked")
    assert "2 trained, 2 failed" in stacked.stdout


def test_the_file_in_the_docs_trains_with_its_steps(file, interp):
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/howto/sweeps.md").read_text(), re.DOTALL)
    file.write_text(text)
    grid = read_sweep(file)
    assert len(grid) == 20
    assert {(grid[index].settings.steps, grid[index].settings.curriculum) for index in range(20)} == {(300, ())}
    file.write_text(text.replace("steps = 300", "steps = 2\nn_eval = 20\nbatch_size = 4"))
    process = interp("sweep", file, "--out", "runs", "--job", "0", "--jobs", "1")
    assert process.returncode == 0, process.stderr
    assert "1 model in runs: 1 trained" in process.stdout


def test_ranges_of_a_slurm_array(tmp_path):
    script = slurm_script(tmp_path / "a file.toml", tmp_path / "out", [0, 1, 2, 5, 8, 9])
    assert "--array=0-2,5,8-9\n" in script
    assert f"'{tmp_path}/a file.toml'" in script
    with pytest.raises(ValueError, match="every model of the sweep is trained"):
        slurm_script(tmp_path / "f", tmp_path, [])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[task]", "[task", "is not TOML"),
        ('name = "lego"', "", r"grid.toml: \[task\] has no name, which is that of the task"),
        ('name = "lego"', 'name = "lgeo"', "lgeo"),
        ("n_vars = 2", "n_variables = 2", "n_variables"),
        ("n_layers = 1", "n_layer = 1", r"toml: \[model\] n_layer is no field of \w+\. Did you mean n_layers\?$"),
        ("steps = 4", "step = 4", r"toml: \[settings\] has 'step', which is not known. Did you mean steps\?$"),
        ("steps = 4", "qqq = 4", r"toml: \[settings\] has 'qqq', which is not known. TrainSettings has steps, "),
        ("curriculum = []", "", r"\[settings\] has steps, but the task's recipe has a curriculum, .*; add curriculum"),
        ("seed = [0, 1]", "seed = 3", "give a list of values"),
        ("settings.learning_rate", "settings.rate", "no field 'rate'"),
        ("[vary]", "[varies]", r"has 'varies'; it may have the tables \[task\], \[model\]"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(file, interp, old, new, words):
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(ValueError, match=words):
        read_sweep(file)
    process = interp("sweep", file, "--list")
    assert process.returncode == 2
    assert process.stderr.startswith("error: ")
    assert process.stderr.count("\n") == 1


def test_options_that_do_not_fit_are_named(file, interp):
    for options, words in [
        (["--job", "4"], "--job is 4; the sweep has the models 0 to 3"),
        (["--list", "--slurm"], "--list and --slurm exclude each other"),
        (["--stacked", "--scheduler", "tcp://nowhere:1"], "leave out scheduler, or stacked"),
        (["--jobs", "0"], "n_jobs is 0"),
    ]:
        process = interp("sweep", file, *options)
        assert process.returncode == 2
        assert words in process.stderr
    missing = interp("sweep", "nothing.toml")
    assert missing.returncode == 2
    assert "nothing.toml" in missing.stderr


def test_ctrl_c_says_that_the_same_command_resumes(file, interp, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("interp.sweeps.parallel.train", stop)
    process = interp("sweep", file, "--jobs", "1")
    assert process.returncode == 130
    assert "error: interrupted at 0 of 4 (training models). The same command resumes it." in process.stderr
    assert SweepRuns(grid=read_sweep(file), folder=Path("runs/sweep")).status == ["missing"] * 4


@pytest.mark.parametrize("options", [["--job", 0], ["--scheduler", "tcp://a:1"], ["--stacked"], ["--fresh"]], ids=str)
def test_options_of_training_are_refused_where_nothing_is_trained(interp, file, options):
    for mode in ("--list", "--slurm"):
        process = interp("sweep", file, mode, *options)
        assert process.returncode == 2
        assert f"{mode} trains nothing; omit {options[0]}" in process.stderr
