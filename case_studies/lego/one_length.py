"""Claims about extrapolation of models trained on chains of one length: Figure 3b."""

import math
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence, Size
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, Between
from case_studies.lego.curves import SENTENCES, accuracy_at, accuracy_table, depth_curves, learning_chart, untrained
from case_studies.recipes.judges import NOTHING_KNOWN, Mean, PairedDifference
from interp.evaluation.extrapolate import ExtrapolationResult

Place = Literal["first", "second", "third"]
PLACES: tuple[Place, ...] = ("first", "second", "third")
"""Untrained variables in chain order."""
FITTED = 0.95
"""A model has fitted its variables if its accuracy on the last trained one is above this."""
HALF_WAY = 0.75
"""Accuracy in the middle between chance and certainty."""
TIED, UNTIED = "spare-tied", "spare-untied"
"""Arms with two layers for every variable."""
BOTH_FITTED, FIRST = "both have fitted", "first untrained variable"
EXCLUDED = f"Models whose accuracy on the last trained variable is at most {FITTED} are left out."


def last_trained(curve: ExtrapolationResult) -> float:
    """Accuracy of the last of the variables that were trained, at the trained depth."""
    return float(accuracy_at(curve, curve.trained_depth)[np.flatnonzero(curve.supervised)[-1]])


def measure_pairs(evidence: Evidence, *, arm: str, reference: str, place: Place) -> Readings:
    """Accuracy of an untrained variable, of both arms, and whether both models have fitted; one row a seed."""
    pairs = zip(depth_curves(evidence, arm), depth_curves(evidence, reference), strict=True)
    # Both models of a seed see the same sentences in the same order
    rows = [
        {
            "seed": spec.seed,
            **{
                name: untrained(curve, curve.trained_depth)[PLACES.index(place)]
                for name, curve in zip((arm, reference), pair, strict=True)
            },
            BOTH_FITTED: min(map(last_trained, pair)) > FITTED,
        }
        for spec, pair in zip(evidence.specs(arm), pairs, strict=True)
    ]
    return Readings(
        frame=pd.DataFrame(rows).assign(sentences=SENTENCES[evidence.size]),
        numbers={"pairs": sum(row[BOTH_FITTED] for row in rows)},
        tables=[
            (f"Accuracy of every variable, {name} (* not trained)", accuracy_table(evidence, name))
            for name in (arm, reference)
        ],
        charts=[learning_chart(evidence, name) for name in (arm, reference)],
        note=f"Paired by seed, t interval; chance is 0.5. {EXCLUDED}",
    )


def measure_first(evidence: Evidence, *, group: str) -> Readings:
    """Accuracy of the first untrained variable, and whether the trained ones are fitted; one row a model."""
    curves = depth_curves(evidence, group)
    fitted = [last_trained(curve) > FITTED for curve in curves]
    frame = pd.DataFrame(
        {
            "seed": [spec.seed for spec in evidence.specs(group)],
            FIRST: [untrained(curve, curve.trained_depth)[0] for curve in curves],
            "fitted": fitted,
            "sentences": SENTENCES[evidence.size],
        }
    )
    return Readings(
        frame=frame,
        numbers={"models": sum(fitted)},
        tables=[(f"Accuracy of every variable, {group} (* not trained)", accuracy_table(evidence, group))],
        charts=[learning_chart(evidence, group)],
        note=f"t interval over models; chance is 0.5. {EXCLUDED}",
    )


PAIRS_SEEN = Preregistration(
    "after a result",
    "0.07 [-0.09, 0.23] for the first and -0.02 [-0.08, 0.05] for the second untrained variable over five models an "
    "arm, not paired; then twelve pairs were fixed, and the condition on the last trained variable.",
    looks=1,
)
UNTIED_SEEN = Preregistration(
    "after a result",
    "0.57 for the first untrained variable of these eight models (0.51 to 0.64), shown beside other claims. Models "
    "with two layers for every variable had 0.76; the paper's have one, and so these are nearest to them. The bar is "
    "half-way between chance and certainty.",
)
TOO_SHORT = "Chains of four leave one variable to extrapolate to, which luck can predict: measured at larger sizes."


def _sizes(place: Place) -> tuple[tuple[Size, ...], str]:
    """Sizes at which a variable can be measured, and why not at others."""
    if place == "third":
        return ("paper",), "Chains of six, four of them trained, have two untrained variables."
    return LARGE_SIZES, TOO_SHORT


def _pairs(place: Place) -> Claim:
    sizes, sizes_reason = _sizes(place)
    return Claim(
        id=f"beyond.tied.{place}",
        method=f"Accuracy of the {place} untrained variable, {TIED} minus {UNTIED}, both at their trained depth, over "
        f"pairs of models of a seed in which both have fitted the last trained variable (above {FITTED}), t interval",
        rule=Above(0),
        preregistration=PAIRS_SEEN,
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        sizes=sizes,
        sizes_reason=sizes_reason,
        measure=partial(measure_pairs, arm=TIED, reference=UNTIED, place=place),
        judged=PairedDifference(
            TIED,
            UNTIED,
            unit="pairs of models",
            where={BOTH_FITTED: True},
            share_of="sentences",
            without_rows=NOTHING_KNOWN,
        ),
        needs=(TIED, UNTIED),
    )


CLAIMS = (
    *map(_pairs, PLACES),
    Claim(
        id="beyond.untied",
        method="Accuracy of the first untrained variable of plain-untied at the trained depth, over models that have "
        f"fitted the last trained variable (above {FITTED}), t interval over models",
        rule=Between(0.5, HALF_WAY),
        preregistration=UNTIED_SEEN,
        quantity="accuracy",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=TOO_SHORT,
        measure=partial(measure_first, group="plain-untied"),
        judged=Mean(
            FIRST,
            unit="models",
            where={"fitted": True},
            share_of="sentences",
            without_rows=(0.5, -math.inf, math.inf),
        ),
        needs=("plain-untied",),
    ),
)
