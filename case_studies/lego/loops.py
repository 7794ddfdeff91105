"""Claims about which property of tied models goes with extrapolating further: association heads, interchanges."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.lego.curves import RESOLVED, depth_curves, worst_untrained
from case_studies.lego.generalisation import TOO_SHORT, plain_depth
from case_studies.lego.models import EXCLUDED_LATER, MORE_SEEDS, later
from case_studies.lego.percolation import layers_in_words
from case_studies.recipes.algorithms import implements_test, weakest_variable
from case_studies.recipes.audits import EXCLUDED
from case_studies.recipes.intervals import correlation
from case_studies.recipes.learned import excluded_models, has_learned
from interp.algorithms import chain_loop, nearest_clause, sign_count
from interp.heads.classify import classify_heads
from interp.sweeps.spec import ModelSpec
from interp.view.points import scatter

TIED = ("plain-tied", "long-tied", "long-stochastic")
ARMS = {"algorithm": ("plain-tied", "long-tied")}
"""Arms of a property, if fewer than all."""
FIXED = {
    "algorithm": Preregistration(
        "after first models", "how far these models extrapolate; one of them had been tested for an algorithm."
    )
}
TIMES = 2
"""Test depth, in multiples of the plain depth."""
SENTENCES = {"quick": 64, "standard": 128, "paper": 256}
FAR = "accuracy on the worst untrained variable"


def association(evidence: Evidence, spec: ModelSpec, depth: int) -> float:
    """Highest association score of any head, mean over layers."""
    model = evidence.run(spec).model
    patterns = classify_heads(model, spec.task, n=SENTENCES[evidence.size], seed=evidence.seed)
    return float(patterns.score.value[:, :, patterns.kinds.index("association")].mean(0).max())


def looping(evidence: Evidence, spec: ModelSpec, depth: int) -> float:
    """Interchange intervention accuracy of the loop's weakest value, on trained variables at the trained depth."""
    _, share = weakest_variable(implements_test(evidence, spec, chain_loop, sign_count, nearest_clause))
    return float(share)


PROPERTIES: dict[str, tuple[Callable[[Evidence, ModelSpec, int], float], str, str]] = {
    "heads": (association, "association of the best head", "a head attends to equal tokens"),
    "algorithm": (
        looping,
        "interchange accuracy of the loop's weakest value",
        "each value can be interchanged as in a loop",
    ),
}
"""Measure of each property, its name, and what the claim says of it."""


def measure_why(evidence: Evidence, *, name: str) -> Measurement:
    """Rank correlation over tied models, within arms, of extrapolation with a property."""
    measure, words, _ = PROPERTIES[name]
    rows: list[list] = [["arm", "seed", "worst untrained variable", words, "layers from which variables are resolved"]]
    far, has, arms = [], [], []
    groups = ARMS.get(name, TIED)
    # Property and extrapolation of every model that has learned its task
    for group in groups:
        depth = TIMES * plain_depth(evidence, group)
        for spec, curve in zip(evidence.specs(group), depth_curves(evidence, group), strict=True):
            if not has_learned(evidence, spec):
                continue
            far.append(worst_untrained(curve, depth))
            has.append(measure(evidence, spec, depth))
            arms.append(group)
            resolved = layers_in_words(curve.depth_reaching(RESOLVED))
            rows.append([group, spec.seed, f"{far[-1]:.3f}", f"{has[-1]:.3f}", resolved])
    # Arms differ in both, so that only differences within an arm count
    table = pd.DataFrame({words: has, FAR: far, "arm": arms})
    centred = table[[words, FAR]] - table.groupby("arm")[[words, FAR]].transform("mean")
    interval = correlation(np.asarray(centred[words]), np.asarray(centred[FAR]), seed=evidence.seed)
    return Measurement.from_interval(
        interval,
        unit="models",
        tables=[("Every tied model that has learned its task", rows), *excluded_models(evidence, groups)],
        charts=[
            scatter(
                table,
                x=words,
                y=FAR,
                series="arm",
                title=f"tied models at {TIMES} times the plain depth, n = {len(far)}",
            )
        ],
        note=f"Spearman's rank correlation after subtracting each arm's mean; bootstrap over models. {EXCLUDED}",
    )


def _claim(name: str) -> Claim:
    _, words, meaning = PROPERTIES[name]
    return Claim(
        id=f"loop.{name}",
        source="ours: properties of models that extrapolate further",
        sizes=LARGE_SIZES,
        sizes_reason=TOO_SHORT,
        statement=f"Tied models extrapolate further the more {meaning}.",
        method=f"Rank correlation over tied models, within arms, of {words} with accuracy on the worst untrained "
        f"variable at {TIMES} times the plain depth, bootstrap over models",
        rule=Above(0),
        preregistration=FIXED.get(name, later(EXCLUDED_LATER, MORE_SEEDS)),
        quantity="rank correlation",
        value_range=DIFFERENCE,
        measure=partial(measure_why, name=name),
        needs=ARMS.get(name, TIED),
    )


CLAIMS = tuple(map(_claim, PROPERTIES))
