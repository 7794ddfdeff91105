"""The commands of the Dyck paper's analyses give what the verbs give, on a folder of runs."""

import json

import pytest

import interp
from hooks import Transformer
from interp.cli.main import app
from interp.cli.output import run_command
from interp.comparison import VariationResult
from interp.tasks import Dyck, Lego
from interp.training import TrainingRun

TASK = Dyck(n_types=2, max_depth=2, length=4)
SETTINGS = interp.TrainSettings(steps=1, batch_size=4, n_eval=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs of a minimal Dyck model, and one on another task."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        model = Transformer(interp.config_for(TASK, "dyck_minimal"), seed=seed)
        interp.train(model, TASK, SETTINGS, folder=folder / f"dyck{seed}")
    lego = Lego(n_vars=1)
    config = interp.config_for(lego, n_layers=1, n_heads=1, d_model=8)
    interp.train(Transformer(config), lego, SETTINGS, folder=folder / "lego")
    return folder


def call(capsys, *arguments):
    """Exit code, and the result or the error, of a command with --json."""
    code = run_command(app, [*map(str, arguments), "--json"])
    document = json.loads(capsys.readouterr().out)
    return code, document.get("result") or document.get("error")


def test_variation(folder, capsys):
    runs = [folder / "dyck0", folder / "dyck1"]
    page = folder / "variation.html"
    code, values = call(capsys, "variation", *runs, "--prefix", "((", "--n-sampled", 2, "--page", page)
    assert code == 0, values
    models = [TrainingRun.load(run) for run in runs]
    expected = interp.attention_variation(models, TASK, prefixes=["(("], n_sampled=2)
    assert values["variation"] == json.loads(json.dumps(expected.to_dict()).replace("NaN", "null"))
    assert VariationResult.__name__ == values["variation"]["result"]
    assert "Attention variation between models" in page.read_text()


def test_runs_on_different_tasks_are_refused(folder, capsys):
    code, error = call(capsys, "variation", folder / "dyck0", folder / "lego")
    assert code == 2
    assert error.startswith(f"{folder / 'lego'} is a run on LEGO")


def test_balance(folder, capsys, as_a_user):
    page = folder / "balance.html"
    code, values = call(capsys, "balance", folder / "dyck0", "--pairing", "released", "--page", page)
    assert code == 0, values
    model = TrainingRun.load(folder / "dyck0").model
    expected = interp.balance_violation(model, TASK, pairing="released")
    assert values["balance"] == json.loads(json.dumps(expected.to_dict()))
    assert "Balance of matched brackets" in page.read_text()
    code, error = call(capsys, "balance", folder / "lego")
    assert code == 2
    assert "Dyck" in error


def test_pruning(folder, capsys):
    page = folder / "pruning.html"
    options = ("--by", "magnitude", "--by", "random", "--n", 16, "--seed", 3)
    code, values = call(capsys, "pruning", folder / "lego", *options, "--page", page)
    assert code == 0, values
    run = TrainingRun.load(folder / "lego")
    expected = interp.pruning_curve(run.model, run.task, by=["magnitude", "random"], n=16, seed=3)
    assert values["pruning"] == json.loads(json.dumps(expected.to_dict()).replace("NaN", "null"))
    assert "Pruning curve" in page.read_text()
