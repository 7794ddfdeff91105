"""Claims about when a model extrapolates: as soon as it fits its trained variables, or gradually (Q2, Figure 3b)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Below
from case_studies.lego.curves import learning_chart
from case_studies.lego.one_length import FITTED, HALF_WAY, TIED, TOO_SHORT, UNTIED
from case_studies.recipes.intervals import t_interval


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


def measure_lag(evidence: Evidence, *, tied: str, untied: str) -> Measurement:
    """Lag between the learning curves of the last trained variable and the next one, tied minus untied."""
    rows: list[list] = [["seed", tied, untied, "steps"]]
    lags: list[tuple[float, float]] = []
    for spec, reference in zip(evidence.specs(tied), evidence.specs(untied), strict=True):
        supervised = spec.description["task"]["supervised"]
        of_tied, of_untied = (lag(evidence.history(model), supervised) for model in (spec, reference))
        words = ["not fitted" if value is None else f"{value:.3f}" for value in (of_tied, of_untied)]
        rows.append([spec.seed, *words, spec.settings.steps])
        # A pair counts only if both models have fitted what they were trained on
        if of_tied is not None and of_untied is not None:
            lags.append((of_tied, of_untied))
    a, b = np.array(lags or [(0.0, 0.0)]).T
    settings = evidence.specs(tied)[0].settings
    interval = t_interval(a - b, resolution=settings.eval_every / settings.steps)
    return Measurement.from_interval(
        interval,
        unit="pairs of models",
        numbers={"pairs": len(lags), f"mean lag, {tied}": float(a.mean()), f"mean lag, {untied}": float(b.mean())},
        tables=[("Lag of every model, as a share of its steps", rows)],
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
        needs=(TIED, UNTIED),
    ),
)
