"""Attention patterns as an offline HTML page: our viewer and circuitsvis's."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from math import ceil, isqrt
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from jaxtyping import Bool, Float, Shaped
from markupsafe import Markup

from hooks.files import user_path, write_text
from interp.view.charts import pattern_maps
from interp.view.html import PageIdentity, render, render_fragment, resource

SMALL, MEDIUM, LARGE = 72, 88, 112
"""Pixels of a thumbnail with more than `MANY` heads, next to findings, and without."""
MANY = 64
MOST_MAPS = 12
MOST_WEIGHTS = 11_000_000
"""Attention weights on a page; more are thinned. A byte each, in base64: 15 MB if nothing can be compressed."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One sequence: tokens, the pattern of every head, and relations that can be outlined."""

    tokens: tuple[str, ...]
    patterns: Float[np.ndarray, "head query key"]
    relations: Mapping[str, Bool[np.ndarray, "query key"]] = field(default_factory=dict)
    other_patterns: Float[np.ndarray, "head query key"] | None = None
    """Patterns of another model or input, shown next to these with the difference."""
    other_name: str = "other model"
    """What the other patterns are of."""

    @property
    def patterns_by_source(self) -> list[Float[np.ndarray, "head query key"]]:
        """The patterns of one model and input, or of two."""
        return [self.patterns] if self.other_patterns is None else [self.patterns, self.other_patterns]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is known about a head, shown with its pattern."""

    verdict: str
    colour: str
    """CSS colour of the verdict."""
    sentence: str
    label: str = ""
    """The kind of head that its pattern looks like, if any."""
    is_first: bool = False
    """Whether the page opens on this head."""
    costs: Sequence[tuple[str, float, float, float]] = ()
    """Intervention in words, what it costs, and the ends of the interval."""
    threshold: float = 0.0
    """The loss that counts."""
    probes: Sequence[tuple[str, float, float]] = ()
    """Target, and probe accuracy before and after the layer of the head."""


@dataclass(frozen=True, kw_only=True)
class AttentionPage:
    """A complete HTML page, rendered inline in a notebook."""

    html: str
    """HTML of the page, which opens offline."""
    viewer: str
    """`circuitsvis` or `canvas`."""
    fragment: str = ""
    """HTML of the canvas viewer alone, for a section of another page; empty for circuitsvis."""
    height: int = 720
    """Height in a notebook that does not let the page set its own, in pixels."""
    examples: tuple[Example, ...] = ()
    heads: tuple[str, ...] = ()
    """Name of each head."""
    findings: tuple[Finding, ...] = ()
    """What is known about each head, or nothing."""

    def plot(self, *heads: str, example: int = 0) -> alt.TopLevelMixin:
        """The patterns of chosen heads as a chart, which `.save()` writes as SVG, PDF or PNG.

        Args:
            heads: Names such as `"1.0"`, at most 12; default: the first 12.
            example: Which sequence.

        Raises:
            ValueError: an unknown head, too many of them, or an example that does not exist.
        """
        chosen = heads or self.heads[:MOST_MAPS]
        for head in chosen:
            if head not in self.heads:
                raise ValueError(f"head is {head!r}; choose from {', '.join(self.heads)}.")
        if len(chosen) > MOST_MAPS:
            raise ValueError(f"{len(chosen)} heads; a chart shows at most {MOST_MAPS}.")
        if not 0 <= example < len(self.examples):
            raise ValueError(f"example is {example}; this page has {len(self.examples)}, from 0.")
        # one map for each head, and a second one for the other model or input
        sequence = self.examples[example]
        maps = {}
        for head in chosen:
            for suffix, patterns in zip(("", f", {sequence.other_name}"), sequence.patterns_by_source, strict=False):
                maps[f"head {head}{suffix}"] = patterns[self.heads.index(head)]
        title = f"attention, example {example + 1}"
        return pattern_maps(maps, tokens=list(sequence.tokens), title=title, full_tokens=True)

    def save(self, path: str | Path) -> Path:
        """Write the page, atomically."""
        write_text(path, self.html)
        return user_path(path)

    def __repr__(self) -> str:
        shown = f"heads {', '.join(self.heads[:MOST_MAPS])}{', ...' if len(self.heads) > MOST_MAPS else ''}"
        lengths = ", ".join(str(len(example.tokens)) for example in self.examples[:MOST_MAPS])
        return (
            f"attention page ({self.viewer}): {shown}; sequences of {lengths} tokens; {len(self.html) / 1e3:,.0f} kB.\n"
            f"A notebook shows it as the last line of a cell; .save('attention.html') writes a page that opens offline."
        )

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe srcdoc="{escape(self.html)}" title="attention patterns" style="{style}"></iframe>'


def canvas_page(
    examples: Sequence[Example],
    *,
    heads: Sequence[str],
    labels: Sequence[str],
    columns: int,
    title: str,
    notes: Sequence[str] = (),
    findings: Sequence[Finding] = (),
    identity: PageIdentity | None = None,
) -> AttentionPage:
    """A page with a grid of heads, and a panel with the chosen one, which can be saved as SVG.

    The pointer or arrow keys show query, key and weight, and shade the keys of a query or the queries of a key. Weights
    are stored as their square root in one byte each, compressed: within 0.004 of the true weight. With more than
    `MOST_WEIGHTS` weights, one cell is a block of tokens with its largest weight, which a line below it explains.

    Args:
        examples: Sequences to choose from, all with the same relations, and all or none with `other_patterns`.
        heads: Name of each head.
        labels: Label after each name, or an empty string.
        columns: Heads per row of the grid.
        title: Heading of the page.
        notes: Why each head has no label, or an empty string; or nothing.
        findings: What is known about each head, or nothing.
        identity: What the page is about and how it was made.

    Raises:
        ValueError: no examples, or names or findings that do not match the patterns.
    """
    _check(examples, heads, labels)
    if findings and len(findings) != len(heads):
        raise ValueError(f"findings has {len(findings)} entries for {len(heads)} heads; give one each, or none.")
    first = examples[0]
    models = [first.other_name.removeprefix("other "), first.other_name][: len(first.patterns_by_source)]
    # the side of a pattern that fits, if all have the same; longer sequences are thinned
    weights_per_pattern = MOST_WEIGHTS / (len(examples) * len(heads) * len(models))
    most_cells = max(1, isqrt(int(weights_per_pattern)))
    # smaller thumbnails if there are many heads, or findings next to them
    thumbnail = MEDIUM if findings else LARGE
    if len(heads) > MANY:
        thumbnail = SMALL
    # what the script of the page reads
    meta = {
        "heads": [
            {"name": name, "label": label, "note": note}
            for name, label, note in zip(heads, labels, notes or [""] * len(heads), strict=True)
        ],
        "findings": [asdict(finding) for finding in findings],
        "chosen": next((index for index, finding in enumerate(findings) if finding.is_first), 0),
        "columns": columns,
        "models": models,
        "thumb": thumbnail,
        "examples": [_page_data(example, ceil(len(example.tokens) / most_cells)) for example in examples],
    }
    fragment = render_fragment(
        "viewer.html.jinja", meta=meta, style=resource("attention.css"), script=resource("attention.js")
    )
    html = render(
        "attention.html.jinja", title=title, identity=identity, viewer=fragment, frame_script=resource("frame.js")
    )
    return AttentionPage(
        html=html,
        viewer="canvas",
        fragment=fragment,
        examples=tuple(examples),
        heads=tuple(heads),
        findings=tuple(findings),
    )


def _page_data(example: Example, block: int) -> dict[str, Any]:
    """An example as the script of the page reads it, with one cell for each block of tokens."""
    roots = [np.sqrt(thinned(patterns.clip(0, 1), block)) for patterns in example.patterns_by_source]
    relations = {name: thinned(relation, block) for name, relation in example.relations.items()}
    return {
        "tokens": list(example.tokens),
        "block": block,
        "side": ceil(len(example.tokens) / block),
        "patterns": [_pack(np.rint(255 * root)) for root in roots],
        "relations": {name: _pack(relation) for name, relation in relations.items()},
    }


def thinned(maps: Shaped[np.ndarray, "*head query key"], block: int) -> Shaped[np.ndarray, "*head rows columns"]:
    """The largest value of each block of `block` by `block` cells; the last blocks may be smaller."""
    if block == 1:
        return maps
    starts = np.arange(0, maps.shape[-1], block)
    largest_keys = np.maximum.reduceat(maps, starts, axis=-1)
    return np.maximum.reduceat(largest_keys, starts, axis=-2)


def circuitsvis_page(
    example: Example, *, heads: Sequence[str], causal: bool, title: str, identity: PageIdentity | None = None
) -> AttentionPage:
    """A page with circuitsvis's attention heads view of one sequence, from its bundled JavaScript.

    Args:
        example: The sequence. Its relations are not shown.
        heads: Name of each head.
        causal: Hide the keys after each query.
        title: Heading of the page.
        identity: What the page is about and how it was made.

    Raises:
        ValueError: names that do not match the patterns.
    """
    from circuitsvis.attention import attention_heads

    _check([example], heads, heads)
    rendered = attention_heads(
        example.patterns, list(example.tokens), attention_head_names=list(heads), mask_upper_tri=causal
    )
    # the arguments come after the bundle; a token such as </script> must not end the script
    bundle, call, rest_of_script = rendered.local_src.rpartition("CircuitsVis.render(")
    end = rest_of_script.rindex("</script>")
    arguments = rest_of_script[:end].replace("<", "\\u003c")
    body = bundle + call + arguments + rest_of_script[end:]
    html = render(
        "circuitsvis.html.jinja", title=title, identity=identity, viewer=Markup(body), frame_script=resource("frame.js")
    )
    return AttentionPage(html=html, viewer="circuitsvis", examples=(example,), heads=tuple(heads))


def _check(examples: Sequence[Example], heads: Sequence[str], labels: Sequence[str]) -> None:
    """Check that there are examples whose patterns have one shape, and that names match them."""
    if not examples:
        raise ValueError("examples is empty; show at least one sequence.")
    for example in examples:
        n = len(example.tokens)
        for name, patterns in zip(("patterns", "other_patterns"), example.patterns_by_source, strict=False):
            if patterns.shape != (len(heads), n, n) or len(labels) != len(heads):
                raise ValueError(
                    f"{name} is {patterns.shape} for {len(heads)} heads, {len(labels)} labels and {n} tokens; "
                    f"it must be (head, query, key)."
                )
    if len({len(example.patterns_by_source) for example in examples}) > 1:
        raise ValueError("some examples have patterns of another model or input and some do not; give all or none.")


def _pack(values: np.ndarray) -> str:
    """Values from 0 to 255, one byte each, compressed, as text."""
    content = np.ascontiguousarray(values.astype(np.uint8)).tobytes()
    return base64.b64encode(zlib.compress(content, 9)).decode()
