"""Bundles: one archive with a study's results, hashes, environment, cost and models, which can be checked offline.

A bundle is not trusted: its files are read by name and never unpacked to paths that it chooses,
hashes are compared before anything is parsed, and nothing in it is executed.
"""

import hashlib
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from case_studies.frame.provenance import weights_digest
from case_studies.frame.stored import CLAIMS, DETAILS, LARGEST, StoredResults, parse_results
from case_studies.review.crate import CODECHECK, CRATE, codecheck, describe, ro_crate
from hooks.files import write_bytes
from interp.sweeps.spec import ModelSpec

SUMS = "SHA256SUMS"
RESULTS = "results"
MODEL_FILES = ("manifest.json", "metrics.jsonl", "model.safetensors")
"""Files of a trained model that a bundle can have."""
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
"""Valid names of files in a bundle: relative, without hidden files or dots for folders."""
LARGEST_BUNDLE = 64 * 2**30
"""Bytes of all files of a bundle, unpacked."""
_BLOCK = 2**20


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle whose hashes have been checked."""

    path: Path
    sums: Mapping[str, str]
    """SHA-256 by name of the file."""

    @property
    def has_models(self) -> bool:
        """Whether it has trained models."""
        return any(name.startswith("models/") for name in self.sums)

    @property
    def digest(self) -> str:
        """Digest of the hashes, for a folder's name."""
        return hashlib.sha256(str(sorted(self.sums.items())).encode()).hexdigest()[:12]

    def results(self, study: str) -> StoredResults:
        """Its results.

        Raises:
            ValueError: they are of another study or cannot be read.
        """
        claims, details = (self._read(f"{RESULTS}/{name}") for name in (CLAIMS, DETAILS))
        return parse_results(claims, details, study=study, origin=str(self.path))

    def unpack_models(self, folder: Path, keys: Iterable[str]) -> None:
        """Write its models with these keys to a folder, each to one of its name; others are ignored."""
        with zipfile.ZipFile(self.path) as archive:
            for key in keys:
                names = {name: f"models/{key}/{name}" for name in MODEL_FILES}
                if all(inside in self.sums for inside in names.values()):
                    for name, inside in names.items():
                        write_bytes(folder / key / name, self._content(archive, inside))

    def _read(self, name: str) -> bytes:
        with zipfile.ZipFile(self.path) as archive:
            if name not in self.sums:
                raise ValueError(f"{self.path} is not a bundle: it has no {name}.")
            if archive.getinfo(name).file_size > LARGEST:
                raise ValueError(f"{name} in {self.path} has more than {LARGEST} bytes.")
            return self._content(archive, name)

    def _content(self, archive: zipfile.ZipFile, name: str) -> bytes:
        """Content of a file, whose hash is compared again: the archive may have changed since it was opened."""
        content = archive.read(name)
        if hashlib.sha256(content).hexdigest() != self.sums[name]:
            raise ValueError(f"{self.path} was changed while it was read.")
        return content


def open_bundle(path: Path) -> Bundle:
    """Check the hashes of all files of a bundle.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a bundle, has invalid names, or is damaged; the message names the file that differs.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no archive {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            return Bundle(path=path, sums=_checked(archive, path))
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged or not a bundle: it cannot be read as a zip archive ({error}).") from None


def _checked(archive: zipfile.ZipFile, path: Path) -> dict[str, str]:
    """Hashes by name, after all have been compared."""
    names = archive.namelist()
    counts = Counter(names)
    for name in names:
        if not NAME.fullmatch(name) or counts[name] > 1:
            raise ValueError(f"{path} has a file named {name!r}; a bundle has each file once, at a relative path.")
    if SUMS not in names:
        raise ValueError(f"{path} is not a bundle: it has no {SUMS}.")
    if sum(one.file_size for one in archive.infolist()) > LARGEST_BUNDLE or archive.getinfo(SUMS).file_size > LARGEST:
        raise ValueError(f"{path} has more than {LARGEST_BUNDLE} bytes unpacked.")
    lines = archive.read(SUMS).decode("utf-8", "replace").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for name in [*sums, *names]:
        if name not in counts:
            raise ValueError(f"{path} is damaged: it lacks {name[:80]!r}, which {SUMS} lists.")
        if name not in sums and name != SUMS:
            raise ValueError(f"{path} is damaged: it has {name}, which {SUMS} does not list.")
    for name, digest in sums.items():
        found = hashlib.sha256()
        try:
            with archive.open(name) as file:
                while block := file.read(_BLOCK):
                    found.update(block)
        except Exception as error:  # of zipfile, zlib, lzma ...
            raise ValueError(f"{path} is damaged: {name} cannot be read ({error}).") from None
        if found.hexdigest() != digest:
            raise ValueError(f"{path} is damaged: the SHA-256 of {name} is not that in {SUMS}.")
    return sums


def write_bundle(
    path: Path, stored: StoredResults, *, title: str, specs: Mapping[str, ModelSpec], models: Path, with_models: bool
) -> Path:
    """Write a bundle; equal results, models and environment give equal bytes.

    Args:
        path: The archive.
        stored: The results.
        title: The study's title.
        specs: The study's models at this size, by key.
        models: Folder of trained models.
        with_models: Whether it has the trained models; otherwise only their keys and hashes.

    Raises:
        ValueError: with_models, and a model has not been trained.
    """
    listed: list[dict[str, Any]] = []
    large: dict[str, Path] = {}
    for key, spec in sorted(specs.items()):
        files = {f"models/{key}/{name}": models / key / name for name in MODEL_FILES} if with_models else {}
        missing = [file for file in files.values() if not file.exists()]
        if missing:
            raise ValueError(
                f"the model {key} (seed {spec.seed}) is not in {models}; train it, or bundle without models."
            )
        large |= files
        listed.append({"key": key, "seed": spec.seed, "weights": weights_digest(models / key), "files": list(files)})
    small = {f"{RESULTS}/{name}": content for name, content in stored.files.items()}
    small |= describe(stored.content, title, listed) | {CODECHECK: codecheck(stored.content, title)}
    sized = {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in sorted(small.items())}
    sized |= {name: (file.stat().st_size, _sha256(file)) for name, file in sorted(large.items())}
    small[CRATE] = ro_crate(stored.content, title, sized)
    sums = {name: digest for name, (_, digest) in sized.items()} | {CRATE: hashlib.sha256(small[CRATE]).hexdigest()}
    small[SUMS] = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with zipfile.ZipFile(part, "w") as archive:
            for name in sorted({*small, *large}):
                _add(archive, name, small[name] if name in small else large[name].read_bytes())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
    archive.writestr(entry, content, compresslevel=9)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
