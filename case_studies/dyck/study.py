"""The bounded-Dyck study: `interp reproduce dyck`."""

from case_studies.dyck import balance, constructions, heads, learning, pruning, variation
from case_studies.dyck.models import groups
from case_studies.frame.study import Study

STUDY = Study(
    name="dyck",
    title="Reading single heads misleads: bounded Dyck",
    lead=(
        "The bounded-Dyck paper (arXiv:2312.01429) argues that readable, stack-like attention is not what training "
        "finds: "
        "patterns differ between seeds like random ones, a balance condition on whole layers says what solutions "
        "have in "
        "common, and pushing models towards it makes them generalise to longer words. Here are its claims, each with a "
        "rule that was written before the run, and what came of them."
    ),
    claims=(
        *learning.CLAIMS,
        *variation.CLAIMS,
        *heads.CLAIMS,
        *constructions.CLAIMS,
        *balance.CLAIMS,
        *pruning.CLAIMS,
    ),
    groups=groups,
)
