"""Computed values on disk: written atomically, and computed again if their key has changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hooks.files import FAULTS, read_json, write_json

AnyValue = TypeVar("AnyValue")


@dataclass(frozen=True)
class CachedFile:
    """A JSON file with a computed value, and the key under which it was stored."""

    path: Path
    key: str
    """`content_key` of everything that the value depends on."""

    def read(self, parse: Callable[[dict[str, Any]], AnyValue]) -> AnyValue | None:
        """The stored value; None if there is none, it has another key, or it cannot be read.

        Args:
            parse: Makes the value of the file's content.
        """
        try:
            content = read_json(self.path, "a computed value")
            return parse(content) if content["key"] == self.key else None
        except (OSError, *FAULTS):
            return None

    def write(self, content: Mapping[str, Any]) -> None:
        """Store a value, as plain values by name."""
        write_json(self.path, {"key": self.key, **content})
