"""Charts as inline SVG: one image with a text alternative, distinct ids, and the values of each mark for a tooltip."""

import hashlib
import json
import re
from collections.abc import Mapping
from html import unescape
from typing import Any

from markupsafe import Markup, escape

from interp.view.charts import chart_svg
from interp.view.html import scrolling

DARK = {"#0b6e8a": "#3fa9c9", "#5b4b8a": "#a596dd", "#8d6a4f": "#c79f80", "#2e4057": "#8ba6c6", "#9a031e": "#ef6a80"}
DARK |= {"#1c2330": "#dfe4ea", "#d1495b": "#e8707f"}
"""Colours of `charts.COLOURS` that are hard to see on a dark page, and their replacements there."""
# in the SVG text of Vega
_ROLES = re.compile(r' role="[^"]*"| aria-roledescription="[^"]*"')
_INVISIBLE = re.compile(r'<path(?=[^>]*(?: d="M0,0h0v0h0Z"| display="none"))[^>]*/>')
_DECIMALS = re.compile(r"\d+\.\d{3,}")
_NUMBERS = re.compile(r' (?:d|transform|x2|y2|width|height|viewBox)="[^"]*"')
_LABEL = re.compile(r'(?: aria-roledescription="([^"]*)")? aria-label="([^"]*)"')
"""Label of an axis, legend or title, after what it is; label of a mark, before what it is."""
_LONG = re.compile(r"-?\d+\.\d{5,}(?:e-?\d+)?")
_SHADED = re.compile(r'aria-roledescription="rect mark"[^>]*fill="rgb\(')
_REFERENCE = re.compile(r'( id="|url\(#|href="#)([^")]*)([")])')


def chart_figure(chart: Any) -> Markup:
    """A chart as an HTML figure that needs neither JavaScript nor a network.

    Args:
        chart: An Altair chart or a Vega-Lite dict.

    Returns:
        `<figure class="chart">` with one SVG image. Equal charts give equal text. `data-tip` of a mark has its values.
    """
    spec = dict(chart) if isinstance(chart, Mapping) else json.loads(chart.to_json())
    svg = chart_svg(spec)
    # how the chart looks on a dark page depends on its colours
    kind = ""
    if '"viridis"' not in json.dumps(spec) and _SHADED.search(svg):
        kind = " pale"  # low values are nearly white: an undrawn cell must look like them
    elif "mark-text role-mark" in svg:
        kind = " inked"  # text on coloured cells: its contrast is that of these colours
    width = re.search(r' width="(\d+)', svg)
    return Markup('<figure class="chart{}" style="--width:{}px">{}</figure>').format(
        kind, width[1] if width else 0, scrolling(image(svg), label="Chart")
    )


def chart_html(chart: Any) -> str:
    """HTML of a chart for a notebook: an image that needs no JavaScript."""
    return f'<div class="unmyopic-chart">{image(chart_svg(chart))}</div>'


def image(svg: str) -> Markup:
    """A chart's SVG as one image: shorter, with a text alternative, and with ids that no other chart has."""
    text = _text_alternative(svg)
    svg = _with_unique_ids(svg)
    # labels of marks become tooltips; what no reader sees is removed
    svg = _LABEL.sub(_tip, svg)
    svg = _INVISIBLE.sub("", _ROLES.sub("", svg))
    svg = svg.replace(' font-family="sans-serif"', "").replace(' opacity="1"', "").replace(' aria-hidden="true"', "")
    svg = _NUMBERS.sub(_with_two_decimals, svg)
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(text)}" font-family="sans-serif" ', 1))


def _with_two_decimals(attribute: re.Match[str]) -> str:
    return _DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", attribute[0])


def _with_unique_ids(svg: str) -> str:
    """Replace ids, which count all charts of the process, by a digest of the chart and a number."""
    # number them from 0, so that equal charts give equal text
    old_ids = dict.fromkeys(re.findall(r' id="([^"]*)"', svg))
    ids = {old_id: f"id-{index}" for index, old_id in enumerate(old_ids)}
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


def dark_rules() -> Markup:
    """Style rules that replace colours of charts on a dark page."""
    rule = Markup('{2} [fill="{0}"] {{ fill: {1}; }} {2} [stroke="{0}"] {{ stroke: {1}; }}\n')
    selector = ".chart:not(.pale, .inked)"
    rules = [rule.format(colour, dark_colour, selector) for colour, dark_colour in DARK.items()]
    return Markup("").join(rules)
