"""Grids of models: keys, tables, resuming, failures, verbs on all of them."""

import json
import socket
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from hooks import make_model
from interp import TrainSettings
from interp.sweeps import ModelSpec, Sweep, SweepRuns, SweepTable
from interp.sweeps.status import failure_of, run_status, save_failure
from interp.tasks import Dyck, Lego
from interp.training.folder import RunFolder

TASK = Lego(n_vars=2, sentence_format="compact")
SIZES = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 16}
CONFIG = interp.config_for(TASK, "lego", **SIZES)
SETTINGS = TrainSettings(steps=8, tokens_per_step=64, eval_every=4, n_eval=50)
BASE = ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=0)
GRID = Sweep(BASE, {"settings.learning_rate": [1e-3, 1e-2], "seed": range(3)})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return interp.sweep(GRID, tmp_path_factory.mktemp("sweep"), n_jobs=1)


def test_a_grid_has_every_combination_and_the_keys_of_its_specifications():
    assert len(GRID) == 6
    assert GRID.columns == ("learning_rate", "seed")
    expected = [
        replace(BASE, settings=replace(SETTINGS, learning_rate=rate), seed=seed) for rate in (1e-3, 1e-2)
        for seed in range(3)
    ]  # fmt: skip
    assert [GRID[index] for index in range(6)] == expected
    assert GRID.keys == tuple(one.key for one in expected)
    assert GRID.labels(4) == {"learning_rate": 1e-2, "seed": 1}
    assert Sweep(BASE, {}).keys == (BASE.key,)
    with pytest.raises(IndexError, match="index is 6; the sweep has 6 models"):
        GRID[6]


def test_parts_and_nested_fields_vary():
    longer = Lego(n_vars=3, sentence_format="compact")
    grid = Sweep(BASE, {
        "task": {"two": TASK, "three": longer},
        "config.n_layers": [1, 2],
        "settings.mimicking.steps": [5],
        "seed": [7],
    })  # fmt: skip
    assert grid.columns == ("task", "n_layers", "steps", "seed")
    labels = {"task": "three", "n_layers": 2, "steps": 5, "seed": 7}
    assert grid.labels(3) == labels
    spec = grid[3]
    assert (spec.task, spec.config.n_layers, spec.settings.mimicking.steps, spec.seed) == (longer, 2, 5, 7)
    assert (spec.config.d_vocab, spec.config.n_ctx) == (longer.d_vocab, longer.n_ctx)
    make_model(spec.config)
    assert grid[0].config == replace(CONFIG, n_layers=1)
    by_field = Sweep(BASE, {"task.n_vars": [2, 3]})
    assert by_field[1].task == longer  # with all of its variables supervised, as those of the base are
    first = replace(BASE, task=replace(longer, supervised=(0,)), config=interp.config_for(longer, "lego", **SIZES))
    assert Sweep(first, {"task.n_vars": [4]})[0].task == replace(first.task, n_vars=4)
    two = Sweep(BASE, {"settings.steps": [1, 2], "settings.mimicking.steps": [3, 4]})
    assert two.columns == ("settings.steps", "settings.mimicking.steps", "seed")


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ({"settings.lerning_rate": [1]}, "no field 'lerning_rate'. Did you mean learning_rate"),
        ({"learning_rate": [1]}, "vary has 'learning_rate'; give seed, task, config, settings, or a field"),
        ({"config.n_layers": []}, r"vary\['config.n_layers'\] is \[\]; give a list of values"),
        ({"config.n_layers": 3}, "give a list of values"),
        ({"seed": "012"}, "give a list of values"),
        ({"config.n_layers": [1, -2]}, "vary has config.n_layers = -2: n_layers"),
        ({"settings.learning_rate": [1e-3, "fast"]}, "vary has settings.learning_rate = fast"),
        ({"settings": [SETTINGS], "settings.steps": [3]}, "vary has 'settings' and 'settings.steps', which is a part"),
        ({"seed": [1, 2, 1]}, r"vary\['seed'\] has 1 twice, or values that look the same; give them names"),
        ({"settings": {"a": SETTINGS, "b": SETTINGS}}, r"the same: \{'settings': 'a', 'seed': 0\} and"),
        ({"settings.learning_rate": [1e-3], "config.nothing.more": [1]}, "no field 'nothing'"),
    ],
)
def test_what_cannot_vary_is_named(vary, words):
    with pytest.raises(ValueError, match=words):
        Sweep(BASE, vary)


