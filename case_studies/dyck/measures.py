"""Accuracy of Dyck models, in distribution and on long prefixes, and the models of a group that have learned."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from case_studies.frame.evidence import Evidence
from case_studies.frame.rules import AtLeast, Conditional, Number, Rule
from case_studies.recipes.learned import has_learned
from hooks import Transformer
from interp.evaluation.evaluate import evaluate
from interp.sweeps.spec import ModelSpec
from interp.tasks import Dyck

N_SEQUENCES = {"quick": 40, "standard": 200, "paper": 200}
"""Test prefixes of length 450 per model."""
N_HELD_OUT = {"quick": 500, "standard": 2000, "paper": 2000}
"""Test words in distribution per model."""
LONG = 450
"""Brackets of a long prefix: 16 times the training length. The paper draws 400 to 500."""
FEWEST = 4
"""Fewest models of a group that must have learned before a claim about what they do is judged."""
KEPT = "models that learned"
"""Name of the number of models that have learned, of the smallest group."""


@dataclass(frozen=True)
class Chosen:
    """The models that a claim is measured on: those that have learned their task (`case_studies.recipes.learned`).

    If fewer than `FEWEST` have, it is all models: they are measured and shown, and the claim is inconclusive.
    """

    specs: tuple[ModelSpec, ...]
    models: list[Transformer]
    learned: int
    """Number of models that have learned."""


def chosen(evidence: Evidence, group: str, *also: str) -> Chosen:
    """The models of a group that have learned; with further groups, those whose seed has learned in each."""
    specs = evidence.specs(group)
    every = [spec for name in (group, *also) for spec in evidence.specs(name)]
    failed = {spec.seed for spec in every if not has_learned(evidence, spec)}
    learned = [index for index, spec in enumerate(specs) if spec.seed not in failed]
    # With too few the claim is inconclusive, and all models are measured and shown
    indices = learned if len(learned) >= FEWEST else range(len(specs))
    models = evidence.models(group)
    return Chosen(tuple(specs[index] for index in indices), [models[index] for index in indices], len(learned))


def if_learned(rule: Rule) -> Conditional:
    """The rule, if enough models have learned."""
    return Conditional(Number(KEPT, AtLeast(FEWEST)), rule)


def task_of(evidence: Evidence, group: str) -> Dyck:
    """The language that a group was trained on."""
    return Dyck.require(evidence.task(group), "the study measures bounded Dyck.")


def accuracies(
    models: Sequence[Transformer], task: Dyck, evidence: Evidence, *, length: int | None = None
) -> dict[str, Float[np.ndarray, " model"]]:
    """Accuracy of each model by outcome: on the task, or on prefixes of another length."""
    n = N_HELD_OUT[evidence.size]
    if length is not None:
        task = replace(task, words="prefixes", length=length)
        n = N_SEQUENCES[evidence.size]
    results = [evaluate(model, task, n=n, seed=evidence.seed) for model in models]
    return dict(zip(task.outcomes, np.array([result.accuracy.value for result in results]).T, strict=True))
