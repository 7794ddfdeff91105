"""Tasks to learn. Importing this loads torch; `import interp` alone does not."""

from interp.tasks.base import Batch, Task, Vocab
from interp.tasks.chain import Chain, chain_of, read_sentence
from interp.tasks.groups import S3, Z2, GroupAction, cyclic, symmetric
from interp.tasks.lego import Lego, LegoBatch

__all__ = [
    "S3",
    "Z2",
    "Batch",
    "Chain",
    "GroupAction",
    "Lego",
    "LegoBatch",
    "Task",
    "Vocab",
    "chain_of",
    "cyclic",
    "read_sentence",
    "symmetric",
]
