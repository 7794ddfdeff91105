"""Solved models: those of a group that are right on unseen symbols, which claims about their insides are about."""

from case_studies.frame.evidence import Evidence
from case_studies.recipes.template_models import PLAIN, A
from case_studies.template.measures import SOLVED, n_train, template_task
from hooks import Transformer
from interp.evaluation.evaluate import evaluate
from interp.sweeps.spec import ModelSpec

N_READ = {"quick": 200, "standard": 500, "paper": 500}
"""Strings per analysis."""
MOST_MODELS, FEWEST = 12, 2
"""Most solved models that are analysed, those with the most training strings first; and the fewest that are judged."""
GROUPS = {A: f"aba-abb {A}", PLAIN: f"aba-abb {PLAIN}"}


def solved(
    evidence: Evidence, group: str, *, accuracy: float = SOLVED
) -> tuple[list[tuple[ModelSpec, Transformer]], int]:
    """The models of a group with this accuracy on unseen validation symbols, largest n first, and their number.

    At most `MOST_MODELS`. With fewer than two, the most accurate others are added, shown and not judged.
    """
    good: list[tuple[ModelSpec, Transformer]] = []
    not_solved: list[tuple[float, ModelSpec, Transformer]] = []
    for spec in sorted(evidence.specs(group), key=lambda spec: (-n_train(spec), spec.seed)):
        model = evidence.run(spec).model
        evaluation = evaluate(model, template_task(spec), n=500, split="validation", seed=evidence.seed)
        model_accuracy = float(evaluation.accuracy[0])
        if model_accuracy >= accuracy:
            good.append((spec, model))
        else:
            not_solved.append((model_accuracy, spec, model))
        if len(good) == MOST_MODELS:
            break
    # Too few to be judged: the most accurate others are shown
    missing = max(FEWEST - len(good), 0)
    best = sorted(not_solved, key=lambda accuracy_and_model: -accuracy_and_model[0])[:missing]
    return [*good, *((spec, model) for _, spec, model in best)], len(good)
