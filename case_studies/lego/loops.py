"""Claims about which property of tied models goes with extrapolating further: association heads, interchanges."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.lego.curves import RESOLVED, depth_curves, worst_untrained
from case_studies.lego.generalisation import TOO_SHORT, plain_depth
from case_studies.lego.models import EXCLUDED_LATER, MORE_SEEDS, later
from case_studies.lego.percolation import layers_in_words
from case_studies.recipes.algorithms import implements_test, weakest_variable
from case_studies.recipes.audits import EXCLUDED
from case_studies.recipes.judges import Correlation
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
WITHIN = ", minus the mean of the arm"
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


PROPERTIES: dict[str, tuple[Callable[[Evidence, ModelSpec, int], float], str]] = {
    "heads": (association, "association of the best head"),
    "algorithm": (
        looping,
        "interchange accuracy of the loop's weakest value",
    ),
}
"""Measure of each property, and its name."""


def measure_why(evidence: Evidence, *, name: str) -> Readings:
    """A property of every tied model, how far it extrapolates, and both minus the mean of its arm; one row a model."""
    measure, words = PROPERTIES[name]
    rows = []
    groups = ARMS.get(name, TIED)
    for group in groups:
        depth = TIMES * plain_depth(evidence, group)
        for spec, curve in zip(evidence.specs(group), depth_curves(evidence, group), strict=True):
            learned = has_learned(evidence, spec)
            both = (measure(evidence, spec, depth), worst_untrained(curve, depth)) if learned else (np.nan, np.nan)
            resolved = layers_in_words(curve.depth_reaching(RESOLVED))
            rows.append((group, spec.seed, learned, *both, resolved))
    columns = ["arm", "seed", "learned", words, FAR, "layers from which variables are resolved"]
    frame = pd.DataFrame(rows, columns=columns)
    table = frame.loc[frame["learned"].to_numpy()]
    # Arms differ in both, so that only differences within an arm count
    centred = table[[words, FAR]] - table.groupby("arm")[[words, FAR]].transform("mean")
    return Readings(
        frame=frame.join(centred.add_suffix(WITHIN)),
        title="Every tied model",
        tables=excluded_models(evidence, groups),
        charts=[
            scatter(
                table.filter([words, FAR, "arm"]),
                x=words,
                y=FAR,
                series="arm",
                title=f"tied models at {TIMES} times the plain depth, n = {len(table)}",
            )
        ],
        note=f"Spearman's rank correlation after subtracting each arm's mean; bootstrap over models. {EXCLUDED}",
    )


def _claim(name: str) -> Claim:
    _, words = PROPERTIES[name]
    return Claim(
        id=f"loop.{name}",
        sizes=LARGE_SIZES,
        sizes_reason=TOO_SHORT,
        method=f"Rank correlation over tied models, within arms, of {words} with accuracy on the worst untrained "
        f"variable at {TIMES} times the plain depth, bootstrap over models",
        rule=Above(0),
        preregistration=FIXED.get(name, later(EXCLUDED_LATER, MORE_SEEDS)),
        quantity="rank correlation",
        value_range=DIFFERENCE,
        measure=partial(measure_why, name=name),
        judged=Correlation(
            words + WITHIN, FAR + WITHIN, unit="models", where={"learned": True}, without_rows=(0.0, -1.0, 1.0)
        ),
        needs=ARMS.get(name, TIED),
    )


CLAIMS = tuple(map(_claim, PROPERTIES))
