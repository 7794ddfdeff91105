"""One HTML file that opens offline: sections of text, tables and charts, with all its JavaScript inside, once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from hooks.atomic import write_text
from interp.view.charts import chart_svg


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page. Text is escaped; `html` must be safe already."""

    title: str
    text: str = ""
    """Paragraphs, with a blank line between them."""
    chart: Any = None
    """An Altair chart: drawn at once, made interactive when the page's script runs."""
    table: Sequence[Sequence[str]] = ()
    """Rows of cells, the first row being the head. A cell that is `Markup` is not escaped."""
    html: Markup | str = ""
    charts: Sequence[Any] = ()
    """Further charts, or Vega-Lite as dicts, one below the other."""
    tables: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()
    """Further tables, each with its title."""
    foot: Markup | str = ""
    """Safe HTML below all of it."""
    anchor: str = ""
    """What links to the section end in; its number when left out."""
    in_nav: bool = True
    """Listed at the top of the page."""
    short: str = ""
    """What the list of sections calls it; its title when left out."""


def write_page(path: str | Path, *, title: str, lead: str, sections: Sequence[Section]) -> Path:
    """Write a page in one step.

    Args:
        path: The HTML file.
        title: Heading and window title.
        lead: What the page shows, in a few sentences.
        sections: Its parts, in order.

    Raises:
        ValueError: no section at all.
    """
    if not sections:
        raise ValueError("sections is empty; a page needs at least one.")
    environment = Environment(loader=PackageLoader("interp.view", "."), autoescape=True, trim_blocks=True)
    specs = [[_spec(chart) for chart in _charts(section)] for section in sections]
    numbers = iter(range(1, sum(map(len, specs)) + 1))
    parts = [
        {
            "section": section,
            "anchor": section.anchor or f"section-{index}",
            "paragraphs": [part for part in section.text.split("\n\n") if part.strip()],
            "charts": [(next(numbers), Markup(chart_svg(spec)), spec) for spec in drawn],
            "tables": [*([("", section.table)] if section.table else []), *section.tables],
        }
        for index, (section, drawn) in enumerate(zip(sections, specs, strict=True), start=1)
    ]
    script = Markup(_javascript()) if any(specs) else None
    html = environment.get_template("page.html.jinja").render(title=title, lead=lead, parts=parts, script=script)
    write_text(path, html)
    return Path(path)


def _charts(section: Section) -> list[Any]:
    return [*([section.chart] if section.chart is not None else []), *section.charts]


def _spec(chart: Any) -> dict[str, Any]:
    return dict(chart) if isinstance(chart, Mapping) else json.loads(chart.to_json())


def _javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one piece, safe inside a script element."""
    import vl_convert

    bundle = vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue]  # its stub asks for a snippet
    return bundle.replace("</script", "<\\/script")
