"""The pass that checks shapes and types: jaxtyping and beartype, and which public functions it has reached.

`make test-types` runs the fast items with `--jaxtyping-packages=interp,hooks,shapes.checked`.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

from beartype import beartype

PACKAGES = ("hooks", "interp")
CALLED: set[str] = set()
"""Full name of every public function that was called in this process, as `interp.probing.probe.probe`."""


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the annotations of a function at every call, and record calls of public functions."""
    check = beartype(function)
    name = f"{function.__module__}.{function.__qualname__}"
    if function.__qualname__.startswith("_") or "." in function.__qualname__:
        return check

    @functools.wraps(function)
    def recorded(*arguments: Any, **options: Any) -> Any:
        CALLED.add(name)
        return check(*arguments, **options)

    return recorded


def public_functions() -> set[str]:
    """Full name of every function in the `__all__` of a package of hooks or interp."""
    names: set[str] = set()
    for package in _packages():
        values = (inspect.unwrap(getattr(package, name)) for name in getattr(package, "__all__", ()))
        names.update(f"{value.__module__}.{value.__qualname__}" for value in values if inspect.isfunction(value))
    return names


def _packages() -> Iterator[Any]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield package
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if module.ispkg:
                yield importlib.import_module(module.name)
