"""Folders of packs, files from outside that a study reads: `NAME.json` and `NAME.npz`."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Packs:
    """All packs of a folder."""

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
        content = hashlib.sha256()
        for path in self._paths:
            for file in (path, path.with_suffix(".npz")):
                content.update(file.name.encode() + file.read_bytes())
        return content.hexdigest()[:16]

    @cached_property
    def _paths(self) -> tuple[Path, ...]:
        if self.folder is None:
            return ()
        with_arrays = [path for path in self.folder.glob("*.json") if path.with_suffix(".npz").is_file()]
        return tuple(sorted(with_arrays))
