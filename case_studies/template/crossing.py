"""The claim about the number of samples from which an LSTM has a loss below one half: where its curve crosses it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence, Size
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Between, Conditional, Equal, Number
from case_studies.recipes.judges import Mean
from case_studies.recipes.template_models import SCALES, template_settings
from case_studies.template.measures import Scored, by, loss_chart, scores
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Template
from interp.training.configs import config_for

HALF = 0.5
CELL = "LSTM"
GROUP = f"recurrent {CELL}, crossing"
GRID = (4096, 8192, 16384)
STEPS = 2000
PAPERS_N = 8192
"""The first n of the paper's grid of doublings where the loss is below one half."""
DOUBLINGS = f"doublings of n from {PAPERS_N}"


def crossing_groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """LSTMs around the crossing, at size standard, with the settings of the other recurrent networks."""
    specs: list[ModelSpec] = []
    for n in GRID if size == "standard" else ():
        task = Template(templates="aba_abb", train=n)
        settings = replace(template_settings(size, n, eval_every=100), steps=STEPS)
        specs += seeded(task, config_for(task, CELL.lower()), settings, SCALES[size].network_seeds)
    return {GROUP: specs}


def crossing(rows: Sequence[Scored], level: float) -> tuple[float, bool]:
    """log2 of the n from which the loss stays below a level, between two n of the grid by interpolation, and True.

    The logarithm of the loss is interpolated linearly in log2 of n. If the loss at the largest n is not below the
    level: one doubling above that n, and False; if it is below at every n: the smallest n, and True.
    """
    ordered = sorted(rows, key=lambda row: row.n)
    log_n = np.log2([row.n for row in ordered])
    logs = np.log([row.loss for row in ordered]) - np.log(level)
    above = np.flatnonzero(logs >= 0)
    if not len(above):
        return float(log_n[0]), True
    last = above[-1]
    if last == len(ordered) - 1:
        return float(log_n[-1]) + 1, False
    # Between the last n at or above the level, and the next one
    share = logs[last] / (logs[last] - logs[last + 1])
    return float(log_n[last] + share * (log_n[last + 1] - log_n[last])), True


def measure_crossing(evidence: Evidence) -> Readings:
    """Doublings between the paper's n and the n at which the loss falls below one half, one row a seed."""
    models = scores(evidence, GROUP)
    rows = []
    for seed, seed_rows in by(models, lambda row: row.seed).items():
        log_n, reached = crossing(seed_rows, HALF)
        losses_by_n = {f"loss, n = {row.n}": row.loss for row in sorted(seed_rows, key=lambda row: row.n)}
        crossed = {"n at the crossing": round(2**log_n), DOUBLINGS: log_n - np.log2(PAPERS_N), "reached": reached}
        rows.append({"seed": seed, **losses_by_n, **crossed})
    frame = pd.DataFrame(rows)
    return Readings(
        frame=frame,
        title="Loss on unseen symbols",
        numbers={
            "n at the crossing, geometric mean": round(PAPERS_N * 2 ** float(np.mean(frame[DOUBLINGS].to_numpy()))),
            "seeds that never get there": int((~frame["reached"].to_numpy()).sum()),
        },
        charts=[loss_chart({CELL: models}, figure="aba-abb", title=f"{CELL}, aba against abb")],
        note="A constant prediction has loss 1.",
    )


CLAIMS = (
    Claim(
        id="curves.lstm.crossing",
        method=f"Doublings from n = {PAPERS_N} to the n where the loss falls below one half, log loss interpolated "
        "over log2 of n, t interval over seeds",
        rule=Conditional(Number("seeds that never get there", Equal(0)), Between(-1, 1)),
        preregistration=Preregistration(
            "after a result",
            f"a loss of 0.51 [0.46, 0.56] at n = {PAPERS_N}, under a rule that asked for less than one half there. A "
            "doubling is the step of the paper's grid.",
        ),
        quantity=DOUBLINGS,
        measure=measure_crossing,
        judged=Mean(DOUBLINGS, unit="seeds"),
        needs=(GROUP,),
        sizes=("standard",),
        sizes_reason="These models are trained at size standard.",
    ),
)
