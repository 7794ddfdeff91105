"""Text corpora: the Python standard library, a folder, a Hugging Face data set, or documents in memory."""

import hashlib
import json
import lzma
import os
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from hooks.checks import check_choice, check_class
from hooks.extras import require
from hooks.files import user_path
from interp.tasks.base import Split

HELD_OUT_SHARE = 0.05
"""Share of the documents in each of validation and test."""
MOST_CHARACTERS = 1_000_000
"""Most characters of documents in memory, since manifests contain their text."""
_SURROGATE = re.compile("[\ud800-\udfff]")
PYTHON_VERSION = "3.11.7"
PYTHON_FILE = Path(__file__).with_name("python_3_11_7.json.xz")
"""Sources of the standard library by path, the same on every machine."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Named documents, each in one split.

    Documents are ordered by a hash of their names: the first twentieth, at least one, is for test, the same number is
    for validation, the rest for training. Documents of white space only are dropped.

    Corpora are equal if their names and texts are. Pickling stores the source and a fingerprint, not the text, which
    is read again and checked.

    Raises:
        ValueError: fewer than three non-empty documents, a document that is not a string or has a lone surrogate, or
            more than a million characters of documents in memory.

    >>> from interp.tasks import Corpus
    >>> corpus = Corpus(documents={f"page {n}": f"This is page {n}." for n in range(20)})
    >>> {split: len(names) for split, names in corpus.split.items()}
    {'train': 18, 'validation': 1, 'test': 1}
    """

    documents: Mapping[str, str] = field(repr=False)
    """Text of each document."""
    source: Mapping[str, Any] = field(default_factory=lambda: {"source": "documents"}, repr=False)
    """Origin of the documents; set by the class methods."""

    def __post_init__(self):
        check_class("documents", self.documents, Mapping)
        # every text is a string that can be encoded
        for name, text in self.documents.items():
            if not isinstance(text, str):
                raise ValueError(f"documents[{reprlib.repr(name)}] is {type(text).__name__}; it must be a string.")
            surrogate = _SURROGATE.search(text)
            if surrogate:
                raise ValueError(
                    f"documents[{reprlib.repr(name)}] has a lone surrogate ({surrogate[0]!r}, at character "
                    f"{surrogate.start()}), which is not text. Decode the bytes with errors='replace'."
                )
        # sorted, without empty documents
        documents = {name: self.documents[name] for name in sorted(self.documents) if self.documents[name].strip()}
        object.__setattr__(self, "documents", documents)
        if len(documents) < 3:
            raise ValueError(
                f"the corpus has {len(documents)} non-empty documents, of {self._origin}; three are needed, one for "
                f"each split. Split longer ones."
            )
        size = sum(map(len, documents.values()))
        if self.source["source"] == "documents" and size > MOST_CHARACTERS:
            raise ValueError(
                f"documents has {size} characters; a manifest can store at most {MOST_CHARACTERS}. Write them to files "
                f"and use Corpus.from_folder."
            )

    @classmethod
    def python(cls) -> "Corpus":
        """Sources of the standard library of Python 3.11.7, whichever Python runs: 9 MB, including docstrings.

        They are shipped with this package (PSF licence, version 2). Excluded: tests, IDLE, codecs, a few generated
        tables, and files that are not UTF-8.
        """
        return _python()

    @classmethod
    def from_folder(cls, path: str | Path, pattern: str = "**/*.txt") -> "Corpus":
        """One document per file of a folder whose name matches a pattern.

        Args:
            path: The folder.
            pattern: Pattern of `pathlib.Path.glob`.

        Raises:
            FileNotFoundError: no such folder.
            ValueError: a file instead of a folder, an unreadable folder, no matching file, a file that is not UTF-8,
                or an invalid corpus.
        """
        # a folder that can be read
        folder = user_path(path).resolve()
        if not folder.exists():
            raise FileNotFoundError(f"path is {folder}; there is no such folder.")
        if not folder.is_dir():
            raise ValueError(f"path is {folder}, a file; give its folder and a pattern.")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ValueError(f"path is {folder}, which this user may not read.")
        # its files of the pattern
        try:
            files = sorted(file for file in folder.glob(pattern) if file.is_file())
        except (NotImplementedError, ValueError) as error:
            raise ValueError(f"pattern is {pattern!r}: {error}. Give one relative to the folder: **/*.md") from None
        if not files:
            raise ValueError(f"no file in {folder} matches the pattern {pattern!r}.")
        # their texts, by path in the folder
        documents = {}
        for file in files:
            name = file.relative_to(folder).as_posix()
            try:
                documents[name] = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise ValueError(f"{file} is not UTF-8; convert it, or choose a pattern that excludes it.") from None
            except OSError as error:
                raise ValueError(f"{file} cannot be read: {error.strerror}.") from None
        return cls(documents=documents, source={"source": "folder", "path": str(folder), "pattern": pattern})

    @classmethod
    def from_hub(
        cls,
        name: str,
        *,
        config: str | None = None,
        split: str = "train",
        column: str = "text",
        most: int = 10_000,
        revision: str | None = None,
    ) -> "Corpus":
        """One document per row of a data set on the Hugging Face hub. Needs network access or a cached copy.

        Args:
            name: Data set, such as `roneneldan/TinyStories`.
            config: Configuration of the data set.
            split: Split to read; training, validation and test are taken from it.
            column: Column of the text.
            most: Number of rows to read, from the first.
            revision: Commit or tag; default: the newest.

        Raises:
            ConnectionError: the hub cannot be reached.
            ValueError: no such data set, configuration, split or column, or an invalid corpus.
        """
        require("datasets", extra="text")
        import datasets

        try:
            rows: Any = datasets.load_dataset(name, config, split=f"{split}[:{most}]", revision=revision)
        except ConnectionError as error:
            raise ConnectionError(
                f"the data set {name!r} is not on this machine, and the hub cannot be reached ({error}). Connect, or "
                f"use local text: Corpus.from_folder, or 'python'."
            ) from None
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(f"the data set {name!r} cannot be read: {error}") from None
        if column not in rows.column_names:
            raise ValueError(f"column is {column!r}; the data set {name!r} has {', '.join(rows.column_names)}.")
        # rows by number, with leading zeros: documents are sorted by name
        documents = {f"{index:09}": str(text) for index, text in enumerate(rows[column])}
        options = {"name": name, "config": config, "split": split, "column": column, "most": most, "revision": revision}
        return cls(documents=documents, source={"source": "hub", **options})

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all names and texts."""
        digest = hashlib.sha256()
        for name, text in self.documents.items():
            # the length before each string, so that no two corpora give the same bytes
            for string in (name, text):
                content = string.encode("utf-8", "surrogatepass")
                digest.update(len(content).to_bytes(8, "big") + content)
        return digest.hexdigest()[:16]

    @cached_property
    def split(self) -> dict[Split, tuple[str, ...]]:
        """Names of the documents of each split, sorted."""
        order = sorted(self.documents, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest())
        n_held_out = max(1, round(HELD_OUT_SHARE * len(order)))
        return {
            "train": tuple(sorted(order[2 * n_held_out :])),
            "validation": tuple(sorted(order[n_held_out : 2 * n_held_out])),
            "test": tuple(sorted(order[:n_held_out])),
        }

    def texts(self, split: Split) -> list[str]:
        """Documents of a split, sorted by name.

        Raises:
            ValueError: an unknown split.
        """
        check_choice("split", split, Split)
        return [self.documents[name] for name in self.split[split]]

    def describe(self) -> dict:
        """Source and fingerprint as plain values; the text itself only if it is in memory."""
        description = {**self.source, "fingerprint": self.fingerprint}
        if self.source["source"] == "documents":
            description["documents"] = dict(self.documents)
        return description

    @classmethod
    def from_description(cls, values: dict) -> "Corpus":
        """Read the corpus that `describe` has described.

        Raises:
            ValueError: an unknown source, or changed text (the message gives both fingerprints).
            FileNotFoundError: the folder does not exist.
            ConnectionError: the hub cannot be reached.
        """
        # the constructor of the source, with its arguments
        options = {name: value for name, value in values.items() if name not in ("source", "fingerprint")}
        source = values.get("source")
        constructors: dict[Any, Any] = {"folder": cls.from_folder, "hub": cls.from_hub, "documents": cls}
        if source == "python":
            corpus = cls.python()
        elif source in constructors:
            corpus = constructors[source](**options)
        else:
            raise ValueError(f"the source of the text is {source!r}; known sources: python, {', '.join(constructors)}.")
        # the same text
        fingerprint = values.get("fingerprint")
        if fingerprint in (None, corpus.fingerprint):
            return corpus
        stored_version = f" of Python {options['python']}" if "python" in options else ""
        raise ValueError(
            f"the text{stored_version} had fingerprint {fingerprint}; {corpus._origin} has {corpus.fingerprint}: the "
            f"text has changed. Use the original text, or make a new task."
        )

    @property
    def _origin(self) -> str:
        """Short description of the source."""
        for key, words in (("path", "the folder"), ("name", "the data set"), ("python", "the library of Python")):
            if key in self.source:
                return f"{words} {self.source[key]}"
        return f"{len(self.documents)} documents in memory"

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Corpus) and self.fingerprint == value.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Corpus({self._origin}, {len(self.documents)} documents, {self.fingerprint})"

    def __reduce__(self):
        return Corpus.from_description, (self.describe(),)


@lru_cache(maxsize=1)
def _python() -> Corpus:
    """The corpus of `Corpus.python`, read once."""
    documents = json.loads(lzma.decompress(PYTHON_FILE.read_bytes()))
    return Corpus(documents=documents, source={"source": "python", "python": PYTHON_VERSION})
