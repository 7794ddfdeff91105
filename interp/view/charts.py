"""Altair charts of tables and arrays: curves, points with intervals, heat maps. Rendering needs no network.

In charts of tables, `x`, `y` and `series` are names of columns; each series has its own colour.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import altair as alt
import numpy as np
import pandas as pd
from altair.utils.data import to_values
from jaxtyping import Float

_NOT_DRAWN = re.compile("[\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\\ud800-\\udfff\\ufffe\\uffff\\U00010000-\\U0010ffff]")
"""Characters that no SVG may contain, and those above U+FFFF, which Vega cuts in half where it shortens a label."""

_GROUND = re.compile(r'<rect width="[^"]*" height="[^"]*" fill="white"/>')
_INK = re.compile(r'(fill|stroke)="(?:#000|black|rgb\(0, 0, 0\))"')
_WEIGHT = re.compile(r'fill="rgba\(0, 0, 0, ([\d.]+)\)"')
_OPENING_TAG = re.compile(r"<svg [^>]*>")

Encoding = TypeVar("Encoding")

WIDTH, HEIGHT = 300, 220
MAX_LABELLED_CELLS = 240
"""Cells of all maps of a chart that have their numbers written in them; more are smaller, without numbers."""
WIDEST = 900
"""Pixels of maps that are drawn side by side; more begin a new row."""
CELL, SMALL_CELL = (40, 26), (18, 16)
"""Width and height of a cell in which a signed number with two decimals fits, and of one without a number."""
LETTER, BOLD_LETTER = 6.2, 7.4
"""Mean width of a letter of a label and of a title, in pixels."""
THOUSANDS = "format(datum.value, '~s')"
"""Label of a tick: 500, 1k, 1.5k."""
FONTS = "Arial, Helvetica, Liberation Sans, Arimo, sans-serif"
"""Fonts whose letters are as wide as those that charts are laid out with."""
COLOURS = ["#0b6e8a", "#d1495b", "#66a182", "#edae49", "#7563a8", "#8d6a4f", "#4f6d93", "#b02fa0"]
COLOURS += ["#5fa8d3", "#f28482", "#7a9e3a", "#b79ced"]
"""Colours that can be seen on a white and on a dark page."""
COLOURS_OF_STORED_CHARTS = {
    '"#5b4b8a"': '"#7563a8"',
    '"#2e4057"': '"#4f6d93"',
    '"#9a031e"': '"#b02fa0"',
    '"#1c2330"': '"#000"',
    '"scheme": "greys"': '"range": ["rgba(0,0,0,0)", "rgba(0,0,0,1)"]',
}
"""Colours of charts that were stored for white pages, and those that take their place."""
FILE_RULE = (
    "svg:root { color-scheme: light dark; } @media (prefers-color-scheme: dark) { svg:root { color: #dfe4ea; } }"
)
"""Colour of words and lines of a picture that is a file, where the reader's system is dark."""
GREY = "#888"
MIN_WEIGHT = 0.004
"""Weights up to this are too pale to see and are not drawn, which keeps pages small."""
LOWEST = 1e-4
"""Lower end of a logarithmic y axis, where values that are not positive are drawn."""


def palette(n: int) -> list[str]:
    """The first n colours, starting over after the last."""
    return [COLOURS[index % len(COLOURS)] for index in range(n)]


def colour_by(column: str, names: Mapping[str, str] | Iterable[str], *, title: str | None = None) -> alt.Color:
    """Colour encoding of a nominal column.

    Args:
        column: Column of the table.
        names: Its values in the order of the legend, or a mapping from them to colours.
        title: Title of the legend, default: none.
    """
    distinct = list(dict.fromkeys(names))
    colours = list(names.values()) if isinstance(names, Mapping) else palette(len(distinct))
    return alt.Color(f"{column}:N", title=title, scale=alt.Scale(domain=distinct, range=colours), sort=distinct).legend(
        symbolOpacity=1, labelLimit=0
    )


