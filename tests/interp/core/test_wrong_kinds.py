"""Every public function refuses values of another kind than its annotations say, before anything else."""

import datetime
import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import shapes
import torch

from hooks.typed import checks_types

pytestmark = pytest.mark.usefixtures("as_a_user")

ARRAYS = {
    "array": np.array([1, 2]),
    "array of floats": np.zeros(3),
    "matrix": np.zeros((2, 2), dtype=int),
    "array of text": np.array(["a", "b"]),
    "array of objects": np.array([None, 1], dtype=object),
    "empty array": np.array([]),
    "array without axes": np.array(3),
    "tensor": torch.tensor([1, 2]),
    "tensor without axes": torch.tensor(3),
    "table": pd.DataFrame({"a": [1, 2]}),
    "column": pd.Series([1, 2]),
    "index": pd.Index(["a"]),
}
VALUES = ARRAYS | {
    "generator": (number for number in (1, 2)),
    "set": {"a"},
    "bytes": b"ab",
    "class": dict,
    "function": lambda: 1,
    "not a number": float("nan"),
    "not a number of numpy": np.float64("nan"),
    "missing": pd.NA,
    "complex": 3j,
    "date": datetime.date(2020, 1, 1),
    "object": object(),
    "list of arrays": [np.array([1, 2])],
    "arrays by name": {"a": np.array([1, 2])},
    "lists of missing": [[pd.NA]],
}
OPEN = {inspect.Parameter.empty, Any}
VALID = {
    "Sequence[typing.Any]": ("list of arrays", "lists of missing"),
    "Mapping[str, typing.Any]": ("arrays by name",),
    "dict[str, typing.Any]": ("arrays by name",),
    "Collection[str]": ("set",),
    "Callable": ("class", "function"),
    "Float[": ARRAYS,
    "Int[": ARRAYS,
    "Bool[": ARRAYS,
}
"""Values that are right, by a part of the annotation."""
CHECKED_BY_FUNCTION = {"register", "register_block", "task_from"}
"""Functions that say themselves what a class or a stored task lacks."""


def arguments():
    """Every public function with each of its parameters that excludes values."""
    for full_name in sorted(shapes.public_functions()):
        module, _, name = full_name.rpartition(".")
        function = getattr(importlib.import_module(module), name)
        parameters = () if name in CHECKED_BY_FUNCTION else inspect.signature(function).parameters.values()
        for parameter in parameters:
            is_named = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            if is_named and parameter.annotation not in OPEN:
                yield function, parameter


def outcome(function, name, value):
    """What is wrong with the answer to a wrong value; empty if it is our sentence."""
    try:
        function(**{name: value})
    except ValueError as error:
        return (
            ""
            if type(error) is ValueError and str(error).startswith(name) and "; it must " in str(error)
            else str(error)
        )
    except Exception as error:
        return repr(error)
    return "accepted"


def test_a_value_of_another_kind_is_refused_by_name():
    wrong = []
    for function, parameter in arguments():
        text = inspect.formatannotation(parameter.annotation)
        valid = {kind for annotation, kinds in VALID.items() if annotation in text for kind in kinds}
        for kind in VALUES.keys() - valid:
            fault = outcome(function, parameter.name, VALUES[kind])
            if fault:
                wrong.append(f"{function.__name__}({parameter.name}: {kind}): {fault[:150]}")
    assert not wrong, "\n".join(sorted(wrong))


def test_numbers_of_numpy_and_paths_are_accepted():
    for function, parameter in arguments():
        text = inspect.formatannotation(parameter.annotation)
        values = []
        if text in ("int", "int | None"):
            values = [(np.int64(3), 3), (np.uint8(3), 3)]
        elif text in ("float", "float | None"):
            values = [(np.float32(0.5), 0.5), (np.int16(3), 3), (3, 3)]
        elif "pathlib" in text:
            values = [("folder", "folder"), (Path("folder"), Path("folder"))]

        def received(**given):
            return given

        received.__signature__ = inspect.signature(function)
        for value, plain in values:
            (argument,) = checks_types(received)(**{parameter.name: value}).values()
            assert (argument, type(argument)) == (plain, type(plain)), (function, parameter)
