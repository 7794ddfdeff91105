"""Tasks by name: those of installed packages (entry points) and those registered in this process."""

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from hooks.files import shortened

if TYPE_CHECKING:  # names can be listed without torch
    from interp.tasks.base import Task

ENTRY_POINTS = "interp.tasks"
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
        ValueError: an object that is not a subclass of `Task`, or the name of an installed task.
    """
    if not _is_task_class(task_class):
        raise ValueError(f"task_class is {task_class!r}; register a class that derives from interp.tasks.Task.")
    name = task_class.task_name
    if name in _installed() and class_path(_load(name)) != class_path(task_class):
        raise ValueError(f"an installed package has a task {name!r} ({_installed()[name][-1].value}); set task_name.")
    _REGISTERED[name] = task_class
    return task_class


def known_tasks() -> dict[str, str]:
    """Module and class of every known task, `module:class`, by name."""
    installed = {name: points[-1].value for name, points in _installed().items()}
    registered = {name: class_path(task_class) for name, task_class in _REGISTERED.items()}
    return dict(sorted((installed | registered).items()))


def task_class_of(name: str, *, stored: str = "") -> "type[Task]":
    """The class of the task of this name. Only registered and installed classes are found; nothing else is imported.

    Args:
        name: Its `task_name`.
        stored: Module and class according to a manifest, for the error message.

    Raises:
        ValueError: an unknown name, or a class that cannot be imported.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _installed():
        stored_class = f" (the class {stored})" if stored else ""
        raise ValueError(
            f"there is no task {name!r}{stored_class} here; known tasks: {', '.join(known_tasks())}. Install the "
            f"package that has it, or define the class and call interp.tasks.register with it."
        )
    return _load(name)


def task_from(description: dict[str, Any], *, stored: str = "") -> "Task":
    """Build a task from its description in a manifest.

    Args:
        description: The output of `Task.describe`.
        stored: Module and class according to the manifest, for the error message.

    Raises:
        ValueError: a description without a task, an unknown task, or settings that the task does not accept.
    """
    is_dict = isinstance(description, dict)
    name = description.get("task") if is_dict else None
    if not isinstance(name, str):
        content = ", ".join(map(str, description)) if is_dict else type(description).__name__
        raise ValueError(f"the description of the task has no 'task', its name; found: {content or 'nothing'}.")
    task_class = task_class_of(name, stored=stored)
    # a class of another version may have other settings
    try:
        return task_class.from_description(description)
    except KeyError as error:
        reason = f"{error} is missing"
    except TypeError as error:
        reason = shortened(str(error))
    raise ValueError(f"the settings of the task {name!r} do not fit the class {class_path(task_class)}: {reason}.")


def class_path(task_class: type) -> str:
    """Module and name of a class, `module:class`."""
    return f"{task_class.__module__}:{task_class.__qualname__}"


@cache
def _installed() -> dict[str, list[Any]]:
    """The entry points of each name: one, unless two packages use it."""
    points_by_name: dict[str, list[Any]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        points_by_name.setdefault(point.name, []).append(point)
    return points_by_name


def _load(name: str) -> "type[Task]":
    """Import the class of an installed task.

    Raises:
        ValueError: two packages have the name, or its class cannot be imported, is no task, or has another name.
    """
    points = _installed()[name]
    classes = sorted({point.value for point in points})
    if len(classes) > 1:
        raise ValueError(f"two installed packages have a task {name!r}: {' and '.join(classes)}.")
    # a class that derives from Task and has the name
    point = points[-1]
    task_class = loaded(point, f"the task {name!r}")
    if not _is_task_class(task_class):
        raise ValueError(f"the task {name!r} ({point.value}) is not a class that derives from interp.tasks.Task.")
    if task_class.task_name != name:
        raise ValueError(f"the task {name!r} ({point.value}) has the task_name {task_class.task_name!r}; use one name.")
    return task_class


def loaded(point: Any, owner: str) -> Any:
    """What an entry point names. Its module is another's code, which may raise anything when it is imported.

    Args:
        point: The entry point.
        owner: What it adds, for the error: `the task 'sums'`.

    Raises:
        ValueError: it cannot be imported, ends the process, or lacks the name; says which.
    """
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{owner} ({point.value}) cannot be loaded: {reason_of(error)}.") from error


def reason_of(error: BaseException) -> str:
    """What another's code raised, in a line; such an error may have no words of its own."""
    kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
    try:
        words = str(error)
    except Exception:
        words = "its text cannot be read"
    return shortened(f"{kind}{words}").rstrip(".")


def _is_task_class(candidate: Any) -> bool:
    from interp.tasks.base import Task

    return isinstance(candidate, type) and issubclass(candidate, Task)
