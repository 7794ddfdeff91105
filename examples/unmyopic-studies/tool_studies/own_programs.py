"""Our own RASP programs as packs: compiled when a study first reads them, and kept in the user's cache."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from case_studies.frame.packs import Packs
from case_studies.frame.provenance import source_digest
from hooks.extras import MissingExtra, require
from interp.core.content_key import content_key
from interp.known_answers.compiled.compiling import compiled
from interp.known_answers.compiled.packing import file_name, write_compiled
from interp.known_answers.compiled.programs.suite import PROGRAMS

PREFIX = "own-"
"""Beginning of the digest of our own programs; that of packs from outside has none."""
N_INPUTS = 1000
"""Largest number of inputs of a program: all of 28 programs, and more than half of those of the others."""
PACKAGE = "interp.known_answers.compiled"
"""What compiles them."""


def cache_folder() -> Path:
    """Folder for files that can be made again: `XDG_CACHE_HOME`, or `.cache` in the user's home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unmyopic"


@dataclass(frozen=True)
class OwnPrograms(Packs):
    """Packs of our own programs, for a study that was given no folder of packs. Needs the extra `tracr`."""

    folder: Path | None = field(default_factory=cache_folder)
    """Compiled programs are kept here, by the digest of their sources and the versions of tracr and jax."""
    names: tuple[str, ...] = tuple(PROGRAMS)

    @cached_property
    def digest(self) -> str:
        """Digest of their names; it does not depend on whether tracr is installed."""
        return PREFIX + content_key(list(self.names), length=16)

    @property
    def missing(self) -> str:
        return ""

    @property
    def missing_input(self) -> str:
        try:
            self.check_extra()
        except MissingExtra as error:
            return f"It compiles programs. {error}"
        return ""

    def check_extra(self) -> None:
        require("tracr", extra="tracr")

    def accepts(self, digest: str) -> bool:
        """Numbers that were measured on packs from outside are shown until they are measured on our own programs."""
        return bool(digest) and not digest.startswith(PREFIX)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The JSON file of each program; programs that are not there are compiled first.

        Raises:
            MissingExtra: tracr is not installed.
        """
        self.check_extra()
        versions = "-".join(version(package) for package in ("tracr-pypi", "jax"))
        folder = Path(str(self.folder)) / "programs" / f"{source_digest(PACKAGE)[:16]}-{versions}"
        paths = {name: folder / f"{file_name(name)}.json" for name in self.names}
        # Two processes that start together compile from different ends, and find what the other has written
        names = list(self.names) if os.getpid() % 2 else list(reversed(self.names))
        for name in names:
            if not paths[name].is_file():
                write_compiled(compiled(name, n=N_INPUTS), paths[name])
        return tuple(paths.values())
