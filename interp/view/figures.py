"""Charts as inline SVG: one image with a text alternative, distinct ids, and the values of each mark for a tooltip."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from html import unescape
from typing import Any

from markupsafe import Markup, escape

from interp.view.charts import FONTS, chart_svg
from interp.view.html import scrolling

MOST_WEIGHTS = 8000
"""Weights of patterns in a chart; of more, the largest are drawn, which keeps a page below 1 MB."""
MANY_MARKS = 20
"""Marks of a group above which the names of their values are written once."""
MOST_ROWS = 12
"""Rows of a table in a notebook; of a longer one the first and the last."""
# in the SVG text of Vega
_CELL = re.compile(r'<path [^>]*fill="currentColor" opacity="([\d.]+)"[^>]*/>')
"""A weight of a pattern, with its opacity."""
_FILE_RULE = re.compile(r"<style>.*?</style>")
"""Of a chart that is a file; within a page it does nothing."""
_ROLES = re.compile(r' role="[^"]*"| aria-roledescription="[^"]*"')
_INVISIBLE = re.compile(r'<path(?=[^>]*(?: d="M0,0h0v0h0Z"| display="none"))[^>]*/>')
_DECIMALS = re.compile(r"\d+\.\d{3,}")
_NUMBERS = re.compile(r' (?:d|transform|x2|y2|width|height|viewBox)="[^"]*"')
_LABEL = re.compile(r'(?: aria-roledescription="([^"]*)")? aria-label="([^"]*)"')
"""Label of an axis, legend or title, after what it is; label of a mark, before what it is."""
_LONG = re.compile(r"-?\d+\.\d{5,}(?:e-?\d+)?")
_MARKS = re.compile(r'<g( class="mark-[^>]*)>((?:<(?:path|line|rect) [^>]*/>)+)</g>')
"""A group of marks, without groups inside."""
_MARK = re.compile(r"<(?:path|line|rect) [^>]*/>")
_TIP = re.compile(r' data-tip="([^"]*)"')
_INHERITED = re.compile(r' (?:fill|stroke|stroke-width|stroke-dasharray)="[^"]*"')
_PATH = re.compile(r"<path [^>]*/>")
_SHAPE = re.compile(r' d="([^"]*)"')
_REFERENCE = re.compile(r'( id="|url\(#|href="#)([^")]*)([")])')


def chart_figure(chart: Any) -> Markup:
    """A chart as an HTML figure that needs neither JavaScript nor a network.

    Args:
        chart: An Altair chart or a Vega-Lite dict.

    Returns:
        `<figure class="chart">` with one SVG image. Equal charts give equal text. `data-tip` of a mark has its values.
    """
    spec = dict(chart) if isinstance(chart, Mapping) else json.loads(chart.to_json(validate=False))
    svg, smallest = without_small_weights(chart_svg(spec))
    width = re.search(r' width="(\d+)', svg)
    caption = (
        Markup("<figcaption>Weights below {:.3g} are not drawn.</figcaption>").format(smallest) if smallest else ""
    )
    return Markup('<figure class="chart" style="--width:{}px">{}{}</figure>').format(
        width[1] if width else 0, scrolling(image(svg), label="Chart"), caption
    )


def without_small_weights(svg: str) -> tuple[str, float]:
    """A chart with at most `MOST_WEIGHTS` weights of patterns, and the smallest that is drawn, 0 if all are."""
    weights = sorted((float(weight) for weight in _CELL.findall(svg)), reverse=True)
    if len(weights) <= MOST_WEIGHTS:
        return svg, 0.0
    smallest = weights[MOST_WEIGHTS - 1]
    return _CELL.sub(lambda cell: cell[0] if float(cell[1]) >= smallest else "", svg), smallest


def notebook_html(chart: Any, table: Any) -> str:
    """HTML of a result for a notebook: its chart, and under it the first and last rows of its table.

    Args:
        chart: An Altair chart; None if there is none.
        table: A pandas table; None if there is none.
    """
    displays = [] if chart is None else [chart_html(chart)]
    if table is not None:
        displays.append(table_html(table))
    return "\n".join(displays)


def table_html(table: Any) -> str:
    """HTML of a pandas table for a notebook: its first and last rows, which scroll sideways."""
    options = {"index": False, "border": 0, "na_rep": "", "max_rows": MOST_ROWS, "show_dimensions": True}
    return f'<div style="overflow-x:auto">{table.to_html(float_format="{:.4g}".format, **options)}</div>'


def chart_html(chart: Any) -> str:
    """HTML of a chart for a notebook: an image that needs no JavaScript."""
    return f'<div class="unmyopic-chart">{image(chart_svg(chart))}</div>'


def image(svg: str) -> Markup:
    """A chart's SVG as one image: shorter, with a text alternative, and with ids that no other chart has."""
    text = _text_alternative(svg)
    # labels of marks become tooltips; what no reader sees is removed
    svg = _LABEL.sub(_tip, svg)
    svg = _INVISIBLE.sub("", _ROLES.sub("", svg))
    svg = svg.replace(f' font-family="{FONTS}"', "").replace(' opacity="1"', "").replace(' aria-hidden="true"', "")
    svg = _NUMBERS.sub(_with_two_decimals, svg)
    # shapes and attributes that many marks have are written once
    svg = _with_unique_ids(_shapes_once(_MARKS.sub(_attributes_once, svg)))
    svg = _FILE_RULE.sub("", svg)
    # letters that are wider than those it was laid out with may reach over its frame
    attributes = f'role="img" aria-label="{escape(text)}" font-family="{FONTS}" overflow="visible"'
    return Markup(svg.replace("<svg ", f"<svg {attributes} ", 1))


