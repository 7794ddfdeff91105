"""Claims about size: what depth, heads, width, rate and the number of templates do at one n. (Section 5, Appendix)"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, above, below, t_interval
from case_studies.frame.evidence import Evidence
from case_studies.template.measures import Scored, best_rate, by, losses, over_seeds, paper_curves, scores
from case_studies.template.models import SWEEP_N
from interp.view.charts import scaling_curves

VARIED: dict[str, Callable[[Scored], int]] = {
    "depth": lambda row: row.config.n_layers,
    "heads": lambda row: row.config.n_heads,
    "width": lambda row: row.config.d_model,
    "random templates": lambda row: len(row.task.labelled),
}
SIZES = ("standard", "paper")
WHY = "Sweeps are trained at size standard and above."


def group_of(what: str) -> str:
    """The group of models in which something is varied."""
    return what if what == "random templates" else f"sweep {what}"


def measure_slope(evidence: Evidence, *, what: str) -> Measurement:
    """Change of the logarithm of test loss per doubling, seed by seed, each size with the rate that suits it best."""
    varied, models = VARIED[what], scores(evidence, group_of(what))
    if what != "random templates":  # of those every draw has one rate, and stands in the place of a seed
        models = best_rate(models, varied)
    groups = by(models, varied)
    sizes = np.log2(np.array(list(groups), dtype=float))
    logs = np.log(np.array([losses(part) for part in groups.values()]))
    slopes = np.array([np.polyfit(sizes, column, 1)[0] for column in logs.T])
    mean, low, high = t_interval(slopes)
    means = over_seeds(groups, x=what, series="transformer" if what == "random templates" else "best rate")
    rows: list[list] = [[what, "loss", "95 %", "models"]]
    rows += [[one[what], f"{one['loss']:.4f}", f"[{one['low']:.3g}, {one['high']:.3g}]", one["seeds"]] for one in means]
    return Measurement(
        value=mean, low=low, high=high, n=len(slopes),
        unit="draws of templates" if what == "random templates" else "seeds",
        numbers={"n": SWEEP_N, "rates chosen": sorted({row.rate for row in models})},
        tables=[(f"Test loss by {what}, n = {SWEEP_N}", rows)],
        charts=[scaling_curves(pd.DataFrame(means), x=what, y="loss", series="series", rule=1.0, log_y=True,
                               behind=paper_curves(what, x=what, y="loss"),
                               title=f"n = {SWEEP_N}; {len(slopes)} models per point, 95 %; dashed: the paper's")],
        note="Measured is the slope of the natural logarithm of the loss over log2 of the size.",
    )  # fmt: skip


def judge_falls(m: Measurement) -> ClaimVerdict:
    """The loss falls."""
    return below(m, 0)


def judge_rises(m: Measurement) -> ClaimVerdict:
    """The loss rises."""
    return above(m, 0)


def measure_rates(evidence: Evidence) -> Measurement:
    """Loss at the worst of the middle rates over that at the best of them, geometric mean over seeds."""
    groups = by(scores(evidence, "sweep learning rate"), lambda row: row.rate)
    logs = np.log(np.array([losses(part) for rate, part in groups.items() if 3e-4 <= rate <= 3e-3]))
    mean, low, high = (float(np.exp(end)) for end in t_interval(logs.max(0) - logs.min(0)))
    means = over_seeds(groups, x="learning rate", series="transformer")
    return Measurement(
        value=mean, low=low, high=high, n=logs.shape[1], unit="seeds", numbers={"n": SWEEP_N},
        charts=[scaling_curves(pd.DataFrame(means), x="learning rate", y="loss", series="series", rule=1.0, log_y=True,
                               behind=paper_curves("learning rate", x="learning rate", y="loss"),
                               title=f"n = {SWEEP_N}, loss by learning rate, 95 %; dashed: the paper's")],
    )  # fmt: skip


def judge_flat(m: Measurement) -> ClaimVerdict:
    """Within a factor of ten."""
    return below(m, 10)


def _slope_claim(name: str, statement: str, paper: str, rises: bool, what: str) -> Claim:
    direction = "above" if rises else "below"
    return Claim(
        id=name, source="template paper, Appendix (hyperparameters)", statement=statement, paper=paper,
        rule=f"Slope of log loss per doubling at n = {SWEEP_N}, each size with the best of two rates on validation "
        f"symbols: reproduced if the interval over seeds lies {direction} 0, not reproduced if on the other side, else "
        "inconclusive.",
        quantity="change of log loss per doubling", measure=partial(measure_slope, what=what),
        judge=judge_rises if rises else judge_falls,
        needs=(group_of(what),), sizes=SIZES, why_not=WHY,
    )  # fmt: skip


CLAIMS = (
    _slope_claim("sweeps.depth", "Deeper transformers need fewer samples.",
                 "0.272 at depth 1, 0.075 at 4", False, "depth"),
    _slope_claim("sweeps.heads", "More heads need fewer samples.",
                 "0.422 with 1 head, 0.103 with 16", False, "heads"),
    _slope_claim("sweeps.width", "Wider embeddings need more samples.",
                 "0.072 at width 32, 0.241 at 512", True, "width"),
    _slope_claim("sweeps.templates", "More templates need more samples.",
                 "0.231 for 2, 0.667 for 4, 1.10 for 15", True, "random templates"),
    Claim(
        id="sweeps.rate", source="template paper, Appendix (hyperparameters)",
        statement="The result does not hang on the learning rate within an order of magnitude.",
        paper="much alike from 3e-4 to 3e-3",
        rule="Loss at the worst rate from 3e-4 to 3e-3 over that at the best of them, n = 1024: reproduced if the "
        "interval over seeds lies below 10, not reproduced if above, else inconclusive.",
        quantity="loss, worst / best rate", measure=measure_rates, judge=judge_flat,
        needs=("sweep learning rate",), sizes=SIZES, why_not=WHY,
    ),
)  # fmt: skip
