"""A claim on what comes first: association or manipulation."""

from functools import partial
from typing import Any

import numpy as np

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.recipes.intervals import proportion
from case_studies.recipes.learned import excluded_models, has_learned
from tool_studies.development.models import FURTHER, looks

PILOTS = "Two further models of three variables had been trained, and only their final accuracies seen."
ASSOCIATION, MANIPULATION = "association", "manipulation"


def measure_association(evidence: Evidence, *, group: str) -> Measurement:
    """Share of models in which some head shows association before any shows manipulation."""
    rows: list[list[Any]] = [["seed", "association from step", "manipulation from step"]]
    first = []
    for spec in evidence.specs(group):
        if not has_learned(evidence, spec):
            continue
        # The earliest onset of any head, for each of the two kinds
        steps = dict.fromkeys((ASSOCIATION, MANIPULATION), np.inf)
        onsets = looks(evidence, spec).onsets()
        for (*_, kind), step in zip(onsets.labels, onsets.onset[:, 0], strict=True):
            if kind in steps:
                steps[kind] = min(steps[kind], float(step))
        first.append(steps[ASSOCIATION] < steps[MANIPULATION])
        rows.append([spec.seed, *(f"{step:.0f}" if np.isfinite(step) else "not by the end" for step in steps.values())])
    tables = [("First step of any head", rows), *excluded_models(evidence, [group])]
    if not first:
        note = "No model has learned its task."
        return Measurement.from_interval(proportion(0, 0), unit="models", tables=tables, note=note)
    interval = proportion(sum(first), len(first))
    return Measurement.from_interval(
        interval,
        unit="models",
        tables=tables,
        note="Exact interval over models; both at one snapshot do not count.",
    )


CLAIMS = (
    Claim(
        id="association.first",
        source="ours",
        preregistration=Preregistration(
            "after a result",
            f"models of four variables, none of which learned its task. {PILOTS} Twelve models were "
            "fixed after 6 of 7 of this claim. The rule is older.",
            looks=1,
        ),
        statement="Without mimicking, association comes before manipulation.",
        method="Share of LEGO models in which some head's association stays above untrained models from an earlier "
        "snapshot on than any head's manipulation; exact interval over models",
        rule=Above(0.5),
        quantity="share of models",
        value_range=SHARE,
        measure=partial(measure_association, group=FURTHER),
        needs=(FURTHER,),
    ),
)
