"""The claim about balance and length generalisation of models trained on prefixes (Appendix D.2, Figure 10)."""

from dataclasses import replace

from case_studies.dyck.balance import (
    FORM_AND_ACCURACY,
    LONG_ACCURACY,
    SYMMETRIC,
    VIOLATION_AND_LENGTH,
    measure_correlation,
)
from case_studies.dyck.measures import if_learned
from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast

GROUP = "minimal-prefixes-closers"


def measure_prefixes(evidence: Evidence) -> Readings:
    """Rank correlation of violation and accuracy by the paper's criterion; that by the likeliest closer is noted."""
    readings = measure_correlation(evidence, groups=(GROUP,))
    _, correlations = readings.tables[0]
    by_likeliest = correlations.set_index(FORM_AND_ACCURACY).loc[("violation", LONG_ACCURACY[1])]
    spearman, low, high = by_likeliest[["Spearman", "low", "high"]]
    note = (
        f"{readings.note} It counts every position with an open bracket at which the right closer has more than 0.8 "
        "of the closers' probability. The result depends on that: with the share of hard positions at which the right "
        f"closer is the likeliest one, the correlation is {spearman:+.2f} [{low:+.2f}, {high:+.2f}]."
    )
    return replace(readings, note=note)


CLAIMS = (
    Claim(
        id="prefixes.balance-within",
        method="Spearman's correlation of mean S / P with accuracy at length 450 by the paper's criterion, with its "
        "95 % bootstrap interval over models",
        rule=if_learned(AtLeast(0)),
        preregistration=Preregistration("after a result", f"0.59 [0.33, 0.77], 40 models.{SYMMETRIC}"),
        quantity="Spearman's correlation",
        value_range=DIFFERENCE,
        measure=measure_prefixes,
        judged=VIOLATION_AND_LENGTH,
        needs=(GROUP,),
    ),
)
