"""Measures over all compiled programs, which are no sample."""

import pandas as pd

from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.packs import Packs
from tool_studies.approximations.agreement import auroc
from tool_studies.approximations.scores import compiled_scores

AUROC = "AUROC"


def measure_auroc_of_programs(evidence: Evidence, *, packs: Packs, method: str) -> Readings:
    """AUROC of an approximation on all compiled programs, without an interval, in one row."""
    area = auroc(compiled_scores(packs, evidence.size, evidence.seed), method)
    return Readings(
        frame=pd.DataFrame([{AUROC: float(area), "programs": area.n}]),
        note="Only programs that have both needed and other heads count.",
    )
