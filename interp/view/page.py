"""Self-contained HTML pages with sections of text, tables and charts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from hooks.atomic import write_text
from interp.view.charts import chart_svg


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a page. Text is escaped; `html` and `foot` are not."""

    title: str
    text: str = ""
    """Paragraphs, separated by blank lines."""
    chart: Any = None
    """An Altair chart: a static image that the script of the page makes interactive."""
    table: Sequence[Sequence[str]] = ()
    """Rows of cells, the first of them the header. A cell that is `Markup` is not escaped."""
    html: Markup | str = ""
    charts: Sequence[Any] = ()
    """Further charts or Vega-Lite dicts, one below the other."""
    tables: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()
    """Further tables, each with its title."""
    foot: Markup | str = ""
    """HTML at the end of the section."""
    anchor: str = ""
    """Fragment of links to the section, default: its number."""
    in_nav: bool = True
    """Whether the navigation at the top of the page lists it."""
    short: str = ""
    """Its name in the navigation, default: its title."""


def write_page(path: str | Path, *, title: str, lead: str, sections: Sequence[Section]) -> Path:
    """Write a page, atomically.

    Args:
        path: The HTML file.
        title: Heading and title of the window.
        lead: Summary in a few sentences.
        sections: Sections in order.

    Raises:
        ValueError: no sections.
    """
    if not sections:
        raise ValueError("sections is empty; a page needs at least one.")
    environment = Environment(loader=PackageLoader("interp.view", "."), autoescape=True, trim_blocks=True)
    specs = [_specs(section) for section in sections]
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


def _specs(section: Section) -> list[dict[str, Any]]:
    charts = [*([section.chart] if section.chart is not None else []), *section.charts]
    return [dict(chart) if isinstance(chart, Mapping) else json.loads(chart.to_json()) for chart in charts]


@cache
def _javascript() -> str:
    """Bundle of Vega, Vega-Lite and Vega-Embed, escaped for a script element."""
    import vl_convert

    bundle = vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue]  # the stub requires a snippet
    return bundle.replace("</script", "<\\/script")
