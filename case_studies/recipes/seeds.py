"""Further seeds of a group of models, for claims that its ordinary number could not decide."""

from collections.abc import Sequence
from dataclasses import replace

from case_studies.frame.evidence import Size
from interp.sweeps.spec import ModelSpec


def more_seeds(group: str) -> str:
    """The name of a group with further seeds, for claims that those of the ordinary group could not decide."""
    return f"{group}, more seeds"


def with_seeds(specs: Sequence[ModelSpec], seeds: int, size: Size) -> list[ModelSpec]:
    """These models with this number of seeds each at size standard; at other sizes the same models."""
    if size != "standard":
        return list(specs)
    return [replace(spec, seed=seed) for spec in specs if spec.seed == 0 for seed in range(seeds)]
