"""Damaged files of every kind: read, or refused by an error that names the file."""

import random
from collections.abc import Iterator
from pathlib import Path

from damage import LOADERS, damaged, fault_of, write_files
from tries import Try


def tries(n: int, folder: Path) -> Iterator[Try]:
    write_files(folder)
    for name, load in LOADERS.items():
        path = folder / name
        content = path.read_bytes()
        for seed in range(n // len(LOADERS)):
            path.write_bytes(damaged(content, random.Random(f"campaign {name} {seed}")))
            _, fault = fault_of(load, folder, path)
            yield Try(f"{name}, seed {seed}", "unclear" if fault else None, fault)
        path.write_bytes(content)
