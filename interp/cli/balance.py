"""`interp balance`: do matched brackets cancel?"""

from typing import Annotated

import typer

from interp.cli.output import Json, Output, Page, RunFolder, output_of


def balance(
    run: RunFolder,
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
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    result = interp.balance_violation(trained.model, trained.task, pairing=pairing)  # type: ignore[arg-type]
    if page is not None:
        identity = page_identity(trained.model, trained.task, seed=f"{trained.manifest['seed']} (training)")
        report([result], page, title="Do matched brackets cancel?", identity=identity)
    return output_of({"balance": result}, page)
