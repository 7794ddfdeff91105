"""How labels of heads come to be: `interp reproduce development`."""

from pathlib import Path

from case_studies.study import Study
from tool_studies.development import order, roles, shortcut
from tool_studies.development.findings import FINDINGS, WORDS
from tool_studies.development.models import groups

STUDY = Study(
    name="development",
    title="How readings come to be: which kind of head comes first, and what is left of a shortcut",
    lead=(
        "Models of LEGO keep snapshots of their training. At each, heads are classified by their patterns. Which kind "
        "comes first, does a shortcut come before the chain, and do roles change once the task is learned? Each claim "
        "says when its rule was fixed."
    ),
    findings=FINDINGS,
    words=WORDS,
    claims=(*order.CLAIMS, *shortcut.CLAIMS, *roles.CLAIMS),
    groups=groups,
    shipped=Path(__file__).parent / "results",
)
