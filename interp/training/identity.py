"""Whether files are those of a training run: one check for everything that reads a run, a bundle or a worker's reply.

A manifest has, as `sha256`, a hash of its own fields, and one of each file that is complete: snapshots when they are
written, metrics and weights when training has finished.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hooks.files import Unreadable, file_digest
from interp.core.content_key import content_key
from interp.training.manifest import ORIGIN, manifest_differences

HASHES = "sha256"
"""Field of a manifest with hashes by name of the file; that of the manifest's own fields is called `manifest`."""
NOT_HASHED = (HASHES, "resumed_on")
"""Fields of a manifest that change after it was first written."""
SPECIFIED = ("task", "config", "settings", "seed")
"""Fields of every manifest whose hash, with those of `ORIGIN`, is the key of a `ModelSpec`."""
KEY = re.compile("[0-9a-f]{20}")
ADVICE = "Put its own files back, or move the folder away and train again."


class ForeignRun(Unreadable):
    """Files are not those of the run that their folder should have."""


def hash_of_fields(manifest: Mapping[str, Any]) -> str:
    """Hash of a manifest without the fields that change later."""
    return content_key({name: value for name, value in manifest.items() if name not in NOT_HASHED}, length=64)


def check_manifest(
    manifest: Mapping[str, Any], folder: Path, expected: Mapping[str, Any] | None = None, *, advice: str = ADVICE
) -> None:
    """Check that a manifest is as it was written, and that it is of the run that its folder should have.

    A folder that is named by a key should have the model of that key.

    Args:
        manifest: The manifest.
        folder: Folder of the run.
        expected: Fields of the manifest that the run should have, as `ModelSpec.description`; None if that is unknown.
        advice: What to do about another run, for the error.

    Raises:
        ForeignRun: another run, or a manifest that has changed.
    """
    if expected is not None and (differences := manifest_differences(manifest, expected, (*SPECIFIED, *ORIGIN))):
        raise ForeignRun(f"{folder} holds another run: {differences}. {advice}")
    if hash_of_fields(manifest) != manifest[HASHES].get("manifest"):
        raise ForeignRun(f"the manifest.json of {folder} was changed after training began. {advice}")
    key = content_key({name: manifest[name] for name in (*SPECIFIED, *ORIGIN) if name in manifest})
    if KEY.fullmatch(folder.name) and key != folder.name:
        raise ForeignRun(
            f"{folder} holds another run: the model {key}, of seed {manifest['seed']} and task "
            f"{manifest['task'].get('task')}. {advice}"
        )


def check_file(manifest: Mapping[str, Any], folder: Path, path: Path) -> None:
    """Check that a file of a run has the hash that its manifest gives.

    Args:
        manifest: The manifest, which has been checked.
        folder: Folder of the run.
        path: The file. It is read once per process, unless it is changed.

    Raises:
        ForeignRun: another file.
        OSError: it cannot be read.
    """
    name = path.relative_to(folder).as_posix()
    if not path.exists():
        raise ForeignRun(f"{path} is missing, which this run wrote. {ADVICE}")
    check_digest(manifest, folder, name, file_digest(path))


def check_digest(manifest: Mapping[str, Any], folder: Path, name: str, digest: str, *, advice: str = ADVICE) -> None:
    """Check the hash of a run's file.

    Args:
        manifest: The manifest.
        folder: Folder of the run.
        name: The file's path in the folder, with slashes.
        digest: SHA-256 of its content.
        advice: What to do about another file, for the error.

    Raises:
        ForeignRun: another hash, or none for this file.
    """
    if manifest[HASHES].get(name) != digest:
        raise ForeignRun(
            f"{folder / name} is not the file that this run wrote: its SHA-256 is {digest[:12]}..., that in "
            f"manifest.json {str(manifest[HASHES].get(name, 'absent'))[:12]}. {advice}"
        )


def check_contents(
    manifest: Mapping[str, Any],
    folder: Path,
    contents: Mapping[str, bytes],
    expected: Mapping[str, Any] | None,
    *,
    advice: str,
) -> None:
    """Check the files of a run before they are written to its folder.

    Args:
        manifest: Its manifest.
        folder: Where they will be written.
        contents: The other files by their paths in the folder, with slashes.
        expected: As in `check_manifest`.
        advice: What to do about another run, for the error.

    Raises:
        ForeignRun: another run, or files that are not its own.
    """
    check_manifest(manifest, folder, expected, advice=advice)
    for name, content in contents.items():
        check_digest(manifest, folder, name, hashlib.sha256(content).hexdigest(), advice=advice)
