"""`interp attribution`: direct logit attribution on a trained model."""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder, Saved, Seed, saved_output
from interp.cli.subject import OnTask, subject_of


def attribution(
    run: RunFolder,
    on: OnTask = None,
    n: Annotated[int, typer.Option(help="Number of held-out sequences.")] = 1000,
    out: Saved = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print what embedding, heads and MLPs of a trained model add to the logit of the correct answer."""
    from interp.heads.logit_attribution import logit_attribution

    subject = subject_of(run, on, answers=True)
    result = logit_attribution(subject.model, subject.task, n=n, seed=seed)
    return saved_output(result, out)
