"""The audit of every trained model: `interp reproduce audit`."""

from case_studies.audit import controls, reading, redundancy, searching
from case_studies.audit.models import groups
from case_studies.frame.study import Study

STUDY = Study(
    name="audit",
    title="Is the reading true? Every head of every trained model, audited",
    lead=(
        "LEGO's authors read heads that associate and manipulate; bounded Dyck's authors warn that readable heads "
        "can be meaningless and essential ones unreadable. Here both are asked of the same models. Each head is held "
        "against what it does: faithful if it is needed and acts through what it looks like, misleading if it only "
        "looks like it, hidden if it is needed and looks like nothing. First the audit itself is checked on models "
        "whose algorithm was written down, and on models that have none."
    ),
    claims=(*controls.CLAIMS, *reading.CLAIMS, *searching.CLAIMS, *redundancy.CLAIMS),
    groups=groups,
)
