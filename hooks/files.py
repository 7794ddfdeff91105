"""Reading and writing files: writes are atomic, and unreadable content is a `ValueError` that names the file."""

import errno
import hashlib
import json
import os
import secrets
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

SHOWN = 200
"""Largest number of characters of a file's content or a user's input in an error."""
FAULTS = (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError, RuntimeError)
"""Errors that content of the wrong form raises where it is used."""


def user_path(path: str | Path) -> Path:
    """A path as a user writes it, in which ~ is the home folder.

    Raises:
        ValueError: not a path, an empty one, or a home folder that cannot be found.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shortened(repr(path))}; it must be a string or a path.")
    if not str(path):
        raise ValueError("the path is empty; give a file or a folder.")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{path} cannot be found: {error}") from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it; of a link to a folder that is not there yet, the one that it names.

    Raises:
        FileExistsError: there is a file.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        with suppress(OSError):
            Path(os.path.realpath(path)).mkdir(parents=True, exist_ok=True)
            return
        raise


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file as `writing` does, with the same errors."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """A stream into a temporary file in the same folder, which is then flushed to disk and renamed.

    A link is followed: the file that it names is replaced. A file that exists keeps its mode. What is not a regular
    file, such as a device or a FIFO, and this process's own output (`/dev/stdout`) are written to directly.

    Raises:
        ValueError: no path.
        OSError: it could not be written, as on a full disk or where there is a folder; names the file.
    """
    path = user_path(path)
    try:
        make_folder(path.parent)
        status = _status(path)
        if status is None or (_has_content(status) and _output_handle(status) is None):
            stream = _replacing(path, status)
        else:
            stream = _open_directly(path, status)
        with stream as file:
            yield file
    except OSError as error:
        if error.errno is None:
            raise
        # the error names the temporary file, or a file that is where a folder should be, or nothing
        fault = errno.ENOTDIR if isinstance(error, FileExistsError) else error.errno
        raise OSError(fault, f"{os.strerror(fault)}, while writing", str(path)) from error


def _status(path: Path) -> os.stat_result | None:
    """Status of the file that a path or a link names; None if there is none yet."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _has_content(status: os.stat_result) -> bool:
    """Whether something is a file or a folder, not a device, a FIFO or a socket."""
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)


def _output_handle(status: os.stat_result) -> int | None:
    """The handle of this process's output or error output if it is this file, as is /dev/stdout."""
    for handle in (1, 2):
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(handle)):
                return handle
    return None


def _open_directly(path: Path, status: os.stat_result) -> BinaryIO:
    """A stream into a device, a FIFO or the like, which a rename would replace by a file."""
    handle = _output_handle(status)
    if handle is None:
        return path.open("wb")
    # Opened again, an output that goes into a file would be cut to nothing
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return os.fdopen(os.dup(handle), "wb")


@contextmanager
def _replacing(path: Path, replaced: os.stat_result | None) -> Iterator[BinaryIO]:
    """A stream into a temporary file, which takes the place of a file or of the one that a link names."""
    path = Path(os.path.realpath(path))
    make_folder(path.parent)
    _remove_abandoned(path)
    temporary = path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}")
    mode = 0o666 if replaced is None else stat.S_IMODE(replaced.st_mode)
    # With the mode from the start, content that only the owner may read is never open to others
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # the umask took bits away that the file had
        if replaced is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of this file that processes of this machine left, which were killed while they wrote."""
    prefix = f".{path.name}.{_host()}-"
    for entry in list(os.scandir(path.parent)):
        process = entry.name.removeprefix(prefix).split("-")[0]
        if entry.name.startswith(prefix) and process.isdigit() and not process_exists(int(process)):
            with suppress(FileNotFoundError):
                os.unlink(entry.path)


@cache
def _host() -> str:
    """Digest of this machine's name, for names of files."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def process_exists(number: int) -> bool:
    """Whether a process of this machine exists, also one of another user; assumed on Windows."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(number, 0)  # signal 0 only tests
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content. A process reads a file again only if it was replaced or modified.

    Raises:
        OSError: it cannot be read.
    """
    status = path.stat()
    return _digest(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


@lru_cache(maxsize=2**16)
def _digest(path: Path, status: tuple[int, ...]) -> str:
    """SHA-256 of a file; its size, times and place on the disk are part of the cache's key."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def readable_file(path: str | Path) -> Path:
    """A path whose content can be read, or which does not exist.

    Raises:
        ValueError: a FIFO, a device or a socket, whose reader could wait forever, or a pointer of Git LFS.
    """
    path = user_path(path)
    status = _status(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return path
    if not stat.S_ISREG(status.st_mode):
        kind = next(kind for is_kind, kind in _KINDS_OF_FILES if is_kind(status.st_mode))
        raise Unreadable(f"{path} is {kind}, whose content may have no end. Copy it to a file, and load that file.")
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise Unreadable(f"{path} is a pointer of Git LFS, not the content itself. Fetch that: git lfs pull.")
    return path


_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_KINDS_OF_FILES = (
    (stat.S_ISFIFO, "a FIFO (a named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (lambda mode: True, "a device"),
)


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


class Unreadable(ValueError):
    """A file's content is not what it should be."""


@contextmanager
def reading(path: str | Path, expected: str) -> Iterator[None]:
    """Within this block every error that wrong content can raise becomes `Unreadable`, which names the file.

    Args:
        path: The file.
        expected: What it should be, with its article: "a manifest".

    Raises:
        Unreadable: the block raised one of `FAULTS`.
    """
    try:
        yield
    except Unreadable:
        raise
    except FAULTS as error:
        raise Unreadable(f"{path} is not {expected}: {shortened(_text(error))}") from error


def parse_json(text: str | bytes, *, allow_nan: bool = False) -> Any:
    """The value of a JSON text.

    Args:
        text: The text.
        allow_nan: Whether it may have NaN and Infinity, which are not JSON.

    Raises:
        ValueError: not JSON, an object with a key twice, or a number that is not finite.
    """

    # Python takes the last of equal keys
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {shortened(repr(repeated), 60)} is there twice.")
        return entries

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not a number of JSON.")

    return json.loads(text, object_pairs_hook=unique, parse_constant=None if allow_nan else refuse)


def read_json(path: str | Path, expected: str, *, allow_nan: bool = False) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        path: The file.
        expected: What it should be, with its article.
        allow_nan: As of `parse_json`.

    Raises:
        FileNotFoundError: there is no such file.
        Unreadable: not UTF-8, not JSON, or not an object.
    """
    try:
        content = parse_json(readable_file(path).read_text(encoding="utf-8"), allow_nan=allow_nan)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is not readable JSON ({shortened(_text(error))}); it should be {expected}.") from None
    if not isinstance(content, dict):
        raise Unreadable(f"{path} is not {expected}: it has a {type(content).__name__}, not an object.")
    return content


def shortened(text: str, most: int = SHOWN) -> str:
    """At most so many characters of a text, in one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing."
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    return str(error) or type(error).__name__
