"""`interp train ...`: one training run from the command line. Heavy imports happen inside commands."""

from pathlib import Path
from typing import Annotated

import typer

train_app = typer.Typer(help="Train a model on a task; a run that was interrupted goes on where it stopped.")

Seed = Annotated[int, typer.Option(help="Decides everything random.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Train again even where a trained model lies ready.")]
Device = Annotated[str | None, typer.Option(help="Where to train: cuda, cuda:1; the CPU if left out.")]


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
    device: Device = None,
) -> None:
    """Train on LEGO: chains of group operations, their clauses shuffled."""
    from interp.tasks import Lego, ready_made
    from interp.training.configs import config_for
    from interp.training.settings import TrainSettings
    from interp.training.sweeps import TrainJob

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
        device=device,
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

    from interp.tasks import Dyck
    from interp.training.configs import config_for
    from interp.training.settings import recipe_for
    from interp.training.sweeps import TrainJob

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


@train_app.command("template")
def train_template(
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    templates: Annotated[
        list[str] | None,
        typer.Option(
            help="A ready-made family (aba_abb, programs, copy ...), or templates: 'aba -> +1'. Repeat those."
        ),
    ] = None,
    n: Annotated[int, typer.Option(help="Training strings, and symbols of the training alphabet.")] = 256,
    form: Annotated[str | None, typer.Option(help="real, symbolic or next_token; by the labels if left out.")] = None,
    family: Annotated[str, typer.Option(help="template, template_copy or fully_connected.")] = "template",
    width: Annotated[int, typer.Option(help="Width of the residual stream.")] = 32,
    heads: Annotated[int, typer.Option(help="Attention heads per layer.")] = 4,
    layers: Annotated[int, typer.Option(help="Layers.")] = 2,
    qk_identity: Annotated[bool, typer.Option("--qk-identity", help="a I on W_K W_Q^T, a scalar per head.")] = False,
    vo_identity: Annotated[bool, typer.Option("--vo-identity", help="b I on W_V W_O^T, a scalar per head.")] = False,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 300,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 2e-3,
    seed: Seed = 0,
    fresh: Fresh = False,
) -> None:
    """Train on template tasks: which symbols are equal? Held-out symbols are unseen ones."""
    from dataclasses import replace

    from interp.tasks import Template
    from interp.training.configs import config_for
    from interp.training.settings import recipe_for
    from interp.training.sweeps import TrainJob

    given = templates or ["aba_abb"]
    named = len(given) == 1 and "->" not in given[0]
    task = Template(templates=given[0] if named else tuple(given), form=form, train=n)  # type: ignore[arg-type]
    sizes: dict = {"width": width} if family == "fully_connected" else {"d_model": width, "n_heads": heads}
    if family == "template":
        sizes |= {"n_layers": layers, "d_head": 16, "d_mlp": 2 * width, "qk_identity": qk_identity}
    if family != "fully_connected":
        sizes["vo_identity"] = vo_identity
    settings = replace(recipe_for(task), steps=steps, learning_rate=learning_rate)
    _train(
        TrainJob(task=task, config=config_for(task, family, **sizes), settings=settings, seed=seed, folder=out), fresh
    )


@train_app.command("text")
def train_text(
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    corpus: Annotated[
        str, typer.Option(help="python (the standard library's sources), or a folder of text files.")
    ] = "python",
    pattern: Annotated[str, typer.Option(help="Which files of the folder.")] = "**/*.txt",
    objective: Annotated[str, typer.Option(help="next_token or masked.")] = "next_token",
    next_sentence: Annotated[
        bool, typer.Option("--next-sentence", help="With masked: also tell whether a second sentence follows.")
    ] = False,
    n_ctx: Annotated[int, typer.Option(help="Tokens of a window.")] = 128,
    vocab_size: Annotated[int, typer.Option(help="Tokens of the tokenizer, trained on the training text.")] = 2048,
    family: Annotated[
        str | None,
        typer.Option(help="gpt, bert, albert, bert_encoder or albert_encoder; by the objective if left out."),
    ] = None,
    layers: Annotated[int, typer.Option(help="Applied layers.")] = 4,
    heads: Annotated[int, typer.Option(help="Attention heads per layer.")] = 4,
    width: Annotated[int, typer.Option(help="Width of the residual stream.")] = 128,
    identity: Annotated[
        bool, typer.Option("--identity", help="a I on W_K W_Q^T and b I on W_V W_O^T, two scalars per head.")
    ] = False,
    steps: Annotated[int, typer.Option(help="Optimiser steps of 2048 tokens.")] = 400,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-3,
    seed: Seed = 0,
    fresh: Fresh = False,
) -> None:
    """Train a small language model: next tokens or masked ones, of Python's own sources or a folder of text."""
    from dataclasses import replace

    from interp.tasks import Corpus, Text
    from interp.training.configs import config_for
    from interp.training.settings import recipe_for
    from interp.training.sweeps import TrainJob

    task = Text(
        corpus=corpus if corpus == "python" else Corpus.from_folder(corpus, pattern),
        objective=objective,  # type: ignore[arg-type]  # the task checks it
        next_sentence=next_sentence,
        n_ctx=n_ctx,
        vocab_size=vocab_size,
    )
    sizes: dict = {"n_layers": layers, "n_heads": heads, "d_model": width}
    if identity:
        sizes |= {"qk_identity": True, "vo_identity": True}
    settings = replace(recipe_for(task), steps=steps, learning_rate=learning_rate)
    _train(
        TrainJob(task=task, config=config_for(task, family, **sizes), settings=settings, seed=seed, folder=out), fresh
    )


def _stages(text: str, n_vars: int) -> tuple[tuple[int, int], ...]:
    from interp.training.settings import curriculum_to

    if text in ("auto", "none"):
        return curriculum_to(n_vars) if text == "auto" else ()
    try:
        stages = [stage.split(":") for stage in text.split(",") if stage]
        return tuple((int(length), int(steps)) for length, steps in stages)
    except ValueError:
        raise ValueError(f"curriculum is {text!r}; write auto, none, or stages length:steps: 2:80,3:270.") from None


def _train(job, fresh: bool) -> None:
    from hooks import make_model
    from interp.core.progress import TrainingProgress
    from interp.training.train import train

    with TrainingProgress("model") as progress:
        run = train(
            make_model(job.config, seed=job.seed),
            job.task,
            job.settings,
            seed=job.seed,
            folder=job.folder,
            fresh=fresh,
            on_record=progress,
            device=job.device,
        )
    print(run)
    check = " --verify" if job.task.describe()["task"] == "lego" else ""
    print(f"next: interp probe {job.folder}{check}, or interp report {job.folder}")
