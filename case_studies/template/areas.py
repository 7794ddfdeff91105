"""The claim that a I saves more samples than b I: areas under the logarithm of the loss, over n."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence, Size
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, Conditional, Equal, Number
from case_studies.recipes.intervals import interval_columns, t_interval
from case_studies.recipes.judges import PairedDifference
from case_studies.recipes.template_models import A, B, template_models
from case_studies.template.measures import Scored, by, by_n, geometric_mean, loss_chart, losses, scores
from interp.sweeps.spec import ModelSpec

GRID = (64, 128, 181, 256, 362, 512, 724, 1024)
"""Training strings: doublings, and half-steps where the loss falls."""
SEEDS = 8
LEAST = 0.01
"""Loss of a solved task; lower losses count as this one, so that the area is about samples, not about the last digits
of the loss."""
AREA = {variant: f"mean log loss, {variant}" for variant in (A, B)}
LEARNED = 0.5
"""Loss that both variants must reach at the largest n."""


def group_of(variant: str) -> str:
    """The group of a variant's models."""
    return f"aba-abb {variant}, {SEEDS} seeds"


def area_groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Models with a I and with b I of the same seeds, at size standard."""
    ns = GRID if size == "standard" else ()
    return {group_of(variant): template_models(size, "aba_abb", ns, variant, seeds=SEEDS) for variant in (A, B)}


def areas(rows: Sequence[Scored]) -> Float[np.ndarray, " seed"]:
    """Mean of the natural logarithm of the loss over log2 of n, between the first and the last n, for each seed.

    The logarithm is interpolated linearly; a loss below `LEAST` counts as `LEAST`.
    """
    means = []
    for seed_rows in by(rows, lambda row: row.seed).values():
        ordered = sorted(seed_rows, key=lambda row: row.n)
        doublings = np.log2([row.n for row in ordered])
        logs = np.log(np.maximum(losses(ordered), LEAST))
        means.append(np.trapezoid(logs, doublings) / np.ptp(doublings))
    return np.array(means)


def measure_areas(evidence: Evidence) -> Readings:
    """Mean log loss over log2 of n of each variant, one row a seed."""
    models = {variant: scores(evidence, group_of(variant)) for variant in (A, B)}
    frame = pd.DataFrame({"seed": sorted({row.seed for row in models[A]})})
    frame = frame.assign(**{AREA[variant]: areas(rows) for variant, rows in models.items()})
    # Losses at every n, and whether both variants have learned the task at the largest
    groups = {variant: by_n(rows) for variant, rows in models.items()}
    rows = []
    for n in groups[A]:
        logs = [np.log(np.maximum(losses(groups[variant][n]), LEAST)) for variant in (B, A)]
        means = {f"loss, {variant}": geometric_mean(seeds[n]) for variant, seeds in groups.items()}
        rows.append({"n": n, **means, **interval_columns(t_interval(logs[0] - logs[1]), "log of the ratio")})
    largest = max(groups[A])
    return Readings(
        frame=frame,
        numbers={"variants that learn": sum(geometric_mean(seeds[largest]) < LEARNED for seeds in groups.values())},
        tables=[(f"Geometric mean losses over {SEEDS} seeds; the ratio is that of b I to a I", pd.DataFrame(rows))],
        charts=[loss_chart(models, figure="aba-abb", title="aba against abb")],
        note=f"Losses below {LEAST} count as {LEAST}. A positive difference: a I has the lower loss.",
    )


CLAIMS = (
    Claim(
        id="identity.b-saves-less",
        method=f"Mean over log2 of n, from {GRID[0]} to {GRID[-1]}, of the natural logarithm of the loss with b I "
        f"minus that with a I, losses of at least {LEAST}, t interval over paired seeds",
        rule=Conditional(Number("variants that learn", Equal(2)), Above(0)),
        preregistration=Preregistration(
            "after a result",
            "the doublings of n until the loss stays below one half: 0.33 [-2.5, 3.2] over three seeds, then 0.20 "
            "[-0.63, 1.03] over five with half-steps of n. The area and eight seeds were fixed after that.",
            looks=2,
        ),
        quantity="difference of mean log losses",
        measure=measure_areas,
        judged=PairedDifference(AREA[B], AREA[A], unit="seeds"),
        needs=(group_of(A), group_of(B)),
        sizes=("standard",),
        sizes_reason="Both variants are trained on this grid with eight seeds at size standard.",
    ),
)
