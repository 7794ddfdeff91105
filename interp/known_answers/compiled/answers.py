"""Compiled programs as known answers: from a pack on disk, or from an assembled model of tracr in memory."""

from pathlib import Path

from hooks.checks import checks_types
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.compiled.network import network
from interp.known_answers.compiled.program import Program, read_program
from interp.known_answers.compiled.task import Compiled
from interp.known_answers.compiled.truth import truth_of_heads


@checks_types
def read_compiled(path: str | Path) -> KnownAnswer:
    """Read a compiled program: its transformer, its task, and the truth about every head.

    A pack is two files, `NAME.json` with sizes and names and `NAME.npz` with plain arrays. Nothing is executed, and
    every array is checked against the sizes before it is read.

    `task.relations` has the keys to which each head attends by the program, as `selector_1`, `selector_2`, ... To have
    heads labelled by them, register them: `register_kind("selector_1", lambda task, batch:
    task.relations(batch).get("selector_1"))`.

    Args:
        path: One of the two files, or their common name without an ending.

    Raises:
        FileNotFoundError: one of the files is not there.
        ValueError: a file that cannot be read, or arrays that do not fit the sizes; names the file.

    Source: Lindner et al. 2023 (arXiv:2301.05062), who compile RASP programs (Weiss et al. 2021) to such transformers.
    """
    program = read_program(path)
    return known_answer_of(program, str(Path(path).expanduser().absolute()))


def known_answer_of(program: Program, path: str = "") -> KnownAnswer:
    """A program as a known answer; `path` is the pack it was read from, if any."""
    model, task = network(program), Compiled(program, path)
    return KnownAnswer(name=f"compiled {program.name}", model=model, task=task, heads=truth_of_heads(model, task))
