"""`interp pruning`: how much of a trained model can be removed?"""

from typing import Annotated, Any

import typer

from interp.cli.output import Json, Output, Page, RunFolder, Seed, output_of
from interp.cli.subject import OnTask, subject_of


def pruning(
    run: RunFolder,
    on: OnTask = None,
    by: Annotated[
        list[str] | None, typer.Option(help="Criterion, such as magnitude, random or heads; repeatable. Default: all.")
    ] = None,
    n: Annotated[int, typer.Option(help="Held-out examples.")] = 500,
    page: Page = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Measure accuracy as weights or heads of a trained model are removed, without retraining."""
    import interp
    from interp.core.page_identity import page_identity
    from interp.reporting.report import report

    subject = subject_of(run, on, answers=True)
    criteria: Any = by or "all"
    result = interp.pruning_curve(subject.model, subject.task, by=criteria, n=n, seed=seed)
    if page is not None:
        seeds = subject.seeds(seed)
        identity = page_identity(subject.model, subject.task, seed=seeds)
        report([result], page, title="How much of the model can be removed?", identity=identity)
    return output_of({"pruning": result}, page=page)
