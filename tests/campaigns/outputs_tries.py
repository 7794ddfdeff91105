"""Where things are written: links, modes, devices and FIFOs as files; closed, full and unread outputs of commands."""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from short_runs import new_model
from tries import TASK, Try, train

import interp
from hooks import load_checkpoint, save_checkpoint
from interp.cli.output import DONE, FAILED, NOT_READ, USAGE
from interp.training import TrainingRun

UMASKS, MODES = (0o077, 0o022, 0o027, 0), (0o600, 0o640, 0o644, 0o664, 0o400)
TRAIN = "train lego --out r --steps 2 --n-vars 2 --layers 1 --width 16 --association none"
COMMANDS = ("--help", "--version", "tasks", "tasks --json", "train --help", "reproduce", "reproduce lego --list",
            "reproduce lego --list --json", "nothing", "train leg --out r", "probe nowhere", "probe nowhere --json",
            "reproduce lego --size huge --list", TRAIN)  # fmt: skip
ENDINGS = ("closed", "full", "not read", "read in part", "closed with stdin")
"""How a stream of a command ends."""
CODES = (DONE, FAILED, USAGE, NOT_READ)


def files(n: int, folder: Path) -> Iterator[Try]:
    """A link stays and what it names changes; a mode is kept; the umask decides that of a new file; devices stay."""
    rng = random.Random(14)
    model = new_model(TASK).eval()
    result = interp.evaluate(model, TASK, n=16)
    writers: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
        "result": (result.save, lambda path: type(result).load(path)),
        "checkpoint": (lambda path: save_checkpoint(model, path), load_checkpoint),
        "page": (
            lambda path: interp.report([result], path, title="Scores"),
            lambda path: path.read_text().index("</html>"),
        ),
    }
    kinds = (_file, _file, _link, _link, _link, _null, _fifo, _run_folder)
    for index in range(n):
        place = folder / str(index)
        place.mkdir()
        name, umask = rng.choice(list(writers)), rng.choice(UMASKS)
        write, read = writers[name]
        kind = kinds[index % len(kinds)]
        with _umask(umask):
            try:
                what, fault = kind(place, rng, write, read, umask)
            except Exception as error:
                yield Try(
                    f"{name}, {kind.__name__}, umask {umask:o}", "unclear", f"{type(error).__name__}: {error}"[:300]
                )
                continue
        yield Try(f"{name}, {what}, umask {umask:o}", "lost" if fault else None, fault)
        shutil.rmtree(place)


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _wrong_mode(path: Path, expected: int) -> str:
    return "" if _mode(path) == expected else f"mode {_mode(path):o}, not {expected:o}"


