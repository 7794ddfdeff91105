"""Errors over several powers of ten: as they grow from layer to layer, as they fall with what is spent on them."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from interp.view.charts import COLOURS, HEIGHT, WIDTH, palette
from interp.view.points import small_maps


def error_growth(
    found: Float[np.ndarray, " layer"], bound: Float[np.ndarray, " layer"], *, layers: Sequence[str], title: str
) -> alt.TopLevelMixin:
    """What was found and what cannot be exceeded, layer by layer, on a logarithmic axis.

    Args:
        found: Largest error found after each layer.
        bound: What it cannot exceed.
        layers: What each layer is.
        title: Above the chart.
    """
    names = [f"{index} {name}" for index, name in enumerate(layers)]
    table = pd.DataFrame(
        {
            "layer": names * 2,
            "error": [*found, *bound],
            "which": ["largest found"] * len(names) + ["cannot exceed"] * len(names),
        }
    )
    table = table[table["error"] > 0]
    colour = alt.Color(
        "which:N", title=None, scale=alt.Scale(domain=["largest found", "cannot exceed"], range=COLOURS[:2])
    )
    return (
        alt.Chart(table)
        .mark_line(point=True)
        .encode(
            alt.X("layer:N", sort=names, title=None, axis=alt.Axis(labelAngle=-35)),
            alt.Y("error:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e"), title="error of the stream"),
            colour,
            tooltip=["layer", "which", alt.Tooltip("error:Q", format=".3g")],
        )
        .properties(title=title, width=max(WIDTH, 45 * len(names)), height=HEIGHT)
    )


def error_quartiles(table: pd.DataFrame, *, x: str, y: str, series: str, title: str) -> alt.TopLevelMixin:
    """Median and quartiles over draws, on a logarithmic axis.

    Args:
        table: Columns x, y, series: a row per draw.
        x: Column along the bottom.
        y: Column up the side, above zero.
        series: Column that tells lines apart.
        title: Above the chart.
    """
    quartiles = table.groupby([series, x], sort=False)[y].quantile(np.array([0.25, 0.5, 0.75])).unstack().reset_index()
    quartiles.columns = [series, x, "low", "median", "high"]
    names = list(dict.fromkeys(table[series]))
    base = alt.Chart(quartiles).encode(
        alt.X(f"{x}:Q", title=x),
        alt.Color(f"{series}:N", title=None, scale=alt.Scale(domain=names, range=palette(len(names)))),
    )
    scale = alt.Scale(type="log")
    axis = alt.Axis(format=".0e")
    band = base.mark_area(opacity=0.2).encode(alt.Y("low:Q", scale=scale, axis=axis, title=y), alt.Y2("high:Q"))
    tooltip = [f"{series}:N", f"{x}:Q", *(alt.Tooltip(f"{name}:Q", format=".2g") for name in ("low", "median", "high"))]
    line = base.mark_line(point=True).encode(alt.Y("median:Q", scale=scale, axis=axis, title=y), tooltip=tooltip)
    return alt.layer(band, line).properties(title=title, width=WIDTH, height=HEIGHT)


def shared_matrix(
    differences: Mapping[str, Float[np.ndarray, " shared"]],
    *,
    names: Sequence[str],
    singular_values: Float[np.ndarray, "network value"],
    patterns: Float[np.ndarray, "network query key"] | None,
    tokens: Sequence[str],
    title: str,
) -> alt.TopLevelMixin:
    """How far two networks are from their targets and from one another, and what a matrix of both looks like.

    Args:
        differences: By what is compared, one for each matrix shared.
        names: The matrices.
        singular_values: Of the first matrix, in either network.
        patterns: Of its head, in either network; None where it has none.
        tokens: What those patterns are of.
        title: Above the chart.
    """
    table = pd.DataFrame(
        [
            (name, what, value)
            for what, values in differences.items()
            for name, value in zip(names, values, strict=True)
        ],
        columns=["matrix", "what", "value"],
    )
    order = list(differences)
    colour = alt.Color("what:N", title=None, sort=order, scale=alt.Scale(domain=order, range=palette(len(order))))
    charts: list[Any] = [
        alt.Chart(table)
        .mark_point(filled=True, size=45)
        .encode(
            alt.X(
                "value:Q",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(format=".0e", tickCount=5, labelOverlap="greedy"),
                title="logits",
            ),
            alt.Y("matrix:N", sort=list(names), title=None),
            colour,
            tooltip=["matrix", "what", alt.Tooltip("value:Q", format=".3g")],
        )
        .properties(title=title, width=WIDTH, height=max(60, 14 * len(names)))
    ]
    networks = ["in a", "in b"]
    values = pd.DataFrame(
        [
            (name, index, value)
            for name, row in zip(networks, singular_values, strict=True)
            for index, value in enumerate(row)
        ],
        columns=["network", "index", "value"],
    )
    charts.append(
        alt.Chart(values)
        .mark_line(opacity=0.8)
        .encode(
            alt.X("index:Q", title="index"),
            alt.Y("value:Q", title="singular value"),
            alt.Color("network:N", title=None, scale=alt.Scale(domain=networks, range=COLOURS[:2])),
            alt.StrokeDash("network:N", legend=None, scale=alt.Scale(domain=networks, range=[[1, 0], [5, 5]])),
            tooltip=["network", "index", alt.Tooltip("value:Q", format=".4g")],
        )
        .properties(title=f"{names[0]}", width=WIDTH, height=HEIGHT)
    )
    if patterns is not None:
        maps = {f"pattern {name}": pattern for name, pattern in zip(networks, patterns, strict=True)}
        charts.append(small_maps(maps, tokens=tokens, title=f"head 0 of {names[0]}", columns=2))
    looks = alt.vconcat(*charts[1:])
    return alt.hconcat(charts[0], looks).resolve_scale(color="independent", strokeDash="independent")
