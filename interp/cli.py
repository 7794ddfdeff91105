"""`interp ...` on the command line. Heavy imports happen inside commands, so that --help is quick."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="interp",
    help="Train small transformers on reasoning tasks, read what they learned, and check the reading.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
train_app = typer.Typer(help="Train a model on a task; a run that was interrupted goes on where it stopped.")
app.add_typer(train_app, name="train", no_args_is_help=True)

Seed = Annotated[int, typer.Option(help="Decides everything random.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Train again even where a trained model lies ready.")]
RunFolderArgument = Annotated[Path, typer.Argument(help="Folder that a training run wrote.")]


def main() -> None:
    """Entry point: what the user can mend is shown as one line, not as a traceback."""
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
    """The main job: train a model to follow chains of reasoning, probe it, write a report."""
    from interp.demo import run_demo

    run_demo(out, seed=seed, fresh=fresh)


@train_app.command("lego")
def train_lego(
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    n_vars: Annotated[int, typer.Option(help="Variables in a chain.")] = 4,
    n_supervised: Annotated[int | None, typer.Option(help="Only the first so many variables are trained on.")] = None,
    group: Annotated[str, typer.Option(help="What acts on what: Z2 (signs) or S3 (permutations).")] = "Z2",
    sentence_format: Annotated[str, typer.Option(help="paper (five tokens a clause) or compact (three).")] = "paper",
    layers: Annotated[int, typer.Option(help="Applied layers.")] = 6,
    heads: Annotated[int, typer.Option(help="Attention heads per layer.")] = 4,
    width: Annotated[int, typer.Option(help="Width of the residual stream.")] = 64,
    tied: Annotated[bool, typer.Option("--tied", help="One block applied again and again (ALBERT).")] = False,
    association: Annotated[str, typer.Option(help="Bias towards equal tokens: mimic, query_key or none.")] = "mimic",
    curriculum: Annotated[
        str, typer.Option(help="Stages length:steps, e.g. 2:80,3:270,4:350; auto; or none for one length.")
    ] = "auto",
    steps: Annotated[int, typer.Option(help="Steps, where the curriculum is none.")] = 700,
    seed: Seed = 0,
    fresh: Fresh = False,
) -> None:
    """Train on LEGO: chains of group operations, their clauses shuffled."""
    from interp.models import config_for
    from interp.sweeps import TrainJob
    from interp.tasks import Lego, ready_made
    from interp.train_settings import TrainSettings

    task = Lego(
        n_vars=n_vars,
        n_supervised=n_supervised,
        group=ready_made(group),
        sentence_format=sentence_format,  # type: ignore[arg-type]  # the task checks it
    )
    job = TrainJob(
        task=task,
        config=config_for(task, n_layers=layers, n_heads=heads, d_model=width, tied=tied),
        settings=TrainSettings(steps=steps, curriculum=_stages(curriculum, n_vars), association=association),  # type: ignore[arg-type]
        seed=seed,
        folder=out,
    )
    _train(job, fresh)


@train_app.command("dyck")
def train_dyck(
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    n_types: Annotated[int, typer.Option(help="Types of bracket.")] = 2,
    max_depth: Annotated[int, typer.Option(help="Greatest depth.")] = 4,
    q: Annotated[float, typer.Option(help="Probability to open where both are possible.")] = 0.5,
    length: Annotated[int, typer.Option(help="Brackets of a prefix, or most of a complete word.")] = 28,
    words: Annotated[str, typer.Option(help="prefixes, or complete words.")] = "prefixes",
    loss_on: Annotated[str, typer.Option(help="all next tokens, or closers only.")] = "all",
    family: Annotated[
        str, typer.Option(help="dyck_gpt, dyck_eq6, dyck_uniform, or dyck_minimal (frozen bracket and depth).")
    ] = "dyck_gpt",
    layers: Annotated[int | None, typer.Option(help="Applied layers; the family's own if left out.")] = None,
    positions: Annotated[str, typer.Option(help="none or linear.")] = "none",
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 700,
    batch_size: Annotated[int, typer.Option(help="Words per step.")] = 24,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 6e-3,
    contrastive: Annotated[float, typer.Option(help="Weight of the contrastive loss; the paper's is 0.3.")] = 0.0,
    seed: Seed = 0,
    fresh: Fresh = False,
) -> None:
    """Train on bounded Dyck: words of nested brackets."""
    from dataclasses import replace

    from interp.models import config_for
    from interp.sweeps import TrainJob
    from interp.tasks import Dyck
    from interp.train_settings import recipe_for

    task = Dyck(
        n_types=n_types,
        max_depth=max_depth,
        q=q,
        length=length,
        words=words,  # type: ignore[arg-type]  # the task checks it
        loss_on=loss_on,  # type: ignore[arg-type]
    )
    sizes = {"positions": positions} | ({} if layers is None else {"n_layers": layers})
    settings = replace(
        recipe_for(task), steps=steps, batch_size=batch_size, learning_rate=learning_rate, contrastive=contrastive
    )
    _train(
        TrainJob(task=task, config=config_for(task, family, **sizes), settings=settings, seed=seed, folder=out), fresh
    )


@app.command()
def probe(
    run: RunFolderArgument,
    label: Annotated[
        str | None, typer.Option(help="What to read: value or operation (LEGO), stack_top or depth (Dyck).")
    ] = None,
    solver: Annotated[str, typer.Option(help="ridge (fast) or logistic (scikit-learn).")] = "ridge",
    verify: Annotated[bool, typer.Option("--verify", help="Also check whether the model uses what is read.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also save the result as JSON here.")] = None,
    seed: Seed = 0,
) -> None:
    """Print where each answer can be read from a trained model, layer by layer."""
    from interp.probing import probe as probe_model
    from interp.tasks import task_from
    from interp.training_run import TrainingRun

    trained = TrainingRun.load(run)
    task = task_from(trained.manifest["task"])
    result = probe_model(trained.model, task, label=label, solver=solver, verify=verify, seed=seed)  # type: ignore[arg-type]
    print(result)
    if out is not None:
        result.save(out)


@app.command()
def heads(
    run: RunFolderArgument,
    ablate: Annotated[bool, typer.Option("--ablate", help="Also print what breaks without each head.")] = False,
    method: Annotated[
        str, typer.Option(help="zero, mean, resample, uniform, random_rows, or a kind such as association.")
    ] = "zero",
    page: Annotated[Path | None, typer.Option(help="Also write an HTML page of the heads' attention here.")] = None,
    seed: Seed = 0,
) -> None:
    """Print where each head of a trained model looks, and what breaks without it."""
    from interp.ablation import ablate_heads
    from interp.attention import show_attention
    from interp.patterns import classify_heads
    from interp.tasks import task_from
    from interp.training_run import TrainingRun

    trained = TrainingRun.load(run)
    task = task_from(trained.manifest["task"])
    patterns = classify_heads(trained.model, task, seed=seed)
    print(patterns)
    if ablate:
        print(ablate_heads(trained.model, task, method=method, seed=seed))
    if page is not None:
        show_attention(trained.model, task, examples=3, patterns=patterns, viewer="canvas", seed=seed).save(page)


@app.command()
def report(
    run: RunFolderArgument,
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; report.html in the run's folder if left out.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check the probes against causes (LEGO).")
    ] = True,
) -> None:
    """Write one HTML page about a trained model; it opens offline."""
    from interp.ablation import ablate_heads
    from interp.attention import show_attention
    from interp.patterns import classify_heads
    from interp.probing import probe as probe_model
    from interp.reporting import report_run
    from interp.tasks import Lego, task_from
    from interp.training_run import TrainingRun

    trained = TrainingRun.load(run)
    task = task_from(trained.manifest["task"])
    patterns = classify_heads(trained.model, task)
    results = [
        probe_model(trained.model, task, verify=verify and isinstance(task, Lego)),
        patterns,
        show_attention(trained.model, task, examples=3, patterns=patterns, viewer="canvas"),
        ablate_heads(trained.model, task),
    ]
    page, _ = report_run(trained, task, out or run / "report.html", results=results)
    print(f"report: {page}")


@app.command()
def reproduce(
    study: Annotated[str | None, typer.Argument(help="Which paper; the studies there are, if left out.")] = None,
    size: Annotated[str, typer.Option(help="quick (minutes), standard, or paper (a GPU).")] = "quick",
    only: Annotated[list[str] | None, typer.Option(help="A claim, or how several begin; may be repeated.")] = None,
    list_claims: Annotated[bool, typer.Option("--list", help="Print the claims and their rules; run nothing.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for models and results.")] = Path("runs/reproduce"),
    seed: Annotated[int, typer.Option(help="Decides the measurements; models have seeds of their own.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train and measure again what lies ready.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes side by side.")] = 2,
) -> None:
    """Check a paper's claims: train, measure, judge, write a page. A run that was interrupted goes on."""
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
    result = chosen.run(size=size, only=only or (), folder=out, n_jobs=jobs, fresh=fresh, seed=seed)
    print(f"\n{result}\npage: {result.page}")


