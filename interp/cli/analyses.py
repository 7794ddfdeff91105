"""Commands that analyse a training run: `interp probe`, `heads`, `audit` and `report`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from interp.cli.output import Json, Output, Seed

RunFolderArgument = Annotated[Path, typer.Argument(help="Folder of a training run.")]


def probe(
    run: RunFolderArgument,
    label: Annotated[
        str | None, typer.Option(help="One of the task's probe labels. Default: the first; with --verify, the answer.")
    ] = None,
    solver: Annotated[str, typer.Option(help="ridge (fast) or logistic (scikit-learn).")] = "ridge",
    verify: Annotated[
        bool, typer.Option("--verify", help="Also intervene on the directions that the probes found.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also save the result as JSON here.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print which answers a linear probe reads from each layer of a trained model."""
    from interp.probing.probe import probe as probe_model
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    label = label or (trained.task.answer_label if verify else None)
    result = probe_model(trained.model, trained.task, label=label, solver=solver, verify=verify, seed=seed)  # type: ignore[arg-type]
    if out is not None:
        result.save(out)
    return Output(text=str(result), values=result.to_dict())


def heads(
    run: RunFolderArgument,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Also ablate each head and print the accuracy lost.")
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(help="With --ablate: zero (default), mean, resample, uniform, random_rows, or a kind of head."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Also write an HTML page of the heads' attention here.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Classify the attention heads of a trained model by their patterns."""
    from interp.heads.ablate import ablate_heads
    from interp.heads.classify import classify_heads
    from interp.heads.show import show_attention
    from interp.training.run import TrainingRun

    if method is not None and not ablate:
        raise ValueError("--method is how heads are ablated; add --ablate, or omit it.")
    trained = TrainingRun.load(run)
    task = trained.task
    ablation = {}
    if ablate:  # first, because it checks the method
        ablation["ablation"] = ablate_heads(trained.model, task, method=method or "zero", seed=seed)
    patterns = classify_heads(trained.model, task, seed=seed)
    results: dict[str, Any] = {"patterns": patterns, **ablation}
    if page is not None:
        show_attention(trained.model, task, examples=3, patterns=patterns, viewer="canvas", seed=seed).save(page)
    return _output(results, page)


def audit(
    run: RunFolderArgument,
    n: Annotated[
        str, typer.Option(help="Held-out sequences, or `enough`: what the verdicts need, up to --limit.")
    ] = "256",
    limit: Annotated[int, typer.Option(help="With `--n enough`: largest number of sequences.")] = 1024,
    probes: Annotated[bool, typer.Option("--probes", help="Also audit linear probes.")] = False,
    page: Annotated[Path | None, typer.Option(help="Also write an HTML page here.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also save the verdicts as JSON here.")] = None,
    at_chance: Annotated[
        bool, typer.Option("--at-chance", help="Audit even a model whose accuracy is at chance.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Check whether each head does what its pattern suggests: faithful, misleading, hidden, idle, or redundant."""
    from interp.auditing.audit import audit as audit_model
    from interp.auditing.probes import audit_probe
    from interp.core.identity import page_identity
    from interp.reporting.report import report as write_report
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    options: dict[str, Any] = {"n": int(n) if n.isdigit() else n, "limit": limit, "at_chance": at_chance}
    results: dict[str, Any] = {"heads": audit_model(trained.model, trained.task, **options, seed=seed)}
    if probes:
        results["probes"] = audit_probe(trained.model, trained.task, seed=seed)
    if out is not None:
        results["heads"].save(out)
    if page is not None:
        seeds = f"{trained.manifest['seed']} (training), {seed} (analysis)"
        identity = page_identity(trained.model, trained.task, seed=seeds)
        write_report(list(results.values()), page, title="Is the reading true?", identity=identity)
    return _output(results, page)


def report(
    run: RunFolderArgument,
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
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    task, model, label = trained.task, trained.model, trained.task.answer_label if verify else None
    with Count("report of a run", 5, work=12.0) as count:
        probes = probe_model(model, task, label=label, verify=label is not None)
        count.one(work=3.0)
        audited = audit_model(model, task, at_chance=True)
        count.one(work=5.0)
        patterns = classify_heads(model, task)
        count.one()
        ablated = ablate_heads(model, task)
        count.one()
        results = [show_heads(model, task, audited, probes=probes), audited, probes, patterns, ablated]
        page, tested = report_run(trained, task, out or run / "report.html", results=results)
        count.one(work=2.0)
    return Output(text=f"report: {page}", values={"page": str(page), "evaluation": tested["model"].to_dict()})


def _output(results: dict[str, Any], page: Path | None) -> Output:
    """Results by name, and the page that was written, if any."""
    lines = ["\n\n".join(map(str, results.values()))] + ([] if page is None else [f"page: {page}"])
    values = {name: result.to_dict() for name, result in results.items()}
    return Output(text="\n".join(lines), values=values if page is None else {**values, "page": str(page)})
