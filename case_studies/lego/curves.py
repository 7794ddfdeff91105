"""What does a model resolve, variable by variable, after every number of layers? Measured once per model."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from case_studies.frame.evidence import Evidence, ModelSpec
from hooks import Transformer
from interp.core.randomness import derived_generator
from interp.core.statistics import proportion_interval
from interp.evaluation.extrapolate import right_by_depth

SENTENCES = {"quick": 2000, "standard": 4000, "paper": 12_000}
"""Held-out sentences behind every accuracy; the paper's own number at its size."""
DEEPEST = 3
"""A tied model is run for up to so many times the depth it was trained with."""
RESOLVED = 0.9
"""Accuracy from which a variable counts as resolved."""

_done: dict[tuple, "DepthCurve"] = {}


@dataclass(frozen=True, kw_only=True)
class DepthCurve:
    """Accuracy of one model, by layers applied and variable."""

    depths: tuple[int, ...]
    accuracy: Float[np.ndarray, "depth target"]
    low: Float[np.ndarray, "depth target"]
    high: Float[np.ndarray, "depth target"]
    supervised: Bool[np.ndarray, " target"]
    n: int

    def at(self, depth: int) -> Float[np.ndarray, " target"]:
        """Accuracy of every variable at a depth."""
        return self.accuracy[self.depths.index(depth)]

    def beyond(self, depth: int) -> float:
        """Accuracy of the worst variable that was not supervised: a count of signs may tell the last, but no other."""
        return float(self.at(depth)[~self.supervised].min())

    def resolved_at(self) -> Float[np.ndarray, " target"]:
        """For each variable the fewest layers from which it stays resolved; not a number where there are none."""
        return first_for_good(self.accuracy >= RESOLVED, np.array(self.depths))


def first_for_good(
    holds: Bool[np.ndarray, "depth target"], depths: Int[np.ndarray, " depth"]
) -> Float[np.ndarray, " target"]:
    """The first depth from which something holds up to the last one; not a number where it does not hold there."""
    for_good = np.logical_and.accumulate(holds[::-1])[::-1]
    return np.where(for_good.any(0), depths[for_good.argmax(0)], np.nan)


def depth_curve(evidence: Evidence, spec: ModelSpec) -> DepthCurve:
    """Accuracy of every variable after every number of layers: up to three times its own where the model is tied."""
    n = SENTENCES[evidence.size]
    key = (evidence.folder, spec.key, evidence.seed, n)
    if key not in _done:
        model: Transformer = evidence.run(spec).model
        most = model.cfg.n_layers * (DEEPEST if model.cfg.tied else 1)
        depths = tuple(range(1, most + 1))
        batch = spec.task.sample(n, generator=derived_generator(evidence.seed, "depth curve"), split="test")
        right = right_by_depth(model, spec.task, batch, depths).numpy()
        low, high = proportion_interval(right.sum(1), n)
        _done[key] = DepthCurve(
            depths=depths, accuracy=right.mean(1), low=low, high=high, supervised=batch.supervised.numpy(), n=n
        )
    return _done[key]


def depth_chart(found: Sequence[DepthCurve], title: str) -> alt.TopLevelMixin:
    """Accuracy against layers applied, a line per variable, a panel per model; bands are 95 % over sentences."""
    names = [f"#{i}" + ("" if known else " not trained") for i, known in enumerate(found[0].supervised)]
    rows = [
        {"x": depth, "variable": names[i], "seed": f"seed {seed}",
         "accuracy": curve.accuracy[d, i], "low": curve.low[d, i], "high": curve.high[d, i]}
        for seed, curve in enumerate(found)
        for d, depth in enumerate(curve.depths)
        for i in range(len(names))
    ]  # fmt: skip
    heading = f"{title}; n = {found[0].n} sentences per point, bands 95 %"
    return _lines(pd.DataFrame(rows), names, found[0].supervised.tolist(), across="layers applied", title=heading)


def learning_chart(evidence: Evidence, group: str) -> alt.TopLevelMixin:
    """Held-out accuracy of every variable over the steps of training, a panel per seed."""
    rows = []
    for spec in evidence.specs(group):
        supervised = set(spec.description["task"]["supervised"])
        n = spec.settings.n_eval
        for record in evidence.history(spec):
            hits = np.rint(np.array(record["accuracy"]) * n).astype(int)
            low, high = proportion_interval(hits, n)
            rows += [
                {"x": record["steps_done"], "variable": f"#{i}" + ("" if i in supervised else " not trained"),
                 "seed": f"seed {spec.seed}", "accuracy": value, "low": float(low[i]), "high": float(high[i])}
                for i, value in enumerate(record["accuracy"])
            ]  # fmt: skip
    names = list(dict.fromkeys(row["variable"] for row in rows))
    trained = ["not" not in name for name in names]
    heading = f"{group}: accuracy over training; n = {evidence.specs(group)[0].settings.n_eval} sentences, bands 95 %"
    return _lines(pd.DataFrame(rows), names, trained, across="steps", title=heading)


def _lines(
    table: pd.DataFrame, names: Sequence[str], trained: Sequence[bool], *, across: str, title: str
) -> alt.TopLevelMixin:
    """A line with its band per variable, dashed where it was not trained, a panel per seed."""
    up, along = alt.Scale(domain=[0, 1]), alt.X("x:Q", title=across)
    colour = alt.Color("variable:N", sort=names, scale=alt.Scale(domain=names, scheme="viridis"))
    colour = colour.legend(symbolOpacity=1)
    dashes = [[1, 0] if known else [4, 3] for known in trained]
    dash = alt.StrokeDash("variable:N", sort=names, legend=None, scale=alt.Scale(domain=names, range=dashes))
    base = alt.Chart(table)
    band = base.mark_area(opacity=0.2).encode(
        along, alt.Y("low:Q", title="accuracy", scale=up), alt.Y2("high:Q"), colour
    )
    line = base.mark_line().encode(
        along, alt.Y("accuracy:Q", scale=up), colour, dash,
        tooltip=["seed:N", "variable:N", alt.Tooltip("x:Q", title=across), alt.Tooltip("accuracy:Q", format=".3f")],
    )  # fmt: skip
    chart = alt.layer(band, line).properties(width=190, height=140)
    return chart.facet(facet=alt.Facet("seed:N", title=None), columns=3, title=title)
