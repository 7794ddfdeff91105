"""Attention patterns as an offline HTML page: the canvas viewer and circuitsvis."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from jinja2 import Environment, PackageLoader

from hooks.atomic import write_text

SMALL, LARGE = 72, 112
"""Pixels of a thumbnail with more than `MANY` heads, and with fewer."""
MANY = 64


@dataclass(frozen=True, kw_only=True)
class Example:
    """One sequence: tokens, the pattern of every head, and relations that can be outlined."""

    tokens: tuple[str, ...]
    patterns: Float[np.ndarray, "head query key"]
    relations: Mapping[str, Bool[np.ndarray, "query key"]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AttentionPage:
    """A complete HTML page, rendered inline in a notebook."""

    html: str
    """HTML of the page, which opens offline."""
    viewer: str
    """`circuitsvis` or `canvas`."""
    height: int = 720
    """Height in a notebook, in pixels."""

    def save(self, path: str | Path) -> Path:
        """Write the page, atomically."""
        write_text(path, self.html)
        return Path(path)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:{self.height}px;border:0"></iframe>'


def canvas_page(
    examples: Sequence[Example], *, heads: Sequence[str], labels: Sequence[str], columns: int, title: str
) -> AttentionPage:
    """A page with a grid of thumbnails: hovering shows query, key and weight; a click enlarges a map.

    Weights are stored as their square root in one byte each, compressed: within 0.004 of the true weight.

    Args:
        examples: Sequences to choose from, all with the same relations.
        heads: Name of each head.
        labels: Label after each name, or an empty string.
        columns: Heads per row of the grid.
        title: Heading of the page.

    Raises:
        ValueError: no examples, or names that do not match the patterns.
    """
    _check(examples, heads, labels)
    meta = {
        "heads": [{"name": name, "label": label} for name, label in zip(heads, labels, strict=True)],
        "columns": columns,
        "examples": [
            {
                "tokens": list(one.tokens),
                "patterns": _pack(np.rint(255 * np.sqrt(one.patterns.clip(0, 1))).astype(np.uint8)),
                "relations": {name: _pack(relation.astype(np.uint8)) for name, relation in one.relations.items()},
            }
            for one in examples
        ],
    }
    environment = Environment(loader=PackageLoader("interp.view", "."), autoescape=True)
    html = environment.get_template("attention.html.jinja").render(
        title=title, meta=meta, thumb=SMALL if len(heads) > MANY else LARGE
    )
    return AttentionPage(html=html, viewer="canvas")


def circuitsvis_page(example: Example, *, heads: Sequence[str], causal: bool, title: str) -> AttentionPage:
    """A page with circuitsvis's attention heads view of one sequence, from its bundled JavaScript.

    Args:
        example: The sequence. Its relations are not shown.
        heads: Name of each head.
        causal: Hide the keys after each query.
        title: Title of the window.

    Raises:
        ValueError: names that do not match the patterns.
    """
    from circuitsvis.attention import attention_heads

    _check([example], heads, heads)
    rendered = attention_heads(
        example.patterns, list(example.tokens), attention_head_names=list(heads), mask_upper_tri=causal
    )
    # the arguments come after the bundle; a token such as </script> must not end the script
    bundle, call, arguments = rendered.local_src.rpartition("CircuitsVis.render(")
    end = arguments.rindex("</script>")
    body = bundle + call + arguments[:end].replace("<", "\\u003c") + arguments[end:]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    return AttentionPage(
        html=f"<!doctype html>\n<html lang='en'><head>{head}</head><body>{body}</body></html>", viewer="circuitsvis"
    )


def _check(examples: Sequence[Example], heads: Sequence[str], labels: Sequence[str]) -> None:
    if not examples:
        raise ValueError("examples is empty; show at least one sequence.")
    for one in examples:
        n = len(one.tokens)
        if one.patterns.shape != (len(heads), n, n) or len(labels) != len(heads):
            raise ValueError(
                f"patterns is {one.patterns.shape} for {len(heads)} heads, {len(labels)} labels and {n} tokens; "
                f"it must be (head, query, key)."
            )


def _pack(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()
