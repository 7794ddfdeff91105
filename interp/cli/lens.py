"""`interp lens`: the logit lens on a trained model."""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder, Saved, Seed, saved_output
from interp.cli.subject import OnTask, subject_of


def lens(
    run: RunFolder,
    on: OnTask = None,
    n: Annotated[int, typer.Option(help="Number of held-out examples.")] = 1000,
    out: Saved = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print how often a trained model's read-out gives the correct answer after each layer."""
    from interp.probing.logit_lens import logit_lens

    subject = subject_of(run, on, answers=True)
    result = logit_lens(subject.model, subject.task, n=n, seed=seed)
    return saved_output(result, out)
