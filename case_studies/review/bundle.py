"""Bundles: one archive with a study's results, hashes, environment and models, which can be checked offline.

A bundle is not trusted: its files are read by name and never unpacked to paths that it chooses,
hashes are compared before anything is parsed, and nothing in it is executed.
"""

import hashlib
import json
import platform
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from case_studies.frame.provenance import training_seconds, weights_digest
from case_studies.frame.stored import CLAIMS, DETAILS, LARGEST, StoredResults, parse_results
from case_studies.review.rounded import ROUNDED_WEIGHTS, WEIGHTS, expanded, rounded_files
from hooks.files import file_digest, readable_file, reading, writing
from interp.core.environment import source_version
from interp.sweeps.spec import ModelSpec
from interp.training.folder import RunFolder
from interp.training.identity import ForeignRun

SUMS = "SHA256SUMS"
RESULTS = "results"
MODEL_FILES = ("manifest.json", "metrics.jsonl", WEIGHTS)
"""Files of a trained model."""
FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
"""Valid names of files in a bundle: relative, without hidden files or dots for folders."""
LARGEST_BUNDLE = 64 * 2**30
"""Bytes of all files of a bundle, unpacked."""
README = """# {title}

Results of the study `{study}` at size `{size}`, {date}. Two commands check them, without network access: the first the
hashes of all files of this folder, unpacked; the second the hashes, and then every claim, measured again and compared
with the number stored here. `{study}.zip` is the path of the archive.

    sha256sum --check SHA256SUMS
    interp reproduce {study} --check --against {study}.zip

The second needs unmyopic {version}{commit}. It prints `same`, `within` or `differs` for each claim, with what is not as
it was, and ends with exit code 0, or 3 if a claim differs. {models} Measuring all claims took {minutes} minutes of one
process.

- `results/claims.json`: every claim with its number, interval, verdict, cost and provenance
- `results/details.json.xz`: charts as Vega-Lite, tables, and settings of the models
- `models.json`: key, seed and SHA-256 of the weights of each model
- `requirements.txt`: the installed packages, with Python {python} on {platform}

Hashes show damage; they do not show who made the archive.
"""


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

    @cached_property
    def rounded(self) -> frozenset[str]:
        """Keys of the models whose weights are rounded to half precision."""
        paths = [Path(name) for name in self.sums]
        return frozenset(path.parent.name for path in paths if path.name == ROUNDED_WEIGHTS)

    @property
    def digest(self) -> str:
        """Digest of the hashes, for a folder's name."""
        return hashlib.sha256(str(sorted(self.sums.items())).encode()).hexdigest()[:12]

    def results(self, study: str) -> StoredResults:
        """Its results.

        Raises:
            ValueError: they are of another study or cannot be read.
        """
        claims = self._read(f"{RESULTS}/{CLAIMS}")
        details = self._read(f"{RESULTS}/{DETAILS}")
        return parse_results(claims, details, study=study, origin=str(self.path))

    def unpack_models(self, folder: Path, keys: Iterable[str]) -> frozenset[str]:
        """Write its models with these keys to a folder, each to a folder of its key; other models are ignored.

        Args:
            folder: Folder of trained models.
            keys: The keys, which are hashes of everything that determines a model.

        Returns:
            The keys of the models that are in the folder now.

        Raises:
            ForeignRun: a model is another one than its key says, or its files are not those that its training wrote;
                no further model is written.
        """
        listed = {}
        if "models.json" in self.sums:
            with reading(self.path, "a bundle (its models.json)"):
                listed = {model["key"]: model["weights"] for model in json.loads(self._read("models.json"))}
        written = set()
        with zipfile.ZipFile(self.path) as archive:
            for key in keys:
                paths = {name: f"models/{key}/{name}" for name in MODEL_FILES}
                if key in self.rounded:
                    paths[WEIGHTS] = f"models/{key}/{ROUNDED_WEIGHTS}"
                if not set(paths.values()) <= self.sums.keys():  # not in the bundle: it will be trained
                    continue
                if listed.get(key) != self.sums[paths[WEIGHTS]]:
                    raise ForeignRun(
                        f"the weights of model {key} in {self.path} are not those of its models.json. Get another copy "
                        f"of the bundle, or check the claims with --fresh, which trains its models again."
                    )
                contents = {name: self._content(archive, path) for name, path in paths.items()}
                if key in self.rounded:
                    contents[WEIGHTS] = expanded(contents[WEIGHTS])
                files = RunFolder(folder / key)
                written.add(key)
                # A check before this one has written them, or one that runs at the same time
                if not (self._has_files(files.path, paths) and files.is_trained()):
                    with files.writing():
                        files.write_received(contents, sender=f"the bundle {self.path}")
        return frozenset(written)

    def _has_files(self, folder: Path, paths: Mapping[str, str]) -> bool:
        """Whether a folder has the files of a model: their paths in the bundle, by name."""
        if not all((folder / name).is_file() for name in paths):
            return False
        # Rounded weights are expanded, and compared with the manifest's hash instead
        unpacked = {name: path for name, path in paths.items() if Path(path).name == name}
        return all(file_digest(folder / name) == self.sums[path] for name, path in unpacked.items())

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


