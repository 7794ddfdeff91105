"""Keys of everything that a computed value depends on."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def content_key(description: Any, *, length: int = 20) -> str:
    """Hash of a description of what determines a value: a trained model, a table, a measurement.

    Equal descriptions have equal keys, whatever the order of their mappings.

    Args:
        description: Plain values, as in JSON.
        length: Number of hexadecimal digits, at most 64.

    Example:
        >>> content_key({"task": "lego", "seed": 0}) == content_key({"seed": 0, "task": "lego"})
        True
    """
    canonical = json.dumps(description, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:length]


def digest_of_files(paths: Iterable[Path]) -> str:
    """Hash of the names and contents of files, in the order of their paths."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
