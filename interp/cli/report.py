"""`interp report`: one HTML page about a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from interp.cli.output import Json, Output, RunFolder
from interp.cli.subject import OnTask, subject_of


def report(
    run: RunFolder,
    on: OnTask = None,
    out: Annotated[Path | None, typer.Option(help="The HTML file. Default: report.html in the run's folder.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Intervene on the probes' directions, where they are answers.")
    ] = True,
    as_json: Json = False,
) -> Output:
    """Write a self-contained HTML report of a trained model."""
    from interp.auditing.audit import audit as audit_model
    from interp.auditing.show import show_heads
    from interp.core.progress import Count
    from interp.heads.ablate import ablate_heads
    from interp.heads.classify import classify_heads
    from interp.probing.probe import probe as probe_model
    from interp.reporting.report import report_run

    subject = subject_of(run, on, answers=True)
    task, model = subject.task, subject.model
    if out is None and subject.run is None:
        raise ValueError(f"{run} is no training run, whose folder would get the report; give --out.")
    path = out or run / "report.html"
    label = task.answer_label if verify else None
    # the analyses, then a page that begins with what each head does
    with Count("report of a run", 5, work=12.0) as count:
        probes = probe_model(model, task, label=label, verify=label is not None)
        count.advance(work=3.0)
        audited = audit_model(model, task, at_chance=True)
        count.advance(work=5.0)
        patterns = classify_heads(model, task)
        count.advance()
        ablated = ablate_heads(model, task)
        count.advance()
        viewer = show_heads(model, task, audited, probes=probes)
        results = [viewer, audited, probes, patterns, ablated]
        page, evaluations = report_run(subject.run or model, task, path, results=results)
        count.advance(work=2.0)
    return Output(text=f"report: {page}", values={"page": str(page), "evaluation": evaluations["model"].to_dict()})
