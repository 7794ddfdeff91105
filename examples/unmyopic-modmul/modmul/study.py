"""Two claims on modular multiplication: held-out products are learned, and weight decay makes a model learn them."""

from dataclasses import replace

import pandas as pd

import interp
from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.evidence import Evidence, Size
from case_studies.frame.rules import Above
from case_studies.recipes.judges import ArmDifference, Mean
from case_studies.study import Study
from interp.sweeps.spec import ModelSpec, seeded
from modmul.task import ModularMultiplication

N = 2000
"""Products in an evaluation."""
SEEDS: dict[Size, int] = {"quick": 4, "standard": 10, "paper": 30}
TASK = ModularMultiplication()
DECAY, NO_DECAY = "decay", "no decay"
"""Groups of models."""
CONFIG = interp.config_for(TASK)


def groups(size: Size) -> dict[str, list[ModelSpec]]:
    """The models to train at a size."""
    settings = interp.TrainSettings(**TASK.recipe())
    return {
        DECAY: seeded(TASK, CONFIG, settings, SEEDS[size]),
        NO_DECAY: seeded(TASK, CONFIG, replace(settings, weight_decay=0.0), SEEDS[size]),
    }


def accuracies(evidence: Evidence, group: str) -> pd.DataFrame:
    """Accuracy on products that a model was not trained on, one row a model of a group."""
    evaluations = [interp.evaluate(model, TASK, n=N, seed=evidence.seed) for model in evidence.models(group)]
    values = [float(evaluation.accuracy.value[0]) for evaluation in evaluations]
    return pd.DataFrame({"group": group, "model": range(len(values)), "accuracy": values})


def generalisation(evidence: Evidence) -> pd.DataFrame:
    """Accuracy with weight decay."""
    return accuracies(evidence, DECAY)


def effect_of_decay(evidence: Evidence) -> pd.DataFrame:
    """Accuracy with weight decay and without."""
    return pd.concat([accuracies(evidence, group) for group in (DECAY, NO_DECAY)], ignore_index=True)


SOURCE = "Nanda et al. 2023 (arXiv:2301.05217), on another operation, modulus and model"
STUDY = Study(
    name="modmul",
    title="Modular multiplication",
    lead="A small transformer is trained on three quarters of all products modulo 31 and tested on others.",
    groups=groups,
    claims=[
        Claim(
            id="generalisation",
            source=SOURCE,
            statement="A transformer trained with weight decay generalises to products that it has not seen.",
            quantity="held-out accuracy",
            method="Held-out accuracy, with its t interval over seeds",
            rule=Above(0.8),
            preregistration=BEFORE_ANY_MODEL,
            measure=generalisation,
            judged=Mean("accuracy", unit="seeds", resolution=1 / N),
            needs=[DECAY],
        ),
        Claim(
            id="weight-decay",
            source=SOURCE,
            statement="Without weight decay it memorises the training products only.",
            quantity="held-out accuracy with weight decay minus without",
            method="Difference of mean accuracies, with Welch's t interval over seeds",
            rule=Above(0.5),
            preregistration=BEFORE_ANY_MODEL,
            measure=effect_of_decay,
            judged=ArmDifference("accuracy", arm="group", arms=(DECAY, NO_DECAY), unit="seeds", resolution=1 / N),
            needs=[DECAY, NO_DECAY],
        ),
    ],
)
