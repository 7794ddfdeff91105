"""Claims about pruning random networks to whole transformers: Theorem 3 and Corollary 3 (Section 3.2)."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy import stats

from case_studies.dyck.measures import task_of
from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AllOf, AtLeast, AtMost, Below, Equal, Number, Value
from case_studies.recipes.judges import Row
from interp.core.randomness import derived_seed
from interp.theory.pruning import (
    indistinguishable,
    prune_to_transformer,
    pruning_curve,
)
from interp.view.pruning import error_quartiles

STEEP = -0.5
"""Slope of log2 of the error per candidate that counts as a fall: each reduces the error by a quarter or more."""
WITHIN, ORDER = 0.01, 1.0
"""Largest error of a logit, and share of positions with all classes in order, that count as an approximation."""
OWN, APART = 0.02, 0.2
"""Largest error against a network's own target, and least distance of two networks, of an indistinguishable pair."""
PER_WEIGHT = 28
"""Candidates for each weight of a transformer of one layer."""
WIDTHS = {"quick": (20, 28), "standard": (20, 24, 28, 32), "paper": (20, 24, 28, 32, 36)}
"""Candidates for each weight of one of two layers: the width of the random network grows with them."""
NETWORKS = {"quick": 1, "standard": 1, "paper": 5}
"""Random networks for each target and width."""
SHARED_WIDTHS = (28, 32)
"""Candidates for each weight of two transformers of two layers that share a matrix; the last is judged."""
CANDIDATES, ERROR, APART_BY = "candidates per weight", "largest error of a logit", "least distance of the two"
SLOPE = "log2 of the error per candidate"
WIDEST_ERROR, WIDEST_ORDER = "largest error at the largest width", "least share in order at the largest width"
N_SEQUENCES = {"quick": 256, "standard": 1024, "paper": 1024}


def measure_transformer(evidence: Evidence, *, group: str) -> Readings:
    """Largest error of any logit of the group's models, each pruned from its own random network; one row a model."""
    task = task_of(evidence, group)
    n = N_SEQUENCES[evidence.size]
    # Every target has its own random network
    prunings = []
    for index, model in enumerate(evidence.models(group)):
        seed = derived_seed(evidence.seed, group, index)
        prunings.append(prune_to_transformer(model, task, candidates=PER_WEIGHT, rescale=True, n=n, seed=seed))
    worst = max(prunings, key=lambda result: result.error)
    frame = pd.DataFrame(
        {
            "seed": spec.seed,
            "norm of the target": result.scale,
            "share of weights kept": result.fraction_kept,
            "error sampled": result.sampled_error,
            ERROR: result.error,
            "order kept": result.order_kept,
            "n": result.n,
        }
        for spec, result in zip(evidence.specs(group), prunings, strict=True)
    )
    # How the error grows from layer to layer, and the theorem's bound on it
    growth = pd.DataFrame(
        {"pruned to": worst.layers, "largest error found": worst.growth, "upper bound": worst.bound}
    ).rename_axis("random layer")
    # Common practice for comparison: pruning the trained target itself
    curve = pruning_curve(evidence.models(group)[0], task, n=n, seed=evidence.seed)
    return Readings(
        frame=frame.assign(inputs=frame["n"].sum()),
        title="Each target, pruned from its own random network",
        numbers={
            "least share of positions in order": min(result.order_kept or 0.0 for result in prunings),
            "bound after the last layer": float(worst.bound[-1]),
            CANDIDATES: worst.candidates,
        },
        tables=[("Error of the residual stream after each random layer, worst target", growth.reset_index())],
        charts=[worst.plot(), curve.plot()],
        note="The largest error found is not a mean, so it has no interval; it is a lower bound of the largest error. "
        "The targets' matrices have norms above 1, and the random weights are scaled accordingly. The pruning curves "
        "show common practice: the trained target is pruned without retraining.",
    )


def measure_width(evidence: Evidence, *, group: str) -> Readings:
    """Slope of log2 of the largest error of a logit over candidates per weight, the random network's width; one row."""
    task = task_of(evidence, group)
    n = N_SEQUENCES[evidence.size]
    points = []
    for candidates in WIDTHS[evidence.size]:
        for index, model in enumerate(evidence.models(group)):
            for draw in range(NETWORKS[evidence.size]):
                seed = derived_seed(evidence.seed, group, candidates, index, draw)
                result = prune_to_transformer(model, task, candidates=candidates, rescale=True, n=n, seed=seed)
                points.append((float(candidates), result.error, result.order_kept or 0.0))
    networks = pd.DataFrame(points, columns=[CANDIDATES, ERROR, "order kept"])
    x, errors = networks[CANDIDATES].to_numpy(), networks[ERROR].to_numpy()
    fit = cast(Any, stats.linregress(x, np.log2(errors)))
    half = float(stats.t.ppf(0.975, len(x) - 2) * fit.stderr)
    slope = {SLOPE: fit.slope, "low": fit.slope - half, "high": fit.slope + half, "networks": len(x)}
    # Errors by width; at the largest one they are compared with the bars
    by_width = networks.groupby(CANDIDATES, as_index=False).agg(
        **{
            "networks": (ERROR, "size"),
            "median error": (ERROR, "median"),
            "largest error": (ERROR, "max"),
            "least order kept": ("order kept", "min"),
        }
    )
    widest = networks.loc[x == x.max()]
    return Readings(
        frame=pd.DataFrame([slope]),
        numbers={
            WIDEST_ERROR: widest[ERROR].max(),
            WIDEST_ORDER: widest["order kept"].min(),
            CANDIDATES: WIDTHS[evidence.size],
        },
        tables=[("Error and order of all classes by width of the random network", by_width)],
        charts=[
            error_quartiles(
                networks.assign(map="two layers"),
                x=CANDIDATES,
                y=ERROR,
                series="map",
                title=f"median and quartiles of {len(widest)} random networks at each width",
            )
        ],
        note="The theorem promises any error at some width of the random network, not an error at a given one. Errors "
        "are the largest found: lower bounds. The interval is that of the slope, over random networks.",
    )


