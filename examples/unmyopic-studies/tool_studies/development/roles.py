"""A claim on late changes: do heads change their role after the task is learned?"""

from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Below
from case_studies.recipes.judges import Mean
from case_studies.recipes.learned import excluded_models, has_learned
from interp.comparison.onsets import first_lasting
from interp.sweeps.spec import ModelSpec
from tool_studies.development.models import CHAINS, NO_MODELS, SEQUENCES, looks

LEARNED = 0.99
"""Validation accuracy of every outcome from which on a task counts as learned."""
NONE = "unclassified"
CHANGING, JUDGED, HEADS = "share of heads that change", "is judged", "heads"
COUNTS = ("learned from step", "snapshots after", "heads that change", "of one kind to another", HEADS)


def learned_from(evidence: Evidence, spec: ModelSpec) -> int | None:
    """The first step from which every outcome stays at `LEARNED`; None if it is not at the end."""
    history = evidence.history(spec)
    index = first_lasting(np.array([min(record["accuracy"]) >= LEARNED for record in history]))
    return None if index is None else history[index]["steps_done"]


def measure_changes(evidence: Evidence) -> Readings:
    """Share of heads whose label changes between two snapshots after the task is learned, one row a model."""
    rows = []
    for group in CHAINS:
        for spec in evidence.specs(group):
            # Models that learn, with snapshots after that
            since = learned_from(evidence, spec) if has_learned(evidence, spec) else None
            table: Any = looks(evidence, spec).to_dataframe() if since is not None else None
            if table is None or (table["step"] >= since).sum() == 0:
                rows.append({"group": group, "seed": spec.seed, JUDGED: False})
                continue
            # Labels of every head at the snapshots after the task is learned
            late = table[table["step"] >= since].drop_duplicates(["step", "layer", "head"])
            labels = [
                head_rows.sort_values("step")["label"].tolist() for _, head_rows in late.groupby(["layer", "head"])
            ]
            changed = [len(set(head_labels)) > 1 for head_labels in labels]
            kinds = [len(set(head_labels) - {NONE}) > 1 for head_labels in labels]
            numbers = (since, late["step"].nunique(), sum(changed), sum(kinds), len(labels))
            row = {"group": group, "seed": spec.seed, JUDGED: True, CHANGING: np.mean(changed)}
            rows.append({**row, **dict(zip(COUNTS, numbers, strict=True))})
    frame: Any = pd.DataFrame(rows, columns=["group", "seed", CHANGING, JUDGED, *COUNTS])
    note = (
        f"Learned: validation accuracy of every variable at least {LEARNED} from there on. A label changes too when a "
        f"head near the threshold gains or loses one ({NONE}). {SEQUENCES[evidence.size]} sequences at each snapshot."
    )
    judged = frame[frame[JUDGED]].drop(columns=[CHANGING, JUDGED]).astype(dict.fromkeys(COUNTS, int))
    return Readings(
        frame=frame,
        table=judged,
        title="Labels after the task is learned",
        tables=excluded_models(evidence, CHAINS),
        note=note if len(judged) else "No model has learned its task.",
    )


CLAIMS = (
    Claim(
        id="roles.late",
        source="ours",
        preregistration=BEFORE_ANY_MODEL,
        statement="Few heads of LEGO models change their label after the task is learned.",
        method="Share of heads with more than one label at the snapshots from then on; t interval over models",
        rule=Below(0.25),
        quantity="share of heads",
        value_range=SHARE,
        measure=measure_changes,
        judged=Mean(CHANGING, unit="models", where={JUDGED: True}, share_of=HEADS, without_rows=NO_MODELS),
        needs=CHAINS,
    ),
)
