"""Claims on the shortcut: is counting signs learned before the chain is followed, and is it kept?"""

from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence, once_per_model
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.recipes.judges import Mean, Share
from interp.comparison.over_training import OverTraining, over_training
from interp.sweeps.spec import ModelSpec
from interp.theory.signs import sign_counting
from tool_studies.development.models import NO_MODELS, SEQUENCES, step_text

GROUP = "shortcut"
FACTOR = 4
"""Sentences with a broken chain, as a multiple of the sequences of other analyses: each gives one answer."""
CHANCE = 0.5
KNOWN = 0.6
"""Accuracy on the last variable of a model that has learned something of it, as in the LEGO study."""
KNOWS, COUNT, CHAIN = "knows the last variable", "counts from step", "middle variables from step"
MOST, AT_END = "parity above chance, most", "at the end"
FIRST, KEPT, COUNTS, SEQUENCES_OF = "counts first", "share of the largest", "counts at the end", "sequences"
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


def _onsets_table(evidence: Evidence) -> pd.DataFrame:
    """Onsets of count and chain, and what is left of the count, one row a model.

    Models without any knowledge of the last variable have no numbers.
    """
    rows = []
    for spec in evidence.specs(GROUP):
        row = {"seed": spec.seed, KNOWS: knows_last(evidence, spec)}
        if row[KNOWS]:
            over = counting(evidence, spec)
            names = spec.task.targets
            middle = [name for name in names if name not in spec.task.audited_outcomes]
            by_step: Any = over.rows(measure="broken", target=names[-1]).sort_values("step")["share"].to_numpy()
            above_chance = by_step - CHANCE
            row[COUNT] = _onset(over, "broken", names[-1])
            row[CHAIN] = max(_onset(over, "right", name) for name in middle)
            row[MOST], row[AT_END] = float(above_chance.max()), float(above_chance[-1])
        rows.append(row)
    table: Any = pd.DataFrame(rows, columns=["seed", KNOWS, COUNT, CHAIN, MOST, AT_END])
    return table.astype(dict.fromkeys((COUNT, CHAIN, MOST, AT_END), float))


def _readings(table: pd.DataFrame, **fields: Any) -> Readings:
    """Shown are the models that know the last variable, with onsets as text."""
    shown = table.loc[table[KNOWS], ["seed", COUNT, CHAIN, MOST, AT_END]]
    words = {column: [step_text(step) for step in shown[column]] for column in (COUNT, CHAIN)}
    title = "Answers to broken chains, and to variables that are not supervised"
    return Readings(table=shown.assign(**words), title=title, **fields)


def measure_first(evidence: Evidence) -> Readings:
    """Whether a model counts before it follows the chain."""
    table: Any = _onsets_table(evidence)
    note = (
        "A model counts from the first snapshot on at which its answers for the last variable of broken chains stay "
        "the parity of all signs more often than by chance, and follows the chain from the first on at which every "
        "variable that is not supervised stays above chance. Exact interval over models."
    )
    return _readings(
        table,
        frame=table.assign(**{FIRST: table[COUNT] < table[CHAIN]}),
        numbers={"models": len(table)},
        note=note if table[KNOWS].any() else f"No model reaches {KNOWN} on the last variable.",
    )


def measure_kept(evidence: Evidence) -> Readings:
    """What is left of the count at the end of training, as a share of the most that it was."""
    table: Any = _onsets_table(evidence)
    counts = (table[MOST] > 0) & np.isfinite(table[COUNT])
    shares_left = (table[AT_END] / table[MOST]).where(counts)
    note = "Of models whose answers to broken chains are the parity more often than by chance at the end."
    return _readings(
        table,
        frame=table.assign(**{KEPT: shares_left, COUNTS: counts, SEQUENCES_OF: SEQUENCES[evidence.size]}),
        numbers={"models that count at the end": int(counts.sum()), "models": len(table)},
        note=note if counts.any() else "No model counts at the end of training.",
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
        judged=Share(FIRST, unit="models", where={KNOWS: True}, without_rows=NO_MODELS),
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
        quantity=KEPT,
        value_range=SHARE,
        measure=measure_kept,
        judged=Mean(KEPT, unit="models", where={COUNTS: True}, share_of=SEQUENCES_OF, without_rows=NO_MODELS),
        needs=(GROUP,),
    ),
)
