import dataclasses
import json
import re

import pytest
from short_runs import SHORT, Stopped, interrupted, new_model, same_weights, spied, stop_at

import interp
from hooks import save_checkpoint
from interp import TrainSettings
from interp.tasks import Dyck, Lego
from interp.training import TrainingRun
from interp.training.folder import RunFolder
from interp.training.manifest import manifest_of


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    """Folder of a finished run. Do not change it."""
    folder = tmp_path_factory.mktemp("finished")
    interp.train(new_model(tiny), tiny, SHORT, folder=folder)
    return folder


def test_a_finished_run_is_loaded_without_training(tiny, tmp_path, monkeypatch):
    first = interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "metrics.jsonl", "model.safetensors"]
    drawn = spied(monkeypatch, Lego, "sample")
    again = interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    assert not drawn
    assert same_weights(first.model, again.model)
    assert again.history == first.history
    loaded = TrainingRun.load(tmp_path)
    assert same_weights(first.model, loaded.model)
    assert loaded.history == first.history
    assert loaded.manifest == again.manifest
    assert loaded.manifest["seed"] == 0
    assert loaded.manifest["threads"] == 1
    assert TrainSettings.from_dict(loaded.manifest["settings"]) == SHORT


def test_fresh_replaces_a_finished_run(tiny, tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("mine")
    interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    longer = dataclasses.replace(SHORT, steps=13)
    run = interp.train(new_model(tiny), tiny, longer, folder=tmp_path, seed=3, fresh=True)
    assert run.history[-1]["steps_done"] == 20
    assert TrainingRun.load(tmp_path).manifest["seed"] == 3
    assert note.read_text() == "mine"


OTHERS = {
    "task.task is 'lego', not 'dyck'; config.": {"task": Dyck(max_depth=3, length=8)},
    "task.alphabet is ['a', 'b', ": {"task": Lego(n_vars=2, sentence_format="compact", alphabet="xy")},
    "seed is 0, not 1; config.d_model is 16, not 32; settings.steps is ": {
        "seed": 1,
        "settings": dataclasses.replace(SHORT, steps=7, learning_rate=0.5),
        "sizes": {"d_model": 32},
    },
    "; and 1 more. Choose": {"sizes": {"d_model": 32}},
}


@pytest.mark.parametrize("words", OTHERS)
def test_what_differs_in_another_run_is_short(finished, tiny, words):
    change = OTHERS[words]
    task = change.get("task", tiny)
    model, settings = new_model(task, **change.get("sizes", {})), change.get("settings", SHORT)
    with pytest.raises(ValueError, match=rf"{re.escape(words)}.*pass fresh=True") as refusal:
        interp.train(model, task, settings, seed=change.get("seed", 0), folder=finished)
    text = str(refusal.value).removeprefix(str(finished))
    assert len(text) < 300
    assert text.count(";") <= 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed is 0, not 1"),
        ({"settings": dataclasses.replace(SHORT, learning_rate=0.5)}, r"settings\.learning_rate is 0\.001, not 0\.5"),
        ({"settings": dataclasses.replace(SHORT, read_at="targets")}, "read_at is the default, not 'targets'"),
        ({"sizes": {"d_model": 32}}, r"config\.d_model is 16, not 32"),
        ({"sizes": {"seed": 1}}, "initial_weights is of another model"),
        (
            {"task": Lego(n_vars=2, sentence_format="compact", supervised=(0,))},
            r"task\.supervised is \[0, 1\], not \[0\]",
        ),
    ],
)
def test_a_folder_of_another_run_is_refused(finished, tiny, change, words):
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    task = change.get("task", tiny)
    with pytest.raises(ValueError, match=rf"holds another run: .*{words}.*pass fresh=True"):
        interp.train(
            new_model(task, **change.get("sizes", {})),
            task,
            change.get("settings", SHORT),
            seed=change.get("seed", 0),
            folder=finished,
        )
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_fresh_does_not_resume_from_a_state(tiny, tmp_path):
    interrupted(tiny, tmp_path)
    seen = []
    run = interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path, fresh=True, on_record=seen.append)
    assert [record["steps_done"] for record in seen] == [4, 8, 12, 16, 19]
    assert [record["steps_done"] for record in TrainingRun.load(tmp_path).history] == [4, 8, 12, 16, 19]
    assert same_weights(run.model, interp.train(new_model(tiny), tiny, SHORT).model)


