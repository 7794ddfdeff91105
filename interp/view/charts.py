"""Charts of arrays and tables: curves, dots with intervals, heat maps. Altair draws; no network is used."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

WIDTH, HEIGHT = 300, 220
MAX_LABELLED_CELLS = 400
COLOURS = ["#0b6e8a", "#d1495b", "#66a182", "#edae49", "#5b4b8a", "#8d6a4f", "#2e4057", "#9a031e"]


def curves(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    series: str,
    title: str,
    rule: float | None = None,
    panel: str | None = None,
) -> alt.TopLevelMixin:
    """One line per series, with its interval (`low`, `high`) as a band.

    Args:
        table: Columns x, y, series, `low`, `high`, and the panel's.
        x: Column along the bottom.
        y: Column up the side, a fraction.
        series: Column that tells lines apart.
        title: Above the chart.
        rule: Where to draw a dashed line (chance).
        panel: Column that tells panels apart, side by side.
    """
    names = list(dict.fromkeys(table[series]))
    colour = alt.Color(f"{series}:N", scale=alt.Scale(domain=names, range=palette(len(names))), sort=names)
    colour = colour.legend(symbolOpacity=1)
    across = alt.X(f"{x}:Q", title=x)
    base = alt.Chart(table)
    band = base.mark_area(opacity=0.18).encode(
        across, alt.Y("low:Q", title=y, scale=alt.Scale(domain=[0, 1])), alt.Y2("high:Q"), colour
    )
    tooltip = [alt.Tooltip(f"{series}:N"), alt.Tooltip(f"{x}:Q"), alt.Tooltip(f"{y}:Q", format=".4f")]
    tooltip += [alt.Tooltip("low:Q", format=".4f"), alt.Tooltip("high:Q", format=".4f")]
    line = base.mark_line(point=alt.OverlayMarkDef(size=18)).encode(
        across, alt.Y(f"{y}:Q", title=y), colour, tooltip=tooltip
    )
    layers: list[Any] = [band, line]
    if rule is not None:
        layers.insert(0, base.mark_rule(strokeDash=[4, 4], color="#888").encode(y=alt.datum(rule)))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    if panel is None:
        return chart.properties(title=title)
    panels = list(dict.fromkeys(table[panel]))
    return chart.facet(column=alt.Column(f"{panel}:N", title=None, sort=panels), title=title)


def dots(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    title: str,
    rule: float | None = None,
    series: str | None = None,
    domain: tuple[float, float] = (0.0, 1.0),
) -> alt.TopLevelMixin:
    """A point with its interval (`low`, `high`) for each x, side by side per series.

    Args:
        table: Columns x, y, `low`, `high`, and the series'.
        x: Column of categories along the bottom.
        y: Column up the side.
        title: Above the chart.
        rule: Where to draw a dashed line (chance).
        series: Column that tells colours apart.
        domain: Ends of the scale up the side; for fractions when left out.
    """
    order = list(dict.fromkeys(table[x]))
    extra: dict[str, Any] = {}
    if series is not None:
        names = list(dict.fromkeys(table[series]))
        extra["color"] = alt.Color(f"{series}:N", title=None, scale=alt.Scale(domain=names, range=palette(len(names))))
        extra["xOffset"] = alt.XOffset(f"{series}:N", sort=names)
    across = alt.X(f"{x}:N", sort=order, title=x, axis=alt.Axis(labelAngle=0))
    base = alt.Chart(table)
    tooltip = [
        alt.Tooltip(f"{x}:N"),
        *(alt.Tooltip(f"{column}:Q", format=".4f") for column in (y, "low", "high")),
    ]
    scale = alt.Scale(domain=list(domain))
    layers: list[Any] = [
        base.mark_rule(strokeWidth=2).encode(across, alt.Y("low:Q", title=y, scale=scale), alt.Y2("high:Q"), **extra),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            across, alt.Y(f"{y}:Q", scale=scale), tooltip=tooltip, **extra
        ),
    ]
    if rule is not None:
        layers.insert(0, base.mark_rule(strokeDash=[4, 4], color="#888").encode(y=alt.YDatum(rule, scale=scale)))
    return alt.layer(*layers).properties(title=title, width=max(WIDTH, 18 * len(order)), height=HEIGHT)


def heatmaps(
    panels: Mapping[str, Float[np.ndarray, "row column"]],
    *,
    x: Sequence[str],
    x_title: str,
    y_title: str,
    title: str,
    value: str,
    domain: tuple[float, float] = (0.0, 1.0),
    first_row: int = 0,
) -> alt.TopLevelMixin:
    """Maps of the same shape side by side on one colour scale, the first row at the bottom.

    Args:
        panels: Name and values of each map.
        x: Names of the columns.
        x_title: What the columns are.
        y_title: What the rows are.
        title: Above the maps.
        value: What the colour means.
        domain: Values at the two ends of the colour scale.
        first_row: Number of the first row.
    """
    charts: list[Any] = [
        _heatmap(name, values, x, x_title, y_title, value, domain, first_row).properties(title=name)
        for name, values in panels.items()
    ]
    return alt.hconcat(*charts, title=title).resolve_scale(color="shared")


def _heatmap(
    name: str,
    values: np.ndarray,
    x: Sequence[str],
    x_title: str,
    y_title: str,
    value: str,
    domain: tuple[float, float],
    first_row: int,
) -> alt.TopLevelMixin:
    row, column = np.indices(values.shape)
    table = pd.DataFrame(
        {x_title: np.array(x)[column.ravel()], y_title: row.ravel() + first_row, value: values.ravel(), "map": name}
    )
    base = alt.Chart(table).encode(
        alt.X(f"{x_title}:N", sort=list(x), axis=alt.Axis(labelAngle=0)),
        alt.Y(f"{y_title}:O", sort="descending"),
    )
    colour = alt.Color(f"{value}:Q", scale=alt.Scale(scheme="viridis", domain=list(domain), clamp=True))
    tooltip = ["map:N", f"{x_title}:N", f"{y_title}:O", alt.Tooltip(f"{value}:Q", format=".4f")]
    cells = base.mark_rect().encode(colour, tooltip=tooltip)
    size = {"width": max(90, 34 * len(x)), "height": max(60, 26 * len(values))}
    if values.size > MAX_LABELLED_CELLS:
        return alt.layer(cells).properties(**size)
    middle = sum(domain) / 2
    ink = alt.condition(f"datum['{value}'] > {middle}", alt.value("#111"), alt.value("#fff"))
    text = base.mark_text(fontSize=10).encode(alt.Text(f"{value}:Q", format=".2f"), color=ink, tooltip=tooltip)
    return alt.layer(cells, text).properties(**size)


def chart_svg(chart: Any) -> str:
    """The chart, or its Vega-Lite as a dict, as SVG text, drawn without a browser."""
    import vl_convert

    return vl_convert.vegalite_to_svg(dict(chart) if isinstance(chart, Mapping) else chart.to_json())


def chart_html(chart: Any) -> str:
    """The chart as HTML that needs no JavaScript."""
    return f'<div class="unmyopic-chart">{chart_svg(chart)}</div>'


def palette(n: int) -> list[str]:
    """So many colours, in order; they come round again after eight."""
    return [COLOURS[index % len(COLOURS)] for index in range(n)]
