"""Digest of the code that a measure depends on, to see whether it has changed since a number was stored."""

import ast
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

from case_studies.frame.packs import OutsideFiles
from interp.core.content_key import content_key

RECIPES = "case_studies.recipes"
OTHER_PACKAGES = ("hooks.", "interp.", "case_studies.frame.")
"""Packages that do not count: a stored number is to outlive changes that are not about its measure."""
JUDGEMENTS = frozenset({"Claim", "Preregistration"})
"""Calls that do not count: texts and rules of claims are applied anew to stored numbers."""


def code_digest(measure: Any) -> str:
    """Digest of a measure's code and bound arguments, 16 hexadecimal digits.

    The code is that of its module, and of the modules of its package and of the recipes that it imports, directly or
    not. Comments, docstrings and layout do not count, nor do packs and weights, which are data. The digest does not
    depend on the machine, nor on the version of Python from 3.11 to 3.13.
    """
    # The measure with its arguments, and the modules of everything in it
    modules: set[str] = set()
    description = _description(measure, modules)
    # Of these the code of the study's package and of case_studies counts, not that of libraries
    while isinstance(measure, functools.partial):
        measure = measure.func
    module = getattr(measure, "__module__", None) or type(measure).__module__
    packages = (module.partition(".")[0], "case_studies")
    study_modules = {name for name in modules if name.partition(".")[0] in packages}
    return content_key([description, _sources(study_modules)], length=16)


def modules_digest(names: Sequence[str], *, within: str = "") -> str:
    """Digest of the code of modules, 16 hexadecimal digits; comments, docstrings and layout do not count.

    Args:
        names: Full names of the modules.
        within: A package; the modules that they import from it, directly or not, count too. Default: no others count.
    """
    sources: dict[str, Any] = {}
    remaining = list(names)
    while remaining:
        name = remaining.pop()
        if name in sources:
            continue
        file = Path(str(import_module(name).__file__))
        sources[name], imports = _read(name, file, file.stat().st_mtime_ns)
        if within:
            remaining += [_module_of(path) for path in imports if path.startswith(f"{within}.")]
    return content_key(sources, length=16)


def _module_of(path: str) -> str:
    """The module of an imported name, which may be a module itself."""
    parent = path.rpartition(".")[0]
    is_package = hasattr(import_module(parent), "__path__")
    return path if is_package and find_spec(path) else parent


def _description(value: Any, modules: set[str]) -> Any:
    """A measure or an argument as plain values; adds the modules of its functions and classes to a set."""
    # Plain values and containers
    if isinstance(value, OutsideFiles):
        return value.word
    if isinstance(value, functools.partial):
        value = [value.func, value.args, value.keywords]
    if isinstance(value, Mapping):
        return {str(name): _description(entry, modules) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_description(entry, modules) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    # Functions, classes and objects: the name of their definition, and what else determines them
    value = inspect.unwrap(value) if callable(value) else value
    definition = value if inspect.isroutine(value) or inspect.isclass(value) else type(value)
    modules.update({definition.__module__} - {None})  # a generated function has no module
    content: Any = []
    if inspect.isfunction(value):
        # Variables of the enclosing function, default values, and the code if there is no source file
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        content = [cell for cell in cells if cell is not value] + [value.__defaults__, value.__kwdefaults__]
        if "<lambda>" in value.__qualname__ or not Path(value.__code__.co_filename).exists():
            content.append(_byte_code(value))
    elif is_dataclass(value) and definition is not value:
        content = {field.name: getattr(value, field.name) for field in fields(value)}
    return [definition.__qualname__, _description(content, modules)]


def _byte_code(function: Any) -> list[Any]:
    """The code of a function whose source is not found by its name: a lambda, or a function of a notebook."""
    code = function.__code__
    constants = [constant for constant in code.co_consts if not inspect.iscode(constant)]
    return [code.co_code.hex(), code.co_names, constants]


def _sources(modules: set[str]) -> dict[str, Any]:
    """The code of modules, and of all that they import from their packages and the recipes, as plain values."""
    parents = {name.rpartition(".")[0] for name in modules}
    packages = [f"{name}." for name in {RECIPES, *parents} if name]
    sources: dict[str, Any] = {}
    remaining = [name for name in modules if not name.startswith(OTHER_PACKAGES)]
    while remaining:
        name = remaining.pop()
        file = getattr(import_module(name), "__file__", None)
        if name in sources or file is None:
            continue
        sources[name], imports = _read(name, Path(file), Path(file).stat().st_mtime_ns)
        # Follow the imports from these packages; names that are not modules are functions and classes
        for package in packages:
            submodules = {path.removeprefix(package).partition(".")[0] for path in imports if path.startswith(package)}
            remaining += [package + submodule for submodule in submodules if find_spec(package + submodule)]
    return sources


@functools.lru_cache(maxsize=256)
def _read(module: str, file: Path, modified: int) -> tuple[Any, list[str]]:
    """The code of a file as plain values, and the full names of its imports; read again when the file is modified."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return _plain(tree), list(_imports(tree, module.rpartition(".")[0]))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """The full names of everything that a module of a package imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _plain(node: Any) -> Any:
    """A syntax tree as plain values, without positions, docstrings and judgements.

    Fields that are empty, and empty strings in f-strings, are left out: in these the versions of Python differ.
    """
    if isinstance(node, list):
        return [_plain(child) for child in node if not _is_docstring(child)]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in JUDGEMENTS:
        return node.func.id
    children = dict(ast.iter_fields(node))
    if isinstance(node, ast.JoinedStr):
        children["values"] = [value for value in node.values if getattr(value, "value", None) != ""]
    plain_children = [(name, _plain(child)) for name, child in children.items() if child not in (None, [])]
    return [type(node).__name__, *plain_children]


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
