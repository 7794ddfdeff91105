"""A verb over snapshots: each table is the verb's, measured once, and onsets are where they were planted."""

import dataclasses
import json
import shutil

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import interp
from hooks import make_model, save_checkpoint
from hooks.files import file_digest
from interp import TrainSettings
from interp.comparison import Onsets, OverTraining
from interp.comparison.onsets import coverage, first_lasting, order_interval
from interp.known_answers.lego.loop import lego_loop
from interp.tasks import Lego
from interp.training import TrainingRun
from interp.training.folder import RunFolder
from interp.training.identity import ForeignRun

TASK = Lego(n_vars=2, sentence_format="compact")
SETTINGS = TrainSettings(steps=30, batch_size=16, warmup_steps=2, eval_every=10, n_eval=50, snapshots=(0, 3, 30))
LOOK, USE, LAST = 2, 4, 5
"""Steps from which the planted association heads look at equal letters, from which they matter, and the last step."""


def trained(folder, seed=0):
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 8}
    model = make_model(interp.config_for(TASK, "lego", **sizes), seed=seed)
    return interp.train(model, TASK, SETTINGS, folder=folder, seed=seed)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run"))


@pytest.fixture
def copied(run, tmp_path):
    """The same run in a folder where nothing is stored."""
    shutil.copytree(run.folder / "snapshots", tmp_path / "snapshots")
    return dataclasses.replace(run, folder=tmp_path)


def history(path, *, look, use, seed=0):
    """A run whose association heads look from one step on and are used from a later one on."""
    task, folder = Lego(n_vars=2), RunFolder(path)
    folder.snapshots.path.mkdir(parents=True, exist_ok=True)
    for step in range(LAST + 1):
        model = lego_loop(task)
        with torch.no_grad():
            model.blocks[0].attn.W_Q[0] *= step >= look
            model.blocks[0].attn.W_O[0] *= step >= use
        save_checkpoint(model, folder.snapshots.file(step))
    manifest = {"seed": seed, "task": {}, "chance": 0.5}
    run = TrainingRun.with_task(task, model=lego_loop(task), history=(), manifest=manifest, folder=folder.path)
    return with_hashes(run)


def with_hashes(run):
    """The run whose manifest has the hashes of the snapshots as they are now."""
    files = [RunFolder(run.folder).snapshots.file(step) for step in run.snapshots]
    hashes = {file.relative_to(run.folder).as_posix(): file_digest(file) for file in files}
    return TrainingRun.with_task(run.task, **{**fields_of(run), "manifest": {**run.manifest, "sha256": hashes}})


def fields_of(run):
    return {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return history(tmp_path_factory.mktemp("planted"), look=LOOK, use=USE)


calls = []


def weight(model, task):
    """A user's verb, which counts its calls."""
    calls.append(task)
    return {"weight": float(model.W_E.detach().abs().mean()), "step of nothing": 1}


def test_onsets_are_found_within_one_snapshot_of_where_they_were_planted(planted):
    patterns = interp.over_training(planted, interp.classify_heads, n=64)
    onsets = patterns.onsets(by=("layer", "head"), filters={"kind": "association"})
    onset_of = dict(zip(onsets.labels, onsets.onset[:, 0], strict=True))
    assert {step for (_, head), step in onset_of.items() if head == 0} == {LOOK}
    assert {step for (_, head), step in onset_of.items() if head == 1} == {np.inf}
    costs = interp.over_training(planted, interp.ablate_heads, n=64)
    onsets = costs.onsets()
    last_rows = costs.rows(step=LAST)
    needed = {name for name in last_rows["set"] if (last_rows[last_rows["set"] == name]["low"] > 0).any()}
    association_heads = {name for name in needed if name.endswith(".0")}
    assert association_heads
    onset_of = {name: step for (name,), step in zip(onsets.labels, onsets.onset[:, 0], strict=True)}
    assert {onset_of[name] for name in association_heads} == {USE}
    assert {step for name, step in onset_of.items() if name not in needed} == {np.inf}
    assert set(onsets.before[np.isfinite(onsets.onset)]) <= {USE - 1, -1.0}


def test_the_table_is_that_of_the_verb_at_each_snapshot(run):
    found = interp.over_training(run, interp.evaluate, n=100)
    assert found.steps == run.snapshots
    table = found.to_dataframe()
    for step in run.snapshots:
        own = interp.evaluate(run.load_snapshot(step), TASK, n=100).to_dataframe()
        rows = table[table["step"] == step].drop(columns=["seed", "step"]).reset_index(drop=True)
        assert rows.equals(own)
    assert "evaluate at 3 steps from 0 to 30, seeds 0: 6 rows" in str(found)


@pytest.fixture(scope="module")
def second_run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("second"), seed=1)


