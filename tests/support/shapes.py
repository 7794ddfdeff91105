"""The pass that checks shapes: which public functions it has reached.

`make test-types` runs the fast items with every annotation of `hooks` and `interp` checked by jaxtyping and beartype.
Calls are recorded by a profile function, so that a public function that no fast item calls is named at the end.
"""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

PACKAGES = ("hooks", "interp")
CALLED: set[CodeType] = set()
"""Code of every Python function called in this process."""


def record_calls() -> None:
    """Record the code of each function that is called from now on in this thread."""
    sys.setprofile(_record)


def _record(frame: FrameType, event: str, arg: Any) -> None:
    if event == "call":
        CALLED.add(frame.f_code)


def public_functions() -> dict[str, CodeType]:
    """Code of every function in the `__all__` of a package of hooks or interp, by its full name."""
    functions: dict[str, CodeType] = {}
    for package in _packages():
        for name in getattr(package, "__all__", ()):
            value = inspect.unwrap(getattr(package, name))
            if inspect.isfunction(value):
                functions[f"{value.__module__}.{value.__qualname__}"] = value.__code__
    return functions


def _packages() -> Iterator[Any]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield package
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if module.ispkg:
                yield importlib.import_module(module.name)


def reached() -> set[str]:
    """Stop recording, and return the names of the public functions that were called."""
    sys.setprofile(None)
    return {name for name, code in public_functions().items() if code in CALLED}
