"""Heads as cards: the pattern, the verdict on its colour, and what the model loses without the head."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from interp.view.html import render_fragment, resource
from interp.view.verdicts import DARK_VERDICTS, VERDICT_COLOURS

CELL = 14
"""Units of the side of a cell of a pattern, in which a letter fits."""
MIN_WEIGHT = 0.02
"""Weights below this are too pale to see."""
MOST_CARDS = 24
"""Cards of a notebook that are not folded."""
LETTER = 6.5
"""Units of the width of a letter of a token."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A head as a card."""

    name: str
    verdict: str
    cost: str
    """What is lost without it, in words."""
    picture: Markup | str = ""
    """Its pattern (`pattern_picture`)."""
    text: str = ""
    """A sentence on it."""


def verdict_chip(verdict: str, count: int | None = None) -> Markup:
    """A verdict on its colour, after the number of heads that have it, if given."""
    ink = "#fff" if verdict in DARK_VERDICTS else "#1c2330"
    words = verdict if count is None else f"{count} {verdict}"
    return Markup('<span class="chip" style="background:{};color:{}">{}</span>').format(
        VERDICT_COLOURS[verdict], ink, words
    )


def census(verdicts: Iterable[str]) -> Markup:
    """The number of heads of each verdict, as chips."""
    counts = Counter(verdicts)
    chips = [verdict_chip(verdict, counts[verdict]) for verdict in VERDICT_COLOURS if counts[verdict]]
    return Markup('<p class="census">{}</p>').format(Markup(" ").join(chips))


def head_cards(cards: Sequence[Card], *, kind: str = "strip") -> Markup:
    """Cards of heads next to each other.

    Args:
        cards: The heads.
        kind: `strip` of small cards, `pair` of large ones, or `list`, in which each card has a sentence.
    """
    return render_fragment("cards.html.jinja", cards=[(card, verdict_chip(card.verdict)) for card in cards], kind=kind)


def notebook_cards(cards: Sequence[Card]) -> Markup:
    """A census and cards of heads with their own style, for a notebook; those after `MOST_CARDS` are folded."""
    shown, folded = cards[:MOST_CARDS], cards[MOST_CARDS:]
    html = Markup("<style>{}</style>").format(resource("cards.css"))
    html += census(card.verdict for card in cards) + head_cards(shown, kind="list")
    if folded:
        html += Markup("<details><summary>{} more heads</summary>{}</details>").format(
            len(folded), head_cards(folded, kind="list")
        )
    return html


def pattern_picture(pattern: Float[np.ndarray, "query key"], tokens: Sequence[str] = (), *, name: str = "") -> Markup:
    """A pattern as SVG on a transparent ground, dark where a query (row) attends to a key (column).

    Args:
        pattern: Weights from 0 to 1.
        tokens: Token at each position, written along rows and columns; if empty, none.
        name: Text alternative.
    """
    shapes: dict[float, str] = {}
    for query, key in np.argwhere(pattern >= MIN_WEIGHT):
        opacity = max(0.1, round(float(pattern[query, key]), 1))
        shapes[opacity] = shapes.get(opacity, "") + f"M{key * CELL} {query * CELL}h{CELL}v{CELL}h-{CELL}z"
    paths = [f'<path d="{shape}" fill-opacity="{opacity:g}"/>' for opacity, shape in sorted(shapes.items())]
    side = CELL * len(pattern)
    # Tokens before rows and above columns; long ones of columns go upwards
    longest = max(map(len, tokens), default=0)
    margin_left = longest * LETTER + 5 if tokens else 0
    margin_top = (CELL if longest < 3 else margin_left) if tokens else 0
    labels = Markup("")
    for index, token in enumerate(tokens):
        middle = (index + 0.5) * CELL
        labels += Markup('<text x="-4" y="{:g}" text-anchor="end">{}</text>').format(middle + 4, token)
        if longest < 3:
            labels += Markup('<text x="{:g}" y="-4" text-anchor="middle">{}</text>').format(middle, token)
        else:
            labels += Markup('<text transform="translate({:g} -4) rotate(-90)">{}</text>').format(middle + 4, token)
    box = f"{-margin_left - 1:g} {-margin_top - 1:g} {side + margin_left + 2:g} {side + margin_top + 2:g}"
    return Markup(
        '<svg class="pattern" xmlns="http://www.w3.org/2000/svg" viewBox="{}" role="img" aria-label="{}">'
        '<rect width="{}" height="{}" fill="none" stroke="currentColor" stroke-opacity=".3"/>'
        '<g class="weights" fill="#0b6e8a" shape-rendering="crispEdges">{}</g>'
        '<g fill="currentColor" font-size="11" font-family="ui-monospace, monospace">{}</g></svg>'
    ).format(box, name or "attention pattern", side, side, Markup("".join(paths)), labels)
