"""Curves over sizes that double: what more samples, layers or width give, a paper's own curves drawn behind."""

from typing import Any

import altair as alt
import pandas as pd

from interp.view.charts import HEIGHT, WIDTH, palette


def scaling_curves(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    series: str,
    title: str | list[str],
    behind: pd.DataFrame | None = None,
    rule: float | None = None,
    log_y: bool = False,
) -> alt.TopLevelMixin:
    """One line per series over a logarithmic x, a rule from `low` to `high` at every point.

    Args:
        table: Columns x, y, series, `low`, `high`.
        x: Column along the bottom, positive numbers.
        y: Column up the side.
        series: Column that tells colours apart.
        title: Above the chart.
        behind: Other curves with the columns x, y, series, drawn dashed and pale in the colours of the series of the
            same names, grey where there is none.
        rule: Where to draw a dashed line across.
        log_y: A logarithmic scale up the side too; what is not positive is then drawn at its lower end.
    """
    names = list(dict.fromkeys(table[series]))
    colours = dict(zip(names, palette(len(names)), strict=True))
    if behind is not None:
        colours |= {name: "#999999" for name in dict.fromkeys(behind[series]) if name not in colours}
    short = {x: "x", y: "y", series: "series", "low": "low", "high": "high"}  # a dot in a name would be read as a path
    ours = pd.DataFrame({new: table[old] for old, new in short.items()})
    lowest = 1e-4 if log_y else None
    sizes = sorted({*ours["x"], *(() if behind is None else behind[x])})
    axis = alt.Axis(format="~g", grid=False, values=sizes, labelOverlap=True)
    across = alt.X("x:Q", title=x, scale=alt.Scale(type="log", base=2), axis=axis)
    up = alt.Scale(type="log", clamp=True) if log_y else alt.Scale(zero=True)
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=list(colours), range=list(colours.values())))
    if lowest is not None:
        ours[["y", "low", "high"]] = ours[["y", "low", "high"]].clip(lower=lowest)
    base = alt.Chart(ours)
    tooltip = [alt.Tooltip("series:N", title=series), alt.Tooltip("x:Q", title=x)]
    tooltip += [
        alt.Tooltip(f"{name}:Q", title=y if name == "y" else name, format=".4g") for name in ("y", "low", "high")
    ]
    layers: list[Any] = []
    if behind is not None:
        theirs = pd.DataFrame({short[old]: behind[old] for old in (x, y, series)})
        theirs = theirs if lowest is None else theirs.assign(y=theirs["y"].clip(lower=lowest))
        pale = alt.Chart(theirs).mark_line(strokeDash=[5, 4], opacity=0.55, strokeWidth=1.5)
        layers.append(pale.encode(across, alt.Y("y:Q", title=y, scale=up), colour, tooltip=tooltip[:2]))
    if rule is not None:
        layers.append(base.mark_rule(strokeDash=[2, 3], color="#888").encode(y=alt.YDatum(rule, scale=up)))
    layers.append(base.mark_rule().encode(across, alt.Y("low:Q", title=y, scale=up), alt.Y2("high:Q"), colour))
    line = base.mark_line(point=alt.OverlayMarkDef(size=34))
    layers.append(line.encode(across, alt.Y("y:Q", title=y, scale=up), colour, tooltip=tooltip))
    return alt.layer(*layers).properties(title=title, width=WIDTH, height=HEIGHT)
