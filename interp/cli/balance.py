"""`interp balance`: do matched brackets cancel?"""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, Page, RunFolder, output_of
from interp.cli.subject import OnTask, subject_of


def balance(
    run: RunFolder,
    on: OnTask = None,
    pairing: Annotated[
        str, typer.Option(help="mirrored (the definition) or released (the paper's code).")
    ] = "mirrored",
    page: Page = None,
    as_json: Json = False,
) -> Output:
    """Compute how far matched brackets are from cancelling in the attention of a model of nested brackets."""
    import interp
    from interp.core.page_identity import page_identity
    from interp.reporting.report import report

    subject = subject_of(run, on)
    result = interp.balance_violation(subject.model, subject.task, pairing=pairing)  # type: ignore[arg-type]
    if page is not None:
        identity = page_identity(subject.model, subject.task, seed=subject.seeds())
        report([result], page, title="Do matched brackets cancel?", identity=identity)
    return output_of({"balance": result}, page=page)