def _with_two_decimals(attribute: re.Match[str]) -> str:
    return _DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", attribute[0])


def _attributes_once(match: re.Match[str]) -> str:
    """A group of marks whose common attributes are written on the group, which its marks inherit.

    So are the names of the values of many marks: `data-names="layer; accuracy"` of the group, `data-tip="1; 0.5"`.
    """
    group, marks = match[1], match[2]
    tips = [tip.split("; ") for tip in _TIP.findall(marks)]
    names = [[value.partition(": ")[0] for value in values] for values in tips]
    if len(tips) >= MANY_MARKS and all(of_mark == names[0] for of_mark in names):
        group += f' data-names="{"; ".join(names[0])}"'
        marks = _TIP.sub(_values_alone, marks)
    attributes = [set(_INHERITED.findall(mark)) for mark in _MARK.findall(marks)]
    common = set.intersection(*attributes) if len(attributes) > 1 else set()
    marks = _MARK.sub(lambda mark: _INHERITED.sub(lambda text: "" if text[0] in common else text[0], mark[0]), marks)
    return f"<g{group}{''.join(sorted(common))}>{marks}</g>"


def _values_alone(tip: re.Match[str]) -> str:
    """The values of a mark without their names."""
    values = [value.partition(": ")[2] for value in tip[1].split("; ")]
    return f' data-tip="{"; ".join(values)}"'


def _shapes_once(svg: str) -> str:
    """A shape that several marks have is defined once, and used by its id."""
    counts = Counter(_SHAPE.findall(svg))
    shapes = [shape for shape, count in counts.items() if count > 2 and len(shape) > len(' href="#c01234567-shape-10"')]
    if not shapes:
        return svg
    ids = {shape: f"shape-{index}" for index, shape in enumerate(shapes)}

    def use(path: re.Match[str]) -> str:
        shape = _SHAPE.search(path[0])
        if shape is None or shape[1] not in ids:
            return path[0]
        text = path[0].replace(shape[0], f' href="#{ids[shape[1]]}"')
        return text.replace("<path", "<use", 1)

    definitions = "".join(f'<path id="{name}" d="{shape}"/>' for shape, name in ids.items())
    svg = _PATH.sub(use, svg)
    return re.sub(r"(<svg [^>]*>)", rf"\1<defs>{definitions}</defs>", svg, count=1)


def _with_unique_ids(svg: str) -> str:
    """Replace ids, which count all charts of the process, by a digest of the chart and a number."""
    # number them from 0, so that equal charts give equal text
    old_ids = dict.fromkeys(re.findall(r' id="([^"]*)"', svg))
    ids = {old_id: str(index) for index, old_id in enumerate(old_ids)}
    svg = _REFERENCE.sub(lambda match: match[1] + ids.get(match[2], match[2]) + match[3], svg)
    # then put the digest of that text in front, so that other charts have other ids
    digest = hashlib.sha256(svg.encode()).hexdigest()[:8]
    return _REFERENCE.sub(lambda match: f"{match[1]}c{digest}-{match[2]}{match[3]}", svg)


def _text_alternative(svg: str) -> str:
    """Titles, axes and legends of a chart in words, and its number of marks."""
    titles: dict[str, None] = {}
    scales: dict[str, None] = {}
    marks = 0
    for kind, label in _LABEL.findall(svg):
        if kind == "title":
            titles[re.sub(r"^Title text '(.*)'$", r"\1", unescape(label))] = None
        elif kind:
            scales[unescape(label)] = None
        else:
            marks += 1
    # the renderer writes the title of the whole chart last
    return ". ".join(["Chart", *list(titles)[::-1][:6], *list(scales)[:8], f"{marks} marks"])


def _tip(match: re.Match[str]) -> str:
    """The values of a mark; labels of axes, legends and titles are in the text alternative."""
    kind, label = match[1], match[2]
    if kind:
        return ""
    values = _LONG.sub(lambda number: f"{float(number[0]):.4g}", label)
    return f' data-tip="{values}"'
