"""The `interp` command. Packages that load torch are imported inside commands, which keeps --help fast."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated

import typer

from interp.cli.analyses import audit, heads, probe, report
from interp.cli.known import tasks
from interp.cli.output import Fresh, Json, Output, Seed, run_command
from interp.cli.reproduce import reproduce
from interp.cli.train import train_app

app = typer.Typer(name="interp", no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted."""
    raise SystemExit(run_command(app, sys.argv[1:]))


def _print_version(wanted: bool | None) -> None:
    if wanted:
        print(f"unmyopic {version_of('unmyopic')}")
        raise typer.Exit()


@app.callback()
def interp(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Train small transformers on reasoning tasks, read what they learned, and check the reading."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the models and the report.")] = Path("runs/demo"),
    seed: Seed = 0,
    fresh: Fresh = False,
    as_json: Json = False,
) -> Output:
    """Train a model to follow chains of reasoning, probe it, and write a report."""
    from interp.cli.demo import run_demo

    page = run_demo(out, seed=seed, fresh=fresh)
    files = {"model": out / "model", "control": out / "control", "probes": out / "probes.json"}
    values = {name: str(path) for name, path in {"page": page, **files, "heads": out / "heads.json"}.items()}
    return Output(text=f"report: {page}", values=values)


for _command in (probe, heads, audit, report, reproduce, tasks):
    app.command()(_command)
app.add_typer(train_app, name="train", no_args_is_help=True)
