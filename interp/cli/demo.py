"""`interp demo`: a first look at the package; `demo_run.py` has what it runs."""

from pathlib import Path
from typing import Annotated

import typer

from interp.cli.output import Fresh, Json, Output, Seed


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and the report.")] = Path("runs/demo"),
    seed: Seed = 0,
    fresh: Fresh = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Analyse a model that is shipped with the package; train nothing.")
    ] = False,
    as_json: Json = False,
) -> Output:
    """Write a page that begins with two heads that look alike; then train, audit and probe a model for it."""
    from interp.cli.demo_run import SHIPPED, run_demo, run_quick_demo

    if quick and fresh:
        raise ValueError("--quick trains nothing; omit --fresh.")
    if quick:
        page = run_quick_demo(out, seed=seed)
        model = SHIPPED
    else:
        page = run_demo(out, seed=seed, fresh=fresh)
        model = out / "model"
    # where everything is
    results = {name: out / f"{name}.json" for name in ("probes", "heads", "audit")}
    files = {"page": page, "model": model, **results}
    return Output(text=f"report: {page}", values={name: str(path) for name, path in files.items()})
