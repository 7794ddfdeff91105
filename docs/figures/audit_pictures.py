"""Pictures of docs/audit.md: the decision tree, and a head of each verdict. `python docs/figures/audit_pictures.py`.

Every figure is of an audit of a known answer with a fixed seed, so that it can be made again. Needs about ten seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

import interp
from hooks.interventions.ablation_engine import Head
from interp.auditing.sentences import list_of_heads, name_of
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.heads.kinds import relations_of
from interp.known_answers import known_answer
from interp.tasks.splits import sample_split
from interp.view.charts import FILE_RULE
from interp.view.verdicts import DARK_VERDICTS, VERDICT_COLOURS

FOLDER = Path(__file__).parent.parent / "images" / "audit"
INK, SOFT, LINE = "currentColor", "#6b7686", "#8886"
"""Colours that can be read on a white and on a dark page; the ink is that of the system."""
ATTENTION = "#0b6e8a"
WIDTH = 760
REPLACED = {
    "mean": "output: its mean",
    "beyond": "the same, without {others}",
    "resample": "output: of another sequence",
    "uniform": "pattern: uniform",
    "wrong_key": "pattern: a wrong key",
    "resampled_pattern": "pattern: of another sequence",
    "resampled_values": "values: of other sequences",
    "ideal": "pattern: ideal",
    "label_only_pattern": "pattern: all else spread evenly",
}
"""What each bar of a picture replaces."""


@dataclass(frozen=True)
class Picture:
    """A head of a known answer, to be drawn with its verdict."""

    verdict: str
    answer: str
    head: Head
    n: int | None = None
    """Number of sequences; if None, as many as the verdict needs."""


PICTURES = (
    Picture("faithful", "lookup faint backup", (0, 2)),
    Picture("misleading", "lookup faint backup", (0, 0)),
    Picture("hidden", "lookup ties, unreadable", (0, 1)),
    Picture("redundant", "lookup two share unequally", (0, 3)),
    Picture("marginal", "lookup an eighth of the queries", (0, 2)),
    Picture("idle", "lookup faint backup", (0, 1)),
    Picture("undecided", "lookup an eighth of the queries", (0, 2), n=48),
)


# Elements of a picture


def text(x: float, y: float, words: str, *, size: float = 13, anchor: str = "start", **style: Any) -> str:
    attributes = {"font-size": size, "text-anchor": anchor, "fill": INK} | style
    return f'<text x="{x:g}" y="{y:g}" {_written(attributes)}>{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, **style: Any) -> str:
    return f'<rect x="{x:.4g}" y="{y:.4g}" width="{max(width, 0):.4g}" height="{height:.4g}" {_written(style)}/>'


def line(x1: float, y1: float, x2: float, y2: float, **style: Any) -> str:
    attributes = {"stroke": INK} | style
    return f'<line x1="{x1:.4g}" y1="{y1:.4g}" x2="{x2:.4g}" y2="{y2:.4g}" {_written(attributes)}/>'


def chip(x: float, y: float, verdict: str) -> str:
    """A verdict on its colour."""
    colour = VERDICT_COLOURS[verdict]
    return rectangle(x, y, 86, 24, rx=4, fill=colour, stroke=SOFT, stroke_width=0.5) + text(
        x + 43,
        y + 16.5,
        verdict,
        anchor="middle",
        font_weight=600,
        fill="#fff" if verdict in DARK_VERDICTS else "#1c2330",
    )


def _written(attributes: Mapping[str, Any]) -> str:
    return " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in attributes.items())


def picture(elements: Sequence[str], height: float, *, title: str, description: str) -> str:
    """An SVG without a ground, whose ink is light where the system is dark."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
            f'height="{height:g}" role="img" font-family="system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            *elements,
            "</svg>\n",
        ]
    ).replace("<title>", f"<style>{FILE_RULE}</style><title>", 1)


# A head with its verdict


