"""Public names of packages, imported on first use; a name that there is not is compared with those that there are."""

import ast
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import lazy_loader


def attach_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package from its `__init__.pyi`, as of `lazy_loader`.

    Args:
        package: Its `__name__`.
        file: Its `__file__`.
    """
    load, list_names, names = lazy_loader.attach_stub(package, file)

    def get(name: str) -> Any:
        try:
            return load(name)
        except AttributeError:
            # an error within a module that is imported, not of a name
            if name in names:
                raise
            similar = get_close_matches(name, names, n=1)
            hint = f" Did you mean {similar[0]}?" if similar else f" dir({package}) lists its names."
            raise AttributeError(f"{package} has no {name!r}.{hint}", name=name) from None

    return get, list_names, names


def modules_of_names(package: str, file: str) -> dict[str, str]:
    """The module of each public name of a package, in the order of its `__init__.pyi`; packages within it are left out.

    Args:
        package: Its `__name__`.
        file: Its `__file__`.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom) and line.module]
    return {alias.name: f"{package}.{line.module}" for line in lines for alias in line.names}
