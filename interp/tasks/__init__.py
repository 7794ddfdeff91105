"""Tasks: LEGO chains, bounded Dyck languages, template tasks, text."""

from typing import Any

from interp.tasks.base import Batch, Task, Vocab
from interp.tasks.dyck.task import Dyck, DyckBatch
from interp.tasks.lego.chain import Chain, chain_of, read_sentence
from interp.tasks.lego.groups import S3, Z2, GroupAction, cyclic, ready_made, symmetric
from interp.tasks.lego.task import Lego, LegoBatch
from interp.tasks.template.language import LabelledTemplate, matches
from interp.tasks.template.task import Template, TemplateBatch
from interp.tasks.text.corpus import Corpus
from interp.tasks.text.task import Text, TextBatch

KINDS: dict[str, Any] = {"lego": Lego, "dyck": Dyck, "template": Template, "text": Text}
"""Tasks by their name in a manifest."""


def task_from(description: dict) -> Task:
    """Build a task from its description in a manifest.

    Raises:
        ValueError: an unknown task.
    """
    kind = description.get("task")
    if kind not in KINDS:
        raise ValueError(f"the task of the run is {kind!r}; known tasks: {', '.join(KINDS)}.")
    return KINDS[kind].from_description(description)


__all__ = [
    "S3",
    "Z2",
    "Batch",
    "Chain",
    "Corpus",
    "Dyck",
    "DyckBatch",
    "GroupAction",
    "LabelledTemplate",
    "Lego",
    "LegoBatch",
    "Task",
    "Template",
    "TemplateBatch",
    "Text",
    "TextBatch",
    "Vocab",
    "chain_of",
    "cyclic",
    "matches",
    "read_sentence",
    "ready_made",
    "symmetric",
    "task_from",
]
