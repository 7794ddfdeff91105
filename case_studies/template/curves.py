"""Claims about the ends of one curve: a loss of one half takes many samples (recurrent networks, aabb against abab)."""

from functools import partial

import pandas as pd

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Below, Rule
from case_studies.recipes.judges import GeometricMean, PairedRatio
from case_studies.recipes.template_models import PLAIN
from case_studies.template.measures import by_n, loss_chart, losses, scored_frame, scores
from case_studies.template.models import FEW, MANY, PAIRS, PAIRS_FEW, PAIRS_MANY, RECURRENT, RECURRENT_STEPS

HALF = 0.5
"""Loss that the paper's curves are compared at; a constant prediction has loss 1."""
TABLE = "Loss and accuracy on unseen symbols"
WHY_NOT = "These models are trained at size standard and above."


def measure_test_loss(evidence: Evidence, *, group: str, series: str, figure: str) -> Readings:
    """Test loss of every model of a curve."""
    models = {series: scores(evidence, group)}
    chart = loss_chart(models, figure=figure, title=f"{series}, {figure.replace('-', ' ')}")
    return Readings(frame=scored_frame(models), title=TABLE, charts=[chart], note="A constant prediction has loss 1.")


def measure_against_transformer(evidence: Evidence, *, cell: str) -> Readings:
    """Test losses of recurrent networks and of transformers at `FEW` samples, one row a seed."""
    models = {cell: scores(evidence, f"recurrent {cell}"), PLAIN: scores(evidence, f"aba-abb {PLAIN}")}
    groups = {name: by_n(seeds)[FEW] for name, seeds in models.items()}
    frame = pd.DataFrame({f"loss, {name}": losses(seeds) for name, seeds in groups.items()})
    return Readings(
        frame=frame.assign(seed=[row.seed for row in groups[cell]]),
        tables=[(TABLE, scored_frame(models))],
        charts=[loss_chart(models, figure="aba-abb", title="aba against abb")],
        note=f"At size standard recurrent networks have {RECURRENT_STEPS} steps, more than transformers.",
    )


def _claim(name: str, *, n: int, rule: Rule, **figure_options: str) -> Claim:
    return Claim(
        id=f"curves.{name}",
        method=f"Test loss at n = {n}, geometric mean with its t interval over models (seeds)",
        rule=rule,
        preregistration=BEFORE_ANY_MODEL,
        quantity="loss on unseen symbols",
        measure=partial(measure_test_loss, **figure_options),
        judged=GeometricMean("loss", unit="models", where={"n": n}),
        needs=(figure_options["group"],),
        sizes=LARGE_SIZES,
        sizes_reason=WHY_NOT,
    )


def _against(cell: str) -> Claim:
    return Claim(
        id=f"curves.{cell.lower()}.against-transformer",
        method=f"Ratio of test losses at n = {FEW}, geometric mean with its t interval over seeds",
        rule=Above(1),
        preregistration=BEFORE_ANY_MODEL,
        quantity=f"loss {cell} / loss transformer",
        measure=partial(measure_against_transformer, cell=cell),
        judged=PairedRatio(f"loss, {cell}", f"loss, {PLAIN}", unit="seeds"),
        needs=(f"recurrent {cell}", f"aba-abb {PLAIN}"),
        sizes=LARGE_SIZES,
        sizes_reason=WHY_NOT,
    )


def _recurrent(cell: str) -> dict[str, str]:
    return {"group": f"recurrent {cell}", "series": cell, "figure": "aba-abb"}


OF_PAIRS = {"group": PAIRS, "series": PLAIN, "figure": "aabb-abab"}
CLAIMS = (
    # The LSTM's loss is at the bar from `MANY` samples: `crossing.py` asks where its curve crosses one half
    _claim("rnn.many", n=MANY, rule=Below(HALF), **_recurrent("RNN")),
    *(
        claim
        for cell in RECURRENT
        for claim in (
            _claim(f"{cell.lower()}.few", n=FEW, rule=AtLeast(HALF), **_recurrent(cell)),
            _against(cell),
        )
    ),
    _claim("aabb-abab.many", n=PAIRS_MANY, rule=Below(HALF), **OF_PAIRS),
    _claim("aabb-abab.few", n=PAIRS_FEW, rule=AtLeast(HALF), **OF_PAIRS),
)
