"""Claims on the shortcut: is counting signs learned before the chain is followed, and is it kept?"""

from typing import Any

import numpy as np

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence, once_per_model
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.recipes.intervals import proportion, t_interval
from interp.comparison.over_training import OverTraining, over_training
from interp.sweeps.spec import ModelSpec
from interp.theory.signs import sign_counting
from tool_studies.development.models import SEQUENCES

GROUP = "shortcut"
FACTOR = 4
"""Sentences with a broken chain, as a multiple of the sequences of other analyses: each gives one answer."""
CHANCE = 0.5
KNOWN = 0.6
"""Accuracy on the last variable of a model that has learned something of it, as in the LEGO study."""
SEEN = Preregistration(
    "after first models",
    "the accuracies of these models at the end, 0.71 to 0.74 on the last variable, below what counts as learned "
    "elsewhere; so 0.6 on the last variable counts here. No onset had been seen.",
)


@once_per_model
def counting(evidence: Evidence, spec: ModelSpec) -> OverTraining:
    """Answers to whole and broken chains at each snapshot."""
    n = FACTOR * SEQUENCES[evidence.size]
    return over_training(evidence.run(spec), sign_counting, n=n, seed=evidence.seed)


def knows_last(evidence: Evidence, spec: ModelSpec) -> bool:
    """Whether a model has learned something of the last variable."""
    return evidence.history(spec)[-1]["accuracy"][-1] >= KNOWN


def _onset(over: OverTraining, measure: str, target: str) -> float:
    onsets = over.onsets("share", by=(), null=CHANCE, filters={"measure": measure, "target": target})
    return float(onsets.onset[0, 0])


def _rows(evidence: Evidence) -> list[dict[str, Any]]:
    """For each model with some knowledge of the last variable: onsets of count and chain, what is left of it."""
    rows = []
    for spec in evidence.specs(GROUP):
        if not knows_last(evidence, spec):
            continue
        over = counting(evidence, spec)
        names = spec.task.targets
        middle = [name for name in names if name not in spec.task.audited_outcomes]
        by_step: Any = over.rows(measure="broken", target=names[-1]).sort_values("step")["share"].to_numpy() - CHANCE
        rows.append(
            {
                "seed": spec.seed,
                "count": _onset(over, "broken", names[-1]),
                "chain": max(_onset(over, "right", name) for name in middle),
                "most": float(by_step.max()),
                "last": float(by_step[-1]),
            }
        )
    return rows


def _table(rows: list[dict[str, Any]]) -> tuple[str, list[list[Any]]]:
    header = ["seed", "counts from step", "middle variables from step", "parity above chance, most", "at the end"]
    cells = [
        [
            row["seed"],
            *(f"{row[name]:.0f}" if np.isfinite(row[name]) else "not by the end" for name in ("count", "chain")),
            f"{row['most']:.3f}",
            f"{row['last']:.3f}",
        ]
        for row in rows
    ]
    return "Answers to broken chains, and to variables that are not supervised", [header, *cells]


def measure_first(evidence: Evidence) -> Measurement:
    """Share of models that count before they follow the chain."""
    rows = _rows(evidence)
    tables = [_table(rows)]
    if not rows:
        note = f"No model reaches {KNOWN} on the last variable."
        return Measurement.from_interval(proportion(0, 0), unit="models", tables=tables, note=note)
    interval = proportion(sum(row["count"] < row["chain"] for row in rows), len(rows))
    return Measurement.from_interval(
        interval,
        unit="models",
        tables=tables,
        numbers={"models": len(evidence.specs(GROUP))},
        note="A model counts from the first snapshot on at which its answers for the last variable of broken chains "
        "stay the parity of all signs more often than by chance, and follows the chain from the first on at which "
        "every variable that is not supervised stays above chance. Exact interval over models.",
    )


def measure_kept(evidence: Evidence) -> Measurement:
    """What is left of the count at the end of training, as a share of the most that it was."""
    rows = _rows(evidence)
    counted = [row for row in rows if row["most"] > 0 and np.isfinite(row["count"])]
    tables = [_table(rows)]
    if not counted:
        note = "No model counts at the end of training."
        return Measurement.from_interval(proportion(0, 0), unit="models", tables=tables, note=note)
    shares_left = np.array([row["last"] / row["most"] for row in counted])
    interval = t_interval(shares_left, resolution=1 / SEQUENCES[evidence.size])
    return Measurement.from_interval(
        interval,
        unit="models",
        tables=tables,
        numbers={"models that count at the end": len(counted), "models": len(evidence.specs(GROUP))},
        note="Of models whose answers to broken chains are the parity more often than by chance at the end.",
    )


CLAIMS = (
    Claim(
        id="shortcut.first",
        source="ours, after LEGO, Section 4.3",
        preregistration=SEEN,
        statement="Models that learn the last variable early count signs before they follow the chain.",
        method="Share of models whose count of signs has an earlier onset than the variables that are not supervised; "
        "exact interval over models",
        rule=Above(0.5),
        quantity="share of models",
        value_range=SHARE,
        measure=measure_first,
        needs=(GROUP,),
    ),
    Claim(
        id="shortcut.kept",
        source="ours, after LEGO, Section 4.3",
        preregistration=SEEN,
        statement="The count of signs is kept once it is learned.",
        method="Share above chance of parities in answers to broken chains at the end, divided by the largest of any "
        "snapshot; t interval over models",
        rule=Above(0.5),
        quantity="share of the largest",
        value_range=SHARE,
        measure=measure_kept,
        needs=(GROUP,),
    ),
)
