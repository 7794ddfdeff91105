"""Claims about the heads of models that extrapolate: do all of them have association and manipulation heads?"""

from functools import partial

import pandas as pd

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast, Conditional, Equal, Number, Value
from case_studies.lego.curves import depth_curves, untrained
from case_studies.lego.one_length import HALF_WAY, TOO_SHORT
from case_studies.recipes.judges import Share
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
EXTRAPOLATING, BOTH = "models that extrapolate", "has both kinds"


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


def measure_evolved(evidence: Evidence, *, groups: tuple[str, ...], control: str) -> Readings:
    """Whether a model extrapolates, and whether it has heads of both kinds; one row a model."""
    rows = []
    for group in (*groups, control):
        for spec, accuracy in zip(evidence.specs(group), reach(evidence, group), strict=True):
            heads = heads_of_kinds(evidence, spec)
            row = {"group": group, "seed": spec.seed, "first untrained variable": accuracy}
            row |= {f"{kind} heads": count for kind, count in heads.items()} | {BOTH: all(heads.values())}
            rows.append(row | {"extrapolates": accuracy >= HALF_WAY, "control": group == control})
    frame = pd.DataFrame(rows)
    return Readings(
        frame=frame,
        title="Heads of every model",
        numbers={
            EXTRAPOLATING: sum(row["extrapolates"] and not row["control"] for row in rows),
            "with both kinds, of those that extrapolate": _counts(frame, extrapolates=True),
            "with both kinds, of those that do not": _counts(frame, extrapolates=False),
        },
        note=f"A model extrapolates if its accuracy on the first untrained variable is at least {HALF_WAY}; tied "
        f"models may be run at up to {TIMES} times their trained depth. Heads are counted in every applied layer. "
        "Except at size paper, two heads of every layer mimicked these patterns before training, in all arms: these "
        "heads are kept, not evolved. Exact interval over models.",
    )


def _counts(frame: pd.DataFrame, *, extrapolates: bool) -> dict[str, str]:
    """For each group, how many of its models that extrapolate, or do not, have both kinds, of how many."""
    groups = frame.loc[frame["extrapolates"].to_numpy() == extrapolates].groupby("group", sort=False)[BOTH]
    return {str(group): f"{has_both.sum()} of {len(has_both)}" for group, has_both in groups}


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
        judged=Share(
            BOTH,
            unit=EXTRAPOLATING,
            where={"extrapolates": True, "control": False},
            without_rows=(0.0, 0.0, 1.0),
        ),
        needs=(*GROUPS, CONTROL),
    ),
)
