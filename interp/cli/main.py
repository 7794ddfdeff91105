"""The `interp` command: `interp NAME` is in `interp/cli/NAME.py`.

Packages that load torch are imported inside commands, which keeps --help fast.
"""

import sys
from collections.abc import Callable
from importlib.metadata import version as version_of
from io import TextIOWrapper
from typing import Annotated

import typer

from interp.cli.attribution import attribution
from interp.cli.audit import audit
from interp.cli.balance import balance
from interp.cli.demo import demo
from interp.cli.edges import edges
from interp.cli.heads import heads
from interp.cli.lens import lens
from interp.cli.output import Command, Commands, Output, run_command, with_user_paths
from interp.cli.patch import patch
from interp.cli.probe import probe
from interp.cli.pruning import pruning
from interp.cli.report import report
from interp.cli.reproduce import reproduce
from interp.cli.sweep import sweep
from interp.cli.tasks import tasks
from interp.cli.train import train_app
from interp.cli.variation import variation

app = typer.Typer(name="interp", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 usage, 3 a check differs, 130 interrupted, 141 not read."""
    # each line at once, also into a pipe or a file; a file name that is no text is printed with escapes
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    raise SystemExit(run_command(app, sys.argv[1:]))


def _print_version(requested: bool | None) -> None:
    if requested:
        print(f"unmyopic {version_of('unmyopic')}")
        raise typer.Exit()


@app.callback()
def interp(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Train small transformers on reasoning tasks, read what they learned, and check the reading."""


_COMMANDS: tuple[Callable[..., Output], ...] = (
    demo,
    probe,
    lens,
    heads,
    attribution,
    edges,
    patch,
    audit,
    variation,
    balance,
    pruning,
    report,
    reproduce,
    sweep,
    tasks,
)
for _command in _COMMANDS:
    app.command(cls=Command)(with_user_paths(_command))
app.add_typer(train_app, name="train", no_args_is_help=True)
