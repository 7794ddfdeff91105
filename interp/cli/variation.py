"""`interp variation`: how different are the attention patterns of trained models?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from interp.cli.output import Json, Output, Page, Seed, output_of
from interp.cli.subject import OnTask, subject_of


def variation(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of two or more training runs on the same task, or of models on --task."),
    ],
    on: OnTask = None,
    prefix: Annotated[
        list[str] | None, typer.Option(help="Text to compare patterns on; repeatable. Default: the task's own.")
    ] = None,
    n_sampled: Annotated[int, typer.Option(help="Held-out examples to compare patterns on, too.")] = 0,
    page: Page = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Compare the attention patterns of models with each other and with random patterns, layer by layer."""
    import interp
    from interp.core.page_identity import page_identity
    from interp.reporting.report import report

    subjects = [subject_of(run, on) for run in runs]
    first = subjects[0]
    # a prefix is read by the first run's task: runs on other tasks would read it as something else
    for subject, folder in zip(subjects, runs, strict=True):
        if subject.task.describe() != first.task.describe():
            raise ValueError(
                f"{folder} is a run on {subject.task.description}, {runs[0]} one on {first.task.description}."
            )
    models = [subject.run or subject.model for subject in subjects]
    options: dict[str, Any] = {"prefixes": prefix or None, "n_sampled": n_sampled, "seed": seed}
    result = interp.attention_variation(models, first.task, **options)
    if page is not None:
        identity = page_identity(first.model, first.task, seed=str(seed))
        report([result], page, title="Do models of different seeds attend alike?", identity=identity)
    return output_of({"variation": result}, page=page)