def assert_processes_and_seeds_give_the_same_rows(runs):
    rows = interp.over_training(runs, interp.diagonals, n_jobs=2, fresh=True)
    assert rows.seeds == (0, 1)
    table = rows.to_dataframe()
    for seed, run in enumerate(runs):
        expected = interp.over_training(run, interp.diagonals).to_dataframe()
        assert table[table["seed"] == seed].reset_index(drop=True).equals(expected)


def test_processes_and_seeds_give_the_same_rows(run, second_run, as_if_in_processes):
    assert_processes_and_seeds_give_the_same_rows([run, second_run])


@pytest.mark.slow
def test_real_processes_give_the_same_rows(run, second_run):
    assert_processes_and_seeds_give_the_same_rows([run, second_run])


def test_a_verb_that_compares_models_gets_those_of_one_step(planted, tmp_path, as_if_in_processes):
    second = history(tmp_path / "second", look=LOOK + 2, use=USE, seed=3)
    runs = [planted, second]
    comparison = interp.over_training(runs, interp.attention_variation, n_sampled=5, n_jobs=2)
    assert comparison.seeds == ("0, 3",)
    assert comparison.steps == tuple(range(LAST + 1))
    assert comparison.value == "variation"
    rows = comparison.rows(layer=0)
    assert set(rows["step"][rows["variation"] > 0]) == {LOOK, LOOK + 1}
    expected = interp.attention_variation(
        [run.load_snapshot(LOOK) for run in runs], planted.task, n_sampled=5
    ).to_dataframe()
    rows = comparison.rows(step=LOOK).drop(columns=["seed", "step"]).reset_index(drop=True)
    np.testing.assert_allclose(rows["variation"].astype(float), expected["variation"])
    assert "models of seeds 0, 3" in json.dumps(comparison.onsets("variation").plot().to_dict())
    assert interp.over_training(runs, interp.attention_variation, steps=[4, 5], n_sampled=5).steps == (4, 5)
    comparison.save(tmp_path / "comparison.json")
    assert OverTraining.load(tmp_path / "comparison.json") == comparison


def spread(models, task):
    """A user's verb that compares models."""
    calls.append(task)
    return {"spread": float(np.std([float(model.blocks[0].attn.W_Q.detach().abs().mean()) for model in models]))}


def test_a_comparison_is_stored_by_the_weights_of_all_models(planted, tmp_path):
    calls.clear()
    other = history(tmp_path / "other", look=2, use=2, seed=1)
    first = interp.over_training([planted, other], spread)
    assert interp.over_training([planted, other], spread) == first
    assert len(calls) == LAST + 1
    with torch.no_grad():
        changed = other.load_snapshot(4)
        changed.blocks[0].attn.W_Q.mul_(2)
    save_checkpoint(changed, RunFolder(other.folder).snapshots.file(4))
    with pytest.raises(ForeignRun, match="step-00000004"):
        interp.over_training([planted, other], spread)
    again = interp.over_training([planted, with_hashes(other)], spread)
    assert len(calls) == LAST + 2
    pairs = zip(again.columns["step"], again.columns["value"], first.columns["value"], strict=True)
    assert [step for step, one, two in pairs if one != two] == [4]


def test_each_snapshot_is_measured_once(copied):
    calls.clear()
    first = interp.over_training(copied, weight)
    assert len(calls) == 3
    assert interp.over_training(copied, weight, steps=[3, 30]).columns["value"] == first.columns["value"][2:]
    assert len(calls) == 3
    interp.over_training(copied, weight, fresh=True)
    assert len(calls) == 6
    save_checkpoint(copied.load_snapshot(0), RunFolder(copied.folder).snapshots.file(3))  # another model
    changed = interp.over_training(with_hashes(copied), weight)
    assert len(calls) == 7
    assert changed.columns["value"][2] == first.columns["value"][0]


def test_a_damaged_file_is_measured_again(copied):
    calls.clear()
    first = interp.over_training(copied, weight)
    for path in (copied.folder / "tables").iterdir():
        path.write_text(path.read_text()[:-5])
    assert interp.over_training(copied, weight) == first
    assert len(calls) == 6


def test_other_options_are_measured_again(copied):
    counts = [len(list((copied.folder / "tables").glob("*")))
              for n in (50, 60, 50) if interp.over_training(copied, interp.evaluate, n=n)]  # fmt: skip
    assert counts == [3, 6, 6]


def test_an_interrupted_call_resumes(copied):
    calls.clear()

    def stop(path):
        if "30" in path.name:
            raise KeyboardInterrupt
        return make_model(copied.model.cfg)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.sweeps.tables.load_checkpoint", stop)
        with pytest.raises(KeyboardInterrupt):
            interp.over_training(copied, weight)
    assert len(calls) == 2
    interp.over_training(copied, weight)
    assert len(calls) == 3


def test_closures_are_not_stored(copied):
    factor = 2.0

    def scaled(model, task):
        return {"weight": factor * weight(model, task)["weight"]}

    first = interp.over_training(copied, scaled).columns["value"]
    factor = 4.0
    np.testing.assert_allclose(interp.over_training(copied, scaled).columns["value"], 2 * np.array(first))
    assert not (copied.folder / "tables").exists()


