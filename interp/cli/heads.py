"""`interp heads`: classification and ablation of the heads of a trained model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from interp.cli.output import Json, Output, RunFolder, Seed, output_of
from interp.cli.subject import OnTask, subject_of


def heads(
    run: RunFolder,
    on: OnTask = None,
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

    if method is not None and not ablate:
        raise ValueError("--method is how heads are ablated; add --ablate, or omit it.")
    subject = subject_of(run, on, answers=ablate)
    task = subject.task
    # ablation is first, because it checks the method, and printed last
    ablation = {}
    if ablate:
        ablation["ablation"] = ablate_heads(subject.model, task, method=method or "zero", seed=seed)
    patterns = classify_heads(subject.model, task, seed=seed)
    results: dict[str, Any] = {"patterns": patterns, **ablation}
    if page is not None:
        show_attention(subject.model, task, examples=3, patterns=patterns, viewer="canvas", seed=seed).save(page)
    return output_of(results, page=page)
