"""Claims about initialisation on chains of lengths that were not trained (dashed curves of Figure 6)."""

from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence, once_per_model
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.lego.curves import SENTENCES
from case_studies.lego.starts import NO_TIME, SMALL, TEXT_PLATEAU
from case_studies.recipes.intervals import t_interval
from interp.core.randomness import derived_generator
from interp.evaluation.extrapolate import accuracy_by_depth
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego

FIGURE = (
    "ours, after LEGO, Figure 6 (dashed curves: longer chains); here shorter ones, as models have no more positions"
)
TRAINED_LENGTH = Preregistration(
    "after first models",
    "these models on chains of the trained length (start.mimic 0.34, start.copy 0.01, start.pretrained 0.004, three "
    "seeds each); no accuracy at another length.",
)


@once_per_model
def by_length(evidence: Evidence, spec: ModelSpec) -> dict[int, Float[np.ndarray, " target"]]:
    """Accuracy of every variable but the root on held-out chains of each shorter length, from 2 on."""
    model = evidence.run(spec).model
    n = SENTENCES[evidence.size]
    lego = cast(Lego, spec.task)
    accuracies = {}
    for length in range(2, len(lego.targets)):
        task = replace(lego, n_vars=length, supervised=None)
        batch = task.sample(n, generator=derived_generator(evidence.seed, "shorter chains", length), split="test")
        curve = accuracy_by_depth(model, task, batch, [model.cfg.n_layers], split="test")
        accuracies[length] = curve.accuracy.value[0, 1:]
    return accuracies


def measure_lengths(evidence: Evidence, *, start: str, reference: str) -> Measurement:
    """Mean accuracy over lengths that were not trained, of one start minus another, paired by seed."""
    means: dict[str, Float[np.ndarray, " seed"]] = {}
    rows: list[list] = [["start", "seed", "variables in the chain", "accuracy of #1, #2, ..."]]
    for group in (start, reference):
        values = []
        for spec in evidence.specs(group):
            accuracies = by_length(evidence, spec)
            # Every length counts the same, however many variables it has
            values.append(np.mean([accuracy.mean() for accuracy in accuracies.values()]))
            for length, accuracy in accuracies.items():
                rows.append([group, spec.seed, length, ", ".join(f"{value:.3f}" for value in accuracy)])
        means[group] = np.array(values)
    interval = t_interval(means[start] - means[reference], resolution=1 / SENTENCES[evidence.size])
    return Measurement.from_interval(
        interval,
        unit="seeds",
        numbers={f"mean accuracy, {group}": float(value.mean()) for group, value in means.items()},
        tables=[("Accuracy on chains of lengths that were not trained", rows)],
        note="Paired by seed, t interval. Every length counts the same, the root is not counted; chance is 0.5.",
    )


def _lengths(name: str, group: str, start: str, source: str = FIGURE, **options: Any) -> Claim:
    return Claim(
        id=f"start.lengths-{name}",
        source=source,
        statement=f"{start} predicts variables of chains of untrained lengths better than from a random start.",
        method="Mean accuracy over all variables but the root on chains shorter than those trained, mean over lengths, "
        "this start minus the random one, paired by seed, t interval",
        rule=Above(0),
        preregistration=TRAINED_LENGTH,
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        measure=partial(measure_lengths, start=group, reference="start-random"),
        needs=(group, "start-random"),
        **options,
    )


CLAIMS = (
    _lengths("mimic", "start-mimic", "A model whose heads first mimic hard-coded attention"),
    _lengths(
        "copy",
        "start-query-key",
        "A model that starts with W_K = W_Q, a bias to equal tokens,",
        sizes=LARGE_SIZES,
        sizes_reason="Two seeds, the number that fits this size, are too few.",
    ),
    _lengths(
        "pretrained",
        "start-pretrained",
        "A model that was pretrained on text",
        FIGURE + SMALL,
        sizes=LARGE_SIZES,
        sizes_reason=NO_TIME,
        remedy=TEXT_PLATEAU,
    ),
)
