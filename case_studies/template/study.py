"""The template study: `interp reproduce template`."""

from case_studies.frame.study import Study
from case_studies.template import copying, efficiency, kernel, networks, reading, sweeps
from case_studies.template.models import groups

STUDY = Study(
    name="template",
    title="One scalar per head: template tasks",
    lead=(
        "The template paper (arXiv:2310.09753) trains models on strings labelled by which symbols are equal, and tests "
        "them on unseen symbols. Transformers generalise, fully connected networks on one-hot inputs do not, and one "
        "scalar per head saves samples. Each claim has a rule that was written before the run, and its result on "
        "models that a small machine can train."
    ),
    claims=(
        *efficiency.CLAIMS,
        *copying.CLAIMS,
        *networks.CLAIMS,
        *kernel.CLAIMS,
        *reading.CLAIMS,
        *sweeps.CLAIMS,
    ),
    groups=groups,
)
