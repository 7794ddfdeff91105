"""Claims about when a model extrapolates: as soon as it fits its trained variables, or gradually (Q2, Figure 3b)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Below
from case_studies.lego.curves import learning_chart
from case_studies.lego.one_length import BOTH_FITTED, FITTED, HALF_WAY, TIED, TOO_SHORT, UNTIED
from case_studies.recipes.judges import NOTHING_KNOWN, PairedDifference


def first_reached(history: Sequence[dict[str, Any]], variable: int, level: float) -> int | None:
    """Step of the first evaluation at which a variable's accuracy is at least a level; None if there is none."""
    for record in history:
        if record["accuracy"][variable] >= level:
            return int(record["steps_done"])
    return None


def lag(history: Sequence[dict[str, Any]], supervised: Sequence[int]) -> float | None:
    """Steps from half-way on the last trained variable to half-way on the next one, as a share of all steps.

    If the next one never comes half-way, the remaining steps count, which is the least that the lag can be. None if
    the last trained variable was not fitted in the end.
    """
    last = max(supervised)
    steps = int(history[-1]["steps_done"])
    trained = first_reached(history, last, HALF_WAY)
    if trained is None or history[-1]["accuracy"][last] <= FITTED:
        return None
    following = first_reached(history, last + 1, HALF_WAY)
    return ((steps if following is None else following) - trained) / steps


def measure_lag(evidence: Evidence, *, tied: str, untied: str) -> Readings:
    """Lag between the learning curves of the last trained variable and the next one, of both arms; one row a seed."""
    rows = []
    for spec, reference in zip(evidence.specs(tied), evidence.specs(untied), strict=True):
        supervised = spec.description["task"]["supervised"]
        lags = {name: lag(evidence.history(model), supervised) for name, model in ((tied, spec), (untied, reference))}
        # A pair counts only if both models have fitted what they were trained on
        rows.append({"seed": spec.seed, **lags, BOTH_FITTED: None not in lags.values(), "steps": spec.settings.steps})
    settings = evidence.specs(tied)[0].settings
    return Readings(
        frame=pd.DataFrame(rows).assign(**{"evaluations apart": settings.eval_every / settings.steps}),
        title="Lag of every model, as a share of its steps; none if it has not fitted its variables",
        numbers={"pairs": sum(row[BOTH_FITTED] for row in rows)},
        charts=[learning_chart(evidence, group) for group in (tied, untied)],
        note=f"Half-way is an accuracy of {HALF_WAY}, evaluated every {settings.eval_every} steps. A variable that "
        "never gets there counts with the steps that remained, the least that its lag can be. Paired by seed.",
    )


LAG_FIXED = Preregistration(
    "after first models",
    "the final accuracies of five models an arm, 0.83 tied and 0.76 untied on the first untrained variable; no "
    "learning curve.",
)
CLAIMS = (
    Claim(
        id="lag.tied",
        method="Steps from the first evaluation at which the last trained variable is half-way between chance and "
        f"certainty ({HALF_WAY}) to the first at which the next variable is, as a share of all steps, {TIED} minus "
        f"{UNTIED}, over pairs of models of a seed in which both have fitted the last trained variable, t interval",
        rule=Below(0),
        preregistration=LAG_FIXED,
        quantity="difference in lag, share of the steps",
        value_range=DIFFERENCE,
        sizes=LARGE_SIZES,
        sizes_reason=TOO_SHORT,
        measure=partial(measure_lag, tied=TIED, untied=UNTIED),
        judged=PairedDifference(
            TIED,
            UNTIED,
            unit="pairs of models",
            where={BOTH_FITTED: True},
            resolution="evaluations apart",
            without_rows=NOTHING_KNOWN,
        ),
        needs=(TIED, UNTIED),
    ),
)
