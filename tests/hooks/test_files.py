"""Paths as users write them, and errors of the file system."""

import errno
import os
import re
import stat
import subprocess
import sys
import threading

import pytest
import torch

import interp
from hooks import Transformer, load_checkpoint, save_checkpoint
from hooks.files import make_folder, read_json, readable_file, user_path, write_bytes, write_json, write_text
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


@pytest.fixture
def umask():
    """Sets the umask, and resets it at the end."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("target", ["there.json", "missing.json", "folder/there.json"])
def test_a_link_stays_and_the_file_that_it_names_is_written(tmp_path, target):
    link, file = tmp_path / "link.json", tmp_path / target
    file.parent.mkdir(exist_ok=True)
    if "missing" not in target:
        file.write_text("old")
    (tmp_path / "second.json").symlink_to(target)
    link.symlink_to("second.json")
    write_json(link, {"a": 1})
    assert link.readlink().name == "second.json"
    assert not file.is_symlink()
    assert read_json(file, "an object") == read_json(link, "an object") == {"a": 1}


def test_a_loop_of_links_is_named(tmp_path):
    path = tmp_path / "loop.json"
    path.symlink_to("loop.json")
    with pytest.raises(OSError, match=r"while writing: .*loop\.json"):
        write_json(path, {})
    assert path.is_symlink()


@pytest.mark.parametrize("path", ["link/new.json", "link/below/new.json"])
def test_a_link_to_a_folder_that_is_not_there_yet_stays_and_the_folder_is_made(tmp_path, path):
    (tmp_path / "link").symlink_to("deep/there")
    write_json(tmp_path / path, {"a": 1})
    assert os.readlink(tmp_path / "link") == "deep/there"
    assert read_json(tmp_path / path.replace("link", "deep/there"), "an object") == {"a": 1}


def test_folders_are_made_where_a_link_names_none_yet(tmp_path):
    for name in ("link", "loop"):
        (tmp_path / name).symlink_to("deep/there" if name == "link" else "loop")
    make_folder(tmp_path / "link")
    assert (tmp_path / "deep/there").is_dir()
    make_folder(tmp_path / "link")
    (tmp_path / "file").touch()
    for name in ("file", "loop"):
        with pytest.raises(OSError, match=rf"'{tmp_path / name}'"):
            make_folder(tmp_path / name)


def test_devices_and_fifos_are_written_to(tmp_path):
    write_text(os.devnull, "text")
    (tmp_path / "null").symlink_to(os.devnull)
    write_text(tmp_path / "null", "text")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    fifo, texts = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: texts.append(fifo.read_text()))
    reader.start()
    write_text(fifo, "text")
    reader.join()
    assert texts == ["text"]
    assert fifo.is_fifo()
    with pytest.raises(OSError, match=r"No space left on device, while writing: '/dev/full'"):
        write_text("/dev/full", "text")


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("is_file", [True, False])
def test_the_own_output_is_written_to(tmp_path, path, is_file):
    code = f"from hooks.files import write_text\nprint('before')\nwrite_text({path!r}, 'text\\n')\nprint('after')"
    with open(tmp_path / "out", "wb") as file:
        output = file if is_file else subprocess.PIPE
        process = subprocess.run([sys.executable, "-c", code], stdout=output, check=True, env=os.environ)
    text = (tmp_path / "out").read_bytes() if is_file else process.stdout
    assert text == b"before\ntext\nafter\n"


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o027, 0])
def test_the_umask_decides_the_mode_of_a_new_file(tmp_path, umask, mask):
    umask(mask)
    write_json(tmp_path / "new.json", {})
    assert mode_of(tmp_path / "new.json") == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_a_file_keeps_its_mode(tmp_path, umask, mode):
    path = tmp_path / "result.json"
    path.touch()
    path.chmod(mode)
    write_json(path, {"a": 1})
    assert mode_of(path) == mode
    assert read_json(path, "an object") == {"a": 1}


def test_the_content_of_a_private_file_is_never_open_to_others(tmp_path, umask, monkeypatch):
    modes = []
    monkeypatch.setattr(os, "fsync", lambda handle: modes.append(stat.S_IMODE(os.fstat(handle).st_mode)))
    path = tmp_path / "result.json"
    path.touch()
    path.chmod(0o600)
    write_json(path, {})
    assert modes == [0o600]


UNREADABLE = {
    "a FIFO (a named pipe), whose content may have no end": os.mkfifo,
    "a device, whose content may have no end": lambda path: path.symlink_to("/dev/zero"),
    "a pointer of Git LFS, not the content itself. Fetch that: git lfs pull": lambda path: path.write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    ),
}


@pytest.mark.parametrize("words", UNREADABLE)
def test_what_has_no_content_is_named_and_not_waited_for(tmp_path, words):
    path = tmp_path / "file.json"
    UNREADABLE[words](path)
    for read in (readable_file, load_checkpoint, lambda path: read_json(path, "x"), interp.heads.read_circuit):
        with pytest.raises(ValueError, match=re.escape(f"{path} is {words}")):
            read(path)
