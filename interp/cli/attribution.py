"""`interp attribution`: direct logit attribution on a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder, Seed


def attribution(
    run: RunFolder,
    n: Annotated[int, typer.Option(help="Number of held-out sequences.")] = 1000,
    out: Annotated[Path | None, typer.Option(help="Also save the result as JSON here.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print what embedding, heads and MLPs of a trained model add to the logit of the correct answer."""
    from interp.heads.logit_attribution import logit_attribution
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    result = logit_attribution(trained.model, trained.task, n=n, seed=seed)
    if out is not None:
        result.save(out)
    return Output(text=str(result), values=result.to_dict())
