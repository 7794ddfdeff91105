"""Charts with one mark per model: scatter plots, and lines between two conditions."""

from typing import Any

import altair as alt
import pandas as pd

from interp.view.charts import COLOURS, HEIGHT, WIDTH, chart_of, colour_by, numbers, title_lines


def scatter(table: pd.DataFrame, *, x: str, y: str, series: str, title: str, zero: bool = False) -> alt.TopLevelMixin:
    """One point per row.

    Args:
        table: Columns x, y, series, and any others, which the tooltip shows.
        zero: Start both axes at zero.
    """
    scale = alt.Scale(zero=zero, nice=True)
    # names without a dot, which would be read as a path
    short = {name: f"c{index}" for index, name in enumerate(table.columns)}
    # the tooltip shows every column
    tooltip = []
    for name in table.columns:
        kind = "Q" if pd.api.types.is_float_dtype(table[name]) else "N"
        tooltip.append(alt.Tooltip(f"{short[name]}:{kind}", title=name))
    points = chart_of(table.rename(columns=short)).mark_point(filled=True, size=60, opacity=0.8)
    return points.encode(
        alt.X(f"{short[x]}:Q", title=x, scale=scale),
        alt.Y(f"{short[y]}:Q", title=y, scale=scale),
        colour_by(short[series], table[series]),
        tooltip=tooltip,
    ).properties(title=title_lines(title, WIDTH), width=WIDTH, height=HEIGHT)


def slopes(table: pd.DataFrame, *, x: str, y: str, line: str, panel: str, title: str) -> alt.TopLevelMixin:
    """A line between two conditions for each model, and their mean as a thick line.

    Args:
        table: Columns x, y, line, panel.
        x: Column of the conditions, in order.
        line: Column that identifies the models.
        panel: Column that splits the chart into panels, side by side, each with its own y axis.
    """
    order = list(dict.fromkeys(table[x]))
    x_axis = alt.X(f"{x}:N", sort=order, title=None, axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.25))
    charts: list[Any] = []
    for name, panel_table in table.groupby(panel, sort=False):
        base = chart_of(panel_table).encode(x_axis, alt.Y(f"{y}:Q", title=str(name), scale=alt.Scale(zero=False)))
        # a thin line per model, and a thick one for their mean
        models = base.mark_line(opacity=0.45, strokeWidth=1.2, point=alt.OverlayMarkDef(size=22, opacity=0.6)).encode(
            detail=f"{line}:N", color=alt.value(COLOURS[0]), tooltip=[f"{line}:N", f"{x}:N", *numbers(y)]
        )
        mean = base.mark_line(strokeWidth=3.5, color="#000").encode(alt.Y(f"mean({y}):Q", title=str(name)))
        charts.append(alt.layer(models, mean).properties(width=170, height=HEIGHT))
    return alt.hconcat(*charts, title=title_lines(title, 230 * len(charts))).resolve_scale(y="independent")
