"""Tables of a verb on stored models, each measured once and stored in the folder of its run."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import hooks
import interp
from hooks import load_checkpoint
from interp.core.cached_file import CachedFile
from interp.core.content_key import content_key, digest_of_files
from interp.core.manifest import environment
from interp.core.processes import in_processes
from interp.core.progress import Count
from interp.core.results import Result, plain
from interp.tasks.base import Task

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, list[Any]]
Verb = Callable[..., Any]
ADDRESS = " at 0x"
"""What a text contains that describes an object by its place in memory, which is another one next time."""


@dataclass(frozen=True)
class Cell:
    """One stored model, or several that a verb compares."""

    labels: Mapping[str, Any]
    """What it is: the first columns of its rows."""
    models: tuple[Path, ...]
    """Files of weights."""
    folder: Path
    """Folder of the run in which its table is stored."""
    task: Task


@dataclass(frozen=True)
class Measured:
    """The table of a verb at one cell, or why there is none."""

    cell: Cell
    columns: Columns
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class VerbTable(Result):
    """The tables of a verb on several models, in one."""

    verb: str
    """Its name."""
    columns: Columns
    """The rows of all tables, by column; those that name the model come first."""

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

    @classmethod
    def _restore(cls, name: str, value: Any) -> Any:
        return {column: list(values) for column, values in value.items()} if name == "columns" else value


def all_tables(
    cells: Sequence[Cell], verb: Verb, options: Mapping[str, Any], *, n_jobs: int, fresh: bool, over: str, each: str
) -> tuple[list[Measured], list[Measured]]:
    """The tables of all cells in their order, and the cells that the verb refuses.

    Args:
        cells: Stored models.
        verb: As in `tables`.
        options: Further arguments of the verb.
        n_jobs: Number of processes, each with one torch thread.
        fresh: Measure again what is stored.
        over: What the cells are together, for the progress bar: `on models`.
        each: What one cell is: `model`.

    Raises:
        ValueError: the verb refuses every cell.
    """
    name = verb_name(verb)
    found: list[Measured] = []
    with Count(f"{name} {over}", len(cells)) as count:
        for one in tables(cells, verb, options, n_jobs=n_jobs, fresh=fresh):
            found.append(one)
            count.one()
    order = {tuple(cell.labels.values()): index for index, cell in enumerate(cells)}
    found.sort(key=lambda one: order[tuple(one.cell.labels.values())])
    refused = [one for one in found if one.error]
    if len(refused) == len(found):
        raise ValueError(f"{name} refuses every {each}: {refused[-1].error}")
    return [one for one in found if not one.error], refused


def tables(
    cells: Iterable[Cell], verb: Verb, options: Mapping[str, Any], *, n_jobs: int, fresh: bool
) -> Iterator[Measured]:
    """The table of each cell as it is ready, from its file if it was measured before.

    Args:
        cells: Stored models.
        verb: Called with a model, or a list of models if it compares them, the task and the options.
        options: Further arguments of the verb.
        n_jobs: Number of processes, each with one torch thread.
        fresh: Measure again what is stored.
    """
    calls = []
    for cell in cells:
        cached = _cached_file(cell, verb, options)
        columns = None if fresh or cached is None else cached.read(_stored_columns)
        if columns is not None:
            yield Measured(cell, columns)
        else:
            calls.append((_measure, (cell, verb, dict(options), cached)))
    if calls:
        yield from in_processes(calls, n_jobs=min(n_jobs, len(calls)))


def _measure(cell: Cell, verb: Verb, options: dict[str, Any], cached: CachedFile | None) -> Measured:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        models = [load_checkpoint(path) for path in cell.models]
        first = models if compares_models(verb) else models[0]
        given = (first, cell.task) if _reads_task(verb) else (first,)
        found = Measured(cell, _columns(verb, verb(*given, **options)))
    except ValueError as error:
        return Measured(cell, {}, str(error))
    finally:
        torch.set_num_threads(threads)
    if cached is not None:
        cached.write({"columns": found.columns})
    return found


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
    return {str(name): [_cell(value) for value in table[name]] for name in table}


def _cell(value: Any) -> Any:
    value = plain(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def verb_name(verb: Verb) -> str:
    """The name of a verb."""
    return getattr(verb, "__name__", type(verb).__name__)


def _stored_columns(content: dict[str, Any]) -> Columns:
    return {str(name): list(values) for name, values in content["columns"].items()}


def _cached_file(cell: Cell, verb: Verb, options: Mapping[str, Any]) -> CachedFile | None:
    """The file of a table, by all that determines it; None for a verb or options that have no lasting description."""
    described = _described(verb)
    arguments = {name: repr(value) for name, value in sorted(options.items())}
    if described is None or any(ADDRESS in text for text in arguments.values()):
        return None
    description = {
        "verb": described,
        "options": arguments,
        "weights": [digest_of_files([file]) for file in cell.models],
        "task": repr(cell.task.describe()),
        "source": _source_digest(),
        "versions": environment()["versions"],
    }
    key = content_key(description)
    return CachedFile(cell.folder / "tables" / f"{verb_name(verb)}-{cell.models[0].stem}-{key}.json", key)


def joined(found: Sequence[Measured]) -> Columns:
    """The rows of all tables, after their labels."""
    labels = list(dict.fromkeys(name for one in found for name in one.cell.labels))
    names = list(dict.fromkeys(name for one in found for name in one.columns))
    columns: Columns = {name: [] for name in (*labels, *names)}
    for one in found:
        n = len(next(iter(one.columns.values()), []))
        for name in labels:
            columns[name] += [one.cell.labels.get(name)] * n
        for name in names:
            if name not in labels:  # what a table says itself about a label is the same
                columns[name] += one.columns.get(name, [None] * n)
    return columns


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
