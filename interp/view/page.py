"""One HTML file that opens offline: sections of text, tables and charts, with all its JavaScript inside, once."""

import json
from collections.abc import Sequence
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
    """Rows of cells, the first row being the head."""
    html: Markup | str = ""


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
    parts = [
        {
            "section": section,
            "paragraphs": [part for part in section.text.split("\n\n") if part.strip()],
            "svg": Markup(chart_svg(section.chart)) if section.chart is not None else None,
            "spec": json.loads(section.chart.to_json()) if section.chart is not None else None,
        }
        for section in sections
    ]
    script = Markup(_javascript()) if any(part["spec"] for part in parts) else None
    html = environment.get_template("page.html.jinja").render(title=title, lead=lead, parts=parts, script=script)
    write_text(path, html)
    return Path(path)


def _javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one piece, safe inside a script element."""
    import vl_convert

    bundle = vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue]  # its stub asks for a snippet
    return bundle.replace("</script", "<\\/script")
