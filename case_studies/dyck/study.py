"""The bounded-Dyck study: `interp reproduce dyck`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from case_studies.dyck import (
    algorithms,
    balance,
    constructions,
    equation_6,
    heads,
    last_layers,
    learning,
    misleading,
    necessity,
    prefix_balance,
    prefixes,
    proposition,
    pruning,
    pruning_blocks,
    three_layers,
    variation,
)
from case_studies.dyck.findings import FINDINGS, WORDS
from case_studies.dyck.further_models import further_groups
from case_studies.dyck.models import groups
from case_studies.frame.evidence import Size
from case_studies.study import Study
from interp.sweeps.spec import ModelSpec


def every_group(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models of the study at a size."""
    return {**groups(size), **further_groups(size)}


STUDY = Study(
    name="dyck",
    title="Reading single heads misleads: bounded Dyck",
    lead=(
        "The bounded-Dyck paper (arXiv:2312.01429) argues that training does not find readable, stack-like attention. "
        "Patterns differ between seeds as much as random ones, solutions share a balance condition on whole layers, "
        "and training towards balance improves generalisation to longer words. Each claim has a rule, what had "
        "been seen when the rule was fixed, and its result."
    ),
    findings=FINDINGS,
    words=WORDS,
    claims=(
        *learning.CLAIMS,
        *last_layers.CLAIMS,
        *variation.CLAIMS,
        *prefixes.CLAIMS,
        *three_layers.CLAIMS,
        *heads.CLAIMS,
        *misleading.CLAIMS,
        *algorithms.CLAIMS,
        *constructions.CLAIMS,
        *proposition.CLAIMS,
        *necessity.CLAIMS,
        *balance.CLAIMS,
        *prefix_balance.CLAIMS,
        *equation_6.CLAIMS,
        *pruning_blocks.CLAIMS,
        *pruning.CLAIMS,
    ),
    groups=every_group,
    shipped=Path(__file__).parent / "results",
)