def title_lines(title: str | Sequence[str], width: float | int) -> str | list[str]:
    """A title, broken into lines that are not wider than a chart, but at least 50 characters long."""
    most = max(50, int(width / BOLD_LETTER))
    paragraphs = [title] if isinstance(title, str) else title
    lines = [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, most) or [""]]
    return lines[0] if len(lines) == 1 else lines


def label_angle(labels: Iterable[Any], room: float | int) -> int:
    """0 if the labels of an axis of categories fit above each other's `room` in pixels, else -90: upwards."""
    longest = max((len(str(label)) for label in labels), default=0)
    return -90 if LETTER * longest + 5 > room else 0


def label_gap(labels: Iterable[Any]) -> float:
    """Space beside the longest label, in pixels, for letters that are a fifth wider than those measured."""
    return 4 + 0.2 * LETTER * max((len(str(label)) for label in labels), default=0)


def tooltips(*shorthands: str) -> list[alt.Tooltip]:
    """Tooltips of columns with their types, such as "head:N"; Altair takes longer to read them as text."""
    return [alt.Tooltip(shorthand) for shorthand in shorthands]


def text_colour(condition: Mapping[str, Any], colour: str, otherwise: str) -> alt.ColorValue:
    """Colour encoding of text that has one colour where a Vega-Lite condition is met and a second one elsewhere."""
    return alt.ColorValue(value=otherwise, condition={**condition, "value": colour})


def numbers(*columns: str, digits: str = ".4f") -> list[alt.Tooltip]:
    """Tooltips of numeric columns."""
    return [alt.Tooltip(f"{column}:Q", format=digits) for column in columns]


def shared(encoding: Encoding) -> Encoding:
    """An encoding that copies of its chart share: Altair copies a chart whenever it is composed with others.

    Nothing changes it afterwards; a chart gets other encodings, not changed ones.
    """
    object.__setattr__(encoding, "__deepcopy__", partial(_itself, encoding))
    return encoding


def _itself(encoding: Any, memo: Any) -> Any:
    return encoding


def chart_of(table: Any) -> alt.Chart:
    """A chart of a table of any length: Altair refuses tables of more than 5,000 rows.

    The values stand in the chart, so every encoding names its type: "accuracy:Q".

    Args:
        table: A `pandas.DataFrame`; its type checkers do not see that a selection of rows is one too.
    """
    values: Any = to_values(table)
    return alt.Chart(alt.InlineData(**values))


def number_axis(values: Iterable[Any]) -> alt.Axis:
    """An axis of numbers whose labels keep apart, also from those of the next panel; whole numbers have whole ticks."""
    are_whole = all(float(value).is_integer() for value in values)
    options: dict[str, Any] = {"tickMinStep": 1, "labelExpr": THOUSANDS} if are_whole else {}
    return alt.Axis(labelFlush=True, labelOverlap="greedy", labelSeparation=6, tickCount=6, **options)


