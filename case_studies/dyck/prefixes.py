"""Claims about attention in models trained on prefixes (Appendix D.2): variation, longer prefixes, two kinds."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from case_studies.dyck.last_layers import few, measure_last_layer, over_random, ratio_to
from case_studies.dyck.measures import KEPT, chosen, if_learned, task_of
from case_studies.dyck.pattern_tables import CAUSAL, baseline_of, maps_of_seeds, variation_table
from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AllOf, AtLeast, Below, Number
from case_studies.recipes.intervals import as_interval, interval_columns
from case_studies.recipes.judges import Row, Share
from case_studies.recipes.learned import excluded_models
from interp.comparison.distances import bootstrap_pairs, mean_over_pairs
from interp.comparison.variation import attention_variation
from interp.core.activations import patterns_on
from interp.core.intervals import Interval
from interp.core.randomness import derived_seed
from interp.view.charts import dots

GROUP = "gpt-prefixes"
MINIMAL = "minimal-prefixes-closers"
REPEATED = 3
"""Number of probe prefixes in a row that make the longer prefix: 48 brackets for two types."""
CURRENT, FIRST = "models with more on the current token", "models with more on the first token"
RESAMPLES = 2000
COMPARED, CHANGE = "compared", "longer prefix against the probe prefix"
DIFFERENCE, RATIO = "difference", "ratio of the ratios to random causal rows"
TO_STANDARD, TO_RANDOM = "variation / standard models'", "variation within a kind / random causal rows"
MORE_ON_CURRENT = "more on the current token"


@dataclass(frozen=True, kw_only=True)
class OnTwoPrefixes:
    """Distances between last layers on the probe prefix and on the longer one, with the random baseline of each."""

    short: Float[np.ndarray, "model model"]
    long: Float[np.ndarray, "model model"]
    short_baseline: float
    long_baseline: float


def measure_longer(evidence: Evidence, *, maps: bool = True) -> Readings:
    """Variation of the last layer on the longer prefix compared with that on the probe prefix, for the same models.

    One row is their difference; one is their ratio, after each is divided by that of random causal rows.

    Args:
        evidence: Models that have learned are compared.
        maps: Whether the patterns are shown.
    """
    task = task_of(evidence, GROUP)
    models_used = chosen(evidence, GROUP)
    text = task.staircase(repeat=REPEATED)
    short = attention_variation(models_used.models, task, prefixes=task.staircase(), seed=evidence.seed)
    long = attention_variation(models_used.models, task, prefixes=text, seed=evidence.seed)
    distances = OnTwoPrefixes(
        short=short.distance[-1],
        long=long.distance[-1],
        short_baseline=float(baseline_of(short)[-1]),
        long_baseline=float(baseline_of(long)[-1]),
    )
    seed = derived_seed(evidence.seed, "longer prefix")
    compared = {DIFFERENCE: difference_of(distances, seed=seed), RATIO: ratio_of(distances, seed=seed)}
    frame = pd.DataFrame(
        {COMPARED: name, **interval_columns(interval, CHANGE), "seeds": interval.n}
        for name, interval in compared.items()
    )
    on_each = {"probe": short, f"{REPEATED} probe prefixes in a row": long}
    by_prefix = pd.DataFrame(
        {
            "prefix": name,
            **interval_columns(result.variation[-1], "variation"),
            "random causal rows": float(baseline_of(result)[-1]),
            "ratio to them": float(result.variation[-1]) / float(baseline_of(result)[-1]),
        }
        for name, result in on_each.items()
    )
    return Readings(
        frame=frame,
        title="Longer prefix against the probe prefix",
        numbers={
            KEPT: models_used.learned,
            "variation on the probe prefix": float(short.variation[-1]),
            "variation on the longer prefix": float(long.variation[-1]),
            "ratio to random rows on the probe prefix": float(short.variation[-1]) / distances.short_baseline,
            "ratio to random rows on the longer prefix": float(long.variation[-1]) / distances.long_baseline,
        },
        tables=[
            ("Variation of the last layer on both prefixes", by_prefix),
            variation_table(long),
            *excluded_models(evidence, [GROUP]),
        ],
        charts=[maps_of_seeds(evidence, GROUP, few(models_used), -1, text)] if maps else [],
        note="Variation is a sum over rows, and a causal model has the same rows on the beginning of the longer "
        "prefix as on the probe prefix alone: it cannot be smaller. The ratio to random rows can be.",
    )


def difference_of(distances: OnTwoPrefixes, *, seed: int) -> Interval:
    """Variation on the longer prefix minus that on the shorter, with an interval from resampled models."""
    value, low, high = bootstrap_pairs(distances.long - distances.short, seed=seed, resamples=RESAMPLES)
    return as_interval(float(value), float(low), float(high), len(distances.long))


def ratio_of(distances: OnTwoPrefixes, *, seed: int) -> Interval:
    """The two variations, each divided by its baseline, as a ratio, longer over shorter; models are resampled."""
    n = len(distances.long)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(float)
    counts = counts[counts.max(1) < n]
    scale = distances.short_baseline / distances.long_baseline
    # The number of pairs of a resample is the same for both prefixes
    long, short = (((counts @ matrix) * counts).sum(1) for matrix in (distances.long, distances.short))
    value = scale * float(mean_over_pairs(distances.long) / mean_over_pairs(distances.short))
    low, high = scale * np.quantile(long / short, [0.025, 0.975])
    return as_interval(value, min(float(low), value), max(float(high), value), n)


def measure_minimal_ratio(evidence: Evidence) -> Readings:
    """Variation above a minimal first layer divided by that of the standard models' last layer, in one row."""
    standard_models, minimal_models = chosen(evidence, GROUP), chosen(evidence, MINIMAL)
    standard = attention_variation(standard_models.models, task_of(evidence, GROUP), seed=evidence.seed)
    minimal = attention_variation(minimal_models.models, task_of(evidence, MINIMAL), seed=evidence.seed)
    above, base = minimal.variation[-1], standard.variation[-1]
    ratio = {
        TO_STANDARD: float(above) / float(base),
        "low": float(above.low) / float(base.high),
        "high": float(above.high) / float(base.low),
        "seeds": min(minimal.n, standard.n),
    }
    variations = pd.DataFrame(
        {"models": name, **interval_columns(variation, "variation"), "seeds that learned": models_used.learned}
        for name, variation, models_used in (
            ("minimal first layer", above, minimal_models),
            ("standard, last layer", base, standard_models),
        )
    )
    return Readings(
        frame=pd.DataFrame([ratio]),
        numbers={
            KEPT: min(minimal_models.learned, standard_models.learned),
            "variation, minimal first layer": float(above),
            "variation, standard": float(base),
            "variation of random causal rows": float(baseline_of(minimal)[-1]),
        },
        tables=[("Variation on the probe prefix", variations), *excluded_models(evidence, [GROUP, MINIMAL])],
        charts=[maps_of_seeds(evidence, MINIMAL, few(minimal_models), 0, task_of(evidence, MINIMAL).staircase())],
    )


