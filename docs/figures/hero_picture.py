"""The picture of the front page: ten heads with perfect patterns, of which five are needed.

`python docs/figures/hero_picture.py`. The heads are those that the page of the demo begins with; about ten seconds.
"""

from pathlib import Path

from audit_pictures import SOFT, chip, picture, text

from hooks.files import write_text
from interp.auditing import HeadVerdict
from interp.auditing.contrast import points_lost
from interp.auditing.sentences import name_of
from interp.cli.demo_run import HandWrittenModel, hand_written_models
from interp.core.inputs import all_inputs_text
from interp.heads.kinds import meaning_of
from interp.view.cards import pattern_picture

FILE = Path(__file__).parent.parent / "images" / "ten_heads.svg"
SIDE, LEFT, STEP = 96, 28, 144
"""Pixels: the side of a pattern, the first pattern's left end, and from one pattern to the next."""
ROW, TOP = 204, 62
"""Pixels from one row to the next, and the top of the first row's patterns."""


def head_elements(model: HandWrittenModel, head: HeadVerdict, left: float, top: float) -> list[str]:
    """A head: its pattern, its verdict, and the points of accuracy that are lost without it."""
    name = name_of(head.place)
    pattern = model.patterns.examples[0].patterns[model.patterns.heads.index(name)]
    size = f'<svg x="{left}" y="{top}" width="{SIDE}" height="{SIDE}" '
    lost = f"{points_lost(head, model.threshold)} lost"
    middle = left + SIDE / 2
    return [
        str(pattern_picture(pattern, name=f"pattern of head {name}")).replace("<svg ", size, 1),
        chip(left + (SIDE - 86) / 2, top + SIDE + 8, head.verdict),
        text(middle, top + SIDE + 50, f"without {name}:", size=11.5, anchor="middle", fill=SOFT),
        text(middle, top + SIDE + 66, lost, anchor="middle", font_weight=600),
    ]


def main() -> None:
    """Draw the heads of the hand-written model, one row for each kind."""
    model = list(hand_written_models())[-1]
    elements = []
    for index, row in enumerate(model.rows):
        top = TOP + index * ROW
        kind = row[0].label
        elements.append(text(LEFT, top - 14, f"{kind}: each token attends to {meaning_of(kind)}", font_weight=600))
        for column, head in enumerate(row):
            elements += head_elements(model, head, LEFT + column * STEP, top)
    verdicts = [head.verdict for row in model.rows for head in row]
    title = (
        f"Ten heads with the perfect pattern of their kind: {verdicts.count('faithful')} are needed and "
        f"{verdicts.count('misleading')} are not"
    )
    description = f"{title}. Losses are of {all_inputs_text(model.n)}."
    write_text(FILE, picture(elements, TOP + 2 * ROW - 18, title=title, description=description))
    print(f"{FILE}: {description} {model.contrast.losses}")


if __name__ == "__main__":
    main()
