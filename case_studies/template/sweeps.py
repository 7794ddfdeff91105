"""Claims about depth, heads, width, learning rate and number of templates at a fixed n (Section 5, Appendix)."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Measurement, above, below, t_interval
from case_studies.frame.evidence import Evidence
from case_studies.template.measures import (
    Scored,
    best_rate,
    by,
    geometric_interval,
    losses,
    over_seeds,
    paper_curves,
    scores,
)
from case_studies.template.models import SWEEP_N
from interp.view.charts import scaling_curves

VARIED: dict[str, Callable[[Scored], int]] = {
    "depth": lambda row: row.config.n_layers,
    "heads": lambda row: row.config.n_heads,
    "width": lambda row: row.config.d_model,
    "random templates": lambda row: len(row.task.labelled),
}


def _curves(rows: list[dict], *, what: str, title: str):
    return scaling_curves(
        pd.DataFrame(rows), x=what, y="loss", series="series", rule=1.0, log_y=True,
        behind=paper_curves(what, x=what, y="loss"), title=f"n = {SWEEP_N}{title}; dashed: the paper's",
    )  # fmt: skip


def measure_slope(evidence: Evidence, *, what: str, group: str) -> Measurement:
    """Slope of the log test loss per doubling, for each seed; each size has its best learning rate."""
    varied, models, draws = VARIED[what], scores(evidence, group), what == "random templates"
    if not draws:  # random templates have one learning rate, and one draw per seed
        models = best_rate(models, varied)
    groups = by(models, varied)
    sizes = np.log2(np.array(list(groups), dtype=float))
    logs = np.log(np.array([losses(part) for part in groups.values()]))
    slopes = np.array([np.polyfit(sizes, column, 1)[0] for column in logs.T])
    mean, low, high = t_interval(slopes)
    means = over_seeds(groups, x=what, series="transformer" if draws else "best rate")
    rows: list[list] = [[what, "loss", "95 %", "models"]]
    rows += [[one[what], f"{one['loss']:.4f}", f"[{one['low']:.3g}, {one['high']:.3g}]", one["seeds"]] for one in means]
    return Measurement(
        value=mean, low=low, high=high, n=len(slopes), unit="draws of templates" if draws else "seeds",
        numbers={"n": SWEEP_N, "rates chosen": sorted({row.rate for row in models})},
        tables=[(f"Test loss by {what}, n = {SWEEP_N}", rows)],
        charts=[_curves(means, what=what, title=f"; {len(slopes)} models per point, 95 %")],
        note="The slope of the natural logarithm of the loss over log2 of the size.",
    )  # fmt: skip


def measure_rates(evidence: Evidence) -> Measurement:
    """Loss at the worst of the middle learning rates over that at the best of them, geometric mean over seeds."""
    groups = by(scores(evidence, "sweep learning rate"), lambda row: row.rate)
    logs = np.log(np.array([losses(part) for rate, part in groups.items() if 3e-4 <= rate <= 3e-3]))
    mean, low, high = geometric_interval(logs.max(0) - logs.min(0))
    means = over_seeds(groups, x="learning rate", series="transformer")
    return Measurement(
        value=mean, low=low, high=high, n=logs.shape[1], unit="seeds", numbers={"n": SWEEP_N},
        charts=[_curves(means, what="learning rate", title=", loss by learning rate, 95 %")],
    )  # fmt: skip


def _claim(name: str, statement: str, paper: str, *, group: str, **fields) -> Claim:
    return Claim(
        id=f"sweeps.{name}", source="template paper, Appendix (hyperparameters)", statement=statement, paper=paper,
        needs=(group,), sizes=("standard", "paper"), why_not="Sweeps are trained at size standard and above.", **fields,
    )  # fmt: skip


def _slope_claim(name: str, statement: str, paper: str, *, what: str, rises: bool = False) -> Claim:
    group = what if what == "random templates" else f"sweep {what}"
    return _claim(
        name, statement, paper, group=group,
        rule=f"Slope of log loss per doubling at n = {SWEEP_N}, each size with the best of two rates on validation "
        f"symbols: reproduced if the interval over seeds is {'above' if rises else 'below'} 0, not reproduced if on "
        "the other side, else inconclusive.",
        quantity="change of log loss per doubling", measure=partial(measure_slope, what=what, group=group),
        judge=partial(above if rises else below, bar=0),
    )  # fmt: skip


CLAIMS = (
    _slope_claim("depth", "Deeper transformers need fewer samples.", "0.272 at depth 1, 0.075 at 4", what="depth"),
    _slope_claim("heads", "More heads need fewer samples.", "0.422 with 1 head, 0.103 with 16", what="heads"),
    _slope_claim("width", "Wider embeddings need more samples.", "0.072 at width 32, 0.241 at 512", what="width",
                 rises=True),
    _slope_claim("templates", "More templates need more samples.", "0.231 for 2, 0.667 for 4, 1.10 for 15",
                 what="random templates", rises=True),
    _claim(
        "rate", "The result does not depend on the learning rate within an order of magnitude.",
        "similar from 3e-4 to 3e-3", group="sweep learning rate",
        rule="Loss at the worst rate from 3e-4 to 3e-3 over that at the best of them, n = 1024: reproduced if the "
        "interval over seeds is below 10, not reproduced if above, else inconclusive.",
        quantity="loss, worst / best rate", measure=measure_rates, judge=partial(below, bar=10),
    ),
)  # fmt: skip