def _prepared(path: Path, rng: random.Random, umask: int) -> tuple[str, int]:
    """A file with some mode, or none: in words, and the mode that it should have after writing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if rng.random() < 0.3:
        return "new", 0o666 & ~umask
    mode = rng.choice(MODES)
    path.write_text("before")
    path.chmod(mode)
    return f"mode {mode:o}", mode


def _left(place: Path, expected: set[str]) -> str:
    """Files that are there and should not be."""
    more = {str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir()} - expected
    return f"{sorted(more)} left" if more else ""


def _file(place: Path, rng: random.Random, write: Any, read: Any, umask: int) -> tuple[str, str]:
    path = place / rng.choice(["out", "folder/out"])
    said, mode = _prepared(path, rng, umask)
    write(path)
    read(path)
    return f"{said} file", _wrong_mode(path, mode) or _left(place, {str(path.relative_to(place))})


def _link(place: Path, rng: random.Random, write: Any, read: Any, umask: int) -> tuple[str, str]:
    """Links to a file or to nothing yet, absolute or relative, one after the other, or of a folder."""
    target = place / rng.choice(["there", "folder/there", "folder/inner/there"])
    said, mode = _prepared(target, rng, umask)
    n_links, links, named = rng.randrange(1, 4), [], target
    for number in range(n_links):
        link = place / rng.choice(["", "links/"]) / f"link {number}"
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(rng.choice([named, Path(os.path.relpath(named, link.parent))]))
        links.append((link, os.readlink(link)))
        named = link
    through = rng.random() < 0.3
    path = named
    if through:
        (place / "way").symlink_to(named.parent)
        path = place / "way" / named.name
    write(path)
    read(path)
    read(target)
    for link, name in links:
        if not link.is_symlink() or os.readlink(link) != name:
            return said, f"{link.name} is no longer the link to {name}"
    names = {str(one.relative_to(place)) for one in [target, *(link for link, _ in links)]}
    names |= {"way"} if through else set()
    fault = "the target is a link" if target.is_symlink() else _wrong_mode(target, mode) or _left(place, names)
    return f"{n_links} links to a {said} file{', in a linked folder' if through else ''}", fault


def _null(place: Path, rng: random.Random, write: Any, read: Any, umask: int) -> tuple[str, str]:
    path = Path(os.devnull)
    if rng.random() < 0.5:
        path = place / "null"
        path.symlink_to(os.devnull)
    status = os.stat(os.devnull)
    write(path)
    after = os.stat(os.devnull)
    same = (after.st_mode, after.st_rdev, after.st_ino) == (status.st_mode, status.st_rdev, status.st_ino)
    return "/dev/null", "" if same and (path.is_symlink() or path == Path(os.devnull)) else "it is another file"


def _fifo(place: Path, rng: random.Random, write: Any, read: Any, umask: int) -> tuple[str, str]:
    fifo, path, got = place / "fifo", place / "fifo", []
    os.mkfifo(fifo, 0o600)
    if rng.random() < 0.5:
        path = place / "link"
        path.symlink_to("fifo")
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    write(path)
    reader.join(20)
    if not (fifo.is_fifo() and got and _mode(fifo) == 0o600):
        return "FIFO", "it is no FIFO any more" if not fifo.is_fifo() else "nothing arrived"
    copy = place / "copy"
    copy.write_bytes(got[0])
    read(copy)
    return "FIFO", ""


def _run_folder(place: Path, rng: random.Random, write: Any, read: Any, umask: int) -> tuple[str, str]:
    """A run in a folder that is a link, perhaps to a folder that is not there yet; then once more."""
    target, link = place / "deep/runs/real", place / "run"
    exists = rng.random() < 0.5
    target.mkdir(parents=True) if exists else target.parent.mkdir(parents=True)
    link.symlink_to(rng.choice([target, Path("deep/runs/real")]))
    said = f"run in a link to a folder that is {'there' if exists else 'not there'}"
    train(link)
    if not (link.is_symlink() and (target / "manifest.json").is_file()):
        return said, "the link is a folder, or the run is elsewhere"
    (target / "metrics.jsonl").chmod(0o600)
    train(link, fresh=True)
    TrainingRun.load(link)
    return said, "" if link.is_symlink() else "the link is gone"


def commands(n: int, folder: Path) -> Iterator[Try]:
    """A command whose output is closed, full, or read only in part: one line of error at most, no traceback."""
    rng = random.Random(15)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("INTERP_DEBUG", None)
    for index in range(n):
        arguments, ending = rng.choice(COMMANDS), ENDINGS[index % len(ENDINGS)]
        stream = rng.choice(["stdout", "stdout", "stderr"])
        what = f"interp {arguments}, {stream} {ending}"
        place = folder / str(index)
        place.mkdir()
        code, error, output = _ended(arguments.split(), stream, ending, place, environment)
        lines = error.splitlines()
        if code == "late":
            yield Try(what, "unclear", "it does not end")
        elif "Traceback" in error or "Exception ignored" in error or len(lines) > 1 or len(error) > 800:
            yield Try(what, "unclear", f"exit code {code}: {error[:300]}")
        elif code not in CODES:
            yield Try(what, "unclear", f"exit code {code}")
        elif stream == "stdout" and code == 0 and ending in ("closed", "full", "closed with stdin"):
            yield Try(what, "lost", "exit code 0, and nothing was printed")
        elif arguments.endswith("--json") and stream == "stderr" and output:
            yield _document(what, output)
        else:
            yield Try(what)


def _document(what: str, output: str) -> Try:
    try:
        json.loads(output)
    except ValueError as error:
        return Try(what, "unclear", f"{error}: {output[:200]}")
    return Try(what)


def _ended(
    arguments: list[str], stream: str, ending: str, place: Path, environment: dict[str, str]
) -> tuple[Any, str, str]:
    """Exit code, error output and output of a command; the stream that is not read gives none."""
    code = "from interp.cli.main import main; main()"
    handle = 1 if stream == "stdout" else 2
    more = " <&-" if ending == "closed with stdin" else ""
    closing = f"{handle}>/dev/full" if ending == "full" else f"{handle}>&-"
    script = f'exec "$0" -c "$1" {" ".join(arguments)}'
    script = script if ending in ("not read", "read in part") else f"{script} {closing}{more}"
    options: dict[str, Any] = {"cwd": place, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    read_end = write_end = -1
    if ending in ("not read", "read in part"):
        read_end, write_end = os.pipe()
        options[stream] = write_end
    process = subprocess.Popen(["sh", "-c", script, sys.executable, code], **options)
    if write_end >= 0:
        os.close(write_end)
        if ending == "read in part":
            os.read(read_end, 5)
        os.close(read_end)
    try:
        printed = dict(zip(("stdout", "stderr"), process.communicate(timeout=120), strict=True))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "late", "", ""
    texts = {name: (text or b"").decode(errors="replace") for name, text in printed.items()}
    return process.returncode, texts["stderr"], texts["stdout"]
