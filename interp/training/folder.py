"""The folder of a training run: manifest, metrics as JSON lines, state to resume from, trained model.

Files are written atomically and metrics lines in one call, so a run killed at any time leaves only readable files. One
process at a time writes to a folder.
"""

import errno
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout
from torch import Tensor

from hooks import load_checkpoint
from hooks.files import (
    Unreadable,
    file_digest,
    make_folder,
    parse_json,
    read_json,
    readable_file,
    reading,
    shortened,
    user_path,
    write_bytes,
    write_json,
    write_text,
)
from hooks.model.architectures import Model
from hooks.model.checkpoint import check_finite, checkpoint_bytes, read_tensors, write_tensors
from hooks.typed import restored
from interp.training.identity import HASHES, ForeignRun, check_contents, check_file, check_manifest, hash_of_fields
from interp.training.manifest import (
    IDENTITY,
    ORIGIN,
    PLACE,
    MetricsRecord,
    check_manifest_fields,
    manifest_differences,
)
from interp.training.snapshots import SnapshotFolder
from interp.training.writer import Writer


class FolderInUse(ValueError):
    """Another process writes to the folder of this run, or has replaced it."""


class NoLocks(OSError):
    """A folder in which files cannot be locked."""


class RunFolder:
    """The files of one training run."""

    def __init__(self, path: str | Path):
        self.path = user_path(path)
        self.manifest_path = self.path / "manifest.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.state_path = self.path / "state.safetensors"
        self.best_path = self.path / "best.safetensors"
        self.failed_path = self.path / "failed.json"
        self.model_path = self.path / "model.safetensors"
        self.snapshots = SnapshotFolder(self.path / "snapshots")
        self._lock_path = self.path / ".lock"
        self._writer_path = self.path / ".writer.json"
        self._clearing_path = self.path / ".cleared"  # marks a clear that has begun; removed when it is complete
        self._this_process: Writer | None = None
        self._run = ""
        """Hash of the run that this process writes or resumes; it is in its states and in the best model so far."""

    @property
    def finished(self) -> bool:
        """Whether the trained model has been saved."""
        return self.model_path.exists() and not self._clearing_path.exists()

    def is_trained(self, expected: Mapping[str, Any] | None = None) -> bool:
        """Whether the folder has a trained model, which is that of its manifest and of its folder.

        Args:
            expected: What the model should be, as `ModelSpec.description`; None if that is unknown.

        Raises:
            ForeignRun: it has another model.
            ValueError: the manifest cannot be read.
        """
        if not self.finished:
            return False
        if not self.manifest_path.exists():
            raise ForeignRun(f"{self.path} has a model without {self.manifest_path.name}, so whose it is is unknown.")
        check_file(self.read_manifest(expected), self.path, self.model_path)
        return True

    @property
    def writer(self) -> Writer | None:
        """The process that writes to this folder, or has been killed while it did; None if none is recorded."""
        return Writer.load(self._writer_path)

    @property
    def last_change(self) -> int:
        """When a file of the run was written last, in nanoseconds; 0 if there is none."""
        times = [0]
        for folder in (self.path, self.snapshots.path):
            with suppress(OSError):
                times += [entry.stat().st_mtime_ns for entry in os.scandir(folder)]
        return max(times)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only process that writes to this folder; the operating system ends this when the process dies.

        Entering makes the folder, takes the lock, records this process as the writer, and removes the leftovers of
        killed processes and the record of a failure. Leaving removes the lock and the record of the writer.

        Raises:
            FolderInUse: another process writes to it.
            NoLocks: its file system has no locks.
            OSError: a file cannot be made, as on a full disk.
        """
        make_folder(self.path)
        # The lock decides who writes; the record of the writer is for messages, and shows that the folder was replaced
        lock = FileLock(self._lock_path, timeout=0)
        try:
            take_lock(lock)
        except Timeout:
            writer = self.writer or "another process"
            raise FolderInUse(
                f"{writer} writes to {self.path}. Wait for it or stop it, or choose another folder."
            ) from None
        except (OSError, NotImplementedError) as error:
            if getattr(error, "filename", None) is not None:
                raise  # the file could not be made, as on a full disk, and is named
            reason = getattr(error, "strerror", None) or str(error)
            raise NoLocks(
                getattr(error, "errno", None) or errno.ENOSYS,
                f"a lock cannot be taken ({reason}), without which two processes could write to one run. Choose a "
                f"folder on a local disk that you may write to, or mount this file system with locks",
                str(self.path),
            ) from error
        try:
            self._this_process = Writer.of_this_process()
            self._this_process.save(self._writer_path)
            self._remove_leftovers()
            self.failed_path.unlink(missing_ok=True)
            yield
        finally:
            # Remove the lock while it is still held: after its release it may be the lock of another process
            if self._is_writer():
                self._writer_path.unlink(missing_ok=True)
                self._lock_path.unlink(missing_ok=True)
            self._this_process = None
            lock.release()

    def clear(self) -> None:
        """Remove the files of this run; other files in the folder stay. Killed in between, it is completed later."""
        write_text(self._clearing_path, "")
        self._remove_leftovers()

    def start_or_resume(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Start a run in this folder or resume one; returns its manifest.

        Raises:
            ValueError: the folder has a run with another seed, task, config, settings or initial weights, or a model
                or state without a manifest.
        """
        if not self.manifest_path.exists():
            orphans = [path.name for path in self._files() if path.exists()]
            if orphans:
                raise ValueError(
                    f"{self.path} has {' and '.join(orphans)} without {self.manifest_path.name}, so whose they are is "
                    f"unknown. Choose another folder, or pass fresh=True."
                )
            manifest = json.loads(json.dumps(manifest))  # as it will be read
            manifest[HASHES] = {"manifest": hash_of_fields(manifest)}
            write_json(self.manifest_path, manifest)
            self._run = manifest[HASHES]["manifest"]
            return manifest
        stored = self._stored_manifest()
        differences = manifest_differences(stored, manifest, (*IDENTITY, *ORIGIN))
        if differences:
            raise ValueError(
                f"{self.path} holds another run: {differences}. Choose another folder, or pass fresh=True."
            )
        with reading(self.manifest_path, "a manifest"):
            check_manifest(stored, self.path)
        self._run = stored[HASHES]["manifest"]
        # Say where it is resumed, unless that is where it ran last
        places = [{name: stored[name] for name in PLACE}, *stored.get("resumed_on", [])]
        place = {name: manifest[name] for name in PLACE}
        if not self.finished and place != places[-1]:
            stored["resumed_on"] = [*places[1:], place]
            write_json(self.manifest_path, stored)
        return stored

    def read_manifest(self, expected: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Read the manifest, and check that it is that of the run which the folder should have.

        Args:
            expected: What the run should be, as `ModelSpec.description`; None if that is unknown.

        Raises:
            FileNotFoundError: there is no run in this folder.
            ForeignRun: the folder has another run, or a manifest that was changed.
            ValueError: the manifest cannot be read.
        """
        manifest = self._stored_manifest()
        with reading(self.manifest_path, "a manifest"):
            check_manifest(manifest, self.path, expected)
        return manifest

    def _stored_manifest(self) -> dict[str, Any]:
        """The manifest, of whichever run."""
        if not self.manifest_path.exists():
            subfolders = [path.parent for path in self.path.glob(f"*/{self.manifest_path.name}")]
            subfolders.sort(key=lambda path: (path.name != "model", path.name))  # the demo's model first
            hint = f" Did you mean {' or '.join(map(str, subfolders[:3]))}?" if subfolders else ""
            raise FileNotFoundError(f"there is no training run in {self.path} (no {self.manifest_path.name}).{hint}")
        manifest = read_json(self.manifest_path, "a manifest")
        with reading(self.manifest_path, "a manifest"):
            check_manifest_fields(manifest)
        return manifest

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Append one metrics line; one that cannot be written whole is taken back.

        Raises:
            OSError: the disk is full, or the file cannot be written.
        """
        self._check_writer()
        line = (json.dumps(record) + "\n").encode()
        with self.metrics_path.open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                while line:
                    n_written = file.write(line)
                    line = line[n_written:]
            except OSError as error:
                file.truncate(end)
                raise OSError(error.errno, error.strerror, str(self.metrics_path)) from None

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read all metrics records.

        Raises:
            ForeignRun: the training has finished, and the file is another one since.
            ValueError: a line that is not a record, or steps that do not increase.
        """
        records = self._parse_metrics(self._metrics_lines())
        if self.finished and self.manifest_path.exists():
            manifest = self.read_manifest()
            check_file(manifest, self.path, self.metrics_path)
        return records

    def cut_metrics(self, steps_done: int) -> list[dict[str, Any]]:
        """Drop the records of steps that will be repeated; returns the others. A torn last line is dropped too."""
        self._check_writer()
        lines = self._metrics_lines()
        if lines[-1]:
            warnings.warn(f"the last line of {self.metrics_path} is not complete; it is dropped.", stacklevel=2)
            lines[-1] = ""
        records = [record for record in self._parse_metrics(lines) if record["steps_done"] <= steps_done]
        write_text(self.metrics_path, "".join(json.dumps(record) + "\n" for record in records))
        return records

    def save_state(self, model: Model, optimizer: torch.optim.Optimizer, steps_done: int, seconds: float) -> None:
        """Write model weights and optimizer state."""
        self._check_writer()
        tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
        for index, slots in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{name}": value for name, value in slots.items()}
        tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
        description = {"steps_done": steps_done, "seconds": seconds}
        write_tensors(self.state_path, tensors, kind="training state", description=description, run=self._run)

    def load_state(self) -> tuple[dict[str, Tensor], dict[int, dict[str, Tensor]], dict[str, Any]] | None:
        """Model weights, optimizer state and description of the last checkpoint; None if there is none.

        Raises:
            ValueError: the file is not a training state of this run, or cannot be read.
        """
        if not self.state_path.exists():
            return None
        tensors, description = read_tensors(self.state_path, kind="training state", run=self._run)
        # The file has all tensors in one mapping: `model/<name>` and `optimizer/<parameter>/<slot>`
        weights: dict[str, Tensor] = {}
        slots: dict[int, dict[str, Tensor]] = {}
        with reading(self.state_path, "a training state"):
            for name, tensor in tensors.items():
                if name.startswith("model/"):
                    weights[name.removeprefix("model/")] = tensor
                elif name.startswith("optimizer/"):
                    _, index, slot = name.split("/")
                    slots.setdefault(int(index), {})[slot] = tensor
            check_finite(self.state_path, weights)
            description = {"steps_done": int(description["steps_done"]), "seconds": float(description["seconds"])}
        return weights, slots, description

    def save_snapshot(self, model: Model, step: int) -> None:
        """Write the model of a step."""
        self._check_writer()
        self.snapshots.path.mkdir(exist_ok=True)
        self._write_for_good(self.snapshots.file(step), model)

    def load_snapshot(self, step: int) -> Any:
        """The model of a step.

        Raises:
            ForeignRun: the file is another one than was written.
            ValueError: there is no snapshot of this step, or it cannot be read.
        """
        model = self.snapshots.load(step)
        check_file(self.read_manifest(), self.path, self.snapshots.file(step))
        return model

    def save_best(self, model: Model) -> None:
        """Write the best model so far."""
        self._check_writer()
        write_bytes(self.best_path, checkpoint_bytes(model, self._run))

    def load_best(self) -> dict[str, Tensor]:
        """The weights of the best model so far.

        Raises:
            ValueError: the file is not a model of this run, or cannot be read.
        """
        weights, _ = read_tensors(self.best_path, kind="model", run=self._run)
        check_finite(self.best_path, weights)
        return weights

    def finish(self, model: Model, manifest: dict[str, Any]) -> None:
        """Write the trained model and remove the files needed only to resume.

        Raises:
            FolderInUse: the folder has another run's manifest by now.
        """
        self._check_writer()
        differences = manifest_differences(self._stored_manifest(), manifest)
        if differences:
            raise FolderInUse(f"{self.path} holds another run by now: {differences}. The trained model is not saved.")
        self._write_for_good(self.model_path, model, self.metrics_path)
        self._remove_checkpoint()

    def _write_for_good(self, path: Path, model: Model, *files: Path) -> None:
        """Write a model that will not be replaced, after its hash and those of further files are in the manifest."""
        content = checkpoint_bytes(model)
        manifest = self._stored_manifest()
        hashes = {path: hashlib.sha256(content).hexdigest(), **{file: file_digest(file) for file in files}}
        names = {file.relative_to(self.path).as_posix(): digest for file, digest in hashes.items()}
        write_json(self.manifest_path, {**manifest, HASHES: {**manifest[HASHES], **names}})
        write_bytes(path, content)

    def write_received(
        self, contents: Mapping[str, bytes], expected: Mapping[str, Any] | None = None, *, sender: str
    ) -> None:
        """Write the files of a trained model that was trained elsewhere, after a check that they are its own.

        Args:
            contents: All files by their paths in the folder, with slashes.
            expected: As in `is_trained`.
            sender: Where they are from, in words.

        Raises:
            ForeignRun: another run, or files that are not its own.
            ValueError: a manifest that cannot be read, or a file outside the folder.
        """
        advice = f"The files are from {sender}; they are not used."
        for name in contents:
            if not (self.path / name).resolve().is_relative_to(self.path.resolve()):
                raise ValueError(f"a run has a file outside its folder, {shortened(name)}. {advice}")
        # The files are those of the manifest, and that is of the expected run
        files = dict(contents)
        with reading(self.manifest_path, f"a manifest from {sender}"):
            manifest = parse_json(files.pop(self.manifest_path.name))
            check_contents(manifest, self.path, files, expected, advice=advice)
        # The trained model last, as it marks the run as finished
        self.clear()
        for name in sorted(contents, key=lambda name: name == self.model_path.name):
            path = self.path / name
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, contents[name])

    def load_model(self, expected: Mapping[str, Any] | None = None) -> Any:
        """The trained model.

        Args:
            expected: As in `is_trained`.

        Raises:
            ForeignRun: it is another model.
            ValueError: the run did not finish.
        """
        if not self.is_trained(expected):
            raise ValueError(f"the run in {self.path} did not finish; run the same training again to resume it.")
        return load_checkpoint(self.model_path)

    def tidy(self) -> None:
        """Remove what a process left that was killed after it had saved the model, unless another process writes."""
        if self.finished and any(path.exists() for path in self._leftovers()):
            with suppress(FolderInUse, OSError), self.writing():
                pass  # entering removes the leftovers

    def _remove_checkpoint(self) -> None:
        self.state_path.unlink(missing_ok=True)
        self.best_path.unlink(missing_ok=True)

    def _files(self) -> tuple[Path, ...]:
        """The files of a run: all but the manifest and `failed.json`. Snapshots have a folder of their own."""
        return (self.model_path, self.best_path, self.state_path, self.metrics_path)

    def _leftovers(self) -> list[Path]:
        """The files that a finished run does not need: those to resume, of a lock, and temporary ones."""
        return [self._lock_path, self._writer_path, self.state_path, self.best_path, *self._temporary_files()]

    def _temporary_files(self) -> list[Path]:
        """Files that are being written, or that killed processes left."""
        written = (*self._files(), self.manifest_path, self.failed_path, self._writer_path, self._clearing_path)
        prefixes = tuple(f".{path.name}." for path in written)
        return [path for path in self.path.iterdir() if path.name.startswith(prefixes)]

    def _remove_leftovers(self) -> None:
        """Remove temporary files of killed processes and checkpoints of finished runs; complete a killed `clear`."""
        for temporary in self._temporary_files():
            temporary.unlink(missing_ok=True)
        # A clear that has begun; its mark is removed last
        if self._clearing_path.exists():
            self.snapshots.clear()
            for path in (*self._files(), self.manifest_path, self._clearing_path):
                path.unlink(missing_ok=True)
        # The files that only an unfinished run needs
        if self.finished:
            self._remove_checkpoint()

    def _is_writer(self) -> bool:
        return self._this_process is not None and self.writer == self._this_process

    def _check_writer(self) -> None:
        if not self._is_writer():
            raise FolderInUse(
                f"{self.path} was removed, or taken by another process, while this run trained in it; nothing more is "
                f"written there."
            )

    def _metrics_lines(self) -> list[str]:
        """The lines of the metrics file; the last is empty unless it is torn."""
        if not self.metrics_path.exists():
            return [""]
        with reading(self.metrics_path, "a file of metrics"):
            return readable_file(self.metrics_path).read_bytes().decode("utf-8").split("\n")

    def _parse_metrics(self, lines: list[str]) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        complete = lines if lines[-1] else lines[:-1]
        for number, line in enumerate(complete, start=1):
            with reading(self.metrics_path, f"a file of metrics (line {number})"):
                record = parse_json(line, allow_nan=True)
                restored(MetricsRecord, record)
                step = record["steps_done"]
            if records and step <= records[-1]["steps_done"]:
                raise Unreadable(
                    f"{self.metrics_path} is not from one run: line {number} is of step {step}, the line before of "
                    f"step {records[-1]['steps_done']}. Train again with fresh=True."
                )
            records.append(record)
        return records


def take_lock(lock: BaseFileLock) -> None:
    """Take a lock of the operating system, at once.

    Raises:
        Timeout: another process has it.
        OSError, NotImplementedError: the file system has no locks, or does not allow them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flock not supported")
        try:
            lock.acquire()
        except Timeout:
            # `filelock` counts a lock that is not allowed as one that another process has
            if error := _refusal(Path(lock.lock_file)):
                raise error from None
            raise
    # Without locks of the system it makes a file instead, which would stay when the process is killed
    if isinstance(lock, SoftFileLock):
        lock.release()
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def _refusal(path: Path) -> OSError | None:
    """The error of a file that may not be locked; None if it may be, or another process has the lock."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        with path.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except OSError as error:
        return None if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK) else error
    return None
