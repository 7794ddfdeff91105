"""The claim about two modes of attention in models trained on prefixes: the current token, or the first (D.2)."""

import numpy as np
import pandas as pd

from case_studies.dyck.measures import KEPT, chosen, if_learned, task_of
from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AllOf, AtLeast, Number
from case_studies.recipes.intervals import proportion
from case_studies.recipes.learned import excluded_models
from interp.core.activations import patterns_on
from interp.view.charts import dots

GROUP = "gpt-prefixes"
CONCENTRATED = 0.5
"""Mean share of a query's attention on one token from which a model is in that token's mode."""
CURRENT, FIRST = "models on the current token", "models on the first token"


def measure_modes(evidence: Evidence) -> Measurement:
    """Share of models whose last layer has more than half of its attention on the current, or on the first token."""
    task = task_of(evidence, GROUP)
    models_used = chosen(evidence, GROUP)
    patterns = patterns_on(models_used.models, task.read(task.staircase()))[-1, :, 0, 0].double().numpy()
    rows = np.arange(2, patterns.shape[-1])  # from the second bracket on there are other keys
    # Mean attention on each token over queries; a model is in a mode above one half
    current = patterns[:, rows, rows].mean(1)
    first = patterns[:, rows, 0].mean(1)
    in_mode = np.array([(current > CONCENTRATED).sum(), (first > CONCENTRATED).sum()])
    interval = proportion(int(in_mode.sum()), len(models_used.models))
    points = [
        {"seed": str(spec.seed), "share of attention": share, "low": share, "high": share, "on": name}
        for name, shares in (("the current token", current), ("the first token", first))
        for spec, share in zip(models_used.specs, shares, strict=True)
    ]
    return Measurement.from_interval(
        interval,
        unit="seeds",
        numbers={
            KEPT: models_used.learned,
            CURRENT: in_mode[0],
            FIRST: in_mode[1],
            "mean share on the current token": current.mean(),
            "mean share on the first token": first.mean(),
            "share on either if attention were uniform": float((1 / (rows + 1)).mean()),
        },
        tables=excluded_models(evidence, [GROUP]),
        charts=[
            dots(
                pd.DataFrame(points),
                x="seed",
                y="share of attention",
                series="on",
                rule=CONCENTRATED,
                title=f"last layer's attention on the probe prefix, n = {len(models_used.models)} seeds",
            )
        ],
    )


CLAIMS = (
    Claim(
        id="prefixes.current-or-first",
        source="bounded Dyck, Appendix D.2",
        statement="On prefixes, patterns concentrate on the current token in some models and on the first in others.",
        method="Numbers of models whose last layer has more than half of its attention, averaged over queries, on the "
        "current token and on the first; the value is the share of models in one of these modes, with its exact 95 % "
        "interval",
        rule=if_learned(AllOf(Number(CURRENT, AtLeast(2)), Number(FIRST, AtLeast(2)))),
        preregistration=Preregistration(
            "after a result", "a mean share on the two tokens together of 0.47 [0.44, 0.51], not the modes."
        ),
        quantity="share of models in a mode",
        value_range=SHARE,
        measure=measure_modes,
        needs=(GROUP,),
    ),
)
