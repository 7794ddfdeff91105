"""Claims about pretraining models with hard-coded attention on text (Figure 9)."""

from functools import partial

import altair as alt
import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, Below, Conditional
from case_studies.lego.plateau import OFF_PLATEAU, PLATEAU_SEEN, WINDOWS, final_losses, numbers_of_plateau
from case_studies.recipes.intervals import t_interval
from case_studies.recipes.judges import PairedDifference
from interp.view.charts import curves

LONGER_TEXT = (
    "BERT that has left the plateau of single tokens: nine models of 10,000 steps of pretraining, 7 h of one core, or "
    "a GPU"
)
NAMES = {"bert": "BERT", "hardcode": "Hardcode", "hybrid": "Hybrid"}
LOSS = "nats per masked token"
TOO_FEW_STEPS = "Pretraining at this size ends before any model predicts better than single tokens' frequencies do."
TEXTS = tuple(f"text-{name}" for name in NAMES)


def measure_loss_difference(evidence: Evidence, *, family: str, reference: str) -> Readings:
    """Validation loss after pretraining of two model families, one row a seed."""
    losses = {_nats(name): final_losses(evidence, name) for name in (family, reference)}
    return Readings(
        frame=pd.DataFrame({"seed": [spec.seed for spec in evidence.specs(f"text-{family}")], **losses}),
        title="Validation loss after pretraining, nats per masked token",
        numbers={"windows per model": WINDOWS[evidence.size], **numbers_of_plateau(evidence, (family, reference))},
        charts=[pretraining_loss_chart(evidence)],
        note="Paired by seed (the same windows of text in the same order), t interval.",
    )


def _nats(name: str) -> str:
    return f"{NAMES[name]}, nats"


def pretraining_loss_chart(evidence: Evidence) -> alt.TopLevelMixin:
    """Figure 9: validation and training loss by step, mean over seeds with its band."""
    rows = []
    names = [name for name in NAMES if f"text-{name}" in evidence.groups]
    # Mean over seeds of both losses at every evaluation
    for name in names:
        histories = [evidence.history(spec) for spec in evidence.specs(f"text-{name}")]
        for records in zip(*histories, strict=True):
            for kind in ("validation", "training"):
                losses = [
                    record["validation_loss"][0] if kind == "validation" else record["loss"] for record in records
                ]
                mean, low, high = t_interval(np.array(losses)).floats()
                rows.append(
                    {
                        "step": records[0]["steps_done"],
                        LOSS: mean,
                        "low": low,
                        "high": high,
                        "model": NAMES[name],
                        "kind": kind,
                    }
                )
    # Bands of few seeds are wide: the chart shows the range of the means
    table = pd.DataFrame(rows)
    bottom = max(0.0, float(min(table[LOSS])) - 0.3)
    top = float(max(table[LOSS])) + 0.2
    table[["low", "high"]] = table[["low", "high"]].clip(bottom, top)
    specs = evidence.specs(f"text-{names[0]}")
    first, raised = specs[0].settings.curriculum[0]
    last, _ = specs[0].settings.curriculum[-1]
    title = [
        f"mean of n = {len(specs)} seeds, {specs[0].settings.n_eval} windows each, bands 95 % over seeds",
        f"windows grow from {first} to {last} tokens at step {raised}",
    ]
    return curves(table, x="step", y=LOSS, series="model", panel="kind", title=title, domain=(bottom, top))


def _loss(name: str, family: str, reference: str, *, lower: bool) -> Claim:
    return Claim(
        id=f"hardcoded.loss-{name}",
        sizes=LARGE_SIZES,
        sizes_reason=TOO_FEW_STEPS,
        method=f"Validation loss after the same number of pretraining steps, {NAMES[family]} minus {NAMES[reference]}, "
        "paired by seed, t interval",
        rule=Conditional(OFF_PLATEAU, Below(0) if lower else Above(0)),
        preregistration=PLATEAU_SEEN,
        remedy=LONGER_TEXT,
        quantity="difference in loss, nats",
        measure=partial(measure_loss_difference, family=family, reference=reference),
        judged=PairedDifference(_nats(family), _nats(reference), unit="seeds"),
        needs=TEXTS,
    )


CLAIMS = (
    _loss("hybrid", "hybrid", "bert", lower=True),
    _loss("hardcode", "hardcode", "bert", lower=False),
    _loss("learned", "hybrid", "hardcode", lower=True),
)
