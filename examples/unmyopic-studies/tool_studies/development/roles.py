"""A claim on late changes: do heads change their role after the task is learned?"""

from typing import Any

import numpy as np

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Below
from case_studies.recipes.intervals import proportion, t_interval
from case_studies.recipes.learned import excluded_models, has_learned
from interp.comparison.onsets import first_lasting
from interp.sweeps.spec import ModelSpec
from tool_studies.development.models import CHAINS, SEQUENCES, looks

LEARNED = 0.99
"""Validation accuracy of every outcome from which on a task counts as learned."""
NONE = "unclassified"


def learned_from(evidence: Evidence, spec: ModelSpec) -> int | None:
    """The first step from which every outcome stays at `LEARNED`; None if it is not at the end."""
    history = evidence.history(spec)
    index = first_lasting(np.array([min(record["accuracy"]) >= LEARNED for record in history]))
    return None if index is None else history[index]["steps_done"]


def measure_changes(evidence: Evidence) -> Measurement:
    """Share of heads whose label changes between two snapshots after the task is learned; mean over models."""
    rows: list[list[Any]] = [
        [
            "group",
            "seed",
            "learned from step",
            "snapshots after",
            "heads that change",
            "of one kind to another",
            "heads",
        ]
    ]
    shares = []
    heads = 1
    for group in CHAINS:
        for spec in evidence.specs(group):
            # Models that learn, with snapshots after that
            since = learned_from(evidence, spec) if has_learned(evidence, spec) else None
            table: Any = looks(evidence, spec).to_dataframe() if since is not None else None
            if table is None or (table["step"] >= since).sum() == 0:
                continue
            # Labels of every head at the snapshots after the task is learned
            late = table[table["step"] >= since].drop_duplicates(["step", "layer", "head"])
            labels = [
                head_rows.sort_values("step")["label"].tolist() for _, head_rows in late.groupby(["layer", "head"])
            ]
            changed = [len(set(head_labels)) > 1 for head_labels in labels]
            kinds = [len(set(head_labels) - {NONE}) > 1 for head_labels in labels]
            heads = len(labels)
            shares.append(np.mean(changed))
            rows.append([group, spec.seed, since, late["step"].nunique(), sum(changed), sum(kinds), heads])
    tables = [("Labels after the task is learned", rows), *excluded_models(evidence, CHAINS)]
    if not shares:
        note = "No model has learned its task."
        return Measurement.from_interval(proportion(0, 0), unit="models", tables=tables, note=note)
    interval = t_interval(np.array(shares), resolution=1 / heads)
    return Measurement.from_interval(
        interval,
        unit="models",
        tables=tables,
        note=f"Learned: validation accuracy of every variable at least {LEARNED} from there on. A label changes too "
        f"when a head near the threshold gains or loses one ({NONE}). {SEQUENCES[evidence.size]} sequences at each "
        "snapshot.",
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
        needs=CHAINS,
    ),
)
