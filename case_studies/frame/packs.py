"""Folders of packs, files from outside that a study reads: `NAME.json` and `NAME.npz`."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[3] / "shared/reference"
"""Where the packs of a study are read from if no folder is given."""


@dataclass(frozen=True, repr=False)
class Packs:
    """All packs of a folder. Two are the same if their files are, wherever they are."""

    folder: Path

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The JSON file of each pack.

        Raises:
            ValueError: the folder has none.
        """
        found = tuple(sorted(path for path in self.folder.glob("*.json") if path.with_suffix(".npz").is_file()))
        if not found:
            raise ValueError(f"{self.folder} has no packs (NAME.json and NAME.npz); give a folder with --packs.")
        return found

    @cached_property
    def digest(self) -> str:
        """Digest of all files; empty if there are none."""
        if not self.folder.is_dir():
            return ""
        files = [file for path in self.paths for file in (path, path.with_suffix(".npz"))]
        return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"packs {self.digest}"
