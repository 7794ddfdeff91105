"""Paths as users write them, and errors of the file system."""

import errno
import os

import pytest
import torch

import interp
from hooks import Transformer, load_checkpoint, save_checkpoint
from hooks.files import read_json, user_path, write_bytes, write_json
from interp.tasks import Lego
from interp.training.folder import RunFolder

TASK = Lego(n_vars=2, sentence_format="compact")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_tilde_is_the_home_folder(home):
    model = Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16), seed=0)
    save_checkpoint(model, "~/kept/model.safetensors")
    assert (home / "kept/model.safetensors").is_file()
    assert load_checkpoint("~/kept/model.safetensors").cfg == model.cfg
    write_json("~/some.json", {"a": 1})
    assert read_json("~/some.json", "an object") == {"a": 1}
    assert RunFolder("~/runs/mine").path == home / "runs/mine"
    scores = interp.evaluate(model, TASK, n=32)
    scores.save("~/scores.json")
    assert str(type(scores).load("~/scores.json")) == str(scores)


@pytest.mark.parametrize("write", [lambda: write_bytes("", b""), lambda: user_path(""), lambda: RunFolder("")])
def test_an_empty_path_is_refused(write):
    with pytest.raises(ValueError, match="the path is empty; give a file or a folder"):
        write()


@pytest.mark.parametrize("path", [None, 3, b"result.json"])
def test_what_is_no_path_is_refused(path, as_a_user):
    model = Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16), seed=0)
    scores = interp.evaluate(model, TASK, n=32)
    for write in (lambda: write_json(path, {}), lambda: scores.save(path), lambda: type(scores).load(path)):
        with pytest.raises(ValueError, match=r"path is .*; it must be a string or a path"):
            write()


def test_a_file_that_cannot_be_there_is_named(tmp_path):
    write_json(tmp_path / "file", {})
    for path, error in ((tmp_path, IsADirectoryError), (tmp_path / "file/below", NotADirectoryError)):
        with pytest.raises(error, match=rf"while writing: '{path}'"):
            write_json(path, {"a": 1})
    assert read_json(tmp_path / "file", "an object") == {}
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_an_error_of_the_file_system_names_the_file(tmp_path, monkeypatch, fault):
    def fsync(handle):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "result.json"
    with pytest.raises(OSError, match=r"while writing: .*result\.json"):
        write_json(path, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("old_format", [True, False])
def test_a_pickled_file_is_named_as_one(tmp_path, old_format):
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.zeros(2)}, path, _use_new_zipfile_serialization=not old_format)
    with pytest.raises(ValueError, match=r"model.pt is not a readable checkpoint .* It is one of torch.save"):
        load_checkpoint(path)
