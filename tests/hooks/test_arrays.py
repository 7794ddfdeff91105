"""Archives of arrays from outside."""

import io
import warnings
import zipfile

import numpy as np
import pytest

from hooks.arrays import read_arrays, read_headers


def member(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@pytest.mark.parametrize("names", [("W_U.npy", "W_U.npy"), ("W_U.npy", "W_U"), ("W_E.npy", "W_U.npy", "W_E.npy")])
def test_an_array_twice_is_refused(tmp_path, names):
    """numpy reads the last one."""
    path = tmp_path / "pack.npz"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # zipfile warns of the second one
        for index, name in enumerate(names):
            archive.writestr(name, member(np.full(3, index)))
    with pytest.raises(ValueError, match=r"it has the array 'W_[UE]' twice"):
        read_headers(path)


def test_arrays_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "pack.npz"
    np.savez(path, first=np.arange(4.0), second=np.ones((2, 3)))
    assert read_headers(path) == {"first": ((4,), np.dtype(float)), "second": ((2, 3), np.dtype(float))}
    np.testing.assert_array_equal(read_arrays(path, ["first"])["first"], np.arange(4.0))
