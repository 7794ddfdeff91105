"""Heads by what they look like and what they do: two pictures of an audit."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

VERDICT_COLOURS = {
    "faithful": "#0b6e8a",
    "misleading": "#d1495b",
    "hidden": "#5b4b8a",
    "idle": "#b8bcc2",
    "redundant": "#edae49",
    "undecided": "#e4e2dc",
}
WIDTH, HEIGHT = 330, 260


def verdict_chart(table: pd.DataFrame, *, sentences: Sequence[str], n: int) -> alt.TopLevelMixin:
    """Score against cost of every head, coloured by verdict; below it the map of layers and heads.

    Args:
        table: One row per head: `layer`, `head`, `verdict`, `kind`, `score` and `mean`, each with its ends.
        sentences: What is said of each head, shown on pointing.
        n: Sequences behind each figure.
    """
    table = table[["layer", "head", "verdict", "label", "kind", "score", "score_low", "score_high"]].assign(
        cost=table["mean"], cost_low=table["mean_low"], cost_high=table["mean_high"], says=list(sentences)
    )
    given = [name for name in VERDICT_COLOURS if name in set(table["verdict"])]
    scale = alt.Scale(domain=given, range=[VERDICT_COLOURS[name] for name in given])
    colour = alt.Color("verdict:N", scale=scale, sort=given, title=None, legend=alt.Legend(symbolOpacity=1))
    across = alt.Scale(domain=[min(-0.2, *table["score_low"]), 1.02])
    up = alt.Scale(domain=[min(-0.1, *table["cost_low"]), max(0.6, *table["cost_high"])])
    x, y = alt.X("score:Q", scale=across, title="looks: score on its kind"), alt.Y("cost:Q", scale=up)
    tip = ["says:N", "kind:N", alt.Tooltip("score:Q", format=".3f"), alt.Tooltip("cost:Q", format=".3f")]
    base = alt.Chart(table)
    layers: list[Any] = [
        base.mark_rule(opacity=0.5).encode(x, alt.Y("cost_low:Q", scale=up, title="does: accuracy lost without it"),
                                           alt.Y2("cost_high:Q"), colour),
        base.mark_rule(opacity=0.5).encode(alt.X("score_low:Q", scale=across, title="looks: score on its kind"),
                                           alt.X2("score_high:Q"), y, colour),
        base.mark_point(filled=True, size=70, opacity=0.9, stroke="#444", strokeWidth=0.5).encode(
            x, y, colour, tooltip=tip),
    ]  # fmt: skip
    scatter = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=f"every head, n = {n} (95 % intervals)")
    return alt.vconcat(scatter, _map(table, colour, tip)).resolve_scale(color="shared")


def _map(table: pd.DataFrame, colour: alt.Color, tip: Sequence[Any]) -> Any:
    n_heads, n_layers = max(table["head"]) + 1, max(table["layer"]) + 1
    base = alt.Chart(table).encode(
        alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0)), alt.Y("layer:O", sort="descending", title="layer")
    )
    size = {"width": max(120, 66 * n_heads), "height": max(50, 30 * n_layers)}
    cells = base.mark_rect(stroke="#fff").encode(colour, tooltip=list(tip))
    dark = alt.FieldOneOfPredicate(field="verdict", oneOf=["faithful", "misleading", "hidden"])
    ink = alt.condition(dark, alt.value("#fff"), alt.value("#222"))
    words = base.mark_text(fontSize=10).encode(alt.Text("verdict:N"), color=ink, tooltip=list(tip))
    return alt.layer(cells, words).properties(**size, title="verdicts")