def measure_shared(evidence: Evidence, *, group: str, widths: tuple[int, ...] = ()) -> Readings:
    """Distance of two networks that share a matrix, one row a choice of the matrix.

    Args:
        evidence: Two targets are used.
        group: Their group.
        widths: Candidates for each weight, default: `PER_WEIGHT`. The last is judged, the others are shown.
    """
    task = task_of(evidence, group)
    n = N_SEQUENCES[evidence.size]
    # Two targets are pruned from one random network, with each of its matrices shared in turn
    a, b = evidence.models(group)[:2]
    comparisons = {
        candidates: indistinguishable(
            a, b, task, shared="every", candidates=candidates, rescale=True, n=n, seed=evidence.seed
        )
        for candidates in widths or (PER_WEIGHT,)
    }
    comparison = list(comparisons.values())[-1]
    by_width = pd.DataFrame(
        {
            CANDIDATES: candidates,
            "largest error against the own target": result.error.max(),
            "least distance": result.distance.min(),
        }
        for candidates, result in comparisons.items()
    )
    frame = pd.DataFrame(
        {
            "matrix": comparison.shared,
            APART_BY: comparison.distance,
            "differs by": comparison.difference,
            "masks differ": comparison.masks_differ,
            **dict(zip(("error a", "error b"), comparison.error.T, strict=True)),
            **dict(zip(("norm a", "norm b"), comparison.norm.T, strict=True)),
            "pattern distance": comparison.pattern_distance,
            "matrices": len(comparison.shared),
        }
    )
    same = min(len(names) for names in comparison.same_matrices)
    return Readings(
        frame=frame,
        title="Every choice of the shared matrix",
        numbers={
            "largest difference of a shared matrix": float(comparison.difference.max()),
            "entries kept in one mask only": int(comparison.masks_differ.sum()),
            "largest error against the own target": float(comparison.error.max()),
            CANDIDATES: list(comparisons)[-1],
            "sequences": n,
            "positions whose likeliest class differs": float(comparison.disagree.min()),
            "fewest matrices the same in both": f"{same} of {comparison.n_matrices}",
        },
        tables=[("By width of the random network", by_width)],
        charts=[comparison.plot()],
        note="The least distance over all choices is not a mean, so it has no interval. Most matrices are the same in "
        "both networks, whichever is shared: masks that only copy inputs do not depend on the target.",
    )


AT_28 = "at 28 candidates per weight, the only width by the earlier rule, "


def _shared_claim(name: str, measure: Callable[[Evidence], Readings], fixed: Preregistration) -> Claim:
    return Claim(
        id=f"pruning.shared.{name}",
        method="Distance of the two networks with the matrix that they share chosen to be every matrix of every "
        "random layer in turn, the least of all",
        rule=AllOf(
            Value(AtLeast(APART)),
            Number("largest difference of a shared matrix", Equal(0)),
            Number("entries kept in one mask only", Equal(0)),
            Number("largest error against the own target", AtMost(OWN)),
        ),
        preregistration=fixed,
        by_construction=True,
        quantity=APART_BY,
        measure=measure,
        judged=Row(APART_BY, extreme="smallest", unit="choices of matrix", units="matrices", exact=True),
        needs=(f"narrow-{name}",),
    )


CLAIMS = (
    Claim(
        id="pruning.transformer.one",
        method="Largest error of a logit of two targets of width 8, over sequences half of which are random "
        "tokens, then optimised to increase it; order of all classes at the positions of the sequences sampled",
        rule=AllOf(Value(AtMost(WITHIN)), Number("least share of positions in order", AtLeast(ORDER))),
        preregistration=BEFORE_ANY_MODEL,
        quantity=ERROR,
        measure=partial(measure_transformer, group="narrow-one"),
        judged=Row(ERROR, unit="inputs", units="inputs", exact=True),
        needs=("narrow-one",),
    ),
    Claim(
        id="pruning.transformer.two",
        method="Slope per candidate for each weight of log2 of the largest error of a logit of two targets of width 8, "
        f"at {len(WIDTHS['standard'])} numbers of candidates from {WIDTHS['standard'][0]} to "
        f"{WIDTHS['standard'][-1]}, with its 95 % t interval over random networks; and error and order of all classes "
        "at the largest number",
        rule=AllOf(Below(STEEP), Number(WIDEST_ERROR, AtMost(WITHIN)), Number(WIDEST_ORDER, AtLeast(ORDER))),
        preregistration=Preregistration(
            "after a result", f"{AT_28}an error of 0.0006 and 0.999966 of the positions in order, the bar being 1."
        ),
        quantity=SLOPE,
        measure=partial(measure_width, group="narrow-two"),
        judged=Row(SLOPE, unit="random networks", units="networks"),
        needs=("narrow-two",),
    ),
    _shared_claim("one", partial(measure_shared, group="narrow-one"), BEFORE_ANY_MODEL),
    _shared_claim(
        "two",
        partial(measure_shared, group="narrow-two", widths=SHARED_WIDTHS),
        Preregistration(
            "after a result", f"{AT_28}a largest error against the own target of 0.033, the bar being 0.02."
        ),
    ),
)
