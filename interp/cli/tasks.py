"""`interp tasks`: the known tasks."""

from typing import Any

from interp.cli.output import Json, Output


def tasks(as_json: Json = False) -> Output:
    """List the known tasks, of this package and of others, with their classes."""
    from interp.tasks.registry import known_tasks

    rows, lines = [], []
    width = max(map(len, known_tasks()))
    for name, class_path in known_tasks().items():
        row = {"task": name, **_summary_or_error(name), "class": class_path}
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


def _summary_or_error(name: str) -> dict[str, str]:
    from interp.tasks.registry import task_class_of

    try:
        return {"summary": summary(task_class_of(name))}
    except ValueError as error:
        return {"error": str(error)}
