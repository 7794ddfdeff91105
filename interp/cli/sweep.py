"""`interp sweep FILE`: train the models of a grid that a TOML file describes."""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from hooks.checks import did_you_mean
from hooks.files import readable_file, shortened
from interp.cli.output import DONE, FAILED, Device, Fresh, Json, Output
from interp.tasks.fields import tuples

TABLES = ("task", "model", "settings", "vary")


def sweep(
    file: Annotated[Path, typer.Argument(help="TOML file with [task], [model], [settings], [vary].")],
    out: Annotated[Path, typer.Option(help="Folder of all models, each under its key.")] = Path("runs/sweep"),
    list_models: Annotated[bool, typer.Option("--list", help="Print how far each model is; train nothing.")] = False,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Print a Slurm array script that trains what is missing; train nothing.")
    ] = False,
    job: Annotated[int | None, typer.Option(help="Train this model alone, by its number in --list.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler whose workers train: tcp://host:8786.")
    ] = None,
    stacked: Annotated[
        bool | None,
        typer.Option("--stacked/--not-stacked", help="Train models of one config as one. Default: on a GPU."),
    ] = None,
    fresh: Fresh = False,
    jobs: Annotated[int, typer.Option(help="Number of parallel processes.")] = 2,
    device: Device = None,
    as_json: Json = False,
) -> Output:
    """Train every model of a grid, each once; an interrupted sweep is resumed."""
    grid = read_sweep(file)

    from interp.sweeps.grid import Sweep
    from interp.sweeps.sweep import SweepRuns
    from interp.sweeps.sweep import sweep as train_all

    # modes that train nothing
    if list_models and slurm:
        raise ValueError("--list and --slurm exclude each other; give one of them.")
    training = {"--job": job, "--scheduler": scheduler, "--stacked": stacked, "--fresh": fresh or None}
    for option, value in training.items():
        if value is not None and (list_models or slurm):
            mode = "--list" if list_models else "--slurm"
            raise ValueError(f"{mode} trains nothing; omit {option}.")
    if list_models:
        return _table_output(SweepRuns(grid=grid, folder=out))
    if slurm:
        statuses = SweepRuns(grid=grid, folder=out).status
        missing = [index for index, status in enumerate(statuses) if status != "trained"]
        script = slurm_script(file, out, missing)
        return Output(text=script, values={"script": script})
    # train all models, or one
    if job is not None:
        if not 0 <= job < len(grid):
            raise ValueError(f"--job is {job}; the sweep has the models 0 to {len(grid) - 1}.")
        grid = Sweep(grid[job], {})
    options = {"n_jobs": jobs, "scheduler": scheduler, "stacked": stacked, "fresh": fresh, "device": device}
    runs = train_all(grid, out, **options)
    failed = "failed" in runs.status
    return Output(text=f"\n{runs}", values=_values(runs), code=FAILED if failed else DONE)


def _values(runs: Any) -> dict[str, Any]:
    """The table of models as plain values."""
    table: Any = runs.table()
    return {"folder": str(runs.folder), "models": table.to_dict("records")}


def _table_output(runs: Any) -> Output:
    """The table of models, and how many are trained."""
    table: Any = runs.table()
    text = f"{table.drop(columns='key').to_string(max_rows=200)}\n{runs.tally(list(table['status']))}"
    return Output(text=text, values=_values(runs))


def slurm_script(file: Path, out: Path, missing: Sequence[int]) -> str:
    """A Slurm script whose array has one task for each of these models.

    Raises:
        ValueError: no models.
    """
    if not missing:
        raise ValueError("every model of the sweep is trained; there is nothing for Slurm to do.")
    # consecutive numbers as ranges, [low, high]
    ranges: list[list[int]] = []
    for index in missing:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    array = ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)
    source, folder = shlex.quote(str(file.resolve())), shlex.quote(str(out.resolve()))
    lines = [
        "#!/bin/bash",
        f"#SBATCH --array={array}",
        "#SBATCH --cpus-per-task=1",
        f"interp sweep {source} --out {folder} --jobs 1 --job $SLURM_ARRAY_TASK_ID",
    ]
    return "\n".join(lines)


def read_sweep(file: Path) -> Any:
    """The `Sweep` that a TOML file describes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or its content does not fit the task, the model or the settings.
    """
    from hooks import TransformerConfig
    from interp.sweeps.grid import Sweep
    from interp.sweeps.spec import ModelSpec
    from interp.training.configs import config_for

    tables = _read_tables(file)
    # the task, a config that fits it, and the settings; an error names the table
    with _reading_table(file, "task"):
        task = _task(tables.get("task", {}))
    with _reading_table(file, "model", names=tuple(TransformerConfig.__dataclass_fields__)):
        sizes = {name: tuples(value) for name, value in tables.get("model", {}).items()}
        config = config_for(task, sizes.pop("family", None), **sizes)
    with _reading_table(file, "settings"):
        settings = _settings(tables.get("settings", {}), task)
    base = ModelSpec(task=task, config=config, settings=settings, seed=0)
    with _reading_table(file, "vary"):
        return Sweep(base, _varied_values(tables.get("vary", {})))


@contextmanager
def _reading_table(file: Path, table: str, names: Sequence[str] = ()) -> Iterator[None]:
    """Within this block, errors name the file and one of its tables; of these names, one is suggested for another."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        text = str(error)
        # Python's words for a field that a class does not have
        if unknown := re.search(r"unexpected keyword argument '(\w+)'", text):
            text = f"has {unknown[1]!r}, which is not known.{did_you_mean(unknown[1], names)}"
        raise ValueError(f"{file}: [{table}] {shortened(text, 400)}") from error


def _read_tables(file: Path) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(readable_file(file).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not TOML: {error}.") from None
    unknown = [name for name, table in tables.items() if name not in TABLES or not isinstance(table, dict)]
    if unknown:
        names = ", ".join(f"[{name}]" for name in TABLES)
        raise ValueError(f"{file} has {unknown[0]!r}; it may have the tables {names}.")
    return tables


def _task(table: Mapping[str, Any]) -> Any:
    """The task of a name, with the options of the table."""
    from interp.tasks.registry import task_class_of

    options = dict(table)
    if "name" not in options:
        raise ValueError("has no name, which is that of the task; `interp tasks` lists them.")
    task_class = task_class_of(str(options.pop("name")))
    return task_class.from_options(**{name: tuples(value) for name, value in options.items()})


def _settings(table: Mapping[str, Any], task: Any) -> Any:
    """The recipe of the task, with the settings of the file."""
    from interp.training.settings import TrainSettings, recipe_for

    recipe = recipe_for(task).to_dict()
    if "steps" in table and "curriculum" not in table and recipe["curriculum"]:
        raise ValueError("has steps, but the task's recipe has a curriculum, whose steps count; add curriculum = [].")
    names = TrainSettings.__dataclass_fields__
    unknown = [name for name in table if name not in names]
    if unknown:
        hint = did_you_mean(unknown[0], tuple(names)) or f" TrainSettings has {', '.join(names)}."
        raise ValueError(f"has {unknown[0]!r}, which is not known.{hint}")
    return TrainSettings.from_dict({**recipe, **table})


def _varied_values(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of each name: `vary.settings.learning_rate` as `settings.learning_rate`; `model` is the config."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        is_model = key == "model" and not prefix
        name = prefix + ("config" if is_model else key)
        if isinstance(value, dict):
            values |= _varied_values(value, f"{name}.")
        else:
            values[name] = [tuples(element) for element in value] if isinstance(value, list) else value
    return values