def curves(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    series: str,
    title: str | list[str],
    rule: float | None = None,
    panel: str | None = None,
    domain: tuple[float, float] | None = (0.0, 1.0),
) -> alt.TopLevelMixin:
    """One line per series, with its interval (`low`, `high`) as a band.

    Args:
        table: Columns x, y, series, `low`, `high`, and panel; and `dashed`, true for the series to draw dashed, if any.
        y: Column of numbers.
        rule: y value of a dashed line, such as chance.
        panel: Column that splits the chart into panels, two in a row.
        domain: Range of the y axis. If None, the range of the data.
    """
    colour = colour_by(series, table[series], title=series)
    x_axis = alt.X(f"{x}:Q", title=x, axis=number_axis(table[x]))
    base = chart_of(table)
    # the interval: a band, or a vertical line if there is one x
    y_scale = alt.Scale(zero=False) if domain is None else alt.Scale(domain=list(domain))
    interval = base.mark_area(opacity=0.18) if len(set(table[x])) > 1 else base.mark_rule()
    interval = interval.encode(x_axis, alt.Y("low:Q", title=y, scale=y_scale), alt.Y2("high:Q"), colour)
    # the line, dashed for some series
    tooltip = [alt.Tooltip(f"{series}:N"), alt.Tooltip(f"{x}:Q"), *numbers(y, "low", "high")]
    line = base.mark_line(point=alt.OverlayMarkDef(size=18)).encode(
        x_axis, alt.Y(f"{y}:Q", title=y), colour, tooltip=tooltip
    )
    if "dashed" in table:
        dashes = alt.Scale(domain=[False, True], range=[[1, 0], [4, 3]])
        line = line.encode(alt.StrokeDash("dashed:N", scale=dashes, legend=None))
    # the rule is behind both
    layers: list[Any] = [interval, line]
    if rule is not None:
        layers.insert(0, base.mark_rule(strokeDash=[4, 4], color=GREY).encode(y=alt.datum(rule)))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    if panel is None:
        return chart.properties(title=title_lines(title, WIDTH))
    # panels in the order of the table
    panels = list(dict.fromkeys(table[panel]))
    columns = min(2, len(panels))
    facet = alt.Facet(f"{panel}:N", title=None, sort=panels)
    return chart.facet(facet=facet, columns=columns, title=title_lines(title, columns * WIDTH))


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
    """One line per series over a logarithmic x axis, with the interval (`low`, `high`) of every point as a rule.

    Args:
        table: Columns x, y, series, `low`, `high`.
        x: Column of positive numbers.
        behind: Reference curves with the columns x, y, series, drawn dashed and pale: in the colours of the series with
            the same names, grey for other names.
        rule: y value of a dashed line.
        log_y: Use a logarithmic y axis too; values that are not positive are drawn at its lower end.
    """
    # reference curves that belong to no series are grey
    names = list(dict.fromkeys(table[series]))
    colours = dict(zip(names, palette(len(names)), strict=True))
    if behind is not None:
        colours |= {name: "#999999" for name in dict.fromkeys(behind[series]) if name not in colours}
    colour = colour_by("series", colours)
    # names without a dot, which would be read as a path
    short = {x: "x", y: "y", series: "series", "low": "low", "high": "high"}
    points = pd.DataFrame({name: table[column] for column, name in short.items()})
    # a tick at every x, also of the reference
    ticks = set(points["x"])
    if behind is not None:
        ticks |= set(behind[x])
    axis = alt.Axis(format="~g", grid=False, values=sorted(ticks), labelOverlap=True)
    x_axis = alt.X("x:Q", title=x, scale=alt.Scale(type="log", base=2), axis=axis)
    y_scale = alt.Scale(type="log", clamp=True) if log_y else alt.Scale(zero=True)
    y_axis = alt.Y("y:Q", title=y, scale=y_scale)
    if log_y:
        points[["y", "low", "high"]] = points[["y", "low", "high"]].clip(lower=LOWEST)
    base = chart_of(points)
    tooltip = [alt.Tooltip("series:N", title=series), alt.Tooltip("x:Q", title=x)]
    tooltip += [alt.Tooltip("y:Q", title=y, format=".4g"), *numbers("low", "high", digits=".4g")]
    # from back to front: the reference, the rule, the intervals, the lines
    layers: list[Any] = []
    if behind is not None:
        reference = pd.DataFrame({short[column]: behind[column] for column in (x, y, series)})
        if log_y:
            reference = reference.assign(y=reference["y"].clip(lower=LOWEST))
        pale = chart_of(reference).mark_line(strokeDash=[5, 4], opacity=0.55, strokeWidth=1.5)
        layers.append(pale.encode(x_axis, y_axis, colour, tooltip=tooltip[:2]))
    if rule is not None:
        layers.append(base.mark_rule(strokeDash=[2, 3], color=GREY).encode(y=alt.YDatum(rule, scale=y_scale)))
    layers.append(base.mark_rule().encode(x_axis, alt.Y("low:Q", title=y, scale=y_scale), alt.Y2("high:Q"), colour))
    line = base.mark_line(point=alt.OverlayMarkDef(size=34))
    layers.append(line.encode(x_axis, y_axis, colour, tooltip=tooltip))
    return alt.layer(*layers).properties(title=title_lines(title, WIDTH), width=WIDTH, height=HEIGHT)