def test_a_state_that_cannot_be_read_is_refused(tiny, tmp_path):
    interrupted(tiny, tmp_path)
    state = tmp_path / "state.safetensors"
    whole = state.read_bytes()
    for content in (whole[:100], whole[:-10], b"", b"something else"):
        state.write_bytes(content)
        with pytest.raises(ValueError, match=r"state\.safetensors is not a readable checkpoint .*cut short"):
            interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    save_checkpoint(new_model(tiny), state)
    with pytest.raises(ValueError, match="holds a model, not a training state"):
        interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)


def test_a_run_that_did_not_finish_cannot_be_loaded(tiny, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no training run in"):
        TrainingRun.load(tmp_path)
    interrupted(tiny, tmp_path)
    with pytest.raises(ValueError, match="did not finish; run the same training again to resume it"):
        TrainingRun.load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"seed": ')
    with pytest.raises(ValueError, match=r"manifest\.json is not readable JSON"):
        TrainingRun.load(tmp_path)


def test_text_table_and_chart_of_a_run(trained):
    table = trained.to_dataframe()
    assert list(table.columns) == ["step", "phase", "target", "accuracy", "loss", "n", "low", "high"]
    assert len(table) == 2 * 2
    assert table["step"].tolist() == [100, 100, 200, 200]
    assert set(table["target"]) == {"#0", "#1"}
    assert ((table["low"] <= table["accuracy"]) & (table["accuracy"] <= table["high"])).all()
    assert (table["n"] == 500).all()
    assert str(trained).startswith("trained 200 steps in ")
    assert trained.final_accuracy == table["accuracy"].tolist()[-2:]
    assert "0.5" in json.dumps(trained.plot().to_dict())  # chance
    assert "<svg" in trained._repr_html_()
    assert repr(trained) == str(trained)


def test_a_run_stopped_before_its_first_state_records_no_step_twice(tiny, tmp_path):
    settings = TrainSettings(steps=3, batch_size=4, eval_every=1, n_eval=8, checkpoint_every=100)
    given = {"n_layers": 1, "d_model": 8}
    with pytest.raises(Stopped):
        interp.train(new_model(tiny, **given), tiny, settings, folder=tmp_path, on_record=stop_at(2))
    assert [record["steps_done"] for record in RunFolder(tmp_path).read_metrics()] == [1, 2]
    assert not RunFolder(tmp_path).state_path.exists()
    interp.train(new_model(tiny, **given), tiny, settings, folder=tmp_path)
    assert [record["steps_done"] for record in RunFolder(tmp_path).read_metrics()] == [1, 2, 3]


def test_another_machine_is_noted_only_where_a_run_resumes(tiny, tmp_path):
    manifest = manifest_of(new_model(tiny), tiny, interp.TrainSettings(), 7) | {"threads": 1}
    two_threads = manifest | {"threads": 2}
    elsewhere = two_threads | {"hardware": {**manifest["hardware"], "capability": "SVE"}}
    places = [{name: fields[name] for name in ("hardware", "threads")} for fields in (two_threads, elsewhere)]
    files = RunFolder(tmp_path)
    with files.writing():
        for fields in (manifest, manifest, two_threads, two_threads, elsewhere):
            resumed = files.start_or_resume(fields)
        assert resumed["resumed_on"] == places
        files.model_path.write_text("finished")
        files.start_or_resume(manifest)
    assert files.read_manifest()["resumed_on"] == places


def test_clearing_removes_every_file_of_a_run(tmp_path):
    files = RunFolder(tmp_path)
    names = ("manifest.json", "metrics.jsonl", "state.safetensors", "best.safetensors", "model.safetensors")
    with files.writing():  # which removes, when it begins, what a finished run does not need
        for name in (*names, "notes.txt"):
            (tmp_path / name).write_text("")
        files.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
