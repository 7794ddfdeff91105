"""Claims about trained layers of Equation 6: they learn, and are no more readable than standard ones (Appendix C.7)."""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.heads import positions_of
from case_studies.dyck.last_layers import few
from case_studies.dyck.learning import ACCURATE, HARD_ACCURACY, measure_learned
from case_studies.dyck.measures import KEPT, chosen, if_learned, task_of
from case_studies.dyck.pattern_tables import baseline_of, maps_of_seeds
from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast, AtMost
from case_studies.recipes.judges import ArmDifference
from case_studies.recipes.learned import excluded_models
from interp.comparison.variation import attention_variation
from interp.view.charts import curves

EQ6, STANDARD = "eq6", "gpt"
MARGIN = 0.1
"""Excess of the mean position, between shuffled rows (0) and stack-like attention (1), that contradicts the claim."""


def measure_positions(evidence: Evidence) -> Readings:
    """Positions of last heads between shuffled rows and stack-like attention, Eq. 6 and standard; one row a model."""
    table = positions_of(evidence, (EQ6, STANDARD))
    place, models = table["position"].to_numpy(), table["models"].to_numpy()
    positions = {name: place[models == name] for name in (EQ6, STANDARD)}
    # The variation of the last layers, as in Section 4.1
    models_used = chosen(evidence, EQ6)
    task = task_of(evidence, EQ6)
    result = attention_variation(models_used.models, task, seed=evidence.seed)
    return Readings(
        frame=table,
        title="Every model",
        numbers={
            KEPT: min(chosen(evidence, group).learned for group in (EQ6, STANDARD)),
            "lowest and highest position, Eq. 6": [positions[EQ6].min(), positions[EQ6].max()],
            "variation over random causal rows, Eq. 6": float(result.variation[-1] / baseline_of(result)[-1]),
        },
        tables=excluded_models(evidence, [EQ6, STANDARD]),
        charts=[
            curves(
                shares_below(positions),
                x="position",
                y="share of models below",
                series="models",
                domain=(0.0, 1.0),
                title="how stack-like last heads are: 0 is shuffled rows, 1 is all attention on open or matching "
                "brackets",
            ),
            maps_of_seeds(evidence, EQ6, few(models_used), -1, task.staircase()),
        ],
        note="The paper calls a pattern interpretable if it is stack-like. No threshold is needed to compare two kinds "
        "of models: the chart shows how many heads are below every threshold.",
    )


def shares_below(positions: dict[str, np.ndarray]) -> pd.DataFrame:
    """Share of the models of each kind below every position, for a chart."""
    thresholds = np.linspace(0, 1, 21)
    points = [
        (float(threshold), float((values < threshold).mean()), name)
        for name, values in positions.items()
        for threshold in thresholds
    ]
    table = pd.DataFrame(points, columns=["position", "share of models below", "models"])
    return table.assign(low=table["share of models below"], high=table["share of models below"])


NOT_QUICK = "Models of Eq. 6 are trained at size standard and above."
CLAIMS = (
    Claim(
        id="eq6.learned",
        method="Mean accuracy on the hard positions of fresh words, with its 95 % bootstrap interval over seeds",
        rule=AtLeast(ACCURATE),
        preregistration=Preregistration(
            "after first models", "other layers reach 0.997; four pilots of Eq. 6 reached .84 to .94 in 1,400 steps."
        ),
        quantity="hard accuracy, mean",
        value_range=SHARE,
        measure=partial(measure_learned, group=EQ6),
        judged=HARD_ACCURACY,
        needs=(EQ6,),
        sizes=LARGE_SIZES,
        sizes_reason=NOT_QUICK,
    ),
    Claim(
        id="eq6.not-interpretable",
        method="Mean position of last heads between their own rows with keys shuffled and stack-like attention, two "
        "layers of Eq. 6 minus two standard layers, with Welch's 95 % t interval over models",
        rule=if_learned(AtMost(MARGIN)),
        preregistration=Preregistration(
            "after first models", "a median position of 0.46 of standard models; four pilots of Eq. 6 learned less."
        ),
        quantity="difference of mean positions",
        value_range=DIFFERENCE,
        measure=measure_positions,
        judged=ArmDifference("position", arm="models", arms=(EQ6, STANDARD), unit="models"),
        needs=(EQ6, STANDARD),
        sizes=LARGE_SIZES,
        sizes_reason=NOT_QUICK,
    ),
)
