"""Accuracy of every variable by depth and by training step, measured once per model."""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.evidence import Evidence, once_per_model
from hooks import Transformer
from interp.core.randomness import derived_generator
from interp.core.statistics import proportion_interval
from interp.evaluation.extrapolate import ExtrapolationResult, accuracy_by_depth
from interp.sweeps.spec import ModelSpec
from interp.view import charts

SENTENCES = {"quick": 2000, "standard": 4000, "paper": 12_000}
"""Held-out sentences per model; at size `paper`, the paper's number."""
DEEPEST = 3
"""Greatest depth at which a tied model is run, in multiples of its trained depth."""
RESOLVED = 0.9
"""Accuracy at which a variable counts as resolved."""


@once_per_model
def depth_curve(evidence: Evidence, spec: ModelSpec) -> ExtrapolationResult:
    """Accuracy of every variable at every depth, up to `DEEPEST` times the trained depth if the model is tied."""
    n = SENTENCES[evidence.size]
    model: Transformer = evidence.run(spec).model
    most = model.cfg.n_layers * (DEEPEST if model.cfg.tied else 1)
    batch = spec.task.sample(n, generator=derived_generator(evidence.seed, "depth curve"), split="test")
    return accuracy_by_depth(model, spec.task, batch, range(1, most + 1), split="test")


def depth_curves(evidence: Evidence, group: str) -> list[ExtrapolationResult]:
    """`depth_curve` of every model of a group, in the order of its specs."""
    return [depth_curve(evidence, spec) for spec in evidence.specs(group)]


def accuracy_at(curve: ExtrapolationResult, depth: int) -> Float[np.ndarray, " target"]:
    """Accuracy of every variable at a depth."""
    return curve.accuracy.value[curve.depths.index(depth)]


def untrained(curve: ExtrapolationResult, depth: int) -> Float[np.ndarray, " unsupervised"]:
    """Accuracy of the unsupervised variables at a depth, in chain order."""
    return curve.unsupervised_accuracy[curve.depths.index(depth)]


def worst_untrained(curve: ExtrapolationResult, depth: int) -> float:
    """Accuracy of the worst unsupervised variable; sign counting can predict the last variable, but no other."""
    return float(untrained(curve, depth).min())


def accuracy_table(evidence: Evidence, group: str) -> pd.DataFrame:
    """Accuracy of every variable at the trained depth, a row per model; a star marks untrained variables."""
    curves = depth_curves(evidence, group)
    variables = zip(curves[0].targets, curves[0].supervised, strict=True)
    names = [name if trained else f"{name}*" for name, trained in variables]
    rows = []
    for spec, curve in zip(evidence.specs(group), curves, strict=True):
        accuracies = dict(zip(names, accuracy_at(curve, curve.trained_depth), strict=True))
        rows.append({"seed": spec.seed, "layers": curve.trained_depth, **accuracies})
    return pd.DataFrame(rows)


def depth_chart(curves: Sequence[ExtrapolationResult], title: str) -> alt.TopLevelMixin:
    """Accuracy by depth, a line per variable, a panel per model; bands are 95 % over sentences."""
    rows = [
        {
            "layers applied": depth,
            "variable": _name(i, is_supervised),
            "dashed": not is_supervised,
            "seed": f"seed {seed}",
            **curve.accuracy[d, i].columns("accuracy"),
        }
        for seed, curve in enumerate(curves)
        for d, depth in enumerate(curve.depths)
        for i, is_supervised in enumerate(curves[0].supervised)
    ]
    return _panels(rows, "layers applied", f"{title}; n = {curves[0].n} sentences per point, bands 95 %")


def learning_chart(evidence: Evidence, group: str) -> alt.TopLevelMixin:
    """Held-out accuracy of every variable by training step, a panel per seed."""
    specs = evidence.specs(group)
    supervised = set(specs[0].description["task"]["supervised"])
    n = specs[0].settings.n_eval
    rows = []
    for spec in specs:
        for record in evidence.history(spec):
            # A history stores shares: the exact interval needs the number of right answers
            hits = np.rint(np.array(record["accuracy"]) * n).astype(int)
            low, high = proportion_interval(hits, n)
            rows += [
                {
                    "steps": record["steps_done"],
                    "variable": _name(i, i in supervised),
                    "dashed": i not in supervised,
                    "seed": f"seed {spec.seed}",
                    "accuracy": value,
                    "low": float(low[i]),
                    "high": float(high[i]),
                }
                for i, value in enumerate(record["accuracy"])
            ]
    return _panels(rows, "steps", f"{group}: accuracy over training; n = {n} sentences, bands 95 %")


def _name(index: int, trained: bool) -> str:
    return f"#{index}" if trained else f"#{index} not trained"


def _panels(rows: list[dict], x: str, title: str) -> alt.TopLevelMixin:
    return charts.curves(pd.DataFrame(rows), x=x, y="accuracy", series="variable", panel="seed", title=title)
