"""Tasks by name: those of installed packages (entry points) and those registered in this process."""

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from hooks.files import shortened

if TYPE_CHECKING:  # names can be listed without torch
    from interp.tasks.base import Task

GROUP = "interp.tasks"
"""Group of entry points through which packages add tasks."""
AnyTaskClass = TypeVar("AnyTaskClass", bound=type)
_REGISTERED: "dict[str, type[Task]]" = {}


def register(task_class: AnyTaskClass) -> AnyTaskClass:
    """Make a task class known by its `task_name`, so that runs on it can be loaded; usable as a decorator.

    A class of the same name that was registered before is replaced, as when a notebook cell is run again.

    Args:
        task_class: A subclass of `Task`.

    Returns:
        The class.

    Raises:
        ValueError: something else than a subclass of `Task`, or the name of an installed task.
    """
    if not _is_task_class(task_class):
        raise ValueError(f"task_class is {task_class!r}; register a class that derives from interp.tasks.Task.")
    name = task_class.task_name
    if name in _installed() and where(_load(name)) != where(task_class):
        raise ValueError(f"an installed package has a task {name!r} ({_installed()[name][-1].value}); set task_name.")
    _REGISTERED[name] = task_class
    return task_class


def known_tasks() -> dict[str, str]:
    """Where the class of every known task is, `module:class`, by name."""
    found = {name: points[-1].value for name, points in _installed().items()}
    return dict(sorted((found | {name: where(cls) for name, cls in _REGISTERED.items()}).items()))


def task_class_of(name: str, *, stored: str = "") -> "type[Task]":
    """The class of the task of this name. Only registered and installed classes are found; nothing else is imported.

    Args:
        name: Its `task_name`.
        stored: Where a manifest says that the class was, for the error message.

    Raises:
        ValueError: an unknown name, or a class that cannot be imported.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _installed():
        was = f" (the class {stored})" if stored else ""
        raise ValueError(
            f"there is no task {name!r}{was} here; known tasks: {', '.join(known_tasks())}. Install the package that "
            f"has it, or define the class and call interp.tasks.register with it."
        )
    return _load(name)


def task_from(description: dict[str, Any], *, stored: str = "") -> "Task":
    """Build a task from its description in a manifest.

    Args:
        description: The output of `Task.describe`.
        stored: Where the manifest says that the class was, for the error message.

    Raises:
        ValueError: a description without a task, an unknown task, or settings that the task does not accept.
    """
    name = description.get("task") if isinstance(description, dict) else None
    if not isinstance(name, str):
        found = ", ".join(map(str, description)) if isinstance(description, dict) else type(description).__name__
        raise ValueError(f"the description of the task has no 'task', its name; found: {found or 'nothing'}.")
    found = task_class_of(name, stored=stored)
    try:
        return found.from_description(description)
    except (TypeError, KeyError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else shortened(str(error))
        raise ValueError(f"the settings of the task {name!r} do not fit the class {where(found)}: {what}.") from None


def where(task_class: type) -> str:
    """Module and name of a class, `module:class`."""
    return f"{task_class.__module__}:{task_class.__qualname__}"


@cache
def _installed() -> dict[str, list[Any]]:
    """The entry points of each name: one, unless two packages use it."""
    found: dict[str, list[Any]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _load(name: str) -> "type[Task]":
    points = _installed()[name]
    point, rivals = points[-1], {one.value for one in points}
    if len(rivals) > 1:
        raise ValueError(f"two installed packages have a task {name!r}: {' and '.join(sorted(rivals))}.")
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the task {name!r} ({point.value}) cannot be loaded: {error}.") from error
    if not _is_task_class(found):
        raise ValueError(f"the task {name!r} ({point.value}) is not a class that derives from interp.tasks.Task.")
    if found.task_name != name:
        raise ValueError(f"the task {name!r} ({point.value}) has the task_name {found.task_name!r}; use one name.")
    return found


def _is_task_class(found: Any) -> bool:
    from interp.tasks.base import Task

    return isinstance(found, type) and issubclass(found, Task)
