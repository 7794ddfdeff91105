"""The audit of every trained model: `interp reproduce audit`."""

from pathlib import Path

from case_studies.study import Study
from tool_studies.audit import controls, trained
from tool_studies.audit.findings import FINDINGS, WORDS
from tool_studies.audited_models import groups

STUDY = Study(
    name="audit",
    title="Is the reading true? Every head of every trained model, audited",
    lead=(
        "The LEGO paper finds readable heads for association and manipulation; the bounded-Dyck paper warns that "
        "readable heads can be meaningless and essential heads unreadable. This study tests both on the same models. "
        "A head is faithful if it is needed and acts through its readable pattern, misleading if it has the pattern "
        "but does not act through it, and hidden if it is needed and not readable. The audit itself is first tested "
        "on hand-written models with a known algorithm, and on models that have learned nothing."
    ),
    findings=FINDINGS,
    words=WORDS,
    claims=(*controls.CLAIMS, *trained.CLAIMS),
    groups=groups,
    shipped=Path(__file__).parent / "results",
)
