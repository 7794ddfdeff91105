"""The template study: `interp reproduce template`."""

from case_studies.frame.study import Study
from case_studies.template import copying, efficiency, identity_matrices, kernel, networks, reading, sweeps
from case_studies.template.models import groups

STUDY = Study(
    name="template",
    title="One scalar per head: template tasks",
    lead=(
        "The template paper (arXiv:2310.09753) trains models on strings labelled by which symbols are equal, and tests "
        "them on symbols they have never seen. Transformers carry over, fully connected networks on one-hot inputs do "
        "not, and one scalar per head saves samples. Here are its claims, each with a rule that was written before the "
        "run, and what came of them on models of a size that a small machine can train."
    ),
    claims=(
        *efficiency.CLAIMS,
        *copying.CLAIMS,
        *networks.CLAIMS,
        *kernel.CLAIMS,
        *reading.CLAIMS,
        *identity_matrices.CLAIMS,
        *sweeps.CLAIMS,
    ),
    groups=groups,
)
