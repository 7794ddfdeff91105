"""Files from outside that a study reads, from a folder that the user names: packs, and weights of others."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from hooks.files import user_path


@dataclass(frozen=True)
class OutsideFiles:
    """Files of a folder, which are not shipped. A subclass says which files, and which option names the folder."""

    folder: Path | None = None
    """None: there are no files."""

    option: ClassVar[str]
    """The option that names the folder: `--packs`."""
    word: ClassVar[str]
    """What the files are, in a word."""

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", user_path(self.folder))

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The files, in a fixed order.

        Raises:
            ValueError: there are none.
        """
        if self.missing:
            place = "there are" if self.folder is None else f"{self.folder} has"
            raise ValueError(f"{place} {self.missing}; give a folder with {self.option}.")
        return self._paths

    @cached_property
    def digest(self) -> str:
        """Digest of the names and the content of all files; empty if a file is missing."""
        if self.missing:
            return ""
        content = hashlib.sha256()
        for path in self._read_files:
            content.update(path.name.encode() + path.read_bytes())
        return content.hexdigest()[:16]

    @property
    def missing(self) -> str:
        """What the folder lacks, to follow "has"; empty if nothing."""
        raise NotImplementedError

    @property
    def missing_input(self) -> str:
        """What is missing for measuring claims about the files, with a remedy; empty if nothing is."""
        if not self.missing:
            return ""
        return f"It reads {self.word}, files from outside, and there are none; give their folder with {self.option}."

    def check_extra(self) -> None:
        """Check that the packages that make the files are installed; files of a folder need none.

        Raises:
            MissingExtra: a package of an extra is not installed.
        """

    def accepts(self, digest: str) -> bool:
        """Whether a number that was measured on other files, with this digest, is still shown, with a note."""
        return False

    @cached_property
    def _paths(self) -> tuple[Path, ...]:
        raise NotImplementedError

    @property
    def _read_files(self) -> tuple[Path, ...]:
        """The files whose content is read."""
        return self._paths


@dataclass(frozen=True)
class Packs(OutsideFiles):
    """All packs of a folder: `NAME.json` with `NAME.npz`; `paths` has the JSON files."""

    option: ClassVar[str] = "--packs"
    word: ClassVar[str] = "packs"

    @property
    def missing(self) -> str:
        return "" if self._paths else "no packs (NAME.json and NAME.npz)"

    @cached_property
    def _paths(self) -> tuple[Path, ...]:
        if self.folder is None:
            return ()
        with_arrays = [path for path in self.folder.glob("*.json") if path.with_suffix(".npz").is_file()]
        return tuple(sorted(with_arrays))

    @property
    def _read_files(self) -> tuple[Path, ...]:
        return tuple(file for path in self._paths for file in (path, path.with_suffix(".npz")))


@dataclass(frozen=True)
class WeightFiles(OutsideFiles):
    """Files with weights, by name, in a folder or in one of its folders: the clone of a repository, or a part of it."""

    names: tuple[str, ...] = ()
    """Names of the files, each with the folder that it is in: `certificates/model.json`. A file may also be in the
    named folder itself."""

    option: ClassVar[str] = "--weights"
    word: ClassVar[str] = "weights"

    @property
    def missing(self) -> str:
        if self.folder is None:
            return f"no weights ({', '.join(self.names)})"
        missing_names = [name for name in self.names if self._path(name) is None]
        return f"no {' and no '.join(missing_names)}" if missing_names else ""

    @cached_property
    def _paths(self) -> tuple[Path, ...]:
        paths = [self._path(name) for name in self.names]
        return tuple(path for path in paths if path is not None)

    def _path(self, name: str) -> Path | None:
        """The file of a name; None if there is none."""
        if self.folder is None:
            return None
        candidates = (self.folder / name, self.folder / Path(name).name)
        return next((path for path in candidates if path.is_file()), None)
