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
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AllOf, AtLeast, AtMost, Below, Equal, Number, Value
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
WIDEST_ERROR, WIDEST_ORDER = "largest error at the largest width", "least share in order at the largest width"
N_SEQUENCES = {"quick": 256, "standard": 1024, "paper": 1024}


def measure_transformer(evidence: Evidence, *, group: str) -> Measurement:
    """Largest error of any logit over the group's models, each pruned from its own random network."""
    task = task_of(evidence, group)
    n = N_SEQUENCES[evidence.size]
    # Every target has its own random network
    prunings = []
    for index, model in enumerate(evidence.models(group)):
        seed = derived_seed(evidence.seed, group, index)
        prunings.append(prune_to_transformer(model, task, candidates=PER_WEIGHT, rescale=True, n=n, seed=seed))
    worst = max(prunings, key=lambda result: result.error)
    rows: list[list] = [
        ["seed", "norm of the target", "weights kept", "error sampled", "error found", "order kept", "n"]
    ]
    for spec, result in zip(evidence.specs(group), prunings, strict=True):
        errors = [f"{result.sampled_error:.1e}", f"{result.error:.1e}"]
        rows.append(
            [spec.seed, result.scale, f"{result.fraction_kept:.2%}", *errors, f"{result.order_kept:.4%}", result.n]
        )
    # How the error grows from layer to layer, and the theorem's bound on it
    growth: list[list] = [["random layer", "pruned to", "largest error found", "upper bound"]]
    for index, (name, error, bound) in enumerate(zip(worst.layers, worst.growth, worst.bound, strict=True)):
        growth.append([index, name, f"{error:.1e}", f"{bound:.1e}"])
    # Common practice for comparison: pruning the trained target itself
    curve = pruning_curve(evidence.models(group)[0], task, n=n, seed=evidence.seed)
    return Measurement(
        value=worst.error,
        low=worst.error,
        high=worst.error,
        exact=True,
        n=sum(result.n for result in prunings),
        unit="inputs",
        numbers={
            "least share of positions in order": min(result.order_kept or 0.0 for result in prunings),
            "bound after the last layer": float(worst.bound[-1]),
            "candidates per weight": worst.candidates,
        },
        tables=[
            ("Each target, pruned from its own random network", rows),
            ("Error of the residual stream after each random layer, worst target", growth),
        ],
        charts=[worst.plot(), curve.plot()],
        note="The largest error found is not a mean, so it has no interval; it is a lower bound of the largest error. "
        "The targets' matrices have norms above 1, and the random weights are scaled accordingly. The pruning curves "
        "show common practice: the trained target is pruned without retraining.",
    )


def measure_width(evidence: Evidence, *, group: str) -> Measurement:
    """Slope of log2 of the largest error of a logit over candidates per weight, the width of the random network."""
    task = task_of(evidence, group)
    n = N_SEQUENCES[evidence.size]
    points = []
    for candidates in WIDTHS[evidence.size]:
        for index, model in enumerate(evidence.models(group)):
            for draw in range(NETWORKS[evidence.size]):
                seed = derived_seed(evidence.seed, group, candidates, index, draw)
                result = prune_to_transformer(model, task, candidates=candidates, rescale=True, n=n, seed=seed)
                points.append((candidates, result.error, result.order_kept or 0.0))
    x, errors, order = np.array(points).T
    fit = cast(Any, stats.linregress(x, np.log2(errors)))
    half = float(stats.t.ppf(0.975, len(x) - 2) * fit.stderr)
    # Errors by width; at the largest one they are compared with the bars
    rows: list[list] = [["candidates per weight", "networks", "median error", "largest error", "least order kept"]]
    for candidates in WIDTHS[evidence.size]:
        of_width = x == candidates
        sizes = [f"{np.median(errors[of_width]):.1e}", f"{errors[of_width].max():.1e}"]
        rows.append([candidates, int(of_width.sum()), *sizes, f"{order[of_width].min():.4%}"])
    widest = x == x.max()
    table = pd.DataFrame({"candidates per weight": x, "largest error of a logit": errors, "map": "two layers"})
    return Measurement(
        value=fit.slope,
        low=fit.slope - half,
        high=fit.slope + half,
        n=len(x),
        unit="random networks",
        numbers={
            WIDEST_ERROR: errors[widest].max(),
            WIDEST_ORDER: order[widest].min(),
            "candidates per weight": WIDTHS[evidence.size],
        },
        tables=[("Error and order of all classes by width of the random network", rows)],
        charts=[
            error_quartiles(
                table,
                x="candidates per weight",
                y="largest error of a logit",
                series="map",
                title=f"median and quartiles of {int(widest.sum())} random networks at each width",
            )
        ],
        note="The theorem promises any error at some width of the random network, not an error at a given one. Errors "
        "are the largest found: lower bounds. The interval is that of the slope, over random networks.",
    )