def open_bundle(path: str | Path) -> Bundle:
    """Check the hashes of all files of a bundle.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a bundle, has invalid names, or is damaged; the message names the file that differs.
    """
    path = readable_file(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no archive {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            return Bundle(path=path, sums=_checked_sums(archive, path))
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged or not a bundle: it cannot be read as a zip archive ({error}).") from None


def _checked_sums(archive: zipfile.ZipFile, path: Path) -> dict[str, str]:
    """Hashes by name, after all have been compared."""
    # Names and sizes, before anything is unpacked
    names = Counter(archive.namelist())
    for name, count in names.items():
        if not FILE_NAME.fullmatch(name) or count > 1:
            raise ValueError(f"{path} has a file named {name!r}; a bundle has each file once, at a relative path.")
    if SUMS not in names:
        raise ValueError(f"{path} is not a bundle: it has no {SUMS}.")
    total_size = sum(entry.file_size for entry in archive.infolist())
    if total_size > LARGEST_BUNDLE or archive.getinfo(SUMS).file_size > LARGEST:
        raise ValueError(f"{path} has more than {LARGEST_BUNDLE} bytes unpacked.")
    # The files are those that the list of hashes names
    sums: dict[str, str] = {}
    for line in archive.read(SUMS).decode("utf-8", "replace").splitlines():
        digest, _, name = line.partition("  ")
        sums[name] = digest
    for name in sums:
        if name not in names:
            raise ValueError(f"{path} is damaged: it lacks {name[:80]!r}, which {SUMS} lists.")
    for name in names:
        if name not in sums and name != SUMS:
            raise ValueError(f"{path} is damaged: it has {name}, which {SUMS} does not list.")
    # Their contents have these hashes
    for name, digest in sums.items():
        try:
            with archive.open(name) as file:
                content_digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # has readinto
        except Exception as error:  # of zipfile, zlib, lzma ...
            raise ValueError(f"{path} is damaged: {name} cannot be read ({error}).") from None
        if content_digest != digest:
            raise ValueError(f"{path} is damaged: the SHA-256 of {name} is not that in {SUMS}.")
    return sums


def write_bundle(
    path: Path,
    stored: StoredResults,
    *,
    specs: Mapping[str, ModelSpec],
    models: Path,
    with_models: bool,
    half: Collection[str] = (),
) -> Path:
    """Write a bundle; equal results, models and environment give equal bytes.

    Args:
        path: The archive.
        stored: The results.
        specs: The models that its measured claims need, by key.
        models: Folder of trained models.
        with_models: Whether it has the trained models; otherwise only their keys and hashes.
        half: Keys of the models whose weights are rounded to half precision, unless a weight is too large for it.

    Raises:
        ValueError: with_models, and a model has not been trained, or (`ForeignRun`) is another one than its key says.
    """
    # The files of the bundle: small ones as content, those of models as paths
    model_files = _model_files(specs, models) if with_models else {}
    contents = {f"{RESULTS}/{name}": content for name, content in stored.files.items()}
    if with_models:
        contents |= _round(model_files, half, models)
    contents["README.md"] = _readme(stored.content, _models_text(model_files, contents, specs, models)).encode()
    contents["requirements.txt"] = _requirements().encode()
    contents["models.json"] = _models(specs, models, {*model_files, *contents}, contents).encode()
    # The hashes of all of them
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    sums |= {name: _sha256(file) for name, file in model_files.items()}
    contents[SUMS] = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode()
    with writing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name in sorted({*contents, *model_files}):
            content = contents[name] if name in contents else model_files[name].read_bytes()
            _add(archive, name, content)
    return path


def _model_files(specs: Mapping[str, ModelSpec], models: Path) -> dict[str, Path]:
    """The files of trained models, by their names in the bundle."""
    files: dict[str, Path] = {}
    for key, spec in sorted(specs.items()):
        if not RunFolder(models / key).is_trained(spec.description):
            raise ValueError(
                f"the model {key} (seed {spec.seed}) is not in {models}; train it, or bundle without models."
            )
        for name in MODEL_FILES:
            file = models / key / name
            files[f"models/{key}/{name}"] = file
    return files


def _round(model_files: dict[str, Path], half: Collection[str], models: Path) -> dict[str, bytes]:
    """Manifests and weights of the models that can be rounded, by name; their original files are taken off the list."""
    contents: dict[str, bytes] = {}
    for key in sorted(half):
        files = rounded_files(RunFolder(models / key))
        if files is not None:
            contents |= {f"models/{key}/{name}": content for name, content in files.items()}
            for name in ("manifest.json", WEIGHTS):
                del model_files[f"models/{key}/{name}"]
    return contents


def _models(specs: Mapping[str, ModelSpec], models: Path, names: Collection[str], contents: Mapping[str, bytes]) -> str:
    """Key, seed, digest of the weights and files of each model, as JSON; rounded ones with the digest before that."""
    listed = []
    for key, spec in sorted(specs.items()):
        files = sorted(name for name in names if name.startswith(f"models/{key}/"))
        entry = {"key": key, "seed": spec.seed, "weights": weights_digest(models / key), "files": files}
        rounded = contents.get(f"models/{key}/{ROUNDED_WEIGHTS}")
        if rounded is not None:
            entry |= {"weights": hashlib.sha256(rounded).hexdigest(), "rounded_from": entry["weights"]}
        listed.append(entry)
    return json.dumps(listed, indent=1) + "\n"


def _models_text(
    model_files: Mapping[str, Path], contents: Mapping[str, bytes], specs: Mapping[str, ModelSpec], models: Path
) -> str:
    """What the README says of the models: number, size, precision, and what training them took."""
    n_rounded = sum(Path(name).name == ROUNDED_WEIGHTS for name in contents)
    if not model_files:
        return "Models that are not in `--out` are trained."
    size = sum(file.stat().st_size for file in model_files.values())
    size += sum(len(content) for name, content in contents.items() if name.startswith("models/"))
    hours = training_seconds([RunFolder(models / key) for key in specs]) / 3600
    text = (
        f"The {len(specs)} trained models are in `models/`, {size / 1e6:.1f} MB; training them took {hours:.1f} hours."
    )
    if n_rounded:
        text += (
            f" The weights of {n_rounded} are rounded to half precision, where every claim that reads them has an "
            f"interval; their claims are `within`, not `same`."
        )
    return text


def _readme(content: Mapping[str, Any], models: str) -> str:
    """The README with the study, the version and the commit that it needs, and what it costs."""
    source = source_version()
    commit = ""
    if source["commit"]:
        commit = f", commit {source['commit']}{' with changes' if source['changed'] else ''}"
    seconds = sum(claim["cost"]["seconds"] for claim in content["claims"])
    return README.format(
        title=content["title"],
        minutes=f"{seconds / 60:.0f}",
        study=content["study"],
        size=content["size"],
        date=str(content["manifest"]["time"])[:10],
        version=source["version"],
        commit=commit,
        python=platform.python_version(),
        platform=platform.platform(),
        models=models,
    )


def _requirements() -> str:
    """Versions of all installed packages."""
    packages = {(package.metadata["Name"] or "").lower(): package.version for package in distributions()}
    return "".join(f"{name}=={packages[name]}\n" for name in sorted(packages) if name)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file with a fixed date and rights, so that equal contents give equal archives."""
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content, compresslevel=9)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
