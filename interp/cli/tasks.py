"""`interp tasks`: the known tasks."""

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

from interp.cli.output import Json, Output


def tasks(as_json: Json = False) -> Output:
    """List the known tasks, of this package and of others, with their classes."""
    from interp.tasks.registry import known_tasks

    rows, lines = [], []
    width = max(map(len, known_tasks()))
    for name, class_path in known_tasks().items():
        row = {"task": name, **_summary_or_error(name, class_path), "class": class_path}
        rows.append(row)
        lines.append(f"{name:<{width}}  {row.get('summary', row.get('error'))}  ({class_path})")
    return Output(text="\n".join([*lines, "next: interp train TASK --help"]), values={"tasks": rows})


def summary(task_class: Any) -> str:
    """First line of the class's docstring, or its title."""
    text = task_class.__doc__ or ""
    # a dataclass without a docstring gets its signature as one
    if text and not text.startswith(f"{task_class.__name__}("):
        return text.strip().splitlines()[0]
    title = getattr(task_class, "title", None)
    return title if isinstance(title, str) else task_class.task_name.replace("_", " ")


def _summary_or_error(name: str, class_path: str) -> dict[str, str]:
    from interp.tasks.registry import task_class_of

    if text := _summary_in_source(class_path):
        return {"summary": text}
    try:
        return {"summary": summary(task_class_of(name))}
    except ValueError as error:
        return {"error": str(error)}


def _summary_in_source(class_path: str) -> str:
    """First line of a class's docstring, from the file of its module, whose import would load torch.

    Args:
        class_path: Module and class, `module:class`.

    Returns:
        The line; empty if the module is imported already, or the file has no such class with a docstring.
    """
    module, _, class_name = class_path.partition(":")
    if module in sys.modules:
        return ""
    try:
        spec = importlib.util.find_spec(module)
        tree = ast.parse(Path(spec.origin).read_bytes()) if spec and spec.origin else ast.Module([], [])
    except (Exception, SystemExit):  # the package of the module is imported, which may raise anything
        return ""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == class_name:
            return (ast.get_docstring(statement) or "").partition("\n")[0]
    return ""
