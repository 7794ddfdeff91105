"""Digests of source code: for the key of a measurement, and to see whether a measure has changed since it was used."""

import ast
import functools
import hashlib
import importlib.util
import marshal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from case_studies.frame.packs import Packs

FRAME, RECIPES = "case_studies.frame", "case_studies.recipes"
_JUDGING = ("claims", "deciding", "page", "results", "rules", "running", "stored")
_CHECKING = ("cost", "measuring", "plan", "provenance", "sources")
NOT_READ = frozenset(["__init__", *_JUDGING, *_CHECKING])
"""Files of the frame that run, judge and show measurements; measures read the others."""
CONTAINERS = frozenset({"evidence", "measurement", "packs"})
"""Files of the frame that hold what a measure receives and returns; they do not make it another measure."""
_Used = tuple[str, frozenset[str], frozenset[tuple[str, str]]]


@functools.lru_cache(maxsize=256)
def _digest_of(files: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, _, _ in files:
        digest.update(Path(name).name.encode() + b"\0" + Path(name).read_bytes() + b"\0")
    return digest.hexdigest()


def source_digest(module: str) -> str:
    """Digest of the Python and TOML files of a module's package, or of its single file; of the frame, what is read."""
    found = import_module(module)
    package = found if hasattr(found, "__path__") else sys.modules.get(found.__package__ or "")
    if package is not None and hasattr(package, "__path__"):
        folders = [Path(folder) for folder in package.__path__]
        files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".toml")]
    else:
        file = getattr(found, "__file__", None)
        files = [Path(file)] if file else []
    if package is not None and package.__name__ == FRAME:
        files = [path for path in files if path.stem not in NOT_READ]
    stats = [(str(path), path.stat()) for path in sorted(files)]
    return _digest_of(tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))


def measure_digest(measure: Any) -> str:
    """Digest of the source of a measure and of all that it uses of its package and of the frame.

    It follows names from definition to definition, without running anything. Comments and docstrings do not count;
    nor do `hooks` and `interp`, so that a stored measurement outlives changes that are not about it. Nor do packs: they
    are data, and not every reader of a stored number has them.
    """
    top = module_of(measure).split(".")[0]
    texts: dict[str, str] = {}
    root = _described(measure, texts, top)
    return hashlib.sha256("\n".join([root, *(texts[name] for name in sorted(texts))]).encode()).hexdigest()[:16]


def module_of(measure: Any) -> str:
    """The module in which a measure is defined."""
    while isinstance(measure, functools.partial):
        measure = measure.func
    return getattr(measure, "__module__", None) or type(measure).__module__


def _described(value: Any, texts: dict[str, str], top: str) -> str:
    """A value as text; definitions that it uses are added to `texts`."""

    def all_of(values: Iterable[Any]) -> str:
        return ", ".join(_described(one, texts, top) for one in values)

    if isinstance(value, functools.partial):
        return f"partial({all_of((value.func, *value.args))}; {_described(value.keywords, texts, top)})"
    if isinstance(value, MethodType):
        return f"method({all_of((value.__func__, value.__self__))})"
    while callable(value) and hasattr(value, "__wrapped__"):
        value = getattr(value, "__wrapped__")  # noqa: B009  # pyright knows it of no function
    if isinstance(value, FunctionType):
        name = value.__qualname__.split(".")[0]
        if not _follow(value.__module__, name, texts, top) and not _follows_code(value, texts, top):
            return f"{value.__module__}.{value.__qualname__}"
        held = [cell.cell_contents for cell in value.__closure__ or () if cell.cell_contents is not value]
        return f"{value.__qualname__}({all_of([*held, value.__defaults__, value.__kwdefaults__])})"
    if isinstance(value, Packs):
        return "packs"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_described(one, texts, top)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{all_of(value)}]"
    plain = value is None or isinstance(value, bool | int | float | str) or is_dataclass(value)
    return repr(value) if plain and not isinstance(value, type) else type(value).__qualname__


def _follows_code(function: FunctionType, texts: dict[str, str], top: str) -> bool:
    """Add a function without a definition in a file (a lambda, a notebook's); False if it is of another package."""
    module = function.__module__
    if not _own(module, top):
        return False
    code = function.__code__
    texts[f"{module}.{function.__qualname__}"] = hashlib.sha256(marshal.dumps(code.co_code)).hexdigest() + str(
        [constant for constant in code.co_consts if isinstance(constant, bool | int | float | str)]
    )
    for name in code.co_names:
        _follow(module, name, texts, top)
    return True


def _own(module: str | None, top: str) -> bool:
    if module is None:  # of a generated function
        return False
    package, _, name = module.rpartition(".")
    return module.split(".")[0] in (top, "case_studies") and not (package == FRAME and name in NOT_READ | CONTAINERS)


def _follow(module: str, name: str, texts: dict[str, str], top: str) -> bool:
    """Add a definition of a module, and all that it uses; False if the module has none of this name."""
    if not _own(module, top):
        return False
    defined, imported = _definitions(module)
    if name in imported:
        return _follow(*imported[name], texts, top)
    if name not in defined:
        return False
    if f"{module}.{name}" not in texts:
        texts[f"{module}.{name}"] = "\n".join(text for text, _, _ in defined[name])
        for _, names, attributes in defined[name]:
            for used in names:
                _follow(module, used, texts, top)
            for owner, attribute in attributes:
                if owner in imported:
                    _follow(".".join(part for part in imported[owner] if part), attribute, texts, top)
    return True


@functools.lru_cache(maxsize=256)
def _definitions(module: str) -> tuple[dict[str, list[_Used]], dict[str, tuple[str, str]]]:
    """Top-level definitions of a module (source, names, attributes), and what its names are imported from."""
    file = getattr(sys.modules.get(module), "__file__", None) or _file_of(module)
    if not file or not file.endswith(".py"):
        return {}, {}
    text = Path(file).read_text(encoding="utf-8")
    defined: dict[str, list[_Used]] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {one.asname or one.name: (node.module, one.name) for one in node.names}
        elif isinstance(node, ast.Import):
            imported |= {one.asname: (one.name, "") for one in node.names if one.asname}
        else:
            for name in _names_defined(node):
                defined.setdefault(name, []).append(_used(node, text.splitlines()))
    return defined, imported


def _file_of(module: str) -> str | None:
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return found.origin if found else None


def _names_defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [one.id for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name)]


def _used(node: ast.stmt, lines: list[str]) -> _Used:
    """The source of a definition without docstrings, comments and blank lines, and the names that it uses."""
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    dropped: set[int] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
            dropped.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    numbered = [(at, lines[at - 1].rstrip()) for at in range(first, (node.end_lineno or first) + 1)]
    text = [line for at, line in numbered if at not in dropped and line.strip() and not line.lstrip().startswith("#")]
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    attributes = {
        (one.value.id, one.attr)
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
    }
    return "\n".join(text), frozenset(names), frozenset(attributes)
