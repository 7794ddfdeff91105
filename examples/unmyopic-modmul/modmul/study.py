"""Two claims on modular multiplication: held-out products are learned, and weight decay makes a model learn them."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

import interp
from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.evidence import Evidence, Size
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.recipes.intervals import difference_interval, t_interval
from case_studies.study import Study
from interp.sweeps.spec import ModelSpec, seeded
from modmul.task import ModularMultiplication

N = 2000
"""Products in an evaluation."""
SEEDS: dict[Size, int] = {"quick": 4, "standard": 10, "paper": 30}
TASK = ModularMultiplication()
CONFIG = interp.config_for(TASK)


def groups(size: Size) -> dict[str, list[ModelSpec]]:
    """The models to train at a size."""
    settings = interp.TrainSettings(**TASK.recipe())
    return {
        "decay": seeded(TASK, CONFIG, settings, SEEDS[size]),
        "no decay": seeded(TASK, CONFIG, replace(settings, weight_decay=0.0), SEEDS[size]),
    }


def accuracies(evidence: Evidence, group: str) -> Float[np.ndarray, " seed"]:
    """Accuracy of each model of a group on products that it was not trained on."""
    evaluations = [interp.evaluate(model, TASK, n=N, seed=evidence.seed) for model in evidence.models(group)]
    return np.array([evaluation.accuracy.value[0] for evaluation in evaluations])


def generalisation(evidence: Evidence) -> Measurement:
    """Mean accuracy with weight decay."""
    values = accuracies(evidence, "decay")
    interval = t_interval(values, resolution=1 / N)
    return Measurement.from_interval(interval, unit="seeds", numbers={"per_seed": values})


def effect_of_decay(evidence: Evidence) -> Measurement:
    """Mean accuracy with weight decay minus mean accuracy without."""
    with_decay, without = accuracies(evidence, "decay"), accuracies(evidence, "no decay")
    interval = difference_interval(with_decay, without, resolution=1 / N)
    numbers = {"with": with_decay, "without": without}
    return Measurement.from_interval(interval, unit="seeds", numbers=numbers)


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
            needs=["decay"],
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
            needs=["decay", "no decay"],
        ),
    ],
)
