"""What Sphinx's HTML lacks for screen readers."""

import re
from typing import Any

from sphinx.application import Sphinx

SIGNATURE = re.compile(r'<dl>\n(<dd><em class="sig-param">.*?)</dl>', re.DOTALL)
"""The parameters of a signature, one a line, as a list that has no terms."""
TABLE = re.compile(r"<table(?= )(.*?</tr>)", re.DOTALL)
"""A table up to the end of its first row."""
WIDE = 3
"""Columns from which a table scrolls on a narrow screen, and must be reached by keys."""
EMPTY_HEADER = re.compile(r'<th class="head( stub)?"><p></p></th>|<th></th>')


def with_names(body: str) -> str:
    """The HTML of a page: signatures as lines, empty header cells as plain cells, wide tables that can be focused."""

    def lines(signature: re.Match[str]) -> str:
        text = signature[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
        return f'<span class="sig-lines">{text}</span>'

    def focusable(table: re.Match[str]) -> str:
        n_columns = len(re.findall("<t[hd]", table[1])) - table[1].count("<thead")
        return f'<table tabindex="0"{table[1]}' if n_columns >= WIDE else table[0]

    return EMPTY_HEADER.sub("<td></td>", TABLE.sub(focusable, SIGNATURE.sub(lines, body)))


def _page_context(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if "body" in context:
        context["body"] = with_names(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("html-page-context", _page_context)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
