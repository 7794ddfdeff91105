"""Charts with one mark per model: scatter plots, lines between two conditions, small attention maps."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from interp.view.charts import COLOURS, HEIGHT, WIDTH, colour_by, numbers

MIN_WEIGHT = 0.004
"""Weights up to this are too pale to see and are not drawn, which keeps pages small."""


def scatter(table: pd.DataFrame, *, x: str, y: str, series: str, title: str, zero: bool = False) -> alt.TopLevelMixin:
    """One point per row.

    Args:
        table: Columns x, y, series, and any others, which the tooltip shows.
        zero: Start both axes at zero.
    """
    scale = alt.Scale(zero=zero, nice=True)
    short = {name: f"c{index}" for index, name in enumerate(table.columns)}  # a dot in a name would be read as a path
    tooltip = [
        alt.Tooltip(f"{short[name]}:{'Q' if pd.api.types.is_float_dtype(table[name]) else 'N'}", title=name)
        for name in table.columns
    ]
    points = alt.Chart(table.rename(columns=short)).mark_point(filled=True, size=60, opacity=0.8)
    return points.encode(
        alt.X(f"{short[x]}:Q", title=x, scale=scale),
        alt.Y(f"{short[y]}:Q", title=y, scale=scale),
        colour_by(short[series], table[series]),
        tooltip=tooltip,
    ).properties(title=title, width=WIDTH, height=HEIGHT)


def slopes(table: pd.DataFrame, *, x: str, y: str, line: str, panel: str, title: str) -> alt.TopLevelMixin:
    """A line between two conditions for each model, and their mean as a thick line.

    Args:
        table: Columns x, y, line, panel.
        x: Column of the conditions, in order.
        line: Column that identifies the models.
        panel: Column that splits the chart into panels, side by side, each with its own y axis.
    """
    order = list(dict.fromkeys(table[x]))
    across = alt.X(f"{x}:N", sort=order, title=None, axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.25))
    charts: list[Any] = []
    for name, part in table.groupby(panel, sort=False):
        base = alt.Chart(part).encode(across, alt.Y(f"{y}:Q", title=str(name), scale=alt.Scale(zero=False)))
        thin = base.mark_line(opacity=0.45, strokeWidth=1.2, point=alt.OverlayMarkDef(size=22, opacity=0.6)).encode(
            detail=f"{line}:N", color=alt.value(COLOURS[0]), tooltip=[f"{line}:N", f"{x}:N", *numbers(y)]
        )
        mean = base.mark_line(strokeWidth=3.5, color="#1c2330").encode(alt.Y(f"mean({y}):Q", title=str(name)))
        charts.append(alt.layer(thin, mean).properties(width=170, height=HEIGHT))
    return alt.hconcat(*charts, title=title).resolve_scale(y="independent")


def small_maps(
    maps: Mapping[str, Float[np.ndarray, "query key"]],
    *,
    tokens: Sequence[str],
    title: str,
    columns: int = 4,
    whole: bool = False,
) -> alt.TopLevelMixin:
    """Small attention maps in a grid: queries are rows, keys are columns, dark cells have large weights.

    Args:
        maps: Name and pattern of each.
        tokens: The token at each position.
        columns: Maps per row.
        whole: Write tokens out, in larger maps; else those of one character.
    """
    parts = []
    for name, values in maps.items():
        query, key = np.indices(values.shape).reshape(2, -1)
        parts.append(pd.DataFrame({"query": query, "key": key, "weight": values.ravel().round(4), "map": name}))
    table = pd.concat(parts)
    table = table[table["weight"] > MIN_WEIGHT]
    positions = list(range(len(tokens)))
    names = json.dumps([token if whole or len(token) == 1 else "·" for token in tokens])
    axis = {"labelExpr": f"{names}[datum.value]", "ticks": False, "title": None}
    side = 14 * len(positions) if whole else 150
    chart = (
        alt.Chart(table)
        .mark_rect()
        .encode(
            alt.X("key:O", axis=alt.Axis(**axis, labelAngle=270 if whole else 0), scale=alt.Scale(domain=positions)),
            alt.Y("query:O", axis=alt.Axis(**axis), scale=alt.Scale(domain=positions)),
            alt.Color("weight:Q", scale=alt.Scale(scheme="greys", domain=[0, 1]), legend=None),
            tooltip=["map:N", "query:O", "key:O", *numbers("weight", digits=".3f")],
        )
        .properties(width=side, height=side)
    )
    return chart.facet(facet=alt.Facet("map:N", title=None, sort=list(maps)), columns=columns, title=title)
