"""The bounded-Dyck study: `interp reproduce dyck`."""

from pathlib import Path

from case_studies.dyck import algorithms, balance, constructions, heads, learning, modes, necessity, pruning, variation
from case_studies.dyck.models import groups
from case_studies.study import Study

STUDY = Study(
    name="dyck",
    title="Reading single heads misleads: bounded Dyck",
    lead=(
        "The bounded-Dyck paper (arXiv:2312.01429) argues that training does not find readable, stack-like attention. "
        "Patterns differ between seeds as much as random ones, solutions share a balance condition on whole layers, "
        "and training towards balance improves generalisation to longer words. Each claim has a rule, what had "
        "been seen when the rule was fixed, and its result."
    ),
    claims=(
        *learning.CLAIMS,
        *variation.CLAIMS,
        *modes.CLAIMS,
        *heads.CLAIMS,
        *algorithms.CLAIMS,
        *constructions.CLAIMS,
        *necessity.CLAIMS,
        *balance.CLAIMS,
        *pruning.CLAIMS,
    ),
    groups=groups,
    shipped=Path(__file__).parent / "results",
)
