"""Charts of pruned networks: errors over several powers of ten, and two networks that share a matrix."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from interp.view.charts import HEIGHT, WIDTH, chart_of, colour_by, numbers, pattern_maps, title_lines

FOUND, BOUND = "largest found", "upper bound"


def _log_axis(kind: Any, column: str, *, title: str | None, **axis: Any) -> Any:
    """An axis of powers of ten; `kind` is alt.X or alt.Y."""
    return kind(f"{column}:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e", **axis), title=title)


def error_growth(
    error: Float[np.ndarray, " layer"], bound: Float[np.ndarray, " layer"], *, layers: Sequence[str], title: str
) -> alt.TopLevelMixin:
    """Error after each layer and its upper bound, on a logarithmic axis.

    Args:
        error: Largest error found after each layer.
        bound: Its upper bound.
        layers: Name of each layer.
    """
    # two rows per layer: the error and its bound
    names = [f"{index} {name}" for index, name in enumerate(layers)]
    kinds = [FOUND] * len(names) + [BOUND] * len(names)
    table = pd.DataFrame({"layer": names * 2, "error": [*error, *bound], "which": kinds})
    return (
        chart_of(table[table["error"] > 0])
        .mark_line(point=True)
        .encode(
            alt.X("layer:N", sort=names, title=None, axis=alt.Axis(labelAngle=-35)),
            _log_axis(alt.Y, "error", title="error of the residual stream"),
            colour_by("which", [FOUND, BOUND]),
            tooltip=["layer:N", "which:N", *numbers("error", digits=".3g")],
        )
        .properties(title=title_lines(title, WIDTH), width=max(WIDTH, 45 * len(names)), height=HEIGHT)
    )


def error_quartiles(table: pd.DataFrame, *, x: str, y: str, series: str, title: str) -> alt.TopLevelMixin:
    """Median and quartiles over draws, on a logarithmic axis.

    Args:
        table: Columns x, y (positive), series: one row per draw.
    """
    quartiles = table.groupby([series, x], sort=False)[y].quantile(np.array([0.25, 0.5, 0.75])).unstack().reset_index()
    quartiles.columns = [series, x, "low", "median", "high"]
    base = chart_of(quartiles).encode(alt.X(f"{x}:Q", title=x), colour_by(series, table[series]))
    band = base.mark_area(opacity=0.2).encode(_log_axis(alt.Y, "low", title=y), alt.Y2("high:Q"))
    tooltip = [f"{series}:N", f"{x}:Q", *numbers("low", "median", "high", digits=".2g")]
    line = base.mark_line(point=True).encode(_log_axis(alt.Y, "median", title=y), tooltip=tooltip)
    return alt.layer(band, line).properties(title=title_lines(title, WIDTH), width=WIDTH, height=HEIGHT)


def shared_matrix(
    differences: Mapping[str, Float[np.ndarray, " shared"]],
    *,
    names: Sequence[str],
    singular_values: Float[np.ndarray, "network value"],
    patterns: Float[np.ndarray, "network query key"] | None,
    tokens: Sequence[str],
    title: str,
) -> alt.TopLevelMixin:
    """Distances of two networks from their targets and from each other, and the matrix that they share.

    Args:
        differences: Name of each comparison and its values, one for each matrix shared.
        names: The matrices.
        singular_values: Of the first matrix, in either network.
        patterns: Of its head, in either network; None if it belongs to no head.
        tokens: The tokens of those patterns.
    """
    # left: a point for each matrix and comparison
    rows = [
        {"matrix": name, "what": comparison, "value": value}
        for comparison, values in differences.items()
        for name, value in zip(names, values, strict=True)
    ]
    distances = (
        chart_of(pd.DataFrame(rows))
        .mark_point(filled=True, size=45)
        .encode(
            _log_axis(alt.X, "value", title="logits", tickCount=5, labelOverlap="greedy"),
            alt.Y("matrix:N", sort=list(names), title=None),
            colour_by("what", differences.keys()),
            tooltip=["matrix:N", "what:N", *numbers("value", digits=".3g")],
        )
        .properties(title=title_lines(title, WIDTH), width=WIDTH, height=max(60, 14 * len(names)))
    )
    # right: the singular values, and the patterns
    networks = ["in a", "in b"]
    spectra = [
        {"network": name, "index": index, "value": value}
        for name, row in zip(networks, singular_values, strict=True)
        for index, value in enumerate(row)
    ]
    charts: list[Any] = [
        chart_of(pd.DataFrame(spectra))
        .mark_line(opacity=0.8)
        .encode(
            alt.X("index:Q", title="index"),
            alt.Y("value:Q", title="singular value"),
            colour_by("network", networks),
            alt.StrokeDash("network:N", legend=None, scale=alt.Scale(domain=networks, range=[[1, 0], [5, 5]])),
            tooltip=["network:N", "index:Q", *numbers("value", digits=".4g")],
        )
        .properties(title=names[0], width=WIDTH, height=HEIGHT)
    ]
    if patterns is not None:
        maps = {f"pattern {name}": pattern for name, pattern in zip(networks, patterns, strict=True)}
        charts.append(pattern_maps(maps, tokens=tokens, title=f"head 0 of {names[0]}", columns=2))
    return alt.hconcat(distances, alt.vconcat(*charts)).resolve_scale(color="independent", strokeDash="independent")
