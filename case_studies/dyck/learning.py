"""Claims about learning: two layers, and uniform attention, learn the language (Section 4.1)."""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.measures import LEARNED, LONG, N_HELD_OUT, accuracies, task_of
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, at_least, bootstrap_interval
from case_studies.frame.evidence import Evidence
from interp.evaluation.evaluate import evaluate
from interp.view.charts import dots


def measure_learned(evidence: Evidence, *, group: str) -> Measurement:
    """Lowest accuracy over seeds on hard positions, in distribution."""
    task, n = task_of(evidence, group), N_HELD_OUT[evidence.size]
    found = [evaluate(model, task, n=n, seed=evidence.seed) for model in evidence.models(group)]
    hard = np.array([result.accuracy[0] for result in found])
    worst = found[int(hard.argmin())]
    mean, low, high = bootstrap_interval(hard, seed=evidence.seed)
    rows: list[list] = [["seed", *task.outcomes]]
    points = []
    for spec, r in zip(evidence.specs(group), found, strict=True):
        rows.append([spec.seed, *(f"{value:.4f}" for value in r.accuracy)])
        points.append({"seed": str(spec.seed), "hard accuracy": r.accuracy[0], "low": r.low[0], "high": r.high[0]})
    return Measurement(
        value=worst.accuracy[0], low=worst.low[0], high=worst.high[0], n=len(found), unit="seeds",
        numbers={"mean over seeds": mean, "its interval": [low, high], "fresh examples a seed": n},
        tables=[("Accuracy in distribution, by seed", rows)],
        charts=[dots(pd.DataFrame(points), x="seed", y="hard accuracy", rule=LEARNED, domain=(0.9, 1.0),
                     title=f"hard accuracy, n = {n} fresh examples per seed; dashed: the bar")],
        note="The worst seed, with its interval over fresh examples. Hard positions follow a closer while a bracket "
        "is open.",
    )  # fmt: skip


def judge_learned(m: Measurement) -> ClaimVerdict:
    """Every seed at the bar or above."""
    return "reproduced" if m.value >= LEARNED else "not reproduced"


def _learned_claim(name: str, group: str, models: str) -> Claim:
    return Claim(
        id=name,
        source="bounded Dyck, Section 4.1",
        statement=f"Two-layer transformers learn the language: {models}.",
        rule=f"Reproduced if every seed is right on at least {LEARNED} of the hard positions of fresh words.",
        quantity="hard accuracy, worst seed",
        measure=partial(measure_learned, group=group),
        judge=judge_learned,
        needs=(group,),
    )


def measure_uniform(evidence: Evidence) -> Measurement:
    """Mean accuracy of trained models with uniform attention."""
    task, models = task_of(evidence, "uniform"), evidence.models("uniform")
    found = accuracies(models, task, evidence)
    long = accuracies(models, task, evidence, length=LONG)
    mean, low, high = bootstrap_interval(found["hard"], seed=evidence.seed)
    rows = [
        {"where": where, "accuracy": float(value), "low": float(value), "high": float(value), "seed": str(seed)}
        for where, part in (("training length", found), ("length 450", long))
        for seed, value in enumerate(part["hard"])
    ]
    return Measurement(
        value=mean, low=low, high=high, n=len(models), unit="seeds",
        numbers={"hard accuracy at length 450, mean": float(long["hard"].mean())},
        charts=[dots(pd.DataFrame(rows), x="where", y="accuracy", series="seed", rule=task.chance,
                     title="hard accuracy of models with uniform attention")],
        note="Training does not find the construction that works at any length (Corollary 1): see the accuracy at "
        "length 450.",
    )  # fmt: skip


CLAIMS = (
    _learned_claim("learned.no-positions", "gpt", "no positional encoding"),
    _learned_claim("learned.linear-positions", "gpt-linear", "linear positional encoding"),
    _learned_claim("learned.prefixes", "gpt-prefixes", "trained on prefixes, no positional encoding"),
    Claim(
        id="uniform.learned",
        source="bounded Dyck, Section 4.1",
        statement="Transformers with uniform attention learn the language.",
        rule="Reproduced if the interval of the mean accuracy on hard positions is at or above 0.97, not "
        "reproduced if below, else inconclusive.",
        quantity="hard accuracy, mean",
        measure=measure_uniform,
        judge=partial(at_least, bar=0.97),
        needs=("uniform",),
    ),
)
