"""`interp patch`: activation patching on a trained model."""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder, Saved, Seed, saved_output
from interp.cli.subject import OnTask, subject_of


def patch(
    run: RunFolder,
    on: OnTask = None,
    site: Annotated[
        str, typer.Option(help="What is patched: z (the output of one head), resid, attn_out or mlp_out.")
    ] = "z",
    positions: Annotated[
        str, typer.Option(help="Each position separately (each), the task's roles (roles), or all together (all).")
    ] = "each",
    n: Annotated[int, typer.Option(help="Number of pairs of inputs.")] = 128,
    out: Saved = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Patch activations of other inputs into a trained model and print which move its answers."""
    from interp.heads.patch import patch as patch_activations

    subject = subject_of(run, on, answers=True)
    result = patch_activations(subject.model, subject.task, site=site, positions=positions, n=n, seed=seed)  # pyright: ignore[reportArgumentType]
    return saved_output(result, out)