def test_models_are_those_of_the_training_loop(runs):
    for index, spec in enumerate(runs.grid[index] for index in range(6)):
        model = make_model(spec.config, seed=spec.seed)
        interp.train(model, TASK, spec.settings, seed=spec.seed)
        (found,) = runs.select(**runs.grid.labels(index))
        for one, other in zip(found.model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert len(runs.select(seed=1)) == 2
    with pytest.raises(ValueError, match="no column 'rate'; it has learning_rate, seed"):
        runs.select(rate=3)
    with pytest.raises(ValueError, match="no model with seed 9 is trained"):
        runs.select(seed=9)


def test_nothing_is_trained_twice(runs, monkeypatch):
    def never(*given, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("interp.sweeps.parallel.train", never)
    assert interp.sweep(GRID, runs.folder, n_jobs=1).status == ["trained"] * 6
    part = Sweep(BASE, {"settings.learning_rate": [1e-2], "seed": [2]})
    assert interp.sweep(part, runs.folder, n_jobs=1).status == ["trained"]


def test_tables(runs):
    table = runs.to_dataframe()
    assert list(table)[:2] == ["learning_rate", "seed"]
    assert len(table) == 6 * 2
    (run,) = runs.select(learning_rate=1e-2, seed=2)
    row = table[(table["learning_rate"] == 1e-2) & (table["seed"] == 2) & (table["target"] == "#1")].iloc[0]
    assert row["accuracy"] == run.final_accuracy[1]
    assert row["step"] == 8
    listed = runs.table()
    assert set(listed["status"]) == {"trained"}
    assert tuple(listed["key"]) == GRID.keys
    curves = runs.curves()
    assert len(curves) == 2 * 2 * 2
    first = curves[(curves["learning_rate"] == 1e-3) & (curves["step"] == 4) & (curves["target"] == "#0")].iloc[0]
    values = [run.history[0]["accuracy"][0] for run in runs.select(learning_rate=1e-3)]
    half = 4.302653 * np.std(values, ddof=1) / np.sqrt(3)
    assert first["accuracy"] == pytest.approx(np.mean(values))
    assert first["low"] == pytest.approx(max(0, np.mean(values) - half), abs=1e-6)
    assert first["high"] == pytest.approx(min(1, np.mean(values) + half), abs=1e-6)
    assert first["n"] == 3
    drawn = json.dumps(runs.plot().to_dict())
    assert "mean over n = 3 seeds, 95 % interval" in drawn
    assert "learning_rate 0.001" in drawn
    assert str(runs).startswith(f"6 models in {runs.folder}: 6 trained\nlearning_rate 0.001, target #0: accuracy ")


calls = []


def norm(model, task, scale=1):
    """A user's verb, which counts its calls."""
    calls.append(task)
    if scale < 0:
        raise ValueError("scale is negative.")
    return {"norm": scale * float(model.W_E.detach().norm())}


def test_a_verb_is_applied_to_every_model_and_its_tables_are_stored(runs, tmp_path, as_if_in_processes):
    calls.clear()
    found = runs.apply(norm, scale=2)
    assert len(calls) == 6
    for row in found.to_dataframe().to_dict("records"):
        (run,) = runs.select(learning_rate=row["learning_rate"], seed=row["seed"])
        assert row["value"] == 2 * float(run.model.W_E.detach().norm())
    assert runs.apply(norm, scale=2) == found
    assert len(calls) == 6
    assert runs.apply(norm, scale=3) != found
    over = found.over_seeds("value", ["quantity"])
    assert list(over["n"]) == [3, 3]
    values = found.to_dataframe()["value"].to_numpy()
    np.testing.assert_allclose(over["mean"], values.reshape(2, 3).mean(1))
    found.save(tmp_path / "table.json")
    assert SweepTable.load(tmp_path / "table.json") == found
    with pytest.raises(ValueError, match="norm refuses every model: scale is negative"):
        runs.apply(norm, scale=-1)
    with pytest.raises(ValueError, match="no column 'drop'"):
        found.over_seeds("drop")
    with pytest.raises(ValueError, match="one seed has several rows; give by= columns that distinguish them: target"):
        runs.apply(interp.evaluate, n=20, n_jobs=2).over_seeds("accuracy")


def test_a_verb_that_compares_models_gets_the_seeds_of_each_combination(runs):
    found = runs.apply(interp.attention_variation, n_sampled=3).to_dataframe()
    assert list(found["seed"]) == ["0, 1, 2"] * 2
    models = [run.model for run in runs.select(learning_rate=1e-2)]
    own = interp.attention_variation(models, TASK, n_sampled=3).variation[0]
    assert found["variation"].iloc[1] == pytest.approx(own)


def test_one_that_fails_does_not_stop_the_others(tmp_path):
    grid = Sweep(BASE, {"settings.learning_rate": {"good": 1e-3, "bad": 1e30}, "seed": [0, 1]})
    found = interp.sweep(grid, tmp_path, n_jobs=1)
    assert found.status == ["trained", "trained", "failed", "failed"]
    table = found.table()
    assert "Diverged: the loss is nan" in table["error"].iloc[2]
    assert "failed: learning_rate bad, seed 0: Diverged" in str(found)
    assert len(found.select()) == 2
    with pytest.raises(ValueError, match="no model with learning_rate bad is trained"):
        found.select(learning_rate="bad")
    assert len(found.to_dataframe()) == 4


def test_how_far_models_are(tmp_path):
    spec = GRID[0]
    one = tmp_path / spec.key
    found = SweepRuns(grid=GRID, folder=tmp_path / "nothing")
    assert set(found.status) == {"missing"}
    with pytest.raises(ValueError, match="no model is trained in"):
        found.to_dataframe()
    assert str(found).endswith("6 missing")
    with RunFolder(one).writing():
        assert run_status(one) == "running"
    assert run_status(one) == "missing"
    save_failure(one, ValueError("no luck"))
    assert (run_status(one), failure_of(one)) == ("failed", "ValueError: no luck")
    (one / ".writer.json").write_text(json.dumps({"process": 2**22 + 1, "host": "elsewhere", "since": "now"}))
    assert run_status(one) == "running"  # on another machine
    killed = {"process": 2**22 + 1, "host": socket.gethostname(), "since": "now"}  # no process has such a number
    (one / ".writer.json").write_text(json.dumps(killed))
    assert run_status(one) == "failed"
    (one / ".writer.json").unlink()
    with RunFolder(one).writing():
        pass
    assert (run_status(one), failure_of(one)) == ("missing", "")
    interp.sweep(Sweep(BASE, {"settings.learning_rate": [1e-3]}), tmp_path, n_jobs=1)
    assert run_status(one) == "trained"


def test_a_model_that_another_process_trains_is_awaited(tmp_path, monkeypatch):
    held = RunFolder(tmp_path / GRID.keys[1]).writing()
    held.__enter__()
    monkeypatch.setattr("interp.sweeps.parallel.WAIT", 0.01)
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            held.__exit__(None, None, None)

    monkeypatch.setattr(time, "sleep", nap)
    assert interp.sweep(GRID, tmp_path, n_jobs=1).status == ["trained"] * 6
    assert naps == [0.01] * 3


def test_an_interrupted_sweep_resumes(tmp_path, monkeypatch):
    from interp.sweeps import parallel

    train, trained = parallel.train, []

    def stop(*given, **options):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(options["folder"].name)
        return train(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(parallel, "train", stop)
        with pytest.raises(KeyboardInterrupt):
            interp.sweep(GRID, tmp_path, n_jobs=1)
    assert SweepRuns(grid=GRID, folder=tmp_path).status.count("trained") == 3
    assert interp.sweep(GRID, tmp_path, n_jobs=1).status == ["trained"] * 6
    assert len(trained) == 3


def test_stacked_models_are_in_the_same_folders(tmp_path):
    mixed = Sweep(BASE, {"config.n_layers": [1, 2], "seed": range(3)})
    found = interp.sweep(mixed, tmp_path / "stacked", stacked=True)
    alone = interp.sweep(mixed, tmp_path / "alone", n_jobs=1)
    assert found.status == ["trained"] * 6
    for key in mixed.keys:
        manifests = [RunFolder(each.folder / key).read_manifest() for each in (found, alone)]
        assert manifests[0]["stacked"] == 3
        assert "stacked" not in manifests[1]
        one, other = (RunFolder(each.folder / key).read_metrics()[-1]["loss"] for each in (found, alone))
        assert one == pytest.approx(other, rel=1e-3)
    wide = Sweep(replace(BASE, config=interp.config_for(TASK, "fully_connected", width=8)), {"seed": [0, 1]})
    with pytest.raises(ValueError, match="stacked is True, but models of the sweep cannot be: it is not a transformer"):
        interp.sweep(wide, tmp_path / "wide", stacked=True)
    with pytest.raises(ValueError, match="stacked models are trained in this process; leave out scheduler"):
        interp.sweep(mixed, tmp_path / "none", stacked=True, scheduler="tcp://nowhere:1")


def test_a_stack_fails_and_waits_like_models_alone(tmp_path, monkeypatch):
    grid = Sweep(BASE, {"settings.learning_rate": [1e-3, 1e30], "seed": [0, 1]})
    held = RunFolder(tmp_path / grid.keys[0]).writing()
    held.__enter__()
    monkeypatch.setattr(time, "sleep", lambda seconds: held.__exit__(None, None, None))
    found = interp.sweep(grid, tmp_path, stacked=True)
    assert found.status == ["trained", "trained", "failed", "failed"]
    manifests = [RunFolder(tmp_path / key).read_manifest() for key in grid.keys[:2]]
    assert ["stacked" in one for one in manifests] == [False, True]


def test_on_an_accelerator_models_are_stacked_by_default(tmp_path, monkeypatch):
    stacks = []
    monkeypatch.setattr("interp.sweeps.sweep.check_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr("interp.sweeps.sweep.train_stacked", lambda specs, **options: stacks.append(list(specs)))
    monkeypatch.setattr("interp.sweeps.sweep.train_each", lambda specs, **options: [(folder, None) for folder in specs])
    interp.sweep(Sweep(BASE, {"config.n_layers": [1, 2], "seed": range(2)}), tmp_path, device="cuda")
    assert [len(one) for one in stacks] == [2, 2]
    stacks.clear()
    monkeypatch.setattr("interp.sweeps.stacked.STACK", 3)
    interp.sweep(Sweep(BASE, {"seed": range(7)}), tmp_path, device="cuda")
    assert [len(one) for one in stacks] == [3, 3, 1]
    stacks.clear()
    for options in ({"device": "cpu"}, {"device": "cuda", "stacked": False}, {}):
        interp.sweep(Sweep(BASE, {"seed": range(2)}), tmp_path, **options)
    dyck = Dyck(length=6)
    plain = ModelSpec(task=dyck, config=interp.config_for(dyck, "dyck_gpt", n_ctx=40), settings=SETTINGS, seed=0)
    mixed = Sweep(plain, {"settings.contrastive": [0.3, 0.0], "seed": range(2)})
    interp.sweep(mixed, tmp_path, device="cuda")
    assert [len(one) for one in stacks] == [2]  # those without the contrastive loss
    stacks.clear()
    uniform = ModelSpec(task=dyck, config=interp.config_for(dyck, "dyck_minimal"), settings=SETTINGS, seed=0)
    interp.sweep(Sweep(uniform, {"seed": range(2)}), tmp_path, device="cuda")  # which cannot be
    assert stacks == []


def test_a_pretrained_model_is_trained_first(tmp_path):
    plain = replace(BASE, settings=replace(SETTINGS, steps=3))
    tuned = replace(BASE, pretrained=plain)
    found = interp.sweep(Sweep(tuned, {"seed": [0, 1]}), tmp_path, n_jobs=1)
    assert found.status == ["trained"] * 2
    assert run_status(tmp_path / plain.key) == "trained"
    with pytest.raises(ValueError, match="which workers cannot read; share the folder"):
        interp.sweep(Sweep(tuned, {"seed": [2]}), tmp_path, scheduler="tcp://nowhere:1", shared_folder=False)


def test_bad_input_is_named(tmp_path):
    with pytest.raises(ValueError, match="n_jobs"):
        interp.sweep(GRID, tmp_path, n_jobs=0)
    with pytest.raises(ValueError, match="device is 'cuda:9'"):
        interp.sweep(GRID, tmp_path, device="cuda:9")
    with pytest.raises(ValueError, match="n_jobs"):
        SweepRuns(grid=GRID, folder=tmp_path).apply(norm, n_jobs=0)
