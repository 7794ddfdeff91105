"""Folders of packs, files from outside that a study reads: `NAME.json` and `NAME.npz`."""

import functools
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True, repr=False)
class Packs:
    """All packs of a folder. Two are the same if their files are, wherever they are."""

    folder: Path | None = None
    """None: there are no packs."""

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The JSON file of each pack.

        Raises:
            ValueError: there are none.
        """
        if not self._paths:
            place = "there are" if self.folder is None else f"{self.folder} has"
            raise ValueError(f"{place} no packs (NAME.json and NAME.npz); give a folder with --packs.")
        return self._paths

    @cached_property
    def digest(self) -> str:
        """Digest of all files; empty if there are none."""
        if not self._paths:
            return ""
        files = [file for path in self._paths for file in (path, path.with_suffix(".npz"))]
        return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()[:16]

    @cached_property
    def _paths(self) -> tuple[Path, ...]:
        if self.folder is None:
            return ()
        return tuple(sorted(path for path in self.folder.glob("*.json") if path.with_suffix(".npz").is_file()))

    def __repr__(self) -> str:
        return f"packs {self.digest}"


def packs_digest(measure: Any) -> str:
    """Digest of the packs that a measure reads; empty if it reads none."""
    while isinstance(measure, functools.partial):
        for argument in (*measure.args, *measure.keywords.values()):
            if isinstance(argument, Packs):
                return argument.digest
        measure = measure.func
    return ""
