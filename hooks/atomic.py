"""Files that are either the old one or the new one, never half of either."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file in one step: to a temporary name beside it, flushed to disk, then renamed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file in one step."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file in one step."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
