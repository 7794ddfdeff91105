"""The frame of every page: heading, identity, table of contents and stylesheet, around the page's own template."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup


@dataclass(frozen=True, kw_only=True)
class PageIdentity:
    """What a page is about and how it was made, shown below its heading. An empty field is left out."""

    task: str = ""
    model: str = ""
    seed: str = ""
    command: str = ""
    """The command that makes the page."""
    commit: str = ""
    """Commit or version of the source code."""
    date: str = ""

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Name and value of the fields that are known."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return [(name, value) for name, value in values.items() if value]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the table of contents."""

    anchor: str
    name: str
    under: bool = False
    """Whether it belongs to the entry before it; shown on wide screens only."""


def render(
    template: str,
    *,
    title: str,
    lead: str = "",
    identity: PageIdentity | None = None,
    contents: Sequence[Entry] = (),
    **values: Any,
) -> str:
    """A complete HTML page from a template that extends `base.html.jinja`.

    Args:
        template: File name of the template in this folder.
        title: Heading and title of the window.
        lead: Summary in a few sentences.
        identity: What the page is about and how it was made.
        contents: Table of contents; none if empty.
        values: Variables of the template.
    """
    facts = identity.facts if identity else []
    style = resource("page.css") + resource("cards.css")
    page = _environment().get_template(template)
    return page.render(title=title, lead=lead, facts=facts, contents=contents, style=style, **values)


def render_fragment(template: str, **values: Any) -> Markup:
    """HTML of a part of a page, from a template in this folder and its variables."""
    return Markup(_environment().get_template(template).render(**values))


def scrolling(html: Markup | str, *, label: str) -> Markup:
    """Content that may be wider than the page: it scrolls sideways, also by keyboard.

    Args:
        html: The content; text is escaped.
        label: Its name for screen readers.
    """
    return Markup('<div class="scroll" role="group" tabindex="0" aria-label="{}">{}</div>').format(label, html)


@cache
def resource(name: str) -> Markup:
    """Content of a file of this folder, for a style or script element."""
    return Markup(files("interp.view").joinpath(name).read_text(encoding="utf-8"))


@cache
def _environment() -> Environment:
    return Environment(loader=PackageLoader("interp.view", "."), autoescape=True, trim_blocks=True)
