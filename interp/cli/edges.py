"""`interp edges`: which edges of a trained model are needed, and their circuit."""

from pathlib import Path
from typing import Annotated, Any

import typer

from interp.cli.output import Json, Output, RunFolder, Saved, Seed, output_of, saved_output
from interp.cli.subject import OnTask, subject_of


def edges(
    run: RunFolder,
    on: OnTask = None,
    method: Annotated[str, typer.Option(help="What a part writes instead: mean, zero, or resample.")] = "mean",
    between: Annotated[str, typer.Option(help="What writes and reads: parts, or whole layers.")] = "parts",
    within: Annotated[
        list[str] | None,
        typer.Option(help="Only the edges between parts within this one, such as 'layer 0 > layer 2'; repeat it."),
    ] = None,
    n: Annotated[int, typer.Option(help="Number of held-out sequences; a circuit has twice as many.")] = 256,
    page: Annotated[
        Path | None, typer.Option(help="Also search the circuit, and write it as an HTML page here.")
    ] = None,
    circuit: Annotated[
        Path | None, typer.Option(help="Also search the circuit, and save it in the JSON of EAP-IG and MIB here.")
    ] = None,
    out: Saved = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> Output:
    """Print what it costs to replace what one part of a trained model gives to one input of another, for every edge."""
    from interp.core.page_identity import page_identity
    from interp.heads.edges import edges as measure_edges

    if (page is not None or circuit is not None) and (between != "parts" or within):
        raise ValueError(
            "--page and --circuit search a circuit of all edges between parts; omit --between and --within."
        )
    subject = subject_of(run, on, answers=True)
    options: Any = {"method": method, "between": between, "within": within or None}
    result = measure_edges(subject.model, subject.task, **options, n=n, seed=seed)
    output = saved_output(result, out)
    if page is None and circuit is None:
        return output
    # Half of the sequences find the circuit, the other half judge it
    of_edges = result.circuit(n=2 * n, seed=seed)
    if circuit is not None:
        of_edges.save_circuit(circuit)
    if page is not None:
        of_edges.save_page(page, identity=page_identity(subject.model, subject.task, seed=subject.seeds(seed)))
    return output_of({"edges": result, "circuit": of_edges}, page=page, circuit_file=circuit)
