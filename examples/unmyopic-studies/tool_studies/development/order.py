"""A claim on what comes first: association or manipulation."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.recipes.judges import Share
from case_studies.recipes.learned import excluded_models, has_learned
from tool_studies.development.models import FURTHER, NO_MODELS, looks, step_text

PILOTS = "Two further models of three variables had been trained, and only their final accuracies seen."
ASSOCIATION, MANIPULATION = "association", "manipulation"
FIRST, HAS_LEARNED = "association first", "learned"


def measure_association(evidence: Evidence, *, group: str) -> Readings:
    """Whether some head shows association before any shows manipulation, one row a model."""
    rows = []
    for spec in evidence.specs(group):
        # The earliest onset of any head, for each of the two kinds
        steps = dict.fromkeys((ASSOCIATION, MANIPULATION), np.inf)
        learned = has_learned(evidence, spec)
        onsets = looks(evidence, spec).onsets() if learned else None
        for (*_, kind), step in zip(onsets.labels, onsets.onset[:, 0], strict=True) if onsets else ():
            if kind in steps:
                steps[kind] = min(steps[kind], float(step))
        words = {f"{kind} from step": step_text(step) for kind, step in steps.items()}
        is_first = steps[ASSOCIATION] < steps[MANIPULATION]
        rows.append({"seed": spec.seed, FIRST: is_first, HAS_LEARNED: learned, **words})
    frame: Any = pd.DataFrame(rows)
    note = "Exact interval over models; both at one snapshot do not count."
    return Readings(
        frame=frame,
        table=frame[frame[HAS_LEARNED]].drop(columns=[FIRST, HAS_LEARNED]),
        title="First step of any head",
        tables=excluded_models(evidence, [group]),
        note=note if frame[HAS_LEARNED].any() else "No model has learned its task.",
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
        judged=Share(FIRST, unit="models", where={HAS_LEARNED: True}, without_rows=NO_MODELS),
        needs=(FURTHER,),
    ),
)