def head_picture(drawn: Picture) -> tuple[str, str]:
    """The picture of a head, and the sentence of the audit about it."""
    # Audit the model, with no limit of time, so that the picture does not depend on the machine
    known = known_answer(drawn.answer, seed=0)
    audit = interp.audit(known.model, known.task, n=drawn.n or "enough", seconds=None)
    index = [record.place for record in audit.heads].index(drawn.head)
    record, sentence = audit.heads[index], audit.sentences()[index]
    if record.verdict != drawn.verdict:
        raise ValueError(f"{drawn.answer}: head {name_of(drawn.head)} is {record.verdict}, not {drawn.verdict}.")
    outcome = audit.outcomes.index(record.outcome)
    threshold = float(audit.threshold[outcome])

    # Heading, pattern, bars
    elements = [
        chip(16, 14, record.verdict),
        text(114, 31, f"head {name_of(drawn.head)} of “{drawn.answer}”"),
        text(WIDTH - 16, 31, f"n = {record.n} sequences", anchor="end", fill=SOFT),
    ]
    bottom = _pattern(elements, known, drawn.head, record.kind if record.readable else None)
    costs = {"mean": record.costs["mean"]}
    if record.beyond_others is not None and record.verdict == "redundant":
        costs["beyond"] = record.beyond_others
    costs |= {name: record.costs[name] for name in REPLACED if name in record.costs}
    names = {name: REPLACED[name].format(others=list_of_heads(record.other_heads)) for name in costs}
    ends = {name: (cost.drop[outcome], cost.low[outcome], cost.high[outcome]) for name, cost in costs.items()}
    bottom = max(bottom, _bars(elements, names, ends, threshold, VERDICT_COLOURS[record.verdict]))
    # The sentence of the audit
    for words in wrap(sentence, 112):
        bottom += 18
        elements.append(text(16, bottom, words, size=12.5))
    title = f"{record.verdict}: head {name_of(drawn.head)} of {drawn.answer}, n = {record.n}"
    return picture(elements, bottom + 14, title=title, description=sentence), sentence


def _pattern(elements: list[str], known: Any, head: Head, kind: str | None) -> float:
    """Draw the pattern of a head on a held-out sequence, with the related keys outlined."""
    batch = sample_split(known.task, 1, generator=derived_generator(0, "picture"), split="test")
    layer, index = head
    pattern = patterns_on([known.model], batch)[layer, 0, 0, index].numpy()
    words = known.task.vocab.words(batch.tokens[0])
    related = np.zeros(pattern.shape, dtype=bool)
    if kind is not None:
        related = relations_of(known.task, batch)[kind][0].numpy() & np.tri(len(pattern), dtype=bool)
    # Queries in rows, keys in columns
    left, top, cell = 84, 96, min(19, 180 / len(words))
    elements.append(text(left, 60, "attention pattern, one sequence", size=11.5, fill=SOFT))
    for key, word in enumerate(words):
        x = left + (key + 0.7) * cell
        elements.append(text(x, top - 5, word, size=10, transform=f"rotate(-40 {x:g} {top - 5})"))
    for query, word in enumerate(words):
        y = top + query * cell
        elements.append(text(left - 6, y + cell / 2 + 4, word, size=10.5, anchor="end"))
        for key in range(query + 1):
            shade = {"fill": ATTENTION, "fill_opacity": round(float(pattern[query, key]), 2)}
            elements.append(rectangle(left + key * cell, y, cell, cell, **shade, stroke=LINE, stroke_width=0.6))
    for query, key in np.argwhere(related):
        x, y = left + key * cell + 1, top + query * cell + 1
        elements.append(rectangle(x, y, cell - 2, cell - 2, fill="none", stroke="#edae49", stroke_width=2))
    bottom = top + len(words) * cell
    if kind is not None:
        elements.append(rectangle(left, bottom + 9, 10, 10, fill="none", stroke="#edae49", stroke_width=2))
        elements.append(text(left + 16, bottom + 18, f"keys of {kind}", size=11, fill=SOFT))
        bottom += 22
    return bottom + 8


def _bars(
    elements: list[str],
    names: Mapping[str, str],
    ends: Mapping[str, tuple[float, float, float]],
    threshold: float,
    colour: str,
) -> float:
    """Draw the accuracy lost under each intervention with its 95 % interval, and the loss that counts."""
    left, top, right, row = 500, 74, WIDTH - 60, 22
    lowest = min(-0.1, *(low for _, low, _ in ends.values()))

    def x_of(loss: float) -> float:
        return left + (loss - lowest) / (1.02 - lowest) * (right - left)

    bottom = top + row * len(names)
    elements.append(text(x_of(0), 60, "accuracy lost [95 %]", size=11.5, fill=SOFT))
    elements.append(
        line(x_of(threshold), top - 4, x_of(threshold), bottom + 2, stroke_dasharray="4 3", stroke="#b3263c")
    )
    elements.append(text(x_of(threshold), bottom + 15, f"{threshold:.2f} counts", size=11, fill="#b3263c"))
    elements.append(line(x_of(0), top - 4, x_of(0), bottom + 2, stroke=SOFT))
    for index, (name, words) in enumerate(names.items()):
        loss, low, high = ends[name]
        middle = top + row * (index + 0.5)
        elements.append(text(left - 14, middle + 4, words, size=12, anchor="end"))
        start, end = sorted([x_of(0), x_of(loss)])
        elements.append(rectangle(start, middle - 7, end - start, 14, fill=colour, stroke=SOFT, stroke_width=0.6))
        elements.append(line(x_of(low), middle, x_of(high), middle, stroke_width=1.5))
        elements += [line(x_of(bound), middle - 3.5, x_of(bound), middle + 3.5) for bound in (low, high)]
        elements.append(text(WIDTH - 16, middle + 4, f"{loss:.2f}", size=12, anchor="end"))
    return bottom + 22


