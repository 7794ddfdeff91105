"""Tasks to learn. Importing this loads torch; `import interp` alone does not."""

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
"""Tasks by the name their manifest carries."""


def task_from(description: dict) -> Task:
    """The task of a run, from its manifest.

    Raises:
        ValueError: a kind of task this version does not know.
    """
    kind = description.get("task")
    if kind not in KINDS:
        raise ValueError(f"the run's task is {kind!r}; this version knows {', '.join(KINDS)}.")
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
