"""Files of every kind that is read, damaged: each is read, or refused by a ValueError that names it."""

import random

import pytest
from damage import LOADERS, damaged, fault_of, write_files

TRIES = 25
"""Damaged files of each kind; seeds are 0, 1, 2 ..."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


@pytest.mark.parametrize("name", LOADERS)
def test_a_damaged_file_is_read_or_refused_by_name(files, name):
    path, load = files / name, LOADERS[name]
    content, n_refused = path.read_bytes(), 0
    load(files)  # undamaged
    try:
        for seed in range(TRIES):
            path.write_bytes(damaged(content, random.Random(f"{name} {seed}")))
            refused, fault = fault_of(load, files, path)
            assert fault == "", seed
            n_refused += refused
    finally:
        path.write_bytes(content)
    assert n_refused >= TRIES // 10
