"""Measures over all compiled programs, which are no sample."""

from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import Packs
from tool_studies.approximations.agreement import auroc
from tool_studies.approximations.scores import compiled_scores


def measure_auroc_of_programs(evidence: Evidence, *, packs: Packs, method: str) -> Measurement:
    """AUROC of an approximation on all compiled programs, without an interval."""
    area = auroc(compiled_scores(packs, evidence.size, evidence.seed), method)
    return Measurement(
        value=float(area),
        low=float(area),
        high=float(area),
        n=max(1, int(area.n)),
        unit="programs",
        exact=True,
        note="Only programs that have both needed and other heads count.",
    )