def dots(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    title: str,
    rule: float | None = None,
    series: str | None = None,
    domain: tuple[float, float] = (0.0, 1.0),
    log_y: bool = False,
) -> alt.TopLevelMixin:
    """A point with its interval (`low`, `high`) for each category, side by side per series.

    Args:
        table: Columns x, y, `low`, `high`, and series.
        rule: y value of a dashed line, such as chance.
        domain: Ends of the y axis, default: 0 and 1.
        log_y: Use a logarithmic y axis.
    """
    # categories in the order of the table; within each, a point per series
    order = list(dict.fromkeys(table[x]))
    by_series: dict[str, Any] = {}
    if series is not None:
        by_series["color"] = colour_by(series, table[series])
        by_series["xOffset"] = alt.XOffset(f"{series}:N", sort=list(dict.fromkeys(table[series])))
    width = max(WIDTH, 18 * len(order))
    angle = label_angle(order, width / len(order))
    labels = alt.Axis(labelAngle=angle, labelLimit=0, titlePadding=label_gap(order) if angle else 4)
    x_axis = alt.X(f"{x}:N", sort=order, title=x, axis=labels)
    scale = alt.Scale(domain=list(domain), type="log" if log_y else alt.Undefined)
    # intervals, points and the rule
    base = chart_of(table)
    tooltip = [alt.Tooltip(f"{x}:N"), *numbers(y, "low", "high")]
    intervals = base.mark_rule(strokeWidth=2).encode(
        x_axis, alt.Y("low:Q", title=y, scale=scale), alt.Y2("high:Q"), **by_series
    )
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        x_axis, alt.Y(f"{y}:Q", scale=scale), tooltip=tooltip, **by_series
    )
    layers: list[Any] = [intervals, points]
    if rule is not None:
        layers.insert(0, base.mark_rule(strokeDash=[4, 4], color=GREY).encode(y=alt.YDatum(rule, scale=scale)))
    return alt.layer(*layers).properties(title=title_lines(title, width), width=width, height=HEIGHT)


