"""The claim about balance and length generalisation of models trained on prefixes (Appendix D.2, Figure 10)."""

from dataclasses import replace

from case_studies.dyck.balance import LONG_ACCURACY, SYMMETRIC, measure_correlation
from case_studies.dyck.measures import if_learned
from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AtLeast

GROUP = "minimal-prefixes-closers"


def measure_prefixes(evidence: Evidence) -> Measurement:
    """Rank correlation of violation and accuracy by the paper's criterion; that by the likeliest closer is noted."""
    measurement = measure_correlation(evidence, groups=(GROUP,))
    _, rows = measurement.tables[0]
    by_likeliest = next(row for row in rows if tuple(row[:2]) == ("violation", LONG_ACCURACY[1]))
    note = (
        f"{measurement.note} It counts every position with an open bracket at which the right closer has more than 0.8 "
        "of the closers' probability. The result depends on that: with the share of hard positions at which the right "
        f"closer is the likeliest one, the correlation is {by_likeliest[2]} {by_likeliest[3]}."
    )
    return replace(measurement, note=note)


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
        needs=(GROUP,),
    ),
)