def attention_on_ends(
    patterns: Float[np.ndarray, "model query key"],
) -> tuple[Float[np.ndarray, " model"], Float[np.ndarray, " model"]]:
    """Mean attention on the current and on the first token, over the queries that see a third token."""
    rows = np.arange(2, patterns.shape[-1])
    return patterns[:, rows, rows].mean(1), patterns[:, rows, 0].mean(1)


def measure_kinds(evidence: Evidence) -> Readings:
    """Whether a last layer attends more to the current token than to the first, one row a model."""
    models_used = chosen(evidence, GROUP)
    current, first = attention_on_ends(_last_patterns(evidence))
    on_current, on_first = int((current > first).sum()), int((first > current).sum())
    points = [
        {"seed": str(spec.seed), "share of attention": share, "low": share, "high": share, "on": name}
        for name, shares in (("the current token", current), ("the first token", first))
        for spec, share in zip(models_used.specs, shares, strict=True)
    ]
    frame = pd.DataFrame(
        {
            "seed": [spec.seed for spec in models_used.specs],
            "on the current token": current,
            "on the first token": first,
            MORE_ON_CURRENT: current > first,
        }
    )
    keys = np.arange(2, _last_patterns(evidence).shape[-1]) + 1
    return Readings(
        frame=frame,
        title="Attention of every model",
        numbers={
            KEPT: models_used.learned,
            CURRENT: on_current,
            FIRST: on_first,
            "mean share on the current token": float(current.mean()),
            "mean share on the first token": float(first.mean()),
            "largest excess of the current token": float((current - first).max()),
            "largest excess of the first token": float((first - current).max()),
            "share on either if attention were uniform": float((1 / keys).mean()),
        },
        tables=excluded_models(evidence, [GROUP]),
        charts=[
            dots(
                pd.DataFrame(points),
                x="seed",
                y="share of attention",
                series="on",
                domain=(0.0, 1.0),
                title=f"last layer's attention on the probe prefix, n = {len(current)} seeds",
            )
        ],
    )


