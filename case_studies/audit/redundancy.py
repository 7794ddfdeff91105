"""Where no head is needed alone: do heads of template models stand in for each other?"""

import numpy as np

from case_studies.audit.models import TEMPLATE
from case_studies.frame.audits import audits, needed, share
from case_studies.frame.claims import Claim, Measurement, more_than_half
from case_studies.frame.evidence import Evidence

IDENTITY = tuple(group for group in TEMPLATE if group.endswith("identity"))


def measure_no_single_head(evidence: Evidence) -> Measurement:
    """Share of models with a I in which every head can go alone, beside plain ones."""
    rows: list[list] = [["group", "models", "no head needed alone", "with redundant heads", "smallest fatal set"]]
    none: list[int] = []
    for group in TEMPLATE:
        results = [one.result for one in audits(evidence, [group])]
        alone = [int(not needed(result).any()) for result in results]
        sizes = [
            len(chosen) for result in results for chosen in result.sets if set(chosen) <= set(result.of("redundant"))
        ]
        redundant = sum(bool(result.of("redundant")) for result in results)
        rows.append([group, len(results), sum(alone), redundant, f"{np.median(sizes):.0f}" if sizes else ""])
        none += alone if group in IDENTITY else []
    value, low, high = share(none, [1] * len(none))
    return Measurement(
        value=value, low=low, high=high, n=max(1, len(none)), unit="models",
        tables=[("Template models by group", rows)],
        note="The smallest fatal set is the median over sets found of how many heads must go together to cost more "
        "than the threshold.",
    )  # fmt: skip


CLAIMS = (
    Claim(
        id="redundant.identity",
        source="template tasks, Section 4 (a I on W_K W_Q^T)",
        statement="In template models with a I no head is needed alone: heads stand in for each other.",
        rule="Share of models with a I in which no head is judged needed alone: reproduced if its exact interval "
        "lies above one half, not reproduced if below, else inconclusive.",
        quantity="share of models without a needed head",
        measure=measure_no_single_head,
        judge=more_than_half,
        needs=TEMPLATE,
    ),
)
