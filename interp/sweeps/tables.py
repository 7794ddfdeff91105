"""Tables of a verb on stored models, each measured once and stored in the folder of its run."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hooks
import interp
from hooks import load_checkpoint
from hooks.checks import shown
from interp.core.cached_file import CachedFile
from interp.core.consistency import check_that
from interp.core.content_key import content_key, digest_of_files
from interp.core.environment import environment
from interp.core.processes import in_processes
from interp.core.progress import Count
from interp.core.results import Result, plain
from interp.tasks.base import Task

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, list[Any]]
Verb = Callable[..., Any]
ADDRESS = " at 0x"
"""Part of a `repr` that contains a memory address, which differs in every process."""


@dataclass(frozen=True)
class VerbInput:
    """A stored model that a verb is applied to, or several that it compares."""

    labels: Mapping[str, Any]
    """What it is: the first columns of its rows."""
    weights: tuple[Path, ...]
    """File of each model."""
    folder: Path
    """Folder of the run in which its table is stored."""
    task: Task


def _kind_of(value: Any) -> str:
    """What an entry of a table is, in words."""
    if value is None or value != value:  # NaN
        return "nothing"
    if isinstance(value, bool | np.bool_):
        return "truth values"
    return "numbers" if isinstance(value, int | float | np.number) else "texts"


@dataclass(frozen=True, kw_only=True)
class VerbTable(Result):
    """The tables of a verb on several models, in one."""

    verb: str
    """Its name."""
    columns: Columns
    """The rows of all tables, by column; those that name the model come first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        n_rows = {name: len(values) for name, values in self.columns.items()}
        check_that(len(set(n_rows.values())) < 2, f"columns has {shown(n_rows)} rows; all must have the same number.")
        for name, values in self.columns.items():
            kinds = {_kind_of(value) for value in values} - {"nothing"}
            if len(kinds) > 1:
                raise ValueError(
                    f"the column {shown(name)} has {' and '.join(sorted(kinds))}; it must have one of them."
                )

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per model and row of the verb's table."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def check_column(self, name: str) -> None:
        """Check that the table has a column.

        Raises:
            ValueError: it does not (lists those that it has).
        """
        if name not in self.columns:
            raise ValueError(f"{self.verb} has no column {name!r}; it has {', '.join(self.columns)}.")


def tabulate(
    inputs: Sequence[VerbInput], verb: Verb, options: Mapping[str, Any], *, n_jobs: int, fresh: bool, unit: str
) -> tuple[Columns, list[tuple[VerbInput, str]]]:
    """The table of a verb on stored models, each read from its file if it was measured before.

    Args:
        inputs: Stored models.
        verb: Called with a model, or a list of models if it compares them, the task and the options.
        options: Further arguments of the verb.
        n_jobs: Number of processes, each with one torch thread.
        fresh: Measure again what is stored.
        unit: What one input is, in words: `model`.

    Returns:
        The rows of all inputs in their order, and the inputs that the verb refused, each with the reason.

    Raises:
        ValueError: the verb refuses every input.
    """
    name = verb_name(verb)
    tables: dict[int, Columns] = {}
    refusals: dict[int, str] = {}
    calls = []
    with Count(f"{name} of every {unit}", len(inputs)) as count:
        # Read what is stored
        for index, verb_input in enumerate(inputs):
            cached = _cached_file(verb_input, verb, options)
            columns = None if fresh or cached is None else cached.read(_stored_columns)
            if columns is None:
                calls.append((_measure, (index, verb_input, verb, dict(options), cached)))
            else:
                tables[index] = columns
                count.advance()
        # Measure the others, in the order in which processes are free
        outcomes = in_processes(calls, n_jobs=min(n_jobs, len(calls))) if calls else ()
        for index, columns, refusal in outcomes:
            if refusal:
                refusals[index] = refusal
            else:
                tables[index] = columns
            count.advance()
    if not tables:
        raise ValueError(f"{name} refuses every {unit}: {next(reversed(refusals.values()))}")
    rows = _join([(inputs[index].labels, tables[index]) for index in sorted(tables)])
    return rows, [(inputs[index], refusals[index]) for index in sorted(refusals)]


