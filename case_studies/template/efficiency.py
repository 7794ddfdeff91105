"""Claims about sample efficiency, with and without one trainable scalar per head."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, AtLeast, AtMost, Below, Conditional, Equal, Number, Rule, TwoSided
from case_studies.recipes.intervals import interval_columns
from case_studies.recipes.judges import Mean, PairedDifference, Row
from case_studies.recipes.template_models import A_AND_B, MIMETIC, PLAIN, A
from case_studies.template.measures import (
    Scored,
    best_rate,
    by,
    by_n,
    geometric_mean,
    loss_chart,
    loss_over_seeds,
    ratio,
    same_budget,
    scores,
    thresholds,
)
from case_studies.template.models import between
from case_studies.template.preregistration import FIRST_MODELS, SAMPLES, extended
from interp.view.charts import scaling_curves

QUARTER = 0.25
"""Largest ratio of the modified model's loss to the plain model's."""
MAGNITUDE = 3.0
"""Doublings of n that count as an order of magnitude: a factor of 8."""
LEARNED = 0.5
"""Loss of a length that has been learned, for a comparison of lengths; a constant prediction has loss 1."""
OTHER_RATES = "aba-abb other rates"
RATIO, LOG_RATIO, BEST = "ratio", "log10 of the ratio", "best n of its length"
SAVED, STEP = "doublings of n saved", "doublings to the next smaller n, at most"
LONGEST, SHORTEST = "loss at the longest", "loss at the shortest"


def measure_ratio(evidence: Evidence, *, task: str, variant: str, other_rates: bool = False) -> Readings:
    """Ratio of test losses, modified over plain models, at every n that both have."""
    plain = scores(evidence, f"{task} {PLAIN}")
    modified = by_n(scores(evidence, f"{task} {variant}"))
    shown = {PLAIN: plain, variant: [row for seeds in modified.values() for row in seeds]}
    note = "Intervals are Bonferroni-corrected over the n of the table; losses are geometric means over seeds. "
    note += same_budget(evidence)
    # The plain model may choose its learning rate, so that a I does not only correct a bad one
    if other_rates:
        at_other_rates = scores(evidence, OTHER_RATES)
        controlled = {row.n for row in at_other_rates}
        plain = best_rate([*at_other_rates, *(row for row in plain if row.n in controlled)], lambda row: row.n)
        shown[f"{PLAIN}, best rate"] = plain
        note += " The plain model uses, for each seed, the learning rate with the lowest loss on validation symbols; "
        note += "the modified model keeps the given rate."
    # The ratio at every n that both have; the best is judged
    unmodified = by_n(plain)
    shared = [n for n in modified if n in unmodified]
    rows = [ratio_row(modified[n], unmodified[n], comparisons=len(shared), variant=variant) for n in shared]
    frame = pd.DataFrame(rows)
    return Readings(
        frame=frame,
        title="Loss and accuracy on unseen symbols",
        numbers={"all intervals above a quarter": bool((frame["low"] > QUARTER).all())},
        charts=[loss_chart(shown, figure="mimetic" if variant == MIMETIC else task, title=task.replace("-", " "))],
        note=note,
    )


def ratio_row(modified: Sequence[Scored], plain: Sequence[Scored], *, comparisons: int, variant: str) -> dict[str, Any]:
    """Losses, accuracies and the ratio of losses of models of one n, with Bonferroni's correction."""
    variants = {PLAIN: plain, variant: modified}
    return {
        "n": plain[0].n,
        **{f"loss, {name}": geometric_mean(seeds) for name, seeds in variants.items()},
        **{f"accuracy, {name}": np.mean([row.accuracy for row in seeds]) for name, seeds in variants.items()},
        **interval_columns(ratio(modified, plain, comparisons=comparisons), RATIO),
        "seeds": len(modified),
    }