def measure_shared(evidence: Evidence, *, group: str, widths: tuple[int, ...] = ()) -> Measurement:
    """Least distance of two networks that share a matrix, over every choice of the matrix.

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
    by_width: list[list] = [["candidates per weight", "largest error against the own target", "least distance"]]
    by_width += [
        [candidates, f"{float(result.error.max()):.1e}", f"{float(result.distance.min()):.3g}"]
        for candidates, result in comparisons.items()
    ]
    nearest = float(comparison.distance.min())
    rows: list[list] = [
        [
            "matrix",
            "differs by",
            "masks differ",
            "error a",
            "error b",
            "a from b",
            "norm a",
            "norm b",
            "pattern distance",
        ]
    ]
    for index, name in enumerate(comparison.shared):
        patterns = comparison.pattern_distance[index]
        rows.append(
            [
                name,
                float(comparison.difference[index]),
                int(comparison.masks_differ[index]),
                *(f"{error:.1e}" for error in comparison.error[index]),
                float(comparison.distance[index]),
                *(float(norm) for norm in comparison.norm[index]),
                "" if np.isnan(patterns) else f"{patterns:.2f}",
            ]
        )
    same = min(len(names) for names in comparison.same_matrices)
    return Measurement(
        value=nearest,
        low=nearest,
        high=nearest,
        exact=True,
        n=len(comparison.shared),
        unit="choices of matrix",
        numbers={
            "largest difference of a shared matrix": float(comparison.difference.max()),
            "entries kept in one mask only": int(comparison.masks_differ.sum()),
            "largest error against the own target": float(comparison.error.max()),
            "candidates per weight": list(comparisons)[-1],
            "sequences": n,
            "positions whose likeliest class differs": float(comparison.disagree.min()),
            "fewest matrices the same in both": f"{same} of {comparison.n_matrices}",
        },
        tables=[("Every choice of the shared matrix", rows), ("By width of the random network", by_width)],
        charts=[comparison.plot()],
        note="The least distance over all choices is not a mean, so it has no interval. Most matrices are the same in "
        "both networks, whichever is shared: masks that only copy inputs do not depend on the target.",
    )


AT_28 = "at 28 candidates per weight, the only width by the earlier rule, "


def _shared_claim(name: str, measure: Callable[[Evidence], Measurement], fixed: Preregistration) -> Claim:
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
        quantity="least distance of the two",
        measure=measure,
        needs=(f"narrow-{name}",),
    )


CLAIMS = (
    Claim(
        id="pruning.transformer.one",
        method="Largest error of a logit of two targets of width 8, over sequences half of which are random "
        "tokens, then optimised to increase it; order of all classes at the positions of the sequences sampled",
        rule=AllOf(Value(AtMost(WITHIN)), Number("least share of positions in order", AtLeast(ORDER))),
        preregistration=BEFORE_ANY_MODEL,
        quantity="largest error of a logit",
        measure=partial(measure_transformer, group="narrow-one"),
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
        quantity="log2 of the error per candidate",
        measure=partial(measure_width, group="narrow-two"),
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
