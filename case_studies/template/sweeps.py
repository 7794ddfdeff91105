"""Claims about depth, heads, width, learning rate and number of templates at a fixed n (Appendix)."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, Below
from case_studies.recipes.judges import Mean, PairedRatio
from case_studies.template.measures import (
    Scored,
    best_rate,
    by,
    loss_over_seeds,
    losses,
    paper_curves,
    scores,
)
from case_studies.template.models import SWEEP_N
from case_studies.template.preregistration import FIRST_MODELS, extended
from interp.view.charts import scaling_curves

RATES = Preregistration(
    "after a result",
    "2.6 [0.9, 7.2] under a bar of 10; the paper's ratio is 1.4. Fifteen seeds were fixed after 2.5 [1.0, 6.1] over "
    "three.",
    looks=1,
)
SLOPE, WORST, BEST = "change of log loss per doubling", "loss at the worst rate", "loss at the best rate"
RANDOM_TEMPLATES = "random templates"
VARIED: dict[str, Callable[[Scored], int]] = {
    "depth": lambda row: row.config.n_layers,
    "heads": lambda row: row.config.n_heads,
    "width": lambda row: row.config.d_model,
    RANDOM_TEMPLATES: lambda row: len(row.task.labelled),
}


def _curves(rows: list[dict], *, varied_size: str, title: str):
    return scaling_curves(
        pd.DataFrame(rows),
        x=varied_size,
        y="loss",
        series="series",
        rule=1.0,
        log_y=True,
        behind=paper_curves(varied_size, x=varied_size, y="loss"),
        title=f"n = {SWEEP_N}{title}; dashed: the paper's",
    )


def measure_slope(evidence: Evidence, *, varied_size: str, group: str) -> Readings:
    """Slope of the log test loss per doubling, one row a seed; each size has its best learning rate."""
    varied = VARIED[varied_size]
    models = scores(evidence, group)
    draws = varied_size == RANDOM_TEMPLATES
    if not draws:  # random templates have one learning rate, and one draw per seed
        models = best_rate(models, varied)
    # A line for each seed through the logarithms of its losses
    groups = by(models, varied)
    losses_by_size = {size: losses(models_of_size) for size, models_of_size in groups.items()}
    sizes = np.log2(np.array(list(groups), dtype=float))
    logs = np.log(np.array(list(losses_by_size.values())))
    slopes = [np.polyfit(sizes, column, 1)[0] for column in logs.T]
    frame = pd.DataFrame(
        {
            "seed": [row.seed for row in next(iter(groups.values()))],
            SLOPE: slopes,
            **{f"loss, {varied_size} {size}": losses_of_size for size, losses_of_size in losses_by_size.items()},
        }
    )
    means = loss_over_seeds(groups, x=varied_size, series="transformer" if draws else "best rate")
    return Readings(
        frame=frame,
        numbers={"n": SWEEP_N, "rates chosen": sorted({row.rate for row in models})},
        tables=[(f"Test loss by {varied_size}, n = {SWEEP_N}", pd.DataFrame(means).drop(columns="series"))],
        charts=[_curves(means, varied_size=varied_size, title=f"; {len(slopes)} models per point, 95 %")],
        note="The slope of the natural logarithm of the loss over log2 of the size.",
    )


def measure_rates(evidence: Evidence) -> Readings:
    """Loss at the worst and at the best of the middle learning rates, one row a seed."""
    groups = by(scores(evidence, "sweep learning rate"), lambda row: row.rate)
    # Rates within an order of magnitude, which the paper calls similar
    middle = np.array([losses(models_of_rate) for rate, models_of_rate in groups.items() if 3e-4 <= rate <= 3e-3])
    means = loss_over_seeds(groups, x="learning rate", series="transformer")
    return Readings(
        frame=pd.DataFrame({WORST: middle.max(0), BEST: middle.min(0)}),
        numbers={"n": SWEEP_N},
        charts=[_curves(means, varied_size="learning rate", title=", loss by learning rate, 95 %")],
    )


def _claim(name: str, *, group: str, **fields) -> Claim:
    fields.setdefault("preregistration", FIRST_MODELS)
    return Claim(
        id=f"sweeps.{name}",
        needs=(group,),
        sizes=LARGE_SIZES,
        sizes_reason="Sweeps are trained at size standard and above.",
        **fields,
    )


def _slope_claim(name: str, *, varied_size: str, rises: bool = False, **fields) -> Claim:
    draws = varied_size == RANDOM_TEMPLATES
    group = varied_size if draws else f"sweep {varied_size}"
    units = "draws of templates" if draws else "seeds, each size with the best of two rates on validation symbols"
    return _claim(
        name,
        group=group,
        method=f"Slope of log loss per doubling at n = {SWEEP_N}, t interval over {units}",
        rule=Above(0) if rises else Below(0),
        quantity=SLOPE,
        measure=partial(measure_slope, varied_size=varied_size, group=group),
        judged=Mean(SLOPE, unit="draws of templates" if draws else "seeds"),
        **fields,
    )


CLAIMS = (
    _slope_claim("depth", varied_size="depth"),
    _slope_claim("heads", varied_size="heads"),
    _slope_claim("width", varied_size="width", rises=True),
    _slope_claim(
        "templates",
        varied_size="random templates",
        rises=True,
        preregistration=extended("0.42 [-0.02, 0.86] over three draws", "seven draws"),
    ),
    _claim(
        "rate",
        group="sweep learning rate",
        method="Loss at the worst rate from 3e-4 to 3e-3 over that at the best of them, n = 1024, t interval over "
        "seeds",
        rule=Below(2),
        preregistration=RATES,
        quantity="loss, worst / best rate",
        measure=measure_rates,
        judged=PairedRatio(WORST, BEST, unit="seeds"),
    ),
)
