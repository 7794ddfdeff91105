"""The picture of the front page: ten heads with perfect patterns, of which five are needed.

`python docs/figures/hero_picture.py`. A model with hand-written weights and a fixed seed; about 45 seconds.
"""

from pathlib import Path

import numpy as np
from audit_pictures import ATTENTION, LINE, SOFT, WIDTH, chip, picture, rectangle, text
from jaxtyping import Float

import interp
from hooks.files import write_text
from interp.auditing import HeadVerdict
from interp.auditing.sentences import name_of
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.heads.kinds import meaning_of
from interp.tasks import Lego
from interp.tasks.splits import sample_split

FILE = Path(__file__).parent.parent / "images" / "ten_heads.svg"
SIDE, LEFT, STEP = 96, 28, 144
"""Pixels: the side of a pattern, the first pattern's left end, and from one pattern to the next."""
ROW, TOP = 204, 62
"""Pixels from one row to the next, and the top of the first row's patterns."""
N = 1024
"""Sequences of the audit."""


def pattern_elements(pattern: Float[np.ndarray, "query key"], left: float, top: float) -> list[str]:
    """A pattern, dark where a query (row) attends to a key (column)."""
    cell = SIDE / len(pattern)
    elements = [rectangle(left, top, SIDE, SIDE, fill="#fff", stroke=LINE)]
    for query, key in np.argwhere(pattern > 0.02):
        weight = float(pattern[query, key])
        shades = ", ".join(f"{255 - weight * (255 - full):.0f}" for full in ATTENTION)
        elements.append(rectangle(left + key * cell, top + query * cell, cell, cell, fill=f"rgb({shades})"))
    return elements


def head_elements(head: HeadVerdict, pattern: Float[np.ndarray, "query key"], left: float, top: float) -> list[str]:
    """A head: its pattern, its verdict, and the points of accuracy that are lost without it."""
    points = round(100 * max(head.costs["mean"].drop))
    lost = f"{points} points lost" if points else "nothing lost"
    return [
        *pattern_elements(pattern, left, top),
        chip(left + (SIDE - 86) / 2, top + SIDE + 8, head.verdict),
        text(
            left + SIDE / 2, top + SIDE + 50, f"without {name_of(head.place)}:", size=11.5, anchor="middle", fill=SOFT
        ),
        text(left + SIDE / 2, top + SIDE + 66, lost, anchor="middle", font_weight=600),
    ]


def main() -> None:
    """Audit the model and draw its heads, one row for each kind."""
    task = Lego(n_vars=3)
    model = interp.known_answers.lego_loop(task)
    audited = interp.audit(model, task, n=N)
    batch = sample_split(task, 1, generator=derived_generator(0, "picture"), split="test")
    patterns = patterns_on([model], batch)[:, 0, 0].numpy()  # layer, head, query, key
    elements = []
    for row, kind in enumerate(("association", "manipulation")):
        top = TOP + row * ROW
        elements.append(text(LEFT, top - 14, f"{kind}: each token attends to {meaning_of(kind)}", font_weight=600))
        heads = [head for head in audited.heads if head.label == kind]
        for column, head in enumerate(heads):
            elements += head_elements(head, patterns[head.place], LEFT + column * STEP, top)
    needed = sum(head.verdict == "faithful" for head in audited.heads)
    title = f"Ten heads with the perfect pattern of their kind: {needed} are needed and {10 - needed} are not"
    svg = picture(elements, TOP + 2 * ROW - 18, title=title, description=f"{title}. n = {N} sequences.")
    write_text(FILE, svg)
    print(f"{FILE}: width {WIDTH}, {title}")


if __name__ == "__main__":
    main()
