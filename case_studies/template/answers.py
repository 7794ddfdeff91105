"""Claims about accuracy at one number of samples: programs that print symbols, and psychometric tasks."""

from functools import partial
from typing import Any

import pandas as pd

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AllOf, AtLeast, Below, Between, Number, TwoSided
from case_studies.recipes.judges import PairedDifference
from case_studies.recipes.template_models import A_AND_B, PLAIN
from case_studies.template.measures import (
    Scored,
    accuracy_judge,
    by_n,
    mean_accuracy,
    paper_curves,
    scored_frame,
    scores,
)
from case_studies.template.models import PSYCHOMETRIC, SYMBOLIC_N
from interp.view.charts import scaling_curves

SOLVED = 0.9
"""Accuracy of a solved task: the paper's error for programs with both scalars is below 0.1 at `SYMBOLIC_N`."""
PLATEAU = (0.4, 0.6)
"""Accuracies of a model that knows the two printed symbols, and not which of them is printed."""
SYMBOLIC = {variant: f"symbolic programs {variant}" for variant in (PLAIN, A_AND_B)}
WITH, WITHOUT = "accuracy with", "accuracy without"
TABLE = "Accuracy on unseen symbols"
DRAWN = {"title": "programs that print a symbol", "figure": "symbolic-programs"}
WHERE = {
    "sizes": LARGE_SIZES,
    "sizes_reason": "These models are trained at size standard and above.",
}
PROGRAMS_SEEN = Preregistration(
    "after first models",
    "one model of each kind at n = 2048, of another seed, none of which is judged: accuracy 0.43 without, 0.49 with.",
)


def _error_rows(groups: dict[str, list[Scored]]) -> list[dict]:
    """Mean error by n of each group, for a chart."""
    points = []
    for name, models in groups.items():
        for n, seeds in by_n(models).items():
            mean, low, high = mean_accuracy(seeds).floats()
            points.append({"n": n, "error": 1 - mean, "low": 1 - high, "high": 1 - low, "series": name})
    return points


def _chart(groups: dict[str, list[Scored]], *, title: str, figure: str = "") -> Any:
    """Mean error by n of some groups, with the paper's curves if they are those of a figure."""
    return scaling_curves(
        pd.DataFrame(_error_rows(groups)),
        x="n",
        y="error",
        series="series",
        behind=paper_curves(figure, x="n", y="error", series=list(groups)),
        title=f"{title}: error on unseen symbols, mean over models, 95 %" + ("; dashed: the paper's" if figure else ""),
    )


def measure_accuracy(evidence: Evidence, *, groups: dict[str, str], title: str, figure: str = "") -> Readings:
    """Accuracy of every model on unseen symbols."""
    models = {name: scores(evidence, group) for name, group in groups.items()}
    return Readings(frame=scored_frame(models), title=TABLE, charts=[_chart(models, title=title, figure=figure)])


def measure_symbolic_gain(evidence: Evidence) -> Readings:
    """Accuracy with a I and b I and without, at `SYMBOLIC_N` samples, one row a seed."""
    models = {variant: scores(evidence, group) for variant, group in SYMBOLIC.items()}
    # Models of the same seed have the same strings, so that gains are paired
    plain, with_both = (by_n(seeds)[SYMBOLIC_N] for seeds in models.values())
    frame = pd.DataFrame(
        {
            "seed": [row.seed for row in plain],
            WITH: [row.accuracy for row in with_both],
            WITHOUT: [row.accuracy for row in plain],
            "strings": [row.total for row in plain],
        }
    )
    return Readings(frame=frame, tables=[(TABLE, scored_frame(models))], charts=[_chart(models, **DRAWN)])


def _programs(name: str, *, judged: str, rule: AtLeast | Between) -> Claim:
    return Claim(
        id=f"symbolic.{name}",
        method=f"Mean accuracy on unseen symbols at n = {SYMBOLIC_N}, t interval over models (seeds)",
        rule=rule,
        preregistration=PROGRAMS_SEEN,
        quantity="accuracy",
        value_range=SHARE,
        measure=partial(measure_accuracy, groups=SYMBOLIC, **DRAWN),
        judged=accuracy_judge(model=judged, n=SYMBOLIC_N),
        needs=tuple(SYMBOLIC.values()),
        **WHERE,
    )


def _psychometric(name: str, words: str, prior_knowledge: str) -> Claim:
    group, n = f"psychometric {name}", PSYCHOMETRIC[name]
    return Claim(
        id=f"psychometric.{name}",
        method=f"Mean accuracy on unseen symbols at n = {n}, t interval over models (seeds)",
        rule=AtLeast(SOLVED),
        preregistration=Preregistration(
            "after first models", f"{prior_knowledge}; of another seed, none of which is judged."
        ),
        quantity="accuracy",
        value_range=SHARE,
        measure=partial(measure_accuracy, groups={A_AND_B: group}, title=words),
        judged=accuracy_judge(model=A_AND_B, n=n),
        needs=(group,),
        **WHERE,
    )


CLAIMS = (
    Claim(
        id="symbolic.identity",
        method=f"Accuracy with minus accuracy without at n = {SYMBOLIC_N}, t interval over seeds; it says something "
        "only if one of them has learned the task",
        rule=TwoSided(
            AllOf(Number(WITH, AtLeast(SOLVED)), Above(0)),
            AllOf(Number(WITHOUT, AtLeast(SOLVED)), Below(0)),
        ),
        preregistration=Preregistration(
            "after a result",
            f"{PROGRAMS_SEEN.prior_knowledge} Then 0.037 [0.030, 0.044] of accuracies of 0.49 and 0.46, which passed a "
            "rule that did not ask whether anything had been learned.",
        ),
        remedy="models that learn the task: the paper's have 4 layers, a width of 512 and 1000 epochs",
        quantity="difference of accuracies",
        value_range=DIFFERENCE,
        measure=measure_symbolic_gain,
        judged=PairedDifference(WITH, WITHOUT, unit="seeds", share_of="strings"),
        needs=tuple(SYMBOLIC.values()),
        **WHERE,
    ),
    _programs("solved", judged=A_AND_B, rule=AtLeast(SOLVED)),
    _programs("one-half", judged=PLAIN, rule=Between(*PLATEAU)),
    _psychometric(
        "distribution-of-three",
        "distribution of three",
        "three models: accuracy 0.26 without, 0.63 with at n = 4096, 0.9995 with at n = 16384",
    ),
    _psychometric(
        "match-to-sample",
        "relational match to sample",
        "three models: accuracy 0.50 without and with at n = 4096, 0.54 without at n = 16384",
    ),
    _psychometric(
        "matrix-reasoning",
        "matrix reasoning",
        "a model without a I and b I at n = 1024 and half the steps: accuracy 0.03",
    ),
)
