"""Accuracy of Dyck models, in distribution and on long prefixes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from case_studies.frame.evidence import Evidence
from hooks import Transformer
from interp.evaluation.evaluate import evaluate
from interp.tasks import Dyck

N_SEQUENCES = {"quick": 40, "standard": 200, "paper": 200}
"""Test prefixes of length 450 per model."""
N_HELD_OUT = {"quick": 500, "standard": 2000, "paper": 2000}
"""Test words in distribution per model."""
LONG = 450
"""Brackets of a long prefix: 16 times the training length. The paper draws 400 to 500."""
LEARNED = 0.98
"""Accuracy on hard positions that every seed needs before its patterns count as those of a solution."""


def task_of(evidence: Evidence, group: str) -> Dyck:
    """The language that a group was trained on."""
    return Dyck.require(evidence.task(group), "the study measures bounded Dyck.")


def accuracies(
    models: Sequence[Transformer], task: Dyck, evidence: Evidence, *, length: int | None = None
) -> dict[str, Float[np.ndarray, " model"]]:
    """Accuracy of each model by outcome: on the task, or on prefixes of another length."""
    n = N_HELD_OUT[evidence.size]
    if length is not None:
        task, n = replace(task, words="prefixes", length=length), N_SEQUENCES[evidence.size]
    results = [evaluate(model, task, n=n, seed=evidence.seed) for model in models]
    return dict(zip(task.outcomes, np.array([result.accuracy for result in results]).T, strict=True))
