"""Claims about initialisation and variables beyond those that are trained (dashed curves of Figure 6)."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Conditional, Number
from case_studies.lego.curves import SENTENCES, accuracy_at, accuracy_table, depth_curves, learning_chart, untrained
from case_studies.lego.starts import NO_TIME, TEXT_PLATEAU
from case_studies.recipes.judges import ArmDifference
from case_studies.recipes.learned import LEARNED

REFERENCE = "plain-random"
FIRST = "first untrained variable"
TRAINED = "accuracy on the worst trained variable, mean over seeds"
SEEN = Preregistration(
    "after a result",
    "0.05 [-0.27, 0.37] on chains shorter than those trained, with three seeds; these are of chains of six, the first "
    "four trained, as in the paper's figure of twelve and six. Of these models the first untrained variable after "
    "mimicking was known, 0.57 over eight seeds; none from a random start had been seen.",
    looks=1,
)
TOO_SHORT = "Chains of four leave one variable to extrapolate to, which luck can predict: measured at larger sizes."


def measure_lengths(evidence: Evidence, *, start: str, reference: str) -> Readings:
    """Accuracy of the first untrained variable at the end of training, from one start and another; one row a model."""
    curves = {group: depth_curves(evidence, group) for group in (start, reference)}
    rows = [
        {"start": group, "seed": spec.seed, FIRST: untrained(curve, curve.trained_depth)[0]}
        for group, curves_of_group in curves.items()
        for spec, curve in zip(evidence.specs(group), curves_of_group, strict=True)
    ]
    # A start that has not learned the trained variables cannot extrapolate from them
    trained = [accuracy_at(curve, curve.trained_depth)[np.array(curve.supervised)].min() for curve in curves[start]]
    return Readings(
        frame=pd.DataFrame(rows).assign(sentences=SENTENCES[evidence.size]),
        numbers={TRAINED: float(np.mean(trained))},
        tables=[
            (f"Accuracy of every variable, {group} (* not trained)", accuracy_table(evidence, group))
            for group in curves
        ],
        charts=[learning_chart(evidence, group) for group in curves],
        note="Welch t interval over seeds; chance is 0.5. The untrained variables are those of a longer chain, in "
        "sentences of the trained length, as in the paper.",
    )


def _lengths(name: str, **options: Any) -> Claim:
    group = f"plain-{name}"
    fields: dict[str, Any] = {"sizes_reason": TOO_SHORT, **options}
    return Claim(
        id=f"start.lengths-{name}",
        method=f"Accuracy of the first untrained variable, {group} minus {REFERENCE}, after the same number of steps "
        "on the task, t interval over seeds",
        rule=Conditional(Number(TRAINED, AtLeast(LEARNED)), Above(0)),
        preregistration=SEEN,
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        sizes=LARGE_SIZES,
        measure=partial(measure_lengths, start=group, reference=REFERENCE),
        judged=ArmDifference(FIRST, arm="start", arms=(group, REFERENCE), unit="seeds an arm", share_of="sentences"),
        needs=(group, REFERENCE),
        **fields,
    )


CLAIMS = (
    _lengths("mimic"),
    _lengths("pretrained", sizes_reason=NO_TIME, remedy=TEXT_PLATEAU),
)
