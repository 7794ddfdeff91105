"""Charts over the steps of training: lines with intervals, a map with a slider, onsets."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from interp.view.charts import (
    GREY,
    HEIGHT,
    THOUSANDS,
    WIDTH,
    chart_of,
    colour_by,
    label_angle,
    label_gap,
    numbers,
    title_lines,
)

FRAME = "snapshot"
MOST_LINES = 12
"""Lines that have different colours; more are coloured by their first label."""


def step_axis(last: int, column: str = "step") -> alt.X:
    """The axis of steps up to the last one: linear up to 1, then logarithmic, so that 0 has a place."""
    ticks = [0, *(10**power for power in range(1 + int(np.log10(max(1, last)))))]
    scale = alt.Scale(type="symlog", constant=1, domain=[0, last], nice=False)
    return alt.X(f"{column}:Q", title="step", scale=scale, axis=alt.Axis(values=ticks, labelExpr=THOUSANDS))


def label_text(by: Sequence[str], values: Sequence[Any]) -> str:
    """A label in words: each column with its value."""
    return " ".join(f"{name} {value}" for name, value in zip(by, values, strict=True))


def lines(table: Any, value: str, *, by: Sequence[str], title: str) -> alt.TopLevelMixin:
    """One line per combination of labels over steps, with its interval; one panel per seed.

    Args:
        table: Columns `seed`, `step`, the value, the labels, and `low`, `high` if it has intervals.
        value: Column of numbers.
        by: Columns that together name a line.
        title: Title of the chart.
    """
    table = table.assign(line=[label_text(by, row) for row in table[list(by)].itertuples(index=False, name=None)])
    # Of many lines, those with the same first label share a colour.
    across = step_axis(int(table["step"].max()))
    coloured_by = "line" if table["line"].nunique() <= MOST_LINES else by[0]
    colour_title = None if coloured_by == "line" else coloured_by
    colour = colour_by(coloured_by, map(str, table[coloured_by]), title=colour_title)
    # Bands of the intervals below the lines.
    ends = [name for name in ("low", "high") if name in table]
    columns = ["seed", "step", *dict.fromkeys(["line", coloured_by]), value, *ends]
    base = chart_of(table[columns].astype({coloured_by: str})).encode(detail="line:N")
    layers: list[Any] = []
    if len(ends) == 2:
        up = alt.Y("low:Q", title=value), alt.Y2("high:Q")
        layers.append(base.mark_area(opacity=0.15).encode(across, *up, colour))
    tooltip = ["seed:N", "line:N", "step:Q", *numbers(value)]
    curves = base.mark_line(point=alt.OverlayMarkDef(size=14)).encode(
        across, alt.Y(f"{value}:Q", title=value), colour, tooltip=tooltip
    )
    chart = alt.layer(*layers, curves).properties(width=2 * WIDTH, height=HEIGHT)
    if table["seed"].nunique() == 1:
        return chart.properties(title=title_lines(title, 2 * WIDTH))
    by_seed = alt.Facet("seed:N", header=alt.Header(labelExpr="'seed ' + datum.value"))
    return chart.facet(facet=by_seed, columns=2, title=title)


def filmstrip(table: Any, value: str, *, x: str, y: str, title: str) -> alt.TopLevelMixin:
    """A map with a slider for the snapshot; a cell is the mean over its rows.

    Args:
        table: Columns `step`, the value, x and y.
        value: Column of numbers.
        x: Column of the map's columns.
        y: Column of the map's rows.
        title: Title of the chart.
    """
    cells: Any = table.groupby(["step", y, x], sort=False)[value].mean().reset_index()
    steps = sorted(set(cells["step"]))
    index_of_step = {step: index for index, step in enumerate(steps)}
    cells[FRAME] = cells["step"].map(index_of_step)
    columns = list(dict.fromkeys(table[x].tolist()))
    rows = list(dict.fromkeys(table[y].tolist()))
    # The slider, and a map of its snapshot on one scale for all.
    slider = alt.binding_range(min=0, max=len(steps) - 1, step=1, name=f"{FRAME} ")
    chosen = alt.param(name="chosen", value=len(steps) - 1, bind=slider)
    low, high = float(cells[value].min()), float(cells[value].max())
    scale = alt.Scale(scheme="viridis", domain=[low, high if high > low else low + 1])
    height = max(60, 26 * len(rows))
    width = max(160, 34 * len(columns))
    angle = label_angle(columns, width / len(columns))
    map_ = (
        chart_of(cells)
        .mark_rect()
        .encode(
            alt.X(f"{x}:N", sort=columns, axis=alt.Axis(labelAngle=angle, labelLimit=0)),
            alt.Y(f"{y}:N", sort=rows, axis=alt.Axis(labelLimit=0, titlePadding=4 + label_gap(rows))),
            alt.Color(f"{value}:Q", scale=scale),
            tooltip=[f"{y}:N", f"{x}:N", "step:Q", *numbers(value)],
        )
        .transform_filter(f"datum.{FRAME} == chosen")
        .properties(width=width, height=height)
    )
    mean: Any = cells.groupby(["step", FRAME])[value].mean().reset_index()
    across = step_axis(max(1, int(steps[-1])))
    # Below the map: the mean over steps, with a mark at the step of the slider.
    points = chart_of(mean).mark_line(point=alt.OverlayMarkDef(size=14))
    curve = points.encode(across, alt.Y(f"{value}:Q", title=f"mean {value}"), tooltip=["step:Q", *numbers(value)])
    chosen_step = chart_of(mean).transform_filter(f"datum.{FRAME} == chosen")
    mark = chosen_step.mark_rule(color=GREY, strokeDash=[4, 4]).encode(across)
    text = chosen_step.transform_calculate(words="'step ' + datum.step").mark_text(align="left", dx=4, dy=-50)
    label = text.encode(across, text="words:N")
    below = alt.layer(curve, mark, label).properties(width=max(width, WIDTH), height=HEIGHT // 2)
    return alt.vconcat(map_, below, title=title).add_params(chosen)


def onset_chart(onsets: Any, *, last: int, title: str) -> alt.TopLevelMixin:
    """Median onset of each label with its interval; a hollow mark at the end is for one that never comes.

    Args:
        onsets: Columns `label`, `onset`, `low`, `high`, `never`, `n`, `coverage`.
        last: Last step of the axis.
        title: Title of the chart.
    """
    # Infinite steps are drawn at the end of the axis, hollow.
    table: Any = onsets.assign(reached=np.isfinite(onsets["onset"]))
    table = table.assign(**{name: table[name].clip(0, last) for name in ("onset", "low", "high")})
    sort = table.sort_values("onset")["label"].tolist()
    base = chart_of(table.rename(columns={"onset": "step"})).encode(
        alt.Y("label:N", sort=sort, title=None, axis=alt.Axis(labelLimit=0))
    )
    tooltip = ["label:N", "step:Q", "low:Q", "high:Q", "never:Q", "n:Q", *numbers("coverage", digits=".1%")]
    across = step_axis(last)
    spread = base.mark_rule().encode(step_axis(last, "low"), alt.X2("high:Q"), tooltip=tooltip)
    filled = alt.condition("datum.reached", alt.value("#0b6e8a"), alt.value("#fff"))
    dots = base.mark_point(filled=True, size=50, stroke="#0b6e8a", opacity=1).encode(
        across, color=filled, tooltip=tooltip
    )
    return alt.layer(spread, dots).properties(width=WIDTH, title=title_lines(title, WIDTH))