def heatmaps(
    panels: Mapping[str, Float[np.ndarray, "row column"]],
    *,
    x: Sequence[str],
    x_title: str,
    y_title: str,
    title: str,
    value: str,
    domain: tuple[float, float] = (0.0, 1.0),
    y: Sequence[str] | None = None,
) -> alt.TopLevelMixin:
    """Heat maps of one shape on one colour scale, the first row at the top; side by side as far as they fit.

    Args:
        panels: Name and values of each map.
        x: Labels of the columns.
        value: Name of the quantity that the colour shows.
        domain: Values at the two ends of the colour scale, which diverges from its middle if that is 0.
        y: Labels of the rows; default: their numbers.
    """
    # columns from the left, rows from the top
    columns = list(x)
    rows = np.arange(len(next(iter(panels.values())))) if y is None else np.array(list(y))
    # cells wide enough for their numbers, and maps for their titles
    has_numbers = sum(values.size for values in panels.values()) <= MAX_LABELLED_CELLS
    cell_width, cell_height = CELL if has_numbers else SMALL_CELL
    width = max(90, cell_width * len(x), int(BOLD_LETTER * len(x_title)))
    height = max(60, cell_height * len(rows), int(BOLD_LETTER * len(y_title)))
    angle = label_angle(x, width / len(x))
    # titles apart from labels, also if letters are wider where the chart is read
    x_labels = alt.Axis(labelAngle=angle, labelLimit=0, titlePadding=4 + label_gap(x) if angle else 10)
    y_labels = alt.Axis(labelLimit=0, titlePadding=4 + label_gap(rows))
    # one colour scale; text is dark on light cells
    low, high = domain
    diverges = low == -high
    scheme = "blueorange" if diverges else "viridis"
    colour = shared(alt.Color(f"{value}:Q", scale=alt.Scale(scheme=scheme, domain=[low, high], clamp=True)))
    is_light = f"datum['{value}'] > {(low + high) / 2}"
    if diverges:
        is_light = f"abs(datum['{value}']) < {0.6 * high}"
    ink = shared(text_colour({"test": is_light}, "#111", "#fff"))
    # the maps have the same encodings
    x_axis = shared(alt.X(f"{x_title}:N", sort=columns, axis=x_labels))
    y_axis = shared(alt.Y(f"{y_title}:O", sort=rows.tolist(), axis=y_labels))
    label = shared(alt.Text(f"{value}:Q", format=".2f"))
    tooltip = [shared(text) for text in (*tooltips("map:N", f"{x_title}:N", f"{y_title}:O"), *numbers(value))]
    charts: list[Any] = []
    for name, values in panels.items():
        # one table row per cell
        row, column = np.indices(values.shape).reshape(2, -1)
        cells = {x_title: np.array(x)[column], y_title: rows[row], value: values.ravel(), "map": name}
        base = chart_of(pd.DataFrame(cells)).encode(x_axis, y_axis)
        # coloured cells, with their values if there are not too many
        layers = [base.mark_rect().encode(colour, tooltip=tooltip)]
        if has_numbers:
            layers.append(base.mark_text(fontSize=10).encode(label, color=ink, tooltip=tooltip))
        lines = title_lines(name, width + 60)
        charts.append(alt.layer(*layers).properties(title=lines, width=width, height=height))
    # as many maps in a row as fit
    labels_width = LETTER * max(len(str(row)) for row in rows) + 70
    in_a_row = max(1, min(len(charts), int(WIDEST / (width + labels_width))))
    lines = title_lines(title, in_a_row * (width + labels_width))
    return alt.concat(*charts, columns=in_a_row, title=lines, spacing=30).resolve_scale(color="shared")


def head_maps(
    panels: Mapping[str, Float[np.ndarray, "layer head"]],
    *,
    title: str,
    value: str,
    domain: tuple[float, float] = (0.0, 1.0),
) -> alt.TopLevelMixin:
    """Layer x head heat maps side by side; the arguments are those of `heatmaps`."""
    heads = [str(head) for head in range(next(iter(panels.values())).shape[1])]
    return heatmaps(panels, x=heads, x_title="head", y_title="layer", title=title, value=value, domain=domain)


