"""Charts of single models: where each lies, what each changed to, what each looks like."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from interp.view.charts import HEIGHT, WIDTH, palette


def scatter(table: pd.DataFrame, *, x: str, y: str, series: str, title: str, zero: bool = False) -> alt.TopLevelMixin:
    """One point per row.

    Args:
        table: Columns x, y, series, and any others, which the tooltip shows.
        x: Column along the bottom.
        y: Column up the side.
        series: Column that tells colours apart.
        title: Above the chart.
        zero: Begin both axes at zero.
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
        _colour(list(dict.fromkeys(table[series])), short[series]),
        tooltip=tooltip,
    ).properties(title=title, width=WIDTH, height=HEIGHT)


def slopes(table: pd.DataFrame, *, x: str, y: str, line: str, panel: str, title: str) -> alt.TopLevelMixin:
    """What each model changed to: a line between two conditions per model, the mean drawn thick.

    Args:
        table: Columns x, y, line, panel.
        x: Column of the conditions, in order.
        y: Column up the side.
        line: Column that tells models apart.
        panel: Column that tells panels apart, side by side, each with its own scale.
        title: Above the chart.
    """
    order = list(dict.fromkeys(table[x]))
    across = alt.X(f"{x}:N", sort=order, title=None, axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.25))
    charts: list[Any] = []
    for name, part in table.groupby(panel, sort=False):
        base = alt.Chart(part).encode(across, alt.Y(f"{y}:Q", title=str(name), scale=alt.Scale(zero=False)))
        tooltip = [f"{line}:N", f"{x}:N", alt.Tooltip(f"{y}:Q", format=".4f")]
        thin = base.mark_line(opacity=0.45, strokeWidth=1.2, point=alt.OverlayMarkDef(size=22, opacity=0.6)).encode(
            detail=f"{line}:N", color=alt.value("#0b6e8a"), tooltip=tooltip
        )
        mean = base.mark_line(strokeWidth=3.5, color="#1c2330").encode(alt.Y(f"mean({y}):Q", title=str(name)))
        charts.append(alt.layer(thin, mean).properties(width=170, height=HEIGHT))
    return alt.hconcat(*charts, title=title).resolve_scale(y="independent")


def small_maps(
    maps: Mapping[str, Float[np.ndarray, "query key"]], *, tokens: Sequence[str], title: str, columns: int = 4
) -> alt.TopLevelMixin:
    """Attention maps in rows, one per name: queries down, keys across, dark is attended to.

    Args:
        maps: Name and pattern of each.
        tokens: What stands at each position.
        title: Above the maps.
        columns: Maps in a row.
    """
    parts = []
    for name, values in maps.items():
        query, key = np.indices(values.shape)
        parts.append(
            pd.DataFrame({"query": query.ravel(), "key": key.ravel(), "weight": values.ravel().round(4), "map": name})
        )
    table = pd.concat(parts)
    table = table[table["weight"] > 0.004]  # what nobody could see makes pages heavy
    positions = list(range(len(tokens)))
    names = json.dumps([token if len(token) == 1 else "·" for token in tokens])
    axis = alt.Axis(labelExpr=f"{names}[datum.value]", labelAngle=0, ticks=False, title=None)
    chart = (
        alt.Chart(table)
        .mark_rect()
        .encode(
            alt.X("key:O", axis=axis, scale=alt.Scale(domain=positions)),
            alt.Y("query:O", axis=axis, scale=alt.Scale(domain=positions)),
            alt.Color("weight:Q", scale=alt.Scale(scheme="greys", domain=[0, 1]), legend=None),
            tooltip=["map:N", "query:O", "key:O", alt.Tooltip("weight:Q", format=".3f")],
        )
        .properties(width=150, height=150)
    )
    return chart.facet(facet=alt.Facet("map:N", title=None, sort=list(maps)), columns=columns, title=title)


def _colour(names: Sequence[str], column: str) -> alt.Color:
    names = list(names)
    return alt.Color(f"{column}:N", title=None, scale=alt.Scale(domain=names, range=palette(len(names))), sort=names)
