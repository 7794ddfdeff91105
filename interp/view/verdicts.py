"""Charts of an audit: score and cost of every head, and a map of verdicts."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from interp.view.charts import GREY, chart_of, colour_by, numbers, text_colour, title_lines, tooltips

VERDICT_COLOURS = {
    "faithful": "#0b6e8a",
    "misleading": "#c73e51",
    "hidden": "#7563a8",
    "idle": "#9aa2ad",
    "redundant": "#edae49",
    "marginal": "#7fb2a0",
    "undecided": "#8d6a4f",
}
DARK_VERDICTS = ("faithful", "misleading", "hidden", "undecided")
"""Verdicts whose colour has white text."""
WIDTH, HEIGHT = 330, 260
SCORE, COST = "pattern: score on its kind", "effect: accuracy lost when ablated"


def verdict_chart(table: pd.DataFrame, *, sentences: Sequence[str], counted: str) -> alt.TopLevelMixin:
    """Score against cost of every head, coloured by verdict, above a layer x head map of verdicts.

    Args:
        table: One row per head: `layer`, `head`, `verdict`, `label`, `kind`, and `score` and `mean` with the ends of
            their intervals.
        sentences: The finding on each head, shown in its tooltip.
        counted: Number of sequences behind the figures, and which intervals they have, as text.
    """
    # the cost is that of replacing the head's output by its mean
    table = table[["layer", "head", "verdict", "label", "kind", "score", "score_low", "score_high"]].assign(
        cost=table["mean"], cost_low=table["mean_low"], cost_high=table["mean_high"], finding=list(sentences)
    )
    # a legend of the verdicts that occur
    present = set(table["verdict"])
    colour = colour_by("verdict", {name: colour for name, colour in VERDICT_COLOURS.items() if name in present})
    # axes that contain all intervals
    x_scale = alt.Scale(domain=[min(-0.2, *table["score_low"]), 1.02])
    y_scale = alt.Scale(domain=[min(-0.1, *table["cost_low"]), max(0.6, *table["cost_high"])])
    # the first label of one axis is apart from that of the other
    axis = alt.Axis(offset=8, titlePadding=8)
    x = alt.X("score:Q", scale=x_scale, title=SCORE, axis=axis)
    y = alt.Y("cost:Q", scale=y_scale, axis=axis)
    x_low = alt.X("score_low:Q", scale=x_scale, title=SCORE, axis=axis)
    y_low = alt.Y("cost_low:Q", scale=y_scale, title=COST, axis=axis)
    # a cross of both intervals, and a point
    tooltip = [*tooltips("finding:N", "kind:N"), *numbers("score", "cost", digits=".3f")]
    base = chart_of(table)
    layers: list[Any] = [
        base.mark_rule(opacity=0.5).encode(x, y_low, alt.Y2("cost_high:Q"), colour),
        base.mark_rule(opacity=0.5).encode(x_low, alt.X2("score_high:Q"), y, colour),
        base.mark_point(filled=True, size=70, opacity=0.9, stroke=GREY, strokeWidth=0.5).encode(
            x, y, colour, tooltip=tooltip
        ),
    ]
    scatter = alt.layer(*layers).properties(
        width=WIDTH, height=HEIGHT, title=title_lines(f"every head: {counted}", WIDTH)
    )
    return alt.vconcat(scatter, _verdict_map(base, table, colour, tooltip)).resolve_scale(color="shared")


def _verdict_map(base: alt.Chart, table: pd.DataFrame, colour: alt.Color, tooltip: Sequence[Any]) -> Any:
    """A map of layers and heads, coloured by verdict, with the verdict in each cell."""
    base = base.encode(alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0)), alt.Y("layer:O", title="layer"))
    size = {"width": max(120, 66 * (max(table["head"]) + 1)), "height": max(50, 30 * (max(table["layer"]) + 1))}
    cells = base.mark_rect(stroke=GREY).encode(colour, tooltip=list(tooltip))
    # white text on dark cells
    dark = {"test": {"field": "verdict", "oneOf": list(DARK_VERDICTS)}}
    ink = text_colour(dark, "#fff", "#222")
    words = base.mark_text(fontSize=10).encode(alt.Text("verdict:N"), color=ink, tooltip=list(tooltip))
    return alt.layer(cells, words).properties(**size, title="verdicts")
