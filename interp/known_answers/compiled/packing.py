"""Writing compiled programs as packs, and the programs that are shipped as packs."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hooks.files import user_path, write_bytes, write_json
from hooks.typed import checks_types
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.compiled.answers import read_compiled
from interp.known_answers.compiled.compiling import compiled
from interp.known_answers.compiled.program import Program, Selector

FOLDER = Path(__file__).parent / "packs"
SHIPPED = ("histogram", "reversal", "sort", "palindrome", "depth", "difference of fractions")
"""Programs that are shipped as packs, so that they need no compiler."""
N_SHIPPED = 400
"""Number of their inputs."""


@checks_types
def shipped_program(name: str) -> KnownAnswer:
    """A compiled program of our own whose pack is shipped: it needs no compiler.

    Args:
        name: One of `SHIPPED`.

    Raises:
        ValueError: no program of this name is shipped.

    Example:
        >>> from interp.known_answers import shipped_program
        >>> shipped_program("histogram").task.description
        'the compiled program histogram: How often the token occurs.'
    """
    if name not in SHIPPED:
        raise ValueError(f"name is {name!r}; shipped are {', '.join(SHIPPED)}. compile_program compiles the others.")
    return read_compiled(FOLDER / file_name(name))


@checks_types
def write_compiled(program: Program, path: str | Path) -> None:
    """Write a compiled program as a pack, which `read_compiled` reads: `NAME.json` and `NAME.npz`.

    Args:
        program: The program, as in `answer.task.program` of a compiled known answer.
        path: One of the two files, or their common name without an ending. Existing files are replaced.
    """
    stem = user_path(path)
    if stem.suffix in (".json", ".npz"):
        stem = stem.with_suffix("")
    n_layers, n_heads, d_model, d_head = program.weights["W_Q"].shape
    values = {
        "case": program.name,
        "description": program.description,
        "source": program.source,
        "tokens": program.tokens,
        "bos": program.bos,
        "pad": program.pad,
        "causal": program.causal,
        "activation": "relu",
        "normalization": None,
        "attn_scale": 1.0,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "d_head": d_head,
        "d_mlp": program.weights["W_in"].shape[2],
        "d_model": d_model,
        "max_seq_len": program.examples.shape[1],
        "n_positions": len(program.weights["W_pos"]),
        "n_examples": len(program.examples),
        "residual": program.residual,
        "output": "numerical" if program.numerical else "categorical",
        "output_values": program.output_values,
        "relations_shape": program.relations.shape,
        "heads": [_head_values(selector) for selector in program.selectors],
    }
    arrays: dict[str, Any] = {
        "tokens": program.examples.astype(np.int16),
        "targets": program.targets.astype(np.float32 if program.numerical else np.int16),
        "relations": np.packbits(program.relations),
        **program.weights,
    }
    archive = io.BytesIO()
    np.savez_compressed(archive, **arrays)
    # Arrays first: a pack is found by its JSON file
    write_bytes(stem.with_name(f"{stem.name}.npz"), archive.getvalue())
    write_json(stem.with_name(f"{stem.name}.json"), values)


def file_name(name: str) -> str:
    """Name of a program's pack, without an ending."""
    return name.replace(",", "").replace(" ", "_")


def _head_values(selector: Selector) -> dict[str, object]:
    """A head as plain values."""
    return {
        "layer": selector.layer,
        "head": selector.head,
        "use": "selector_width" if selector.counts else "aggregate",
        "writes": selector.writes,
        "reads": selector.reads,
        "selector": selector.selects,
    }


def write_packs(folder: Path, names: Sequence[str] = SHIPPED) -> None:
    """Compile programs and write their packs; those that are shipped were made by this. Needs the extra `tracr`.

    Args:
        folder: Folder of the packs.
        names: Programs among `PROGRAMS`.

    Raises:
        MissingExtra, ValueError: as `compile_program`.
    """
    for name in names:
        write_compiled(compiled(name, n=N_SHIPPED), user_path(folder) / file_name(name))