def _studies() -> dict:
    """Entry points of the group `interp.studies`, by name: this package's own, and those of any other."""
    import importlib.metadata

    found = {}
    for point in importlib.metadata.entry_points(group="interp.studies"):
        if found.setdefault(point.name, point).value != point.value:
            raise ValueError(f"two studies are called {point.name}: {found[point.name].value} and {point.value}.")
    return dict(sorted(found.items()))


def _load_study(name: str, found: dict):
    """The study that an entry point names.

    It is asked for `title`, `listing` and `run`: what `case_studies.study.Study` has. This package imports no study.
    """
    if name not in found:
        raise ValueError(f"there is no study {name!r}; there is {', '.join(found) or 'none'}.")
    try:
        study = found[name].load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the study {name} ({found[name].value}) cannot be loaded: {error}.") from error
    missing = [part for part in ("title", "listing", "run") if not hasattr(study, part)]
    if missing:
        raise ValueError(f"the study {name} ({found[name].value}) is no study: it has no {', no '.join(missing)}.")
    return study


def _stages(text: str, n_vars: int) -> tuple[tuple[int, int], ...]:
    from interp.train_settings import curriculum_to

    if text in ("auto", "none"):
        return curriculum_to(n_vars) if text == "auto" else ()
    try:
        stages = [stage.split(":") for stage in text.split(",") if stage]
        return tuple((int(length), int(steps)) for length, steps in stages)
    except ValueError:
        raise ValueError(f"curriculum is {text!r}; write auto, none, or stages length:steps: 2:80,3:270.") from None


def _train(job, fresh: bool) -> None:
    from hooks import Transformer
    from interp.progress import Progress
    from interp.training import train

    with Progress(["model"]) as progress:
        records: list[dict] = []

        def show(record: dict) -> None:
            records.append(record)
            progress({"model": records})

        model = Transformer(job.config, seed=job.seed)
        run = train(model, job.task, job.settings, seed=job.seed, folder=job.folder, fresh=fresh, on_record=show)
    print(run)
    check = "" if job.task.describe()["task"] == "dyck" else " --verify"
    print(f"next: interp probe {job.folder}{check}, or interp report {job.folder}")
