"""Pictures of LEGO chains and sentences."""

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup, escape

STEP, NODE, TOP, LETTER = 96, 20, 46, 9
"""Pixels between nodes at least, radius of a node, height of its centre, and width of a letter."""
RIGHT, WRONG = "#66a182", "#d1495b"


def chain_svg(
    *,
    root: str,
    variables: Sequence[str],
    operations: Sequence[str],
    values: Sequence[str],
    answers: Sequence[str],
) -> Markup:
    """SVG of a chain: one node per variable in chain order, one arrow per operation, the model's answers below.

    Args:
        root: The constant at the start of the chain.
        variables: Names, in chain order.
        operations: The operation that gives each variable from the one before it.
        values: Correct value of each variable.
        answers: The model's answers, green if correct and red if wrong; or empty.

    Source: the style of LEGO (arXiv:2206.04301) Figure 1.
    """
    # nodes so far from each other that their values have room
    texts = [f"{name} = {value}" for name, value in zip(variables, values, strict=True)]
    texts += [f"model: {answer}" for answer in answers]
    step = max(STEP, 2 * NODE + LETTER * max(map(len, [*texts, *operations])))
    width = step * (len(variables) + 1)
    # the chain in words, for screen readers
    words = [root]
    for index, (name, operation, value) in enumerate(zip(variables, operations, values, strict=True)):
        answer = f" (model: {answers[index]})" if answers else ""
        words.append(f"{operation} {name} = {value}{answer}")
    # the frame of the picture, the tip of an arrow, and the root
    elements = [
        f'<svg class="chain" viewBox="0 0 {width} 128" width="{width}" role="img" '
        f'aria-label="Chain: {escape("; ".join(words))}">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        _node(step // 2, root, "#eee", "#555"),
    ]
    for index, (name, operation, value) in enumerate(zip(variables, operations, values, strict=True)):
        # an arrow from the node before, the node, and its value
        x = step // 2 + step * (index + 1)
        elements.append(
            f'<line x1="{x - step + NODE + 2}" y1="{TOP}" x2="{x - NODE - 4}" y2="{TOP}" stroke="#555" '
            f'marker-end="url(#tip)"/>'
            f'<text x="{x - step / 2}" y="{TOP - 8}" class="operation">{escape(operation)}</text>'
        )
        # the node is coloured by whether the model's answer is correct
        colour = "#fff"
        if answers:
            colour = RIGHT if answers[index] == value else WRONG
        elements.append(_node(x, name, colour, "#111"))
        elements.append(f'<text x="{x}" y="{TOP + 40}" class="value">{escape(name)} = {escape(value)}</text>')
        if answers:
            elements.append(f'<text x="{x}" y="{TOP + 58}" class="answer">model: {escape(answers[index])}</text>')
    return Markup("".join(elements) + "</svg>")


def _node(x: int, name: str, fill: str, stroke: str) -> str:
    """A circle with a name in it."""
    return (
        f'<circle cx="{x}" cy="{TOP}" r="{NODE}" fill="{fill}" fill-opacity="0.55" stroke="{stroke}"/>'
        f'<text x="{x}" y="{TOP + 5}" class="name">{escape(name)}</text>'
    )


def sentence_html(words: Sequence[str], clause_of_word: Sequence[int | None], chain_index: Sequence[int]) -> Markup:
    """HTML of a sentence with its clauses boxed and numbered by their position in the chain.

    Args:
        words: Tokens as text.
        clause_of_word: Clause of each word; None for a separator outside clauses.
        chain_index: For each clause, the index of the chain variable that it defines.
    """
    html = []
    # consecutive words of one clause, or of none
    for clause, pairs in groupby(zip(words, clause_of_word, strict=True), key=lambda pair: pair[1]):
        content = "".join(f"<code>{escape(word)}</code>" for word, _ in pairs)
        if clause is not None:
            content = f'<span class="clause"><sup>#{chain_index[clause]}</sup>{content}</span>'
        html.append(content)
    return Markup('<p class="sentence">' + "".join(html) + "</p>")
