"""Claims about copying: a wide attention-only model cannot copy an unseen symbol without b I."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Below
from case_studies.recipes.intervals import interval_columns
from case_studies.recipes.judges import Mean, Row
from case_studies.recipes.seeds import more_seeds
from case_studies.recipes.template_models import PLAIN, B
from case_studies.template.measures import (
    Scored,
    by,
    by_n,
    mean_accuracy,
    paper_curves,
    scored_frame,
    scores,
    thresholds,
)
from case_studies.template.models import COPY_RATE
from case_studies.template.preregistration import extended, over_models
from interp.view.charts import dots, scaling_curves

COPIED = 0.9
"""Accuracy that the model with b I needs at every width: the paper's error is below 0.1."""
PAPERS_BAR = Preregistration(
    "after a result",
    "an accuracy of 1.0 under a bar of 0.95; the paper's error is below 0.1. Also seen: 300 symbols of three seeds as "
    "units, all copied. The units are now models.",
)
ERROR = 0.1
SAME = f"{B}, same rate"
WIDTHS = more_seeds(f"copy {PLAIN}")
HOW = "t interval over models (seeds)"
PLACE = "width and seed"
SLOPE = "doublings of n per doubling of width"


def measure_copying(evidence: Evidence) -> Readings:
    """Mean accuracy on unseen symbols of every variant and width, over models."""
    # All variants at the number of training symbols that the models with b I have
    models = {name: scores(evidence, f"copy {name}", each_symbol=True) for name in (PLAIN, B, SAME)}
    first = min(row.n for row in models[B])
    models = {name: [row for row in rows if row.n == first] for name, rows in models.items()}
    # Means over models, every model, and the learned scalars
    means, every = [], []
    for name, models_of_name in models.items():
        for width, seeds in by(models_of_name, _width).items():
            columns = interval_columns(mean_accuracy(seeds), "accuracy")
            means.append({"model": name, "width": width, **columns, "models": len(seeds)})
            every.append(scored_frame({name: seeds}).assign(width=width))
    table = pd.concat(every, ignore_index=True)
    points = table.assign(**{PLACE: table["width"].astype(str) + ", " + table["seed"].astype(str)})
    sums = {
        str(width): [round(row.model.block(0).attention.b.sum().item(), 2) for row in seeds]
        for width, seeds in by(models[B], _width).items()
    }
    return Readings(
        frame=pd.DataFrame(means),
        title="Accuracy on unseen symbols, mean over models",
        numbers={"training symbols": first, "sum of b, by width and seed": sums},
        tables=[("Every model", table)],
        charts=[
            dots(
                points,
                x=PLACE,
                y="accuracy",
                series="model",
                title=f"copying unseen symbols, {first} training symbols; a model per point",
            )
        ],
        note=f"Every test symbol is tested once per model. The learning rate of b is {COPY_RATE:g} times that of the "
        "other parameters; in the control 'same rate' it is equal.",
    )


def widest(variant: str) -> Row:
    """The widest models of a variant are judged."""
    return Row("accuracy", by="width", where={"model": variant}, unit="models", units="models")


def _width(row: Scored) -> int:
    return row.config.d_model


def measure_width(evidence: Evidence) -> Readings:
    """Slope of log2 of the samples needed for an error below a tenth over log2 of the width, one row a seed."""
    models = by(scores(evidence, WIDTHS, each_symbol=True), _width)
    needed = {width: thresholds(rows, ERROR, lambda row: 1 - row.accuracy) for width, rows in models.items()}
    # A line for each seed in doublings of both
    ns = {width: [n for n, _ in thresholds_of_width] for width, thresholds_of_width in needed.items()}
    per_seed = np.log2(np.array(list(ns.values()), dtype=float)).T
    widths = np.log2(np.array(list(needed), dtype=float))
    frame = pd.DataFrame(
        {
            "seed": range(len(per_seed)),
            **{f"n needed, width {width}": of_width for width, of_width in ns.items()},
            SLOPE: [np.polyfit(widths, row, 1)[0] for row in per_seed],
            "step of the slope": 1 / max(1.0, float(np.ptp(widths))),
        }
    )
    points = [
        _errors(n, models_of_n, f"width {width}")
        for width, models_of_width in models.items()
        for n, models_of_n in by_n(models_of_width).items()
    ]
    never = {str(width): sum(not reached for _, reached in of_width) for width, of_width in needed.items()}
    return Readings(
        frame=frame,
        title="Training symbols needed for an error below a tenth (twice the largest n if never reached)",
        numbers={"seeds that need more than the grid has, by width": never},
        charts=[
            scaling_curves(
                pd.DataFrame(points),
                x="n",
                y="error",
                series="series",
                rule=ERROR,
                behind=paper_curves("copy", x="n", y="error", series=[f"width {w}" for w in models]),
                title="copying without b I: error on unseen symbols, mean over models; dashed: the paper's",
            )
        ],
    )


def _errors(n: int, models: Sequence[Scored], series: str) -> dict:
    """The mean error of models of one width and n."""
    mean, low, high = mean_accuracy(models).floats()
    return {"n": n, "error": 1 - mean, "low": 1 - high, "high": 1 - low, "series": series}


NEEDS = (f"copy {PLAIN}", f"copy {B}", f"copy {SAME}")

CLAIMS = (
    Claim(
        id="copying.identity",
        method=f"Mean accuracy on unseen symbols at the width where it is lowest, {HOW}",
        rule=AtLeast(COPIED),
        preregistration=PAPERS_BAR,
        quantity="accuracy, worst width",
        value_range=SHARE,
        measure=measure_copying,
        judged=Row("accuracy", extreme="smallest", where={"model": B}, unit="models", units="models"),
        needs=NEEDS,
    ),
    Claim(
        id="copying.fails",
        method=f"Mean accuracy on unseen symbols of the widest models, {HOW}",
        rule=Below(0.5),
        preregistration=over_models("300 symbols of three seeds, none of which was copied"),
        quantity="accuracy, widest",
        value_range=SHARE,
        measure=measure_copying,
        judged=widest(PLAIN),
        needs=NEEDS,
    ),
    Claim(
        id="copying.same-rate",
        method=f"Mean accuracy on unseen symbols of the widest models, {HOW}",
        rule=Below(0.5),
        preregistration=over_models("300 symbols of three seeds, one of which was copied"),
        quantity="accuracy",
        value_range=SHARE,
        measure=measure_copying,
        judged=widest(SAME),
        needs=NEEDS,
    ),
    Claim(
        id="copying.wider-is-worse",
        method="Slope of log2 of the samples needed for an error below a tenth over log2 of the width, for each seed, "
        "t interval",
        rule=Above(0),
        preregistration=extended(
            "0.37 [0.22, 0.51] over three seeds",
            "a fourth and a fifth seed, and after 0.24 [-0.02, 0.50] over five three more",
            looks=2,
        ),
        quantity=SLOPE,
        measure=measure_width,
        judged=Mean(SLOPE, unit="seeds", resolution="step of the slope"),
        needs=(WIDTHS,),
        sizes=LARGE_SIZES,
        sizes_reason="It takes a grid of widths and samples, which is trained at size standard and above.",
    ),
)
