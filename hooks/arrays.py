"""Reading npz files of plain numbers that come from outside: headers are checked before an array is read."""

import math
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hooks.files import shortened

MOST_NUMBERS = 2**28
"""Largest number of all numbers of a file."""

Header = tuple[tuple[int, ...], np.dtype]
"""Shape and type of an array."""


def read_headers(path: Path) -> dict[str, Header]:
    """Shape and type of every array of an npz file; no array is read.

    Raises:
        ValueError: a damaged archive, an array of other types than numbers of this machine, two arrays of one name, or
            more than 2^28 numbers in all.
    """
    headers: dict[str, Header] = {}
    with _archive_errors(), zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            # The version of the format decides how a header is read
            with archive.open(entry) as file:
                major, _ = np.lib.format.read_magic(file)
                read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[major]
                shape, _, dtype = read_header(file)
            name = entry.removesuffix(".npy")
            if name in headers:
                raise ValueError(f"it has the array {shortened(name)!r} twice.")
            if dtype.hasobject:
                raise ValueError(f"{name} holds objects; only numbers are read.")
            if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
                raise ValueError(
                    f"{shortened(name)} has the type {dtype.str!r}; only numbers of at most 8 bytes in the byte order "
                    f"of this machine are read. Save it with another type: array.astype('float32')."
                )
            headers[name] = (shape, dtype)
    # A small archive can declare arrays that do not fit into memory
    n_numbers = sum(math.prod(shape) for shape, _ in headers.values())
    if n_numbers > MOST_NUMBERS:
        raise ValueError(f"its arrays have {n_numbers:,} numbers; at most {MOST_NUMBERS:,} are read.")
    return headers


def read_arrays(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    """Arrays of an npz file by name, nothing of which is executed; see `read_headers` first.

    Raises:
        ValueError: a damaged archive.
        KeyError: it has no array of a name.
    """
    with _archive_errors(), np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in names}


@contextmanager
def _archive_errors() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error) as error:
        raise ValueError(f"the archive is damaged ({error})") from error
