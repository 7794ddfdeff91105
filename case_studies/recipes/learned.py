"""Which trained models have learned their task: the one rule of all claims about the heads of trained models."""

from collections.abc import Sequence

from case_studies.frame.evidence import Evidence, once_per_model
from interp.sweeps.spec import ModelSpec

LEARNED = 0.9
"""Lowest held-out accuracy, on every outcome that the model was trained for, of a model that has learned its task."""


@once_per_model
def lowest_accuracy(evidence: Evidence, spec: ModelSpec) -> float:
    """Accuracy on the validation examples at the end of training, of the worst of the task's `audited_outcomes`."""
    run = evidence.run(spec)
    accuracy = dict(zip(run.manifest["outcomes"], run.final_accuracy, strict=True))
    return min(accuracy[name] for name in spec.task.audited_outcomes)


def has_learned(evidence: Evidence, spec: ModelSpec) -> bool:
    """Whether a model has learned its task."""
    return lowest_accuracy(evidence, spec) >= LEARNED


def excluded_models(evidence: Evidence, groups: Sequence[str]) -> list[tuple[str, list[list]]]:
    """The table of the models that have not learned their task, with its title; an empty list if all have."""
    rows: list[list] = []
    for group in groups:
        for spec in evidence.specs(group):
            if not has_learned(evidence, spec):
                rows.append([group, spec.seed, f"{lowest_accuracy(evidence, spec):.3f}"])
    if not rows:
        return []
    title = f"Excluded: {len(rows)} models with an accuracy below {LEARNED}"
    return [(title, [["group", "seed", "lowest accuracy"], *rows])]
