"""Self-contained HTML pages with sections of text, tables and charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hooks.checks import check_text
from hooks.files import user_path, write_text
from interp.view.figures import chart_figure
from interp.view.html import Entry, PageIdentity, render, resource


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a page. Text is escaped; `html` and `foot` are not."""

    title: str
    text: str = ""
    """Paragraphs, separated by blank lines."""
    chart: Any = None
    """An Altair chart or a Vega-Lite dict, drawn as a static image; a tooltip shows the values of each mark."""
    table: Sequence[Sequence[str]] = ()
    """Rows of cells, the first of them the header. A cell that is `Markup` is not escaped."""
    html: Markup | str = ""
    charts: Sequence[Any] = ()
    """Further charts or Vega-Lite dicts, one below the other."""
    tables: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()
    """Further tables, each with its title. Long ones are folded."""
    folded: bool = False
    """Whether short tables with a title are folded too."""
    foot: Markup | str = ""
    """HTML at the end of the section."""
    anchor: str = ""
    """Fragment of links to the section, default: its number."""
    under: bool = False
    """Whether the table of contents lists it under the section before it, on wide screens only."""
    short: str = ""
    """Its name in the table of contents, default: its title."""

    def __post_init__(self) -> None:
        for name in ("title", "text", "table", "html", "tables", "foot", "short"):
            check_text(name, getattr(self, name))


def write_page(
    path: str | Path, *, title: str, lead: str, sections: Sequence[Section], identity: PageIdentity | None = None
) -> Path:
    """Write a page, atomically.

    Args:
        path: The HTML file.
        title: Heading and title of the window.
        lead: Summary in a few sentences.
        sections: Sections in order.
        identity: What the page is about and how it was made.

    Raises:
        ValueError: no sections.
    """
    check_text("title", title)
    check_text("lead", lead)
    if not sections:
        raise ValueError("sections is empty; a page needs at least one.")
    # each section, and its line in the table of contents
    contents, rendered_sections = [], []
    drawn: dict[Markup, str] = {}
    for index, section in enumerate(sections, start=1):
        anchor = section.anchor or f"section-{index}"
        contents.append(Entry(anchor=anchor, name=section.short or section.title, under=section.under))
        rendered_sections.append(_template_values(section, anchor, drawn))
    # the script is for charts only
    has_charts = any(values["figures"] for values in rendered_sections)
    html = render(
        "page.html.jinja",
        title=title,
        lead=lead,
        identity=identity,
        contents=contents,
        sections=rendered_sections,
        script=resource("page.js") if has_charts else None,
    )
    write_text(path, html)
    return user_path(path)


def _template_values(section: Section, anchor: str, drawn: dict[Markup, str]) -> dict[str, Any]:
    """A section as the template of the page reads it.

    Args:
        section: The section.
        anchor: Its anchor.
        drawn: Anchors of the charts of earlier sections, by their HTML; those of this section are added. A chart that
            the page has already is a link to it.
    """
    charts = [] if section.chart is None else [section.chart]
    figures: list[Markup] = []
    for chart in (*charts, *section.charts):
        figure = chart_figure(chart)
        if drawn.setdefault(figure, anchor) == anchor:
            figures.append(figure)
        else:
            figures.append(Markup('<p>The chart of <a href="#{0}">{0}</a>.</p>').format(drawn[figure]))
    tables = [("", section.table)] if section.table else []
    return {
        "section": section,
        "anchor": anchor,
        "paragraphs": [paragraph for paragraph in section.text.split("\n\n") if paragraph.strip()],
        "figures": figures,
        "tables": [*tables, *section.tables],
    }
