"""The LEGO paper: `interp reproduce lego`."""

from case_studies.lego import generalisation, heads, loops, percolation, shortcut, starts
from case_studies.lego.models import groups
from case_studies.study import Study

STUDY = Study(
    name="lego",
    title="Chains of group operations: what transformers learn, and how far it carries",
    lead=(
        "LEGO's authors train transformers to resolve chains of signs and report that they do so by association and "
        "manipulation, that weight-tied ones behave like a loop and carry further, and that a shortcut breaks this. "
        "Here each of these is measured on small models, with its rule written first, and every trained model is "
        "audited."
    ),
    claims=(
        *generalisation.CLAIMS,
        *percolation.CLAIMS,
        *loops.CLAIMS,
        *starts.CLAIMS,
        *shortcut.CLAIMS,
        *heads.CLAIMS,
    ),
    groups=groups,
)
