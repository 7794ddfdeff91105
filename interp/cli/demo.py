"""`interp demo`: a first look at the package; `demo_run.py` has what it runs."""

from pathlib import Path
from typing import Annotated

import typer

from interp.cli.output import Fresh, Json, Output, Seed


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
    from interp.cli.demo_run import SHIPPED, run_demo, run_quick_demo

    if quick and fresh:
        raise ValueError("--quick trains nothing; omit --fresh.")
    if quick:
        page = run_quick_demo(out, seed=seed)
        models = {"model": SHIPPED}
    else:
        page = run_demo(out, seed=seed, fresh=fresh)
        models = {"model": out / "model", "control": out / "control"}
    # where everything is
    results = {name: out / f"{name}.json" for name in ("probes", "heads", "audit")}
    files = {"page": page, **models, **results}
    return Output(text=f"report: {page}", values={name: str(path) for name, path in files.items()})
