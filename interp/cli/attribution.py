"""`interp attribution`: direct logit attribution on a trained model."""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder, Saved, Seed, saved_output


def attribution(
    run: RunFolder,
    n: Annotated[int, typer.Option(help="Number of held-out sequences.")] = 1000,
    out: Saved = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print what embedding, heads and MLPs of a trained model add to the logit of the correct answer."""
    from interp.heads.logit_attribution import logit_attribution
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    result = logit_attribution(trained.model, trained.task, n=n, seed=seed)
    return saved_output(result, out)
