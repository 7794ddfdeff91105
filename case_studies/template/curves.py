"""Claims about the ends of one curve: a loss of one half takes many samples (recurrent networks, aabb against abab)."""

from collections.abc import Sequence
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


def _claim(name: str, *, statement: str, paper: str, n: int, rule: Rule, **figure_options: str) -> Claim:
    figure = figure_options["figure"]
    source = "Figure 21" if figure == "aba-abb" else "Figure 16"
    return Claim(
        id=f"curves.{name}",
        source=f"template paper, {source}",
        statement=statement,
        paper=paper,
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


def _ends(
    name: str, who: str, task: str, *, few: tuple[int, str], many: tuple[int, str], **figure_options: str
) -> Sequence[Claim]:
    """The two ends of a curve: one half is not reached from few samples, and is from many; with the paper's losses."""
    return (
        _claim(
            f"{name}.many",
            statement=f"From {many[0]} samples {who} has a loss below one half on {task}.",
            paper=f"n = {many[0]}: {many[1]}",
            n=many[0],
            rule=Below(HALF),
            **figure_options,
        ),
        _claim(
            f"{name}.few",
            statement=f"From {few[0]} samples {who} has no loss below one half on {task}.",
            paper=f"n = {few[0]}: {few[1]}",
            n=few[0],
            rule=AtLeast(HALF),
            **figure_options,
        ),
    )


def _against(cell: str, paper: str) -> Claim:
    return Claim(
        id=f"curves.{cell.lower()}.against-transformer",
        source="template paper, Figure 21",
        statement=f"At {FEW} samples an {cell} has a higher loss on aba against abb than a transformer.",
        paper=f"n = {FEW}: {paper}, 0.125 transformer",
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


PAPERS = {"RNN": ("1.07", "0.165"), "LSTM": ("0.978", "0.291")}
"""The paper's losses at `FEW` and `MANY` samples."""

CLAIMS = (
    *(
        claim
        for cell in RECURRENT
        for claim in (
            *_ends(
                cell.lower(),
                f"an {cell}",
                "aba against abb",
                few=(FEW, PAPERS[cell][0]),
                many=(MANY, PAPERS[cell][1]),
                group=f"recurrent {cell}",
                series=cell,
                figure="aba-abb",
            ),
            _against(cell, f"{PAPERS[cell][0]} {cell}"),
        )
        if claim.id != "curves.lstm.many"  # at the bar: `crossing.py` asks where the LSTM's curve crosses one half
    ),
    *_ends(
        "aabb-abab",
        "a transformer",
        "aabb against abab",
        few=(PAIRS_FEW, "1.08"),
        many=(PAIRS_MANY, "0.0511"),
        group=PAIRS,
        series=PLAIN,
        figure="aabb-abab",
    ),
)
