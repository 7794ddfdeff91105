import re

import numpy as np
import pytest

from interp.view.cards import MOST_CARDS, Card, census, head_cards, notebook_cards, pattern_picture, verdict_chip
from interp.view.verdicts import DARK_VERDICTS, VERDICT_COLOURS

PATTERN = np.array([[1.0, 0, 0], [0.3, 0.7, 0], [0.0, 0.01, 0.99]])


def test_a_pattern_has_a_cell_for_each_weight_that_can_be_seen():
    picture = pattern_picture(PATTERN)
    opacities = re.findall(r'<path d="([^"]*)" fill-opacity="([^"]*)"', picture)
    assert {opacity: shape.count("M") for shape, opacity in opacities} == {"0.3": 1, "0.7": 1, "1": 2}
    # query 1 (second row) attends to key 0 (first column)
    assert {opacity: shape for shape, opacity in opacities}["0.3"].startswith("M0 14h")
    assert "<text" not in picture


def test_tokens_are_along_rows_and_columns_and_escaped():
    picture = pattern_picture(PATTERN, ["a", "<b", "[EOS]"])
    assert picture.count("<text") == 6
    assert picture.count("&lt;b</text>") == 2
    assert "rotate(-90)" in picture
    assert "rotate" not in pattern_picture(PATTERN, ["a", "b", "c"])


def test_the_picture_has_no_ground():
    assert 'fill="none"' in pattern_picture(PATTERN)
    assert "#fff" not in pattern_picture(PATTERN)


def test_the_census_counts_each_verdict_once():
    chips = re.findall(r">(\d+ [a-z]+)<", census(["idle", "faithful", "idle"]))
    assert chips == ["1 faithful", "2 idle"]


@pytest.mark.parametrize("verdict", VERDICT_COLOURS)
def test_the_words_of_a_chip_can_be_read(verdict):
    """A contrast of 4.5, which WCAG asks of small text."""
    ground, ink = re.search(r"background:(#\w+);color:(#\w+)", verdict_chip(verdict)).groups()
    assert (ink == "#fff") == (verdict in DARK_VERDICTS)
    light, dark = sorted((luminance(ground), luminance(ink)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    shares = np.array([int(digits[index : index + 2], 16) / 255 for index in (0, 2, 4)])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_a_card_has_its_sentence_escaped():
    html = head_cards([Card(name="0.1", verdict="idle", cost="nothing lost", text="a < b")], kind="list")
    assert "<p>a &lt; b</p>" in html
    assert '<ul class="heads list">' in html


def test_cards_of_a_notebook_after_the_first_are_folded():
    cards = [Card(name=f"0.{head}", verdict="idle", cost="nothing lost") for head in range(MOST_CARDS + 2)]
    shown, folded = notebook_cards(cards).split("<details>")
    assert shown.count("<li>") == MOST_CARDS
    assert folded.startswith("<summary>2 more heads</summary>")
    assert folded.count("<li>") == 2
    assert f"{MOST_CARDS + 2} idle" in shown
    assert "<details>" not in notebook_cards(cards[:2])