# The decision tree

QUESTIONS = (
    (
        "1  Is it cancelled?",
        ("needed alone, but a set of needed heads that has it", "can be removed with no loss that counts"),
        (("yes, and labelled", ("misleading",)), ("yes, not labelled", ("idle",))),
        "no",
    ),
    (
        "2  Does it share its work?",
        (
            "once other heads are gone it costs more than counts,",
            "and twice what it costs alone (or is harmless alone)",
        ),
        (("yes", ("redundant",)),),
        "no",
    ),
    (
        "3  Is it needed alone?",
        ("accuracy lost when its output is replaced by its mean,", "against a fifth of the accuracy above chance"),
        (
            ("about as much as counts, or a little", ("marginal",)),
            ("less than counts, and labelled", ("misleading",)),
            ("less than counts, not labelled", ("idle",)),
        ),
        "more than counts",
    ),
    (
        "4  Does it look like a kind?",
        ("its label: where it attends, beyond chance", "and beyond untrained models"),
        (("no", ("hidden",)),),
        "yes",
    ),
    (
        "5  Does it act through that pattern?",
        ("on one outcome: what destroys the pattern costs,", "and the pattern that the label describes would do"),
        (
            ("no", ("misleading",)),
            ("no, but a head shares work with it", ("redundant",)),
            ("in part", ("marginal",)),
        ),
        "yes",
    ),
)
"""Each question with what it means, the answers that end in a verdict, and the answer that leads on."""


def decision_tree() -> str:
    """The questions of the audit in order."""
    elements = [
        text(16, 30, "The audit asks, of each head on each outcome", size=15, font_weight=600),
        text(WIDTH - 16, 30, "labelled: it looks like a known kind (question 4)", size=12, anchor="end", fill=SOFT),
    ]
    left, box_width, answers_at, chip_at = 16, 352, 392, WIDTH - 102
    y = 48.0
    sentences = []
    for question, details, answers, onwards in QUESTIONS:
        # A box with the question
        height = max(72, 30 * len(answers) + 6)
        elements.append(rectangle(left, y, box_width, height, rx=5, fill="#8881", stroke=SOFT))
        first = y + height / 2 - 18
        elements.append(text(left + 14, first + 5, question, size=14, font_weight=600))
        for index, words in enumerate(details):
            elements.append(text(left + 14, first + 24 + 17 * index, words, size=12, fill=SOFT))
        # Answers to the right, each with its verdict
        for index, (answer, verdicts) in enumerate(answers):
            middle = y + height * (index + 0.5) / len(answers)
            # a line before and after the words
            for start, end in ((left + box_width, answers_at - 4), (answers_at + 6.4 * len(answer) + 4, chip_at - 6)):
                elements.append(line(start, middle, end, middle, stroke=LINE))
            elements.append(_arrow(chip_at - 2, middle, right=True))
            elements.append(text(answers_at, middle + 4, answer, size=12))
            elements += [chip(chip_at, middle - 12, verdict) for verdict in verdicts]
            sentences.append(f"{question[3:]} {answer}: {verdicts[0]}.")
        # The answer that leads on
        y += height
        elements.append(line(left + 60, y, left + 60, y + 24, stroke=SOFT))
        elements.append(_arrow(left + 60, y + 28, right=False))
        elements.append(text(left + 72, y + 19, onwards, size=12))
        sentences.append(f"{question[3:]} {onwards}: go on.")
        y += 30
    elements.append(chip(left + 17, y + 2, "faithful"))
    note = "A question that the sequences do not answer yet:"
    elements += [text(chip_at - 10, y + 18, note, size=12, anchor="end"), chip(chip_at, y + 2, "undecided")]
    return picture(elements, y + 42, title="Decision tree of the audit", description=" ".join(sentences))


def _arrow(x: float, y: float, *, right: bool) -> str:
    points = [(x, y), (x - 7, y - 4), (x - 7, y + 4)] if right else [(x, y), (x - 4, y - 7), (x + 4, y - 7)]
    written = " ".join(f"{px:g},{py:g}" for px, py in points)
    return f'<polygon points="{written}" fill="{SOFT}"/>'


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "decision_tree.svg").write_text(decision_tree(), encoding="utf-8")
    for drawn in PICTURES:
        svg, sentence = head_picture(drawn)
        (FOLDER / f"{drawn.verdict}.svg").write_text(svg, encoding="utf-8")
        print(f"{drawn.verdict:<11} {sentence}")


if __name__ == "__main__":
    main()
