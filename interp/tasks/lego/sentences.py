"""LEGO sentences as text and as chains."""

from hooks.checks import checks_types
from interp.tasks.lego.chain import Chain
from interp.tasks.lego.task import Lego, LegoBatch


@checks_types
def read_sentence(task: Lego, text: str) -> LegoBatch:
    """Parse one sentence into a batch of one; `[BOS]` and `[EOS]` are optional.

    Raises:
        ValueError: an unknown token, a malformed clause, another number of clauses than the task has, or
            clauses that do not form one chain.
    """
    return task.read(text)


def chain_of(task: Lego, batch: LegoBatch, row: int = 0) -> Chain:
    """Return the chain of one sentence of a batch."""
    return task.chain(batch, row)
