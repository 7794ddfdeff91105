"""Two heads that look alike, of which the model needs one; and the head that a page opens on."""

from dataclasses import replace

import pytest

import interp
from interp.auditing import show_heads
from interp.auditing.contrast import points_lost
from interp.known_answers import known_answer
from interp.reporting.sections import cards_section, contrast_section


@pytest.fixture(scope="module")
def decoy():
    """Head 0.2 copies; 0.1 has the same pattern and writes nothing; 0.0 looks like nothing and does nothing."""
    return known_answer("template copy, zero decoy", seed=0)


@pytest.fixture(scope="module")
def audited(decoy):
    return interp.audit(decoy.model, decoy.task, n=128)


def with_heads(audited, **changes):
    """The audit, with fields of head 0.1 replaced."""
    heads = [replace(head, **changes) if head.place == (0, 1) else head for head in audited.heads]
    return replace(audited, heads=tuple(heads))


def test_the_faithful_and_the_misleading_head_of_a_label(audited):
    contrast = audited.contrast()
    assert contrast.faithful.place == (0, 2)
    assert contrast.misleading.place == (0, 1)
    assert contrast.sentence() == (
        "Heads 0.2 and 0.1 look alike: each attends to the token before (previous, scores 1.00 and 1.00 of at most 1). "
        "Without 0.2, accuracy falls by 100 points on label [93, 100]; without 0.1, by 0.0 points on label [-3.4, 3.4]."
    )
    assert audited.most_telling_head().place == (0, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"label": "current", "kind": "current"},  # looks like something else
        {"verdict": "redundant", "reason": "partner"},  # shares its work
        {"reason": "cancelled"},  # is needed, and another head cancels it
    ],
    ids=str,
)
def test_no_contrast(audited, changes):
    changed = with_heads(audited, **changes)
    assert changed.contrast() is None
    # the labelled head that costs most
    assert changed.most_telling_head().place == (0, 2)


def test_the_largest_difference_is_shown(audited):
    """Of two faithful heads, the one that costs more."""
    cost = audited.heads[2].costs["mean"]
    costs = {**audited.heads[2].costs, "mean": replace(cost, drop=(0.3,), low=(0.2,), high=(0.4,))}
    weaker = replace(audited.heads[2], head=0, costs=costs)
    changed = replace(audited, heads=(weaker, *audited.heads[1:]))
    assert changed.contrast().faithful.place == (0, 2)


def test_the_page_opens_on_the_most_telling_head(decoy, audited):
    page = show_heads(decoy.model, decoy.task, audited)
    assert '"chosen": 2' in page.html
    assert [finding.is_first for finding in page.findings] == [False, False, True]
    assert [finding.label for finding in page.findings] == ["", "previous", "previous"]


def test_both_patterns_are_drawn_with_what_is_lost(decoy, audited):
    patterns = interp.show_attention(decoy.model, decoy.task, heads=[(0, 2), (0, 1)])
    section = contrast_section(audited.contrast(), patterns, counted="128 sequences")
    assert section.html.count("<svg") == 2
    assert section.html.index("head 0.2</b>") < section.html.index(">faithful</span>")
    assert section.html.index("head 0.1</b>") < section.html.index(">misleading</span>")
    assert "The model needs 0.2, which is faithful" in section.text
    assert "It does not need 0.1, which is misleading" in section.text
    assert "Losses of accuracy: 128 sequences." in section.foot


def test_a_card_says_what_is_lost(decoy, audited):
    patterns = interp.show_attention(decoy.model, decoy.task)
    section = cards_section(
        {"": audited.heads}, patterns, threshold=audited.threshold, title="t", text="", counted="128 sequences"
    )
    assert section.html.count('class="pattern"') == 3
    assert "<h3>" not in section.html
    for head in audited.heads:
        assert f"<b>without 0.{head.head}:</b>" in section.html
        assert f"{points_lost(head, audited.threshold)} lost" in section.html
    assert points_lost(audited.heads[1], audited.threshold).startswith("nothing [")
    assert points_lost(audited.heads[2], audited.threshold).startswith(
        f"{100 * audited.cost('mean')[0][2, 0]:.0f} points"
    )
