"""Claims about depth, heads, width, learning rate and number of templates at a fixed n (Appendix)."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, Below
from case_studies.recipes.intervals import t_interval
from case_studies.template.measures import (
    Scored,
    best_rate,
    by,
    geometric_interval,
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
VARIED: dict[str, Callable[[Scored], int]] = {
    "depth": lambda row: row.config.n_layers,
    "heads": lambda row: row.config.n_heads,
    "width": lambda row: row.config.d_model,
    "random templates": lambda row: len(row.task.labelled),
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


def measure_slope(evidence: Evidence, *, varied_size: str, group: str) -> Measurement:
    """Slope of the log test loss per doubling, for each seed; each size has its best learning rate."""
    varied = VARIED[varied_size]
    models = scores(evidence, group)
    draws = varied_size == "random templates"
    if not draws:  # random templates have one learning rate, and one draw per seed
        models = best_rate(models, varied)
    # A line for each seed through the logarithms of its losses
    groups = by(models, varied)
    sizes = np.log2(np.array(list(groups), dtype=float))
    logs = np.log(np.array([losses(models_of_size) for models_of_size in groups.values()]))
    slopes = np.array([np.polyfit(sizes, column, 1)[0] for column in logs.T])
    interval = t_interval(slopes)
    means = loss_over_seeds(groups, x=varied_size, series="transformer" if draws else "best rate")
    rows: list[list] = [[varied_size, "loss", "95 %", "models"]]
    rows += [
        [mean[varied_size], f"{mean['loss']:.4f}", f"[{mean['low']:.3g}, {mean['high']:.3g}]", mean["seeds"]]
        for mean in means
    ]
    return Measurement.from_interval(
        interval,
        unit="draws of templates" if draws else "seeds",
        numbers={"n": SWEEP_N, "rates chosen": sorted({row.rate for row in models})},
        tables=[(f"Test loss by {varied_size}, n = {SWEEP_N}", rows)],
        charts=[_curves(means, varied_size=varied_size, title=f"; {len(slopes)} models per point, 95 %")],
        note="The slope of the natural logarithm of the loss over log2 of the size.",
    )


def measure_rates(evidence: Evidence) -> Measurement:
    """Loss at the worst of the middle learning rates over that at the best of them, geometric mean over seeds."""
    groups = by(scores(evidence, "sweep learning rate"), lambda row: row.rate)
    # Rates within an order of magnitude, which the paper calls similar
    middle = [losses(models_of_rate) for rate, models_of_rate in groups.items() if 3e-4 <= rate <= 3e-3]
    logs = np.log(np.array(middle))
    interval = geometric_interval(logs.max(0) - logs.min(0))
    means = loss_over_seeds(groups, x="learning rate", series="transformer")
    return Measurement.from_interval(
        interval,
        unit="seeds",
        numbers={"n": SWEEP_N},
        charts=[_curves(means, varied_size="learning rate", title=", loss by learning rate, 95 %")],
    )


def _claim(name: str, statement: str, paper: str, *, group: str, **fields) -> Claim:
    fields.setdefault("preregistration", FIRST_MODELS)
    return Claim(
        id=f"sweeps.{name}",
        source=f"template paper, Appendix B.{2 if group == 'random templates' else 1}",
        statement=statement,
        paper=paper,
        needs=(group,),
        sizes=LARGE_SIZES,
        sizes_reason="Sweeps are trained at size standard and above.",
        **fields,
    )


def _slope_claim(name: str, statement: str, paper: str, *, varied_size: str, rises: bool = False, **fields) -> Claim:
    draws = varied_size == "random templates"
    group = varied_size if draws else f"sweep {varied_size}"
    units = "draws of templates" if draws else "seeds, each size with the best of two rates on validation symbols"
    return _claim(
        name,
        statement,
        paper,
        group=group,
        method=f"Slope of log loss per doubling at n = {SWEEP_N}, t interval over {units}",
        rule=Above(0) if rises else Below(0),
        quantity="change of log loss per doubling",
        measure=partial(measure_slope, varied_size=varied_size, group=group),
        **fields,
    )


AT_N = f"loss at {SWEEP_N} samples."

CLAIMS = (
    _slope_claim(
        "depth", f"Deeper transformers have a lower {AT_N}", "0.272 at depth 1, 0.075 at 4", varied_size="depth"
    ),
    _slope_claim(
        "heads",
        f"Transformers with more heads have a lower {AT_N}",
        "0.422 with 1 head, 0.103 with 16",
        varied_size="heads",
    ),
    _slope_claim(
        "width",
        f"Transformers with wider embeddings have a higher {AT_N}",
        "0.072 at width 32, 0.241 at 512",
        varied_size="width",
        rises=True,
    ),
    _slope_claim(
        "templates",
        f"Tasks of more templates have a higher {AT_N}",
        "0.231 for 2, 0.667 for 4, 1.10 for 15",
        varied_size="random templates",
        rises=True,
        preregistration=extended("0.42 [-0.02, 0.86] over three draws", "seven draws"),
    ),
    _claim(
        "rate",
        f"The {AT_N[:-1]} does not depend on the learning rate within an order of magnitude.",
        "similar from 3e-4 to 3e-3",
        group="sweep learning rate",
        method="Loss at the worst rate from 3e-4 to 3e-3 over that at the best of them, n = 1024, t interval over "
        "seeds",
        rule=Below(2),
        preregistration=RATES,
        quantity="loss, worst / best rate",
        measure=measure_rates,
    ),
)
