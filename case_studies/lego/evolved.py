"""Claims about the heads of models that extrapolate: do all of them have association and manipulation heads?"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AtLeast, Conditional, Equal, Number, Value
from case_studies.lego.curves import depth_curves, untrained
from case_studies.lego.one_length import HALF_WAY, TOO_SHORT
from case_studies.recipes.intervals import proportion
from interp.heads.classify import classify_heads
from interp.sweeps.spec import ModelSpec

KINDS = ("association", "manipulation")
GROUPS = ("long-untied", "long-tied", "long-stochastic")
"""Arms of diverse lengths, which extrapolate."""
CONTROL = "plain-untied"
"""An arm that does not extrapolate: untied, one length."""
TIMES = 2
"""Greatest test depth of tied models, in multiples of the trained depth."""
SENTENCES = {"quick": 64, "standard": 256, "paper": 256}
"""Number of sentences for labelling heads."""
FEWEST = 8
"""Smallest number of extrapolating models that is judged."""
EXTRAPOLATING = "models that extrapolate"


def reach(evidence: Evidence, group: str) -> list[float]:
    """Accuracy of the first untrained variable of every model of a group, at its best depth.

    A tied model is run at its trained depth up to `TIMES` that, an untied one at its trained depth.
    """
    reached = []
    for curve in depth_curves(evidence, group):
        least, most = curve.trained_depth, TIMES * curve.trained_depth
        depths = [depth for depth in curve.depths if least <= depth <= most]
        reached.append(max(float(untrained(curve, depth)[0]) for depth in depths))
    return reached


def heads_of_kinds(evidence: Evidence, spec: ModelSpec) -> dict[str, int]:
    """Number of a model's heads, over all applied layers, that are labelled as each of `KINDS`."""
    model = evidence.run(spec).model
    patterns = classify_heads(model, spec.task, n=SENTENCES[evidence.size], seed=evidence.seed)
    labels = [label for row in patterns.label for label in row]
    return {kind: labels.count(kind) for kind in KINDS}


def measure_evolved(evidence: Evidence, *, groups: tuple[str, ...], control: str) -> Measurement:
    """Share of the extrapolating models that have heads of both kinds."""
    rows: list[list] = [["group", "seed", "first untrained variable", *(f"{kind} heads" for kind in KINDS)]]
    # Of every model: whether it extrapolates, and whether it has heads of both kinds
    extrapolating: dict[str, list[bool]] = {}
    resting: dict[str, list[bool]] = {}
    for group in (*groups, control):
        extrapolating[group], resting[group] = [], []
        for spec, accuracy in zip(evidence.specs(group), reach(evidence, group), strict=True):
            heads = heads_of_kinds(evidence, spec)
            has_both = all(heads.values())
            (extrapolating if accuracy >= HALF_WAY else resting)[group].append(has_both)
            rows.append([group, spec.seed, f"{accuracy:.3f}", *heads.values()])
    all_extrapolating = np.concatenate([np.array(extrapolating[group], dtype=bool) for group in groups])
    interval = proportion(int(all_extrapolating.sum()), len(all_extrapolating))
    return Measurement.from_interval(
        interval,
        unit="models that extrapolate",
        numbers={
            EXTRAPOLATING: len(all_extrapolating),
            "with both kinds, of those that extrapolate": _counts(extrapolating),
            "with both kinds, of those that do not": _counts(resting),
        },
        tables=[("Heads of every model", rows)],
        note=f"A model extrapolates if its accuracy on the first untrained variable is at least {HALF_WAY}; tied "
        f"models may be run at up to {TIMES} times their trained depth. Heads are counted in every applied layer. "
        "Except at size paper, two heads of every layer mimicked these patterns before training, in all arms: these "
        "heads are kept, not evolved. Exact interval over models.",
    )


def _counts(has_both: Mapping[str, list[bool]]) -> dict[str, str]:
    """For each group, how many of its models have both kinds, of how many."""
    return {group: f"{sum(values)} of {len(values)}" for group, values in has_both.items() if values}


CLAIMS = (
    Claim(
        id="heads.extrapolating",
        method="Share of the extrapolating models with at least one association and one manipulation head, exact "
        "interval over models; the paper says all",
        rule=Conditional(Number(EXTRAPOLATING, AtLeast(FEWEST)), Value(Equal(1.0))),
        preregistration=Preregistration(
            "after first models",
            "the association score of the best head of eleven tied models, 0.54 to 0.83, next to how far they "
            "extrapolate; no labels of heads.",
        ),
        quantity="share of models",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=TOO_SHORT,
        measure=partial(measure_evolved, groups=GROUPS, control=CONTROL),
        needs=(*GROUPS, CONTROL),
    ),
)