def measure_threshold(evidence: Evidence, *, level: float, less_data: str, more_data: str) -> Readings:
    """Doublings of n that the first variant saves over the second before the loss stays below a level, by seed."""
    # Only seeds of both variants, so that they are paired
    groups = {name: _on_all_n(evidence, name) for name in (more_data, less_data)}
    shared = set.intersection(*({row.seed for row in rows} for rows in groups.values()))
    groups = {name: [row for row in rows if row.seed in shared] for name, rows in groups.items()}
    # Smallest n of each seed from which its loss stays below the level
    needed = {name: thresholds(rows, level, lambda row: row.loss) for name, rows in groups.items()}
    ns = {name: np.array([n for n, _ in of_seeds], dtype=float) for name, of_seeds in needed.items()}
    frame = pd.DataFrame(
        {
            "seed": sorted(shared),
            **{f"n, {name}": of_seeds.astype(int) for name, of_seeds in ns.items()},
            SAVED: np.log2(ns[more_data] / ns[less_data]),
            # Thresholds are known to a step of the grid
            STEP: np.max([[step_below(n, rows) for n, _ in needed[name]] for name, rows in groups.items()], axis=0),
        }
    )
    # Seeds that never reach the level, with either variant and with both
    never = {name: sum(not reached for _, reached in of_seeds) for name, of_seeds in needed.items()}
    reached_by_either = [a or b for (_, a), (_, b) in zip(needed[more_data], needed[less_data], strict=True)]
    note = f"A seed whose loss never stays below {level} counts as twice the largest n: {sum(never.values())} of "
    note += f"{2 * len(frame)}. The interval is over seeds. {same_budget(evidence)}"
    return Readings(
        frame=frame,
        title=f"Smallest n from which the loss stays below {level}",
        numbers={
            **{f"median n, {name}": float(np.median(of_seeds)) for name, of_seeds in ns.items()},
            "seeds that never get there": never,
            "seeds where neither does": reached_by_either.count(False),
        },
        charts=[loss_chart(groups, figure="aba-abb", title="aba against abb")],
        note=note,
    )


def _on_all_n(evidence: Evidence, variant: str) -> list[Scored]:
    """Scores of a variant on the doublings of n and between them."""
    return [*scores(evidence, f"aba-abb {variant}"), *scores(evidence, between(variant))]


def step_below(n: int, rows: Sequence[Scored]) -> float:
    """Doublings between a threshold and the next smaller n of the grid; of the largest n, for a threshold beyond it.

    Below the smallest n of the grid the step is one doubling.
    """
    smaller = [row.n for row in rows if row.n < n]
    return float(np.log2(n / max(smaller))) if smaller else 1.0


def _majority_scores(evidence: Evidence) -> tuple[dict[int, list[Scored]], dict[int, list[Scored]]]:
    """Scores of plain models and of models with both scalars, by length."""
    plain = by(scores(evidence, f"majority {PLAIN}"), lambda row: row.length)
    modified = by(scores(evidence, f"majority {A_AND_B}"), lambda row: row.length)
    return plain, modified


def measure_majority(evidence: Evidence) -> Readings:
    """log10 of the loss ratio with both scalars, at every length and n; marked is the best n of each length."""
    plain, modified = _majority_scores(evidence)
    comparisons = sum(len(by_n(models_of_length)) for models_of_length in plain.values())
    frames = []
    for length in plain:
        modified_by_n = by_n(modified[length])
        rows = [
            ratio_row(modified_by_n[n], seeds, comparisons=comparisons, variant=A_AND_B)
            for n, seeds in by_n(plain[length]).items()
        ]
        of_length = pd.DataFrame({"length": length, **pd.DataFrame(rows)})
        frames.append(of_length.assign(**{BEST: of_length["high"] == of_length["high"].min()}))
    frame = pd.concat(frames, ignore_index=True).rename(columns={RATIO: LOG_RATIO})
    frame[[LOG_RATIO, "low", "high"]] = np.log10(frame[[LOG_RATIO, "low", "high"]])
    return Readings(
        frame=frame,
        title="Majority on unseen symbols",
        charts=[_majority_chart(plain, modified)],
        note="The ratio at the length where it is least favourable, at its best n; intervals are Bonferroni-corrected. "
        f"{same_budget(evidence)}",
    )


def measure_harder(evidence: Evidence) -> Readings:
    """Loss of the plain model at the longest and the shortest majority, at the largest n, one row a seed."""
    plain, modified = _majority_scores(evidence)
    largest = max(row.n for models_of_length in plain.values() for row in models_of_length)
    seeds_by_length = {length: by_n(models_of_length)[largest] for length, models_of_length in plain.items()}
    by_length = {length: [row.loss for row in seeds] for length, seeds in seeds_by_length.items()}
    frame = pd.DataFrame(
        {
            "seed": [row.seed for row in seeds_by_length[min(by_length)]],
            LONGEST: by_length[max(by_length)],
            SHORTEST: by_length[min(by_length)],
        }
    )
    return Readings(
        frame=frame,
        numbers={
            "n": largest,
            "mean loss by length": {str(length): float(np.mean(losses)) for length, losses in by_length.items()},
        },
        charts=[_majority_chart(plain, modified)],
    )


