"""The `interp` command. Packages that load torch are imported inside commands, which keeps --help fast."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from interp.cli.train import Device, Fresh, Seed, train_app

app = typer.Typer(
    name="interp",
    help="Train small transformers on reasoning tasks, read what they learned, and check the reading.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(train_app, name="train", no_args_is_help=True)

RunFolderArgument = Annotated[Path, typer.Argument(help="Folder of a training run.")]


def main() -> None:
    """Run the command line; print ValueError and FileNotFoundError as one line, without a traceback."""
    try:
        app()
    except (ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the models and the report.")] = Path("runs/demo"),
    seed: Seed = 0,
    fresh: Fresh = False,
) -> None:
    """Train a model to follow chains of reasoning, probe it, and write a report."""
    from interp.cli.demo import run_demo

    run_demo(out, seed=seed, fresh=fresh)


@app.command()
def probe(
    run: RunFolderArgument,
    label: Annotated[
        str | None,
        typer.Option(
            help="Label to read: value, operation (LEGO); stack_top, depth (Dyck); template, label; kind (text)."
        ),
    ] = None,
    solver: Annotated[str, typer.Option(help="ridge (fast) or logistic (scikit-learn).")] = "ridge",
    verify: Annotated[
        bool, typer.Option("--verify", help="Also intervene on the directions that the probes found.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also save the result as JSON here.")] = None,
    seed: Seed = 0,
) -> None:
    """Print which answers a linear probe reads from each layer of a trained model."""
    from interp.probing.probe import probe as probe_model
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    result = probe_model(trained.model, trained.task, label=label, solver=solver, verify=verify, seed=seed)  # type: ignore[arg-type]
    print(result)
    if out is not None:
        result.save(out)


@app.command()
def heads(
    run: RunFolderArgument,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Also ablate each head and print the accuracy lost.")
    ] = False,
    method: Annotated[
        str, typer.Option(help="zero, mean, resample, uniform, random_rows, or a kind such as association.")
    ] = "zero",
    page: Annotated[Path | None, typer.Option(help="Also write an HTML page of the heads' attention here.")] = None,
    seed: Seed = 0,
) -> None:
    """Classify the attention heads of a trained model by their patterns."""
    from interp.heads.ablate import ablate_heads
    from interp.heads.classify import classify_heads
    from interp.heads.show import show_attention
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    task = trained.task
    patterns = classify_heads(trained.model, task, seed=seed)
    print(patterns)
    if ablate:
        print(ablate_heads(trained.model, task, method=method, seed=seed))
    if page is not None:
        show_attention(trained.model, task, examples=3, patterns=patterns, viewer="canvas", seed=seed).save(page)


@app.command()
def audit(
    run: RunFolderArgument,
    n: Annotated[int, typer.Option(help="Held-out sequences.")] = 256,
    probes: Annotated[bool, typer.Option("--probes", help="Also audit linear probes.")] = False,
    page: Annotated[Path | None, typer.Option(help="Also write an HTML page here.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also save the verdicts as JSON here.")] = None,
    at_chance: Annotated[
        bool, typer.Option("--at-chance", help="Audit even a model whose accuracy is at chance.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Check whether each head does what its pattern suggests: faithful, misleading, hidden, idle, or redundant."""
    from interp.auditing.audit import audit as audit_model
    from interp.auditing.probes import audit_probe
    from interp.reporting.report import report as write_report
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    found = [audit_model(trained.model, trained.task, n=n, at_chance=at_chance, seed=seed)]
    found += [audit_probe(trained.model, trained.task, seed=seed)] if probes else []
    print(*found, sep="\n\n")
    if out is not None:
        found[0].save(out)
    if page is not None:
        print(f"page: {write_report(found, page, title='Is the reading true?')}")


@app.command()
def report(
    run: RunFolderArgument,
    out: Annotated[Path | None, typer.Option(help="The HTML file. Default: report.html in the run's folder.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Intervene on the probes' directions (LEGO).")
    ] = True,
) -> None:
    """Write a self-contained HTML report of a trained model."""
    from interp.auditing.audit import audit as audit_model
    from interp.heads.ablate import ablate_heads
    from interp.heads.classify import classify_heads
    from interp.heads.show import show_attention
    from interp.probing.probe import probe as probe_model
    from interp.reporting.report import report_run
    from interp.training.run import TrainingRun

    trained = TrainingRun.load(run)
    task = trained.task
    patterns = classify_heads(trained.model, task)
    results = [
        probe_model(trained.model, task, verify=verify and task.answer_label is not None),
        patterns,
        show_attention(trained.model, task, examples=3, patterns=patterns, viewer="canvas"),
        ablate_heads(trained.model, task),
        audit_model(trained.model, task, at_chance=True),
    ]
    page, _ = report_run(trained, task, out or run / "report.html", results=results)
    print(f"report: {page}")


@app.command()
def reproduce(
    study: Annotated[str | None, typer.Argument(help="The study to run. Default: list all studies.")] = None,
    size: Annotated[str, typer.Option(help="quick (minutes), standard, or paper (a GPU).")] = "quick",
    only: Annotated[list[str] | None, typer.Option(help="A claim id, or the prefix of several; repeatable.")] = None,
    list_claims: Annotated[bool, typer.Option("--list", help="Print the claims and their rules; run nothing.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for models and results.")] = Path("runs/reproduce"),
    seed: Annotated[int, typer.Option(help="Seed of the measurements; each model has its own seed.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Repeat finished training and measurements.")] = False,
    jobs: Annotated[int, typer.Option(help="Number of parallel processes.")] = 2,
    device: Device = None,
) -> None:
    """Test a paper's claims: train, measure, judge, and write a page. An interrupted run is resumed."""
    found = _studies()
    if study is None:
        for name in found:
            try:
                print(f"{name:<12} {_load_study(name, found).title}")
            except ValueError as error:
                print(f"{name:<12} {error}")
        print("next: interp reproduce STUDY --list" if found else "no study is installed (group interp.studies).")
        return
    chosen = _load_study(study, found)
    if list_claims:
        print(chosen.listing(only or ()))
        return
    result = chosen.run(size=size, only=only or (), folder=out, n_jobs=jobs, fresh=fresh, seed=seed, device=device)
    print(f"\n{result}\npage: {result.page}")


def _studies() -> dict:
    """Entry points of the group `interp.studies`, from this package and others, by name."""
    import importlib.metadata

    found = {}
    for point in importlib.metadata.entry_points(group="interp.studies"):
        if found.setdefault(point.name, point).value != point.value:
            raise ValueError(f"two studies are called {point.name}: {found[point.name].value} and {point.value}.")
    return dict(sorted(found.items()))


def _load_study(name: str, found: dict):
    """Load a study from its entry point; it must have the `title`, `listing` and `run` of a `Study`."""
    if name not in found:
        raise ValueError(f"there is no study {name!r}; there is {', '.join(found) or 'none'}.")
    try:
        study = found[name].load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the study {name} ({found[name].value}) cannot be loaded: {error}.") from error
    missing = [part for part in ("title", "listing", "run") if not hasattr(study, part)]
    if missing:
        raise ValueError(f"the study {name} ({found[name].value}) lacks {', '.join(missing)}.")
    return study