def looking(model, task):
    """A verb that refuses models that do not look."""
    if not model.blocks[0].attn.W_Q[0].any():
        raise ValueError("the model does not look.")
    return {"weight": 1.0}


def test_snapshots_that_a_verb_refuses_are_named(planted):
    found = interp.over_training(planted, looking)
    assert found.skipped == tuple((0, step, "the model does not look.") for step in range(LOOK))
    assert found.columns["step"] == list(range(LOOK, LAST + 1))
    assert f"not at {LOOK} snapshots, such as step 0 of seed 0: the model does not look." in str(found)
    with pytest.raises(ValueError, match="looking refuses every snapshot: the model does not look"):
        interp.over_training(planted, looking, steps=[0, 1])


def test_results_are_saved_and_loaded(run, tmp_path):
    found = interp.over_training(run, interp.classify_heads, n=40)
    found.save(tmp_path / "found.json")
    loaded = OverTraining.load(tmp_path / "found.json")
    assert loaded.to_dataframe().equals(found.to_dataframe())
    onsets = found.onsets()
    onsets.save(tmp_path / "onsets.json")
    assert Onsets.load(tmp_path / "onsets.json").labels == onsets.labels


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_the_first_lasting_step(above):
    found = [index for index in range(len(above)) if all(above[index:])]
    assert first_lasting(np.array(above)) == (found[0] if found else None)


@pytest.mark.parametrize(
    ("n", "ends", "share"),
    [(1, (0, 0), 0.0), (5, (0, 4), 0.9375), (6, (0, 5), 0.96875), (9, (1, 7), 0.9609), (40, (13, 26), 0.9615)],
)
def test_the_interval_of_a_median(n, ends, share):
    """Against printed tables of order statistics."""
    assert order_interval(n) == ends
    assert coverage(n) == pytest.approx(share, abs=1e-4)


def test_onsets_over_seeds():
    columns = {"seed": [], "step": [], "head": [], "drop": []}
    for seed, first in enumerate([2, 2, 3, 5, 99]):
        for step in (0, 1, 2, 3, 5):
            for name, value in zip(columns, (seed, step, 0, float(step >= first)), strict=True):
                columns[name].append(value)
    over = OverTraining(verb="cost", seeds=(0, 1, 2, 3, 4), steps=(0, 1, 2, 3, 5), columns=columns)
    found = over.onsets()
    (row,) = found.to_dataframe().to_dict("records")
    assert row == {"head": 0, "onset": 3, "low": 1, "high": np.inf, "never": 1, "n": 5, "coverage": 0.9375}
    assert "head 0" in str(found)
    assert "3 (after 1, at the latest not by the last step; not for 1 of 5 seeds)" in str(found)
    assert json.loads(found.plot().to_json())


def test_bad_input_is_named(run, second_run, tmp_path):
    without = interp.train(make_model(run.model.cfg), TASK, dataclasses.replace(SETTINGS, snapshots=None))
    cases = [
        (lambda: interp.over_training(without, interp.evaluate), "the run of seed 0 has no snapshots"),
        (lambda: interp.over_training([], interp.evaluate), "run is empty"),
        (lambda: interp.over_training(run, interp.evaluate, steps=[7]), "steps has 7; .* 0, 3, 30"),
        (lambda: interp.over_training([run, run], interp.evaluate), "two runs have the seed 0"),
        (lambda: interp.over_training(run, interp.evaluate, n_jobs=0), "n_jobs"),
        (lambda: interp.over_training(run, interp.evaluate, n=-1), "refuses every snapshot: n"),
    ]
    for call, words in cases:
        with pytest.raises(ValueError, match=words):
            call()
    later = dataclasses.replace(second_run, folder=shutil.copytree(second_run.folder, tmp_path / "later"))
    for step in (0, 3):
        RunFolder(later.folder).snapshots.file(step).unlink()
    RunFolder(later.folder).snapshots.file(30).rename(RunFolder(later.folder).snapshots.file(29))
    later = with_hashes(later)
    for runs, words in [
        (run, "attention_variation compares models; give several runs"),
        ([run, later], "no step in common"),
        ([run, history(tmp_path / "other", look=1, use=1, seed=2)], "compares models of one task; the run of seed 2"),
    ]:
        with pytest.raises(ValueError, match=words):
            interp.over_training(runs, interp.attention_variation)
    with pytest.raises(TypeError, match="returned a int; it must return a result"):
        interp.over_training(run, lambda model, task: 3)
    found = interp.over_training(run, interp.evaluate)
    for call, words in [
        (lambda: found.onsets("drop"), "no column 'drop'; it has seed, step, target"),
        (lambda: found.rows(target="#9"), "no row of evaluate has target '#9'; it has #0, #1"),
        (lambda: found.lines("drop"), "no column 'drop'"),
        (lambda: found.filmstrip(x="head"), "no column 'head'"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
