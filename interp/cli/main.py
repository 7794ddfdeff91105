"""The `interp` command. Packages that load torch are imported inside commands, which keeps --help fast."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated

import typer

from interp.cli.analyses import audit, heads, probe, report
from interp.cli.known import tasks
from interp.cli.output import Commands, Fresh, Json, Output, Seed, run_command
from interp.cli.reproduce import reproduce
from interp.cli.sweep import sweep
from interp.cli.train import train_app

app = typer.Typer(name="interp", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 usage, 3 a check differs, 130 interrupted."""
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
    quick: Annotated[
        bool, typer.Option("--quick", help="Analyse a model that is shipped with the package; train nothing.")
    ] = False,
    as_json: Json = False,
) -> Output:
    """Train a model to follow chains of reasoning, probe and audit it, and write a report."""
    from interp.cli.demo import SHIPPED, run_demo, run_quick_demo

    if quick and fresh:
        raise ValueError("--quick trains nothing; omit --fresh.")
    page = run_quick_demo(out, seed=seed) if quick else run_demo(out, seed=seed, fresh=fresh)
    models = {"model": SHIPPED} if quick else {"model": out / "model", "control": out / "control"}
    files = {"page": page, **models, **{name: out / f"{name}.json" for name in ("probes", "heads", "audit")}}
    return Output(text=f"report: {page}", values={name: str(path) for name, path in files.items()})


for _command in (probe, heads, audit, report, reproduce, sweep, tasks):
    app.command()(_command)
app.add_typer(train_app, name="train", no_args_is_help=True)