def measure_cause(evidence: Evidence) -> Readings:
    """Variation between models of the same kind divided by that of random causal rows, in one row."""
    models_used = chosen(evidence, GROUP)
    result = attention_variation(models_used.models, task_of(evidence, GROUP), seed=evidence.seed)
    base = float(baseline_of(result)[-1])
    current, first = attention_on_ends(_last_patterns(evidence))
    distance, on_current = result.distance[-1], current > first
    interval = distance_within(distance, on_current, seed=derived_seed(evidence.seed, "kinds"))
    between, within = mean_distances(distance, on_current, np.ones(len(on_current)))
    value, low, high = interval.floats()
    ratio = {TO_RANDOM: value / base, "low": low / base, "high": high / base, "seeds": interval.n}
    return Readings(
        frame=pd.DataFrame([ratio]),
        numbers={
            KEPT: models_used.learned,
            CURRENT: int(on_current.sum()),
            FIRST: int((first > current).sum()),
            "distance between models of different kinds": between,
            "distance between models of the same kind": within,
            "variation": float(result.variation[-1]),
            "variation of random causal rows": base,
        },
        tables=[variation_table(result), *excluded_models(evidence, [GROUP])],
        note="A model's kind is the token, current or first, to which its last layer attends more. If the two kinds "
        "were the cause of the high variation, that between models of one kind would not be high.",
    )


def _last_patterns(evidence: Evidence) -> Float[np.ndarray, "model query key"]:
    task = task_of(evidence, GROUP)
    return patterns_on(chosen(evidence, GROUP).models, task.read(task.staircase()))[-1, :, 0, 0].double().numpy()


def mean_distances(
    distance: Float[np.ndarray, "model model"], kind: Bool[np.ndarray, " model"], counts: Float[np.ndarray, " model"]
) -> tuple[float | None, float | None]:
    """Mean distance between models of different kinds, and of the same kind; None without such a pair.

    Args:
        distance: Distances between every two models.
        kind: The kind of each model.
        counts: How often each model counts.
    """
    weights = np.outer(counts, counts)
    np.fill_diagonal(weights, 0.0)
    same = kind[:, None] == kind
    means: list[float | None] = []
    for pairs in (~same, same):
        total = float((weights * pairs).sum())
        means.append(float((weights * pairs * distance).sum()) / total if total else None)
    return means[0], means[1]


def distance_within(
    distance: Float[np.ndarray, "model model"], kind: Bool[np.ndarray, " model"], *, seed: int
) -> Interval:
    """Mean distance between models of the same kind, with a 95 % interval from resampled models.

    With fewer than two pairs of the same kind, the interval is from 0 to the largest distance.
    """
    n = len(kind)
    _, within = mean_distances(distance, kind, np.ones(n))
    of_kind = int(kind.sum())
    n_pairs = (of_kind * (of_kind - 1) + (n - of_kind) * (n - of_kind - 1)) // 2
    if within is None or n_pairs < 2:
        return as_interval(within or 0.0, 0.0, float(distance.max()), n)
    resampled = [
        mean_distances(distance, kind, counts.astype(float))[1]
        for counts in np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    ]
    low, high = np.quantile([mean for mean in resampled if mean is not None], [0.025, 0.975])
    return as_interval(within, min(float(low), within), max(float(high), within), n)


