"""`interp audit`: does each head do what its pattern suggests?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from hooks.checks import shown
from interp.cli.output import Json, Output, Page, RunFolder, Seed, output_of
from interp.cli.subject import OnTask, subject_of


def audit(
    run: RunFolder,
    on: OnTask = None,
    n: Annotated[
        str,
        typer.Option(
            help="Held-out sequences, or `enough`: what the verdicts need, up to --limit and --seconds. `all`: every "
            "input of a task that has few, without sampling error."
        ),
    ] = "enough",
    limit: Annotated[
        int | None, typer.Option(help="With `--n enough`: largest number of sequences. Default: 4096.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="With `--n enough`: wall time, after which no further sequences are used. Default: 60."),
    ] = None,
    heads: Annotated[
        list[str] | None, typer.Option("--head", help="Audit this head only, as layer.head; repeatable. Default: all.")
    ] = None,
    probes: Annotated[bool, typer.Option("--probes", help="Also audit linear probes.")] = False,
    parts: Annotated[
        list[str] | None,
        typer.Option(
            help="Also decide whether the model needs other parts: `mlps`, `heads`, `each` of both, or the name of "
            "one, such as `0 MLP`, `0 MLP 5` or `embedding`; names are repeatable."
        ),
    ] = None,
    page: Page = None,
    out: Annotated[
        Path | None, typer.Option(help="Also save the verdicts as JSON here; those on parts and probes beside it.")
    ] = None,
    at_chance: Annotated[
        bool, typer.Option("--at-chance", help="Audit even a model whose accuracy is at chance.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Number of parallel processes; the numbers are the same.")] = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Check whether each head does what its pattern suggests: a verdict on each, such as faithful or misleading."""
    from interp.auditing.audit import audit as audit_model
    from interp.auditing.parts import audit_parts
    from interp.auditing.probes import audit_probe
    from interp.core.page_identity import page_identity
    from interp.heads.parts import KINDS_OF_PARTS
    from interp.reporting.report import report as write_report

    limits = {name: value for name, value in {"limit": limit, "seconds": seconds}.items() if value is not None}
    if limits and n != "enough":
        raise ValueError(f"--{next(iter(limits))} is for --n enough; --n is {n}. Omit one of them.")
    if parts and len(parts) > 1 and (kinds := set(parts) & {*KINDS_OF_PARTS}):
        raise ValueError(f"--parts is {kinds.pop()} and more; give it alone, or names of parts.")
    chosen = None if not heads else [_head(text) for text in heads]
    subject = subject_of(run, on, answers=True)
    # the audit of heads, and of probes
    sequences = int(n) if n.isdigit() else n
    options: dict[str, Any] = {"n": sequences, **limits, "at_chance": at_chance, "seed": seed}
    on_heads = {"heads": chosen, "n_jobs": jobs}
    results: dict[str, Any] = {"heads": audit_model(subject.model, subject.task, **options, **on_heads)}
    if parts:
        chosen_parts: Any = parts[0] if parts[0] in KINDS_OF_PARTS and len(parts) == 1 else parts
        results["parts"] = audit_parts(subject.model, subject.task, parts=chosen_parts, **options)
    if probes:
        results["probes"] = audit_probe(subject.model, subject.task, seed=seed)
    # files
    if out is not None:
        # audit.json, audit.parts.json, audit.probes.json
        for name, result in results.items():
            result.save(out if name == "heads" else out.with_suffix(f".{name}{out.suffix}"))
    if page is not None:
        seeds = subject.seeds(seed)
        identity = page_identity(subject.model, subject.task, seed=seeds)
        write_report(list(results.values()), page, title="Is the reading true?", identity=identity)
    return output_of(results, page=page)


def _head(text: str) -> tuple[int, int]:
    """(layer, head) of a head that is named as in tables."""
    layer, _, head = text.partition(".")
    if not (layer.isdecimal() and head.isdecimal()):
        raise ValueError(f"--head is {shown(text)}; it must be layer.head, such as 1.0.")
    return int(layer), int(head)
