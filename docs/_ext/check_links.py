"""The built site, checked: no dead link, and nothing that a browser would fetch from elsewhere."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.errors import SphinxError

ATTRIBUTES = {"src", "srcset", "poster", "data"}
"""Attributes whose addresses a browser loads at once, as it does `href` of a link element."""


class Page(HTMLParser):
    """Addresses and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if not value:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name in ATTRIBUTES or (tag == "link" and name == "href"):
                self.loaded.append(value)
            elif name == "href":
                self.links.append(value)


def faults(folder: Path) -> Iterator[str]:
    """Dead links and outside assets of the pages in a folder, one text each."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in _pages(folder)}
    for path, page in pages.items():
        name = path.relative_to(folder.resolve()).as_posix()
        yield from (f"{name} loads {link}" for link in page.loaded if urlsplit(link).scheme in ("http", "https"))
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists():
                yield f"{name} links to {link}, which does not exist"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{name} links to {link}, whose anchor does not exist"


def _pages(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]  # templates of the theme


def _finished(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        found = sorted(set(faults(Path(app.outdir))))
        if found:
            raise SphinxError("\n".join([f"{len(found)} faults in the built pages:", *found[:50]]))


def _purged(app: Sphinx, env: object, docname: str) -> None:
    """Remove the page of a document that is removed, or that is about to be written again."""
    Path(app.outdir, f"{docname}.html").unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("env-purge-doc", _purged)
    app.connect("build-finished", _finished, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
