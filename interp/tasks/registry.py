"""Tasks by their name in a manifest."""

from typing import Any

from interp.tasks.base import Task
from interp.tasks.dyck.task import Dyck
from interp.tasks.lego.task import Lego
from interp.tasks.template.task import Template
from interp.tasks.text.task import Text

TASKS: dict[str, Any] = {"lego": Lego, "dyck": Dyck, "template": Template, "text": Text}


def task_from(description: dict) -> Task:
    """Build a task from its description in a manifest.

    Raises:
        ValueError: an unknown task.
    """
    kind = description.get("task")
    if kind not in TASKS:
        raise ValueError(f"the task of the run is {kind!r}; known tasks: {', '.join(TASKS)}.")
    return TASKS[kind].from_description(description)
