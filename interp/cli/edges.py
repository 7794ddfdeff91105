"""`interp edges`: which edges of a trained model are needed."""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder, Saved, Seed, saved_output
from interp.cli.subject import OnTask, subject_of


def edges(
    run: RunFolder,
    on: OnTask = None,
    method: Annotated[str, typer.Option(help="What a part writes instead: mean, zero, or resample.")] = "mean",
    n: Annotated[int, typer.Option(help="Number of held-out sequences.")] = 256,
    out: Saved = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print what it costs to replace what one part of a trained model gives to one input of another, for every edge."""
    from interp.heads.edges import edges as measure_edges

    subject = subject_of(run, on, answers=True)
    result = measure_edges(subject.model, subject.task, method=method, n=n, seed=seed)  # pyright: ignore
    return saved_output(result, out)
