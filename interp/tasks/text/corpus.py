"""Where text comes from: Python's own library, a folder, a hub, or documents at hand; each document in one split."""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, get_args

from interp.tasks.base import Split

HELD_OUT = 0.05
"""Share of the documents in each of validation and test."""
AT_HAND = 1_000_000
"""Most characters of documents that have no file: they travel in every manifest."""
_NOT_PYTHON = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "encodings",  # nearly all generated
    "pydoc_data",
    "__phello__",
    "__pycache__",
}
_TABLES = {"stringprep.py", "re/_casefix.py", "html/entities.py"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Documents by name, each in one split for good.

    Documents are put in the order of a hash of their names: the first twentieth, at least one, is for test, as many
    are for validation, the rest is for training. Documents of nothing but white space are left out.

    Two corpora are equal if their names and texts are. A pickled corpus is where it comes from and a fingerprint, not
    its text; it is read again and checked.

    Raises:
        ValueError: fewer than three documents with text in them, a document that is not text, or more than a million
            characters that come from no file.
    """

    documents: Mapping[str, str] = field(repr=False)
    """Text of each document."""
    source: Mapping[str, Any] = field(default_factory=lambda: {"source": "documents"}, repr=False)
    """Where they come from; leave it out, the methods here fill it in."""

    def __post_init__(self):
        for name, text in self.documents.items():
            if not isinstance(text, str):
                raise ValueError(f"documents[{name!r}] is {type(text).__name__}; give text.")
        kept = {name: self.documents[name] for name in sorted(self.documents) if self.documents[name].strip()}
        object.__setattr__(self, "documents", kept)
        if len(kept) < 3:
            raise ValueError(
                f"the corpus has {len(kept)} documents with text in them, of {self._where}; three are needed, one for "
                f"each split. Cut longer ones up."
            )
        size = sum(map(len, kept.values()))
        if self.source["source"] == "documents" and size > AT_HAND:
            raise ValueError(
                f"documents has {size} characters, and more than {AT_HAND} are too many for a manifest. Write them to "
                f"files and use Corpus.from_folder."
            )

    @classmethod
    def python(cls) -> "Corpus":
        """The standard library's sources, as installed with this Python: 9 MB, documentation strings included.

        Left out: installed packages, tests, IDLE, codecs and a few generated tables, and what is not UTF-8.
        """
        return _python()

    @classmethod
    def from_folder(cls, path: str | Path, pattern: str = "**/*.txt") -> "Corpus":
        """A document for each file of a folder whose name fits.

        Args:
            path: The folder.
            pattern: Which files, as `pathlib.Path.glob` takes it.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: a file instead of a folder, one that may not be read, no file that fits, a file that is not
                UTF-8, or what the corpus refuses.
        """
        folder = Path(path).expanduser().resolve()
        if not folder.exists():
            raise FileNotFoundError(f"path is {folder}; there is no such folder.")
        if not folder.is_dir():
            raise ValueError(f"path is {folder}, a file; give the folder that it lies in, and a pattern.")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ValueError(f"path is {folder}, which this user may not read.")
        try:
            files = sorted(file for file in folder.glob(pattern) if file.is_file())
        except (NotImplementedError, ValueError) as error:
            raise ValueError(f"pattern is {pattern!r}: {error}. Give one relative to the folder: **/*.md") from None
        if not files:
            raise ValueError(f"no file in {folder} fits the pattern {pattern!r}.")
        documents = {}
        for file in files:
            try:
                documents[file.relative_to(folder).as_posix()] = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise ValueError(f"{file} is not UTF-8; convert it, or choose a pattern that leaves it out.") from None
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
        """A document for each row of a data set of the Hugging Face hub. Needs a network, or a copy in its cache.

        Args:
            name: The data set, such as `roneneldan/TinyStories`.
            config: Which of its configurations.
            split: Which of its splits to read; ours are made from it.
            column: Where the text is.
            most: Rows to read, from the first.
            revision: Commit or tag; the newest when left out.

        Raises:
            ConnectionError: the hub cannot be reached.
            ValueError: no such data set, configuration, split or column, or what the corpus refuses.
        """
        import datasets

        try:
            rows: Any = datasets.load_dataset(name, config, split=f"{split}[:{most}]", revision=revision)
        except ConnectionError as error:
            raise ConnectionError(
                f"the data set {name!r} is not on this machine, and the hub cannot be reached ({error}). Connect, or "
                f"use text that is here: Corpus.from_folder, or 'python'."
            ) from None
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(f"the data set {name!r} cannot be read: {error}") from None
        if column not in rows.column_names:
            raise ValueError(f"column is {column!r}; the data set {name!r} has {', '.join(rows.column_names)}.")
        source = {"name": name, "config": config, "split": split, "column": column, "most": most, "revision": revision}
        documents = {f"{index:09}": str(text) for index, text in enumerate(rows[column])}
        return cls(documents=documents, source={"source": "hub", **source})

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all names and texts."""
        digest = hashlib.sha256()
        for name, text in self.documents.items():
            for part in (name, text):
                content = part.encode("utf-8", "surrogatepass")
                digest.update(len(content).to_bytes(8, "big") + content)
        return digest.hexdigest()[:16]

    @cached_property
    def split(self) -> dict[Split, tuple[str, ...]]:
        """Names of the documents of each split, sorted."""
        order = sorted(self.documents, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest())
        held = max(1, round(HELD_OUT * len(order)))
        test, validation, train = order[:held], order[held : 2 * held], order[2 * held :]
        return {"train": tuple(sorted(train)), "validation": tuple(sorted(validation)), "test": tuple(sorted(test))}

    def texts(self, split: Split) -> list[str]:
        """The documents of a split, in the order of their names.

        Raises:
            ValueError: an unknown split.
        """
        if split not in self.split:
            raise ValueError(f"split is {split!r}; choose one of {', '.join(get_args(Split))}.")
        return [self.documents[name] for name in self.split[split]]

    def describe(self) -> dict:
        """Where the text comes from and its fingerprint, as plain values; the text itself if it has no file."""
        text = {"documents": dict(self.documents)} if self.source["source"] == "documents" else {}
        return {**self.source, "fingerprint": self.fingerprint, **text}

    @classmethod
    def from_description(cls, values: dict) -> "Corpus":
        """The corpus that `describe` described, read again.

        Raises:
            ValueError: an unknown source, or text that is no longer the same (says both fingerprints).
            FileNotFoundError: the folder is gone.
            ConnectionError: the hub cannot be reached.
        """
        values = dict(values)
        source, fingerprint = values.pop("source", None), values.pop("fingerprint", None)
        makers: dict[Any, Any] = {"folder": cls.from_folder, "hub": cls.from_hub, "documents": cls}
        if source == "python":
            found = cls.python()
        elif source in makers:
            found = makers[source](**values)
        else:
            raise ValueError(f"the text's source is {source!r}; this version knows python, {', '.join(makers)}.")
        if fingerprint not in (None, found.fingerprint):
            was = f" of Python {values['python']}" if "python" in values else ""
            here = f" is of Python {found.source['python']} and" if "python" in values else ""
            raise ValueError(
                f"the text{was} had fingerprint {fingerprint}; what is here, {found._where},{here} has "
                f"{found.fingerprint}: it is another text. Use what it was, or make a new task."
            )
        return found

    @property
    def _where(self) -> str:
        """The source in a few words."""
        for key, words in (("path", "the folder"), ("name", "the data set"), ("python", "the library of Python")):
            if key in self.source:
                return f"{words} {self.source[key]}"
        return f"{len(self.documents)} documents at hand"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Corpus) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Corpus({self._where}, {len(self.documents)} documents, {self.fingerprint})"

    def __reduce__(self):
        return Corpus.from_description, (self.describe(),)


@lru_cache(maxsize=1)
def _python() -> Corpus:
    library = Path(sysconfig.get_path("stdlib"))
    documents = {}
    for folder, inner, files in os.walk(library):
        inner[:] = [name for name in inner if name not in _NOT_PYTHON and not name.startswith("config-")]
        for file in files:
            path = Path(folder, file)
            name = path.relative_to(library).as_posix()
            if path.suffix != ".py" or name in _TABLES or name.startswith("_sysconfigdata"):
                continue
            try:
                documents[name] = path.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue
    return Corpus(documents=documents, source={"source": "python", "python": platform.python_version()})