def _majority_chart(plain: dict[int, list[Scored]], modified: dict[int, list[Scored]]):
    rows = []
    for name, groups in ((PLAIN, plain), (A_AND_B, modified)):
        for n in sorted({row.n for models_of_length in groups.values() for row in models_of_length}):
            models_by_length = {
                length: [row for row in models_of_length if row.n == n] for length, models_of_length in groups.items()
            }
            rows += loss_over_seeds(models_by_length, x="length", series=f"{name}, n = {n}")
    return scaling_curves(
        pd.DataFrame(rows),
        x="length",
        y="loss",
        series="series",
        rule=1.0,
        log_y=True,
        title=f"majority: test loss by length; {min(row['seeds'] for row in rows)} seeds, 95 %",
    )


@dataclass(frozen=True)
class LowestOf(Number):
    """A rule about the lowest of the numbers that one of the measurement's `numbers` lists by name."""

    @property
    def subject(self) -> str:
        return f"the lowest “{self.name}”"

    def number(self, m: Measurement) -> float:
        return min(m.numbers[self.name].values())


def _ratio_claim(
    name: str,
    *,
    task: str,
    variant: str,
    rates: bool = False,
    preregistration: Preregistration = FIRST_MODELS,
) -> Claim:
    control = "; the plain model is given the best of several learning rates at each n" if rates else ""
    return Claim(
        id=name,
        method="Ratio of test losses, geometric mean over seeds, at the n of the grid where its interval, Bonferroni "
        "over "
        f"n, ends lowest{control}",
        rule=TwoSided(AtMost(QUARTER), Number("all intervals above a quarter", Equal(True))),
        preregistration=preregistration,
        quantity=f"loss {variant} / loss {PLAIN}, best n",
        measure=partial(measure_ratio, task=task, variant=variant, other_rates=rates),
        judged=Row(RATIO, by="high", extreme="smallest", unit="seeds", units="seeds"),
        needs=(f"{task} {PLAIN}", f"{task} {variant}", *([OTHER_RATES] if rates else [])),
    )


def _threshold_claim(
    name: str,
    *,
    level: float,
    bar: Rule,
    preregistration: Preregistration = SAMPLES,
    less_data: str = A,
    more_data: str = PLAIN,
    **options,
) -> Claim:
    return Claim(
        id=name,
        method=f"Doublings of n saved until the loss stays below {level}, t interval over seeds, with the error of the "
        "grid of n",
        rule=Conditional(Number("seeds where neither does", Equal(0)), bar),
        preregistration=preregistration,
        quantity=SAVED,
        measure=partial(measure_threshold, level=level, less_data=less_data, more_data=more_data),
        judged=Mean(SAVED, unit="seeds", resolution=STEP),
        needs=(f"aba-abb {more_data}", f"aba-abb {less_data}", between(more_data), between(less_data)),
        **options,
    )


CLAIMS = (
    _ratio_claim(
        "identity.aba-abb",
        task="aba-abb",
        variant=A,
        rates=True,
    ),
    *(
        _threshold_claim(f"identity.{name}.{words}", level=level, bar=bar)
        for words, level in (("half", 0.5), ("tenth", 0.1))
        for name, bar in (("saves", Above(0)), ("samples", AtLeast(MAGNITUDE)))
    ),
    _ratio_claim(
        "identity.same-different",
        task="same-different",
        variant=A,
        preregistration=extended("0.14 [0.06, 0.35] on a grid that ended at 512", "n = 1024"),
    ),
    _ratio_claim(
        "identity.programs",
        task="programs",
        variant=A,
    ),
    _ratio_claim(
        "identity.mimetic-start",
        task="aba-abb",
        variant=MIMETIC,
    ),
    Claim(
        id="majority.identity",
        method="Logarithm of the ratio of test losses at the length where it is least favourable, at its best n, "
        "Bonferroni over all",
        rule=Below(0),
        preregistration=extended("-2.0 [-8.6, 4.7] over three seeds", "three seeds"),
        quantity="log10 of loss with / without, worst length",
        measure=measure_majority,
        judged=Row(LOG_RATIO, by="high", where={BEST: True}, unit="seeds", units="seeds"),
        needs=(f"majority {PLAIN}", f"majority {A_AND_B}"),
    ),
    Claim(
        id="majority.longer-is-harder",
        method="Loss at the longest minus loss at the shortest, plain model, largest n, t interval over seeds",
        rule=Conditional(LowestOf("mean loss by length", Below(LEARNED)), Above(0)),
        preregistration=extended("0.94 [0.70, 1.17] over three seeds", "three seeds"),
        quantity="difference of losses",
        measure=measure_harder,
        judged=PairedDifference(LONGEST, SHORTEST, unit="seeds"),
        needs=(f"majority {PLAIN}", f"majority {A_AND_B}"),
    ),
)
