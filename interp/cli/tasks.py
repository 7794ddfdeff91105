"""`interp tasks`: the tasks that are known."""

from typing import Any

from interp.cli.output import Json, Output


def tasks(as_json: Json = False) -> Output:
    """List the tasks that are known: of this package, of others, and where each is."""
    from interp.tasks.registry import known_tasks

    found = [{"task": name, **_described(name), "class": place} for name, place in known_tasks().items()]
    lines = [f"{one['task']:<12} {one.get('summary', one.get('error'))}  ({one['class']})" for one in found]
    return Output(text="\n".join([*lines, "next: interp train TASK --help"]), values={"tasks": found})


def summary(task_class: Any) -> str:
    """First line of the class's docstring, or its title."""
    text = task_class.__doc__ or ""
    if text and not text.startswith(f"{task_class.__name__}("):  # which dataclass writes where there is none
        return text.strip().splitlines()[0]
    title = getattr(task_class, "title", None)
    return title if isinstance(title, str) else task_class.task_name.replace("_", " ")


def _described(name: str) -> dict[str, str]:
    from interp.tasks.registry import task_class_of

    try:
        return {"summary": summary(task_class_of(name))}
    except ValueError as error:
        return {"error": str(error)}
