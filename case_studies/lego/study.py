"""The LEGO paper: `interp reproduce lego`."""

from collections.abc import Mapping, Sequence

from case_studies.frame.evidence import ModelSpec, Size
from case_studies.frame.study import Study
from case_studies.lego import cost, generalisation, hardcoded, heads, loops, percolation, shortcut, starts
from case_studies.lego.models import groups
from case_studies.lego.pathway_models import pathway_groups


def every_group(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """All models of the study."""
    return {**groups(size), **pathway_groups(size)}


STUDY = Study(
    name="lego",
    title="Chains of group operations: what transformers learn, and how far it carries",
    lead=(
        "LEGO's authors train transformers to resolve chains of signs and report that they do so by association and "
        "manipulation, that weight-tied ones behave like a loop and carry further, that a shortcut breaks this, and "
        "that much of attention can be written down instead of learned. Here each of these is measured on small "
        "models, with its rule written first, and every trained model is audited."
    ),
    claims=(
        *generalisation.CLAIMS,
        *percolation.CLAIMS,
        *loops.CLAIMS,
        *starts.CLAIMS,
        *shortcut.CLAIMS,
        *heads.CLAIMS,
        *cost.CLAIMS,
        *hardcoded.CLAIMS,
    ),
    groups=every_group,
)
