"""`interp sweep FILE`: train the models of a grid that a TOML file describes."""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from interp.cli.output import DONE, FAILED, Device, Fresh, Json, Output

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

    if list_models and slurm:
        raise ValueError("--list and --slurm exclude each other; give one of them.")
    if list_models:
        return _listed(SweepRuns(grid=grid, folder=out))
    if slurm:
        script = slurm_script(file, out, [i for i, one in enumerate(SweepRuns(grid=grid, folder=out).status)
                                          if one != "trained"])  # fmt: skip
        return Output(text=script, values={"script": script})
    if job is not None:
        if not 0 <= job < len(grid):
            raise ValueError(f"--job is {job}; the sweep has the models 0 to {len(grid) - 1}.")
        grid = Sweep(grid[job], {})
    options = {"n_jobs": jobs, "scheduler": scheduler, "stacked": stacked, "fresh": fresh, "device": device}
    runs = train_all(grid, out, **options)
    failed = "failed" in runs.status
    return Output(text=f"\n{runs}", values=_values(runs), code=FAILED if failed else DONE)


def _values(runs: Any) -> dict[str, Any]:
    table: Any = runs.table()
    return {"folder": str(runs.folder), "models": table.to_dict("records")}


def _listed(runs: Any) -> Output:
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
    ranges: list[list[int]] = []
    for index in missing:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    array = ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --array={array}",
            "#SBATCH --cpus-per-task=1",
            f"interp sweep {shlex.quote(str(file.resolve()))} --out {shlex.quote(str(out.resolve()))} --jobs 1 "
            "--job $SLURM_ARRAY_TASK_ID",
        ]
    )


def read_sweep(file: Path) -> Any:
    """The `Sweep` of a TOML file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or what it says does not fit.
    """
    from interp.sweeps.grid import Sweep
    from interp.sweeps.spec import ModelSpec
    from interp.tasks.registry import task_class_of
    from interp.training.configs import config_for
    from interp.training.settings import TrainSettings, recipe_for

    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not TOML: {error}.") from None
    if wrong := [name for name in found if name not in TABLES or not isinstance(found[name], dict)]:
        raise ValueError(
            f"{file} has {wrong[0]!r}; it may have the tables {', '.join(f'[{name}]' for name in TABLES)}."
        )
    try:
        given = dict(found["task"])
        task_class = task_class_of(str(given.pop("name")))
    except KeyError as error:
        raise ValueError(
            f"{file} does not say the task: give [task] with its name; `interp tasks` lists them."
        ) from error
    try:
        task = task_class.from_options(**{name: _tuples(value) for name, value in given.items()})
        sizes = dict(found.get("model", {}))
        config = config_for(task, sizes.pop("family", None), **sizes)
    except TypeError as error:
        raise ValueError(f"{file}: {error}.") from error
    recipe, settings = recipe_for(task).to_dict(), found.get("settings", {})
    if "steps" in settings and "curriculum" not in settings and recipe["curriculum"]:
        raise ValueError(f"{file} has steps, but the recipe has a curriculum, whose steps count; add curriculum = [].")
    known = TrainSettings.__dataclass_fields__
    if wrong := [name for name in settings if name not in known]:
        raise ValueError(f"{file}: [settings] has {wrong[0]!r}; TrainSettings has {', '.join(known)}.")
    base = ModelSpec(task=task, config=config, settings=TrainSettings.from_dict({**recipe, **settings}), seed=0)
    return Sweep(base, _flat(found.get("vary", {})))


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """What varies, by name: `vary.settings.learning_rate` as `settings.learning_rate`; `model` is the config."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        whole = f"{before}{'config' if name == 'model' and not before else name}"
        if isinstance(value, dict):
            found |= _flat(value, f"{whole}.")
        else:
            found[whole] = [_tuples(one) for one in value] if isinstance(value, list) else value
    return found


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value
