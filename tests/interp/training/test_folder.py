import json
import os
import shutil
import signal

import pytest
from holding import holding
from short_runs import SHORT, interrupted, new_model, same_weights

import interp
from interp.training import TrainingRun
from interp.training.folder import FolderInUse, RunFolder
from interp.training.manifest import manifest_of


@pytest.fixture
def holder(tmp_path):
    """The number of a process that holds the folder."""
    with holding(tmp_path) as process:
        yield process


def line(step, **changes):
    return json.dumps(record(step) | changes)


def record(step):
    return {"steps_done": step, "accuracy": [0.5], "loss": 1.0, "validation_loss": [1.0], "seconds": 0.1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_second_writer_is_refused_and_the_first_is_named(tiny, tmp_path, holder):
    for fresh in (False, True):
        with pytest.raises(FolderInUse, match=rf"process {holder} on .* writes to .*choose another folder"):
            interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path, fresh=fresh)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    run = interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    assert same_weights(run.model, TrainingRun.load(tmp_path).model)
    assert not list(tmp_path.glob(".*"))


def test_threads_of_one_process_are_writers_too(tmp_path):
    first, second = RunFolder(tmp_path).writing(), RunFolder(tmp_path).writing()
    refused = pytest.raises(FolderInUse, match=f"process {os.getpid()} on")
    with first, refused, second:
        pass
    with RunFolder(tmp_path).writing():
        pass


def test_a_finished_run_is_loaded_while_another_process_holds_the_folder(tiny, tmp_path, monkeypatch):
    first = interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    monkeypatch.setattr(RunFolder, "writing", lambda self: pytest.fail("a finished run needs no lock"))
    assert same_weights(first.model, interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path).model)


def test_a_run_whose_folder_vanished_writes_nothing_more(tiny, tmp_path):
    folder = tmp_path / "run"

    def remove(record):
        shutil.rmtree(folder)

    with pytest.raises(FolderInUse, match="removed, or taken by another process"):
        interp.train(new_model(tiny), tiny, SHORT, folder=folder, on_record=remove)
    assert not folder.exists()


def test_a_run_whose_folder_was_taken_writes_nothing_more(tiny, tmp_path):
    folder = tmp_path / "run"
    other = RunFolder(folder)

    def take(record):
        if not other.manifest_path.exists():
            return
        shutil.rmtree(folder)
        with other.writing():
            other.start_or_resume(manifest_of(new_model(tiny), tiny, SHORT, 7))

    with pytest.raises(FolderInUse):
        interp.train(new_model(tiny), tiny, SHORT, folder=folder, on_record=take)
    assert [path.name for path in folder.iterdir()] == ["manifest.json"]
    assert other.read_manifest()["seed"] == 7


def test_the_model_is_not_saved_beside_the_manifest_of_another_run(tiny, tmp_path):
    def change(record):
        manifest = json.loads((tmp_path / "manifest.json").read_text())
        (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "seed": 9}))

    with pytest.raises(FolderInUse, match="another run by now: seed is 9, not 0"):
        interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path, on_record=change)
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors", "metrics.jsonl"])
def test_files_without_a_manifest_are_not_adopted(tiny, tmp_path, name):
    interrupted(tiny, tmp_path)
    if name == "model.safetensors":
        interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    (tmp_path / "manifest.json").unlink()
    for path in tmp_path.iterdir():
        if path.name != name:
            path.unlink()
    with pytest.raises(ValueError, match=rf"has {name} without manifest\.json"):
        interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path, fresh=True)
    assert TrainingRun.load(tmp_path).manifest["seed"] == 0


def test_clearing_that_was_killed_is_completed(tiny, tmp_path, monkeypatch):
    interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    files = RunFolder(tmp_path)
    for kept in range(1, 4):
        (tmp_path / ".cleared").write_text("")
        for path in [files.model_path, files.metrics_path, files.manifest_path][:kept]:
            path.unlink()
        assert not files.finished
        run = interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path, seed=kept)
        assert run.manifest["seed"] == kept
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "manifest.json",
            "metrics.jsonl",
            "model.safetensors",
        ]


def test_temporary_files_of_killed_processes_are_removed(tiny, tmp_path):
    for name in (".state.safetensors.x1", ".manifest.json.k2", ".mine"):
        (tmp_path / name).write_text("")
    interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    assert [path.name for path in tmp_path.glob(".*")] == [".mine"]


def test_what_a_run_left_that_was_killed_after_its_last_write_is_removed(tiny, tmp_path):
    interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    kept = sorted(tmp_path.iterdir())
    for left in ((".lock", ".writer.json", "..writer.json.x1"), ("state.safetensors", ".lock"), ("best.safetensors",)):
        for name in left:
            (tmp_path / name).touch()
        interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
        assert sorted(tmp_path.iterdir()) == kept, left


def test_a_torn_last_line_is_dropped_when_the_run_resumes(tiny, tmp_path):
    interrupted(tiny, tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes() + b'{"steps_done": 9')
    with pytest.raises(ValueError, match=r"metrics\.jsonl is not a file of metrics \(line \d+\)"):
        RunFolder(tmp_path).read_metrics()
    with pytest.warns(UserWarning, match="last line of .*metrics.jsonl is not complete"):
        run = interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path)
    assert same_weights(run.model, interp.train(new_model(tiny), tiny, SHORT).model)
    assert [one["steps_done"] for one in RunFolder(tmp_path).read_metrics()] == [
        one["steps_done"] for one in run.history
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([line(2), line(2)], "line 2 is of step 2, the line before of step 2"),
        ([line(3), line(1), line(4)], "line 2 is of step 1"),
        ([line(3), "", line(4)], r"\(line 2\)"),
        ([line("3")], "steps_done is '3'; it must be an integer"),
        ([line(3, accuracy=[9.0])], r"accuracy\[0\] is 9.0; it must be from 0 to 1"),
        ([line(3, colour=1)], "unknown fields 'colour'"),
        (['{"loss": 1}'], "lacks the fields 'steps_done'"),
        (["[1]"], r"\(line 1\)"),
        (["[" * 100_000], r"\(line 1\): it is nested too deeply"),
    ],
)
def test_metrics_that_are_not_from_one_run_are_refused(tmp_path, lines, words):
    (tmp_path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(ValueError, match=words):
        RunFolder(tmp_path).read_metrics()


def test_a_line_that_does_not_fit_on_the_disk_is_taken_back(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    files = RunFolder(tmp_path)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with files.writing():
        files.append_metrics(record(1))
        size = files.metrics_path.stat().st_size
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, limits[1]))
            with pytest.raises(OSError, match=r"metrics\.jsonl"):
                files.append_metrics(record(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        assert files.read_metrics() == [record(1)]
        files.append_metrics(record(2))
    assert files.read_metrics() == [record(1), record(2)]


def test_a_run_in_a_link_to_a_folder_that_is_not_there_yet(tiny, tmp_path):
    link, folder = tmp_path / "link", tmp_path / "deep/run"
    link.symlink_to("deep/run")
    run = interp.train(new_model(tiny), tiny, SHORT, folder=link)
    assert link.is_symlink()
    assert same_weights(TrainingRun.load(folder).model, run.model)