def pattern_maps(
    maps: Mapping[str, Float[np.ndarray, "query key"]],
    *,
    tokens: Sequence[str],
    title: str,
    columns: int = 4,
    full_tokens: bool = False,
) -> alt.TopLevelMixin:
    """Small attention maps in a grid: queries are rows, keys are columns, strong cells have large weights.

    Args:
        maps: Name and pattern of each.
        tokens: The token at each position.
        columns: Maps per row.
        full_tokens: Write tokens out, in larger maps; else those of one character.
    """
    # one row per visible cell of each map
    tables = []
    for name, values in maps.items():
        query, key = np.indices(values.shape).reshape(2, -1)
        tables.append(pd.DataFrame({"query": query, "key": key, "weight": values.ravel().round(4), "map": name}))
    table = pd.concat(tables)
    table = table[table["weight"] > MIN_WEIGHT]
    # positions are labelled by their tokens
    positions = list(range(len(tokens)))
    names = json.dumps([token if full_tokens or len(token) == 1 else "·" for token in tokens])
    axis = {"labelExpr": f"{names}[datum.value]", "ticks": False, "title": None}
    side = 14 * len(positions) if full_tokens else 150
    angle = 270 if full_tokens else 0
    scale = alt.Scale(domain=positions)
    chart = (
        chart_of(table)
        .mark_rect(color="#000")
        .encode(
            alt.X("key:O", axis=alt.Axis(**axis, labelAngle=angle), scale=scale),
            alt.Y("query:O", axis=alt.Axis(**axis), scale=scale),
            alt.Opacity("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None),
            tooltip=[*tooltips("map:N", "query:O", "key:O"), *numbers("weight", digits=".3f")],
        )
        .properties(width=side, height=side)
    )
    columns = min(columns, len(maps), max(1, WIDEST // (side + 60)))
    lines = title_lines(title, columns * side)
    return chart.facet(facet=alt.Facet("map:N", title=None, sort=list(maps)), columns=columns, title=lines)


_inherited: set[str] = set()
"""Modules that a forked process took over from its parent, whose threads it does not have."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _inherited.update({"vl_convert"} & set(sys.modules)))


def chart_svg(chart: Any) -> str:
    """SVG text of a chart, or of its Vega-Lite dict, rendered without a browser."""
    spec = drawable(_of_today(chart) if isinstance(chart, Mapping) else chart.to_dict())
    # The converter draws in threads, which a forked process does not have: it would wait for them for ever
    svg = _svg_of_new_process(spec) if "vl_convert" in _inherited else _svg_of_this_process(spec)
    # the fonts that it has measured, whatever "sans-serif" is where the chart is read
    return _on_any_ground(svg.replace('font-family="sans-serif"', f'font-family="{FONTS}"'))


def _of_today(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A stored chart with colours that can be seen on any ground."""
    text = json.dumps(dict(spec))
    for old, new in COLOURS_OF_STORED_CHARTS.items():
        text = text.replace(old, new)
    return json.loads(text)


def _on_any_ground(svg: str) -> str:
    """The SVG without a ground, its words and lines in the colour of the text around it.

    A file, which has no text around it, has a rule for dark systems; `svg:root` is nothing within a page.
    """
    svg = _GROUND.sub("", svg, count=1)
    svg = _WEIGHT.sub(r'fill="currentColor" opacity="\1"', _INK.sub(r'\1="currentColor"', svg))
    svg = svg.replace(' stroke-dasharray="1,0"', "").replace('="#ddd"', '="currentColor" stroke-opacity=".18"')
    return _OPENING_TAG.sub(lambda tag: f"{tag[0]}<style>{FILE_RULE}</style>", svg, count=1)


def _svg_of_this_process(spec: Any) -> str:
    import vl_convert

    return vl_convert.vegalite_to_svg(spec)


def _svg_of_new_process(spec: Any) -> str:
    """SVG text of a Vega-Lite dict, drawn by a process that is started, not forked, for it."""
    program = "import json, sys, vl_convert; sys.stdout.write(vl_convert.vegalite_to_svg(json.load(sys.stdin)))"
    # Without this process's folder in sys.path: a file of the user's could have the name of a module
    command = [sys.executable, "-P", "-X", "utf8", "-c", program]
    drawn = subprocess.run(command, input=json.dumps(spec), capture_output=True, encoding="utf-8", check=False)
    if drawn.returncode:
        reason = drawn.stderr.strip().splitlines()[-1:] or [f"exit code {drawn.returncode}"]
        raise RuntimeError(
            f"the chart could not be drawn in a forked process ({reason[0]}). Start it with the method 'spawn'."
        )
    return drawn.stdout


def drawable(spec: Any) -> Any:
    """A Vega-Lite spec without characters that cannot be drawn: some would end the process."""
    if isinstance(spec, str):
        return _NOT_DRAWN.sub("\N{REPLACEMENT CHARACTER}", spec)
    if isinstance(spec, Mapping):
        return {drawable(name): drawable(value) for name, value in spec.items()}
    return [drawable(entry) for entry in spec] if isinstance(spec, list | tuple) else spec
