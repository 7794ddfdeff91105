"""`interp lens`: the logit lens on a trained model."""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder, Saved, Seed, saved_output


def lens(
    run: RunFolder,
    n: Annotated[int, typer.Option(help="Number of held-out examples.")] = 1000,
    out: Saved = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print how often a trained model's read-out gives the correct answer after each layer."""
    from interp.probing.logit_lens import logit_lens
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    result = logit_lens(trained.model, trained.task, n=n, seed=seed)
    return saved_output(result, out)