LINEAR = "gpt-prefixes-linear"
LONGER = f"the last layer on {REPEATED} probe prefixes in a row"
OVER_SEEDS = "with its 95 % bootstrap interval over seeds"
CLAIMS = (
    Claim(
        id="prefixes.variation",
        method=over_random(CAUSAL),
        rule=if_learned(AtLeast(1)),
        preregistration=Preregistration("after a result", "2.22 [1.91, 2.52], 30 seeds; the earlier bar was 3/4."),
        quantity="variation / random causal rows",
        measure=partial(measure_last_layer, group=GROUP),
        judged=ratio_to(CAUSAL),
        needs=(GROUP,),
    ),
    Claim(
        id="prefixes.variation-linear",
        method=over_random(CAUSAL),
        rule=if_learned(AtLeast(1)),
        preregistration=Preregistration(
            "after first models", "2.29 [1.93, 2.65] without positions; no model with linear positions was trained yet."
        ),
        quantity="variation / random causal rows",
        measure=partial(measure_last_layer, group=LINEAR),
        judged=ratio_to(CAUSAL),
        needs=(LINEAR,),
        sizes=LARGE_SIZES,
        sizes_reason="These models are trained at size standard and above.",
    ),
    Claim(
        id="prefixes.minimal-varies-little",
        method="Variation above the minimal first layer divided by that of the standard models' last layer; its "
        "interval combines the worst ends of both 95 % intervals over seeds",
        rule=if_learned(Below(1)),
        preregistration=Preregistration("after a result", "variations of 0.17 [0.13, 0.21] and 7.1."),
        quantity=TO_STANDARD,
        measure=measure_minimal_ratio,
        judged=Row(TO_STANDARD, unit="seeds", units="seeds"),
        needs=(GROUP, MINIMAL),
    ),
    Claim(
        id="prefixes.longer",
        method=f"Variation of {LONGER} minus that on one, {OVER_SEEDS}",
        rule=if_learned(Above(0)),
        preregistration=Preregistration(
            "after first models", "5.4 on the short and 13.8 on the long prefix in models trained on words."
        ),
        quantity="increase of the variation",
        measure=measure_longer,
        judged=Row(CHANGE, unit="seeds", units="seeds", where={COMPARED: DIFFERENCE}),
        needs=(GROUP,),
        by_construction=True,
    ),
    Claim(
        id="prefixes.longer-relative",
        method=f"Variation of {LONGER} divided by that of random causal rows there, over the same ratio on one, "
        f"{OVER_SEEDS}",
        rule=if_learned(Above(1)),
        preregistration=Preregistration(
            "after first models", "ratios of 1.74 and 2.73 in models trained on words, where the second is 1.57 times."
        ),
        quantity="ratio to random rows, longer over shorter",
        measure=partial(measure_longer, maps=False),
        judged=Row(CHANGE, unit="seeds", units="seeds", where={COMPARED: RATIO}),
        needs=(GROUP,),
    ),
    Claim(
        id="prefixes.current-or-first",
        method="Numbers of models whose last layer has more attention, mean over queries of the probe prefix, on the "
        "current token than on the first, and the reverse; the value is the share of the former, with its exact 95 % "
        "interval",
        rule=if_learned(AllOf(Number(CURRENT, AtLeast(2)), Number(FIRST, AtLeast(2)))),
        preregistration=Preregistration(
            "after a result",
            "mean shares of 0.30 on the current token and 0.16 on the first; by the earlier rule, more than half of "
            "all attention, 2 models were on the current token and none on the first.",
        ),
        quantity="share of models with more on the current token",
        value_range=SHARE,
        measure=measure_kinds,
        judged=Share(MORE_ON_CURRENT, unit="seeds"),
        needs=(GROUP,),
    ),
    Claim(
        id="prefixes.kinds-explain",
        method="Mean distance between last layers of models of the same kind on the probe prefix divided by that of "
        f"random causal rows, {OVER_SEEDS}",
        rule=if_learned(Below(1)),
        preregistration=Preregistration(
            "after a result",
            "distances of 7.3 between and 7.0 within the kinds; by a first rule, that the former is larger, 0.30 "
            "[-1.05, 1.74] was inconclusive.",
        ),
        quantity=TO_RANDOM,
        measure=measure_cause,
        judged=Row(TO_RANDOM, unit="seeds", units="seeds"),
        needs=(GROUP,),
    ),
)