def _measure(
    index: int, verb_input: VerbInput, verb: Verb, options: dict[str, Any], cached: CachedFile | None
) -> tuple[int, Columns, str]:
    """The table of one input, which is stored, or the reason why the verb refuses it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        models = [load_checkpoint(path) for path in verb_input.weights]
        first = models if compares_models(verb) else models[0]
        arguments = (first, verb_input.task) if _reads_task(verb) else (first,)
        columns = _columns(verb, verb(*arguments, **options))
    except ValueError as error:
        return index, {}, str(error) or type(error).__name__
    finally:
        torch.set_num_threads(threads)
    if cached is not None:
        cached.write({"columns": columns})
    return index, columns, ""


def compares_models(verb: Verb) -> bool:
    """Whether a verb's first argument is a list of models: it is called `models`, as that of `attention_variation`."""
    return next(iter(inspect.signature(verb).parameters), "") == "models"


def _reads_task(verb: Verb) -> bool:
    """Whether a verb has a task after the model; `interp.diagonals` has none."""
    parameters = list(inspect.signature(verb).parameters.values())
    return len(parameters) > 1 and parameters[1].kind is not inspect.Parameter.KEYWORD_ONLY


def _columns(verb: Verb, result: Any) -> Columns:
    """A result as columns of plain values.

    Raises:
        TypeError: neither a result with a table, nor numbers by name.
    """
    if isinstance(result, Mapping):
        return {"quantity": [str(name) for name in result], "value": [float(value) for value in result.values()]}
    if not hasattr(result, "to_dataframe"):
        raise TypeError(
            f"verb {verb_name(verb)} returned a {type(result).__name__}; it must return a result with to_dataframe, or "
            f"a dict of numbers."
        )
    table = result.to_dataframe()
    return {str(name): [_plain_value(value) for value in table[name]] for name in table}


def _plain_value(value: Any) -> Any:
    """A value of a table as a number, a string, a truth value or None."""
    value = plain(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def verb_name(verb: Verb) -> str:
    """The name of a verb."""
    return getattr(verb, "__name__", type(verb).__name__)


def _stored_columns(content: dict[str, Any]) -> Columns:
    """The table in the content of a file."""
    return {str(name): list(values) for name, values in content["columns"].items()}


def _cached_file(verb_input: VerbInput, verb: Verb, options: Mapping[str, Any]) -> CachedFile | None:
    """The file of a table, by all that determines it; None for a verb or options that have no lasting description."""
    described = _described(verb)
    arguments = {name: repr(value) for name, value in sorted(options.items())}
    if described is None or any(ADDRESS in text for text in arguments.values()):
        return None
    description = {
        "verb": described,
        "options": arguments,
        "weights": [digest_of_files([file]) for file in verb_input.weights],
        "task": repr(verb_input.task.describe()),
        "source": _source_digest(),
        "versions": environment()["versions"],
    }
    key = content_key(description)
    file = f"{verb_name(verb)}-{verb_input.weights[0].stem}-{key}.json"
    return CachedFile(verb_input.folder / "tables" / file, key)


def _join(tables: Sequence[tuple[Mapping[str, Any], Columns]]) -> Columns:
    """The rows of several tables, each with its labels first; None where a table lacks a column."""
    # Names of columns, each once; a column of a table that is also a label has the same values
    label_names = list(dict.fromkeys(name for labels, _ in tables for name in labels))
    all_names = dict.fromkeys(name for _, columns in tables for name in columns)
    value_names = [name for name in all_names if name not in label_names]
    joined: Columns = {name: [] for name in (*label_names, *value_names)}
    for labels, columns in tables:
        n_rows = len(next(iter(columns.values()), []))
        for name in label_names:
            joined[name] += [labels.get(name)] * n_rows
        for name in value_names:
            joined[name] += columns.get(name, [None] * n_rows)
    return joined


def _described(verb: Verb) -> str | None:
    """A verb's name and, unless it is of this package, its source; None for a closure, partial or callable object."""
    if not inspect.isfunction(verb) or inspect.unwrap(verb).__closure__:
        return None
    name = f"{verb.__module__}.{verb.__qualname__}"
    if verb.__module__.split(".")[0] in ("hooks", "interp"):
        return name
    try:
        return f"{name}\n{inspect.getsource(verb)}"
    except (OSError, TypeError):
        return None


@functools.cache
def _source_digest() -> str:
    """Digest of the source of this package."""
    folders = [Path(folder) for package in (hooks, interp) for folder in package.__path__]
    return digest_of_files(path for folder in folders for path in folder.rglob("*.py"))
