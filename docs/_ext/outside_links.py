"""Links of Markdown pages to what is outside docs/: pages of the site, study pages, or words without a link."""

import re
from pathlib import Path

from sphinx.application import Sphinx

PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Files outside docs/ that have a page of the site."""
INCLUDED = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
"""Pages that consist of such a file."""
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[\w./-]+)\)")


def rewrite(text: str, page: Path, docs: Path) -> str:
    """A page's text with its links to folders and pages outside docs/ replaced; files are left, and copied."""

    def replaced(found: re.Match[str]) -> str:
        target = (page.parent / found[2]).resolve()
        if target.is_relative_to(docs):
            return found[0]
        name = target.relative_to(docs.parent).as_posix()
        if name in PAGES:
            return f"[{found[1]}](/{PAGES[name]})"
        without_link = target.is_dir() or target.suffix == ".md" or name.startswith(".github/")
        return found[1] if without_link else found[0]

    return LINK.sub(replaced, text)


def _source_read(app: Sphinx, name: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(name)).resolve()
    if path.stem in INCLUDED:
        text = (Path(app.srcdir).parent / INCLUDED[path.stem]).read_text(encoding="utf-8")
        text = text.replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md")
        source[0] = rewrite(text.replace("](.github/", "](../.github/"), path, path.parent)
    elif path.suffix == ".md":
        source[0] = rewrite(source[0], path, Path(app.srcdir).resolve())


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _source_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
