"""`interp probe`: linear probes on a trained model."""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder, Saved, Seed, saved_output
from interp.cli.subject import OnTask, subject_of


def probe(
    run: RunFolder,
    on: OnTask = None,
    label: Annotated[
        str | None, typer.Option(help="One of the task's probe labels. Default: the first; with --verify, the answer.")
    ] = None,
    solver: Annotated[str, typer.Option(help="ridge (fast) or logistic (scikit-learn).")] = "ridge",
    verify: Annotated[
        bool, typer.Option("--verify", help="Also intervene on the directions that the probes found.")
    ] = False,
    out: Saved = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print which answers a linear probe reads from each layer of a trained model."""
    from interp.probing.probe import probe as probe_model

    subject = subject_of(run, on, answers=verify)
    if label is None and verify:
        label = subject.task.answer_label
    result = probe_model(subject.model, subject.task, label=label, solver=solver, verify=verify, seed=seed)  # type: ignore[arg-type]
    return saved_output(result, out)
