"""Rows that replace a head's own: four keys, of which the last is padding, worked by hand."""

import pytest
import torch

from hooks.interventions.replacements import HeadInputs
from interp.auditing.interventions import (
    PatternPool,
    described_and_differing,
    ideal_rows,
    label_only_rows,
    random_orders,
    resampled_pattern,
    usual_tokens,
    wrong_key_rows,
)
from interp.tasks import Lego

PATTERN = torch.tensor([[[0.5, 0.3, 0.2, 0.0]]])
VISIBLE = torch.tensor([[[True, True, True, False]]])


def keys(*chosen):
    return torch.tensor([[[key in chosen for key in range(4)]]])


@pytest.mark.parametrize(
    ("related", "ideal", "label_only"),
    [
        (keys(0), [1, 0, 0, 0], [0.5, 0.25, 0.25, 0]),  # nothing on padding
        (keys(0, 1), [0.5, 0.5, 0, 0], [0.5, 0.3, 0.2, 0]),
        (keys(1), [0, 1, 0, 0], [0.35, 0.3, 0.35, 0]),
        (keys(0, 1, 2), [1 / 3, 1 / 3, 1 / 3, 0], [0.5, 0.3, 0.2, 0]),  # no other key: unchanged
        (keys(), [0.5, 0.3, 0.2, 0], [0.5, 0.3, 0.2, 0]),
    ],
)
def test_ideal_rows_and_label_only_rows(related, ideal, label_only):
    torch.testing.assert_close(ideal_rows(PATTERN, related)[0, 0], torch.tensor(ideal).float())
    torch.testing.assert_close(label_only_rows(PATTERN, related, VISIBLE)[0, 0], torch.tensor(label_only).float())


@pytest.mark.parametrize(
    ("related", "usual", "chosen"),
    [
        (keys(0), (keys(1), keys(2)), 1),  # the narrowest choice that has an unrelated key
        (keys(0, 1), (keys(1), keys(2)), 2),
        (keys(0), (keys(0), keys(0)), 2),  # none has: the largest random weight among all visible
        (keys(0), (keys(3), keys(3)), 2),  # padding is never chosen
    ],
)
def test_the_wrong_key_is_an_unrelated_visible_one(related, usual, chosen):
    random = torch.tensor([[[0.9, 0.1, 0.5, 0.8]]])
    found = wrong_key_rows(PATTERN, related, VISIBLE, usual, random)
    assert found[0, 0].tolist() == [float(key == chosen) for key in range(4)]


def test_rows_without_a_wrong_key_are_unchanged():
    random = torch.ones(1, 1, 4)
    for related in (keys(), keys(0, 1, 2)):
        assert torch.equal(wrong_key_rows(PATTERN, related, VISIBLE, (VISIBLE,), random), PATTERN)


def test_usual_tokens_are_those_at_related_keys_of_any_sequence():
    tokens = torch.tensor([[4, 5], [6, 5]])
    related = torch.tensor([[[True, False], [False, False]], [[True, False], [False, True]]])
    found = usual_tokens(tokens, related, 7)
    assert [row.nonzero()[:, 0].tolist() for row in found] == [[4, 6], [5]]


# the pattern of another sequence

KIND, LOOKING, ANOTHER = "association", (0, 0), (0, 1)
OWN_KEY, OTHER_KEY, NO_KEY = keys(0)[0], keys(1)[0], keys()[0]
"""Related keys of one query."""
ROWS = torch.tensor([[[0.9, 0.1, 0.0, 0.0]], [[0.2, 0.6, 0.0, 0.2]], [[0.1, 0.1, 0.8, 0.0]]])
"""Patterns of the labelled head in three reference sequences, one query each; the second also has a fourth key."""


def with_pattern_of_another(in_reference, *, related=OWN_KEY, visible=VISIBLE[0], order=(0, 1, 2), rows=ROWS):
    """New patterns of a labelled head and another one, and the new output of the labelled one.

    Args:
        in_reference: Related keys of the query in each reference sequence.
        related: Its related keys in this sequence.
        visible: Its visible keys.
        order: Reference sequences in the order in which they are drawn.
        rows: Patterns of the labelled head in the reference sequences.
    """
    pool = PatternPool({LOOKING: rows}, {KIND: torch.stack(in_reference)})
    draws = torch.tensor([order[: len(in_reference)]])
    replacement = resampled_pattern(pool, {KIND: related[None]}, visible[None], {LOOKING: KIND}, draws)
    clean = PATTERN[:, None].expand(1, 2, 1, 4)
    pattern = replacement.replace(clean, 0)
    torch.testing.assert_close(pattern[:, 1], PATTERN)  # a head without a label keeps its own
    torch.testing.assert_close(replacement.replace(clean, 1), clean)  # as does every head of another layer
    return pattern[0, 0, 0]


def test_the_row_is_that_of_the_first_drawn_sequence_in_which_other_keys_are_related():
    in_reference = [OWN_KEY, OTHER_KEY, OTHER_KEY]
    assert with_pattern_of_another(in_reference, order=(0, 2, 1)).tolist() == ROWS[2, 0].tolist()
    # none of the own keys: sharing one of several is not enough
    both = OWN_KEY | OTHER_KEY
    assert with_pattern_of_another([both, NO_KEY, both], order=(0, 2, 1))[0] == pytest.approx(0.2 / 0.8)
    # the query may have no related key at all there
    assert with_pattern_of_another([NO_KEY, OTHER_KEY, OTHER_KEY]).tolist() == ROWS[0, 0].tolist()


def test_attention_to_keys_that_this_sequence_lacks_is_spread_over_the_others():
    row = with_pattern_of_another([OWN_KEY, OTHER_KEY, OWN_KEY])
    torch.testing.assert_close(row, torch.tensor([0.25, 0.75, 0, 0]))
    nothing_left = torch.tensor([[[0.0, 0, 0, 1]]])
    torch.testing.assert_close(with_pattern_of_another([OTHER_KEY], rows=nothing_left), PATTERN[0, 0])


def test_a_row_without_a_related_key_or_another_choice_is_unchanged():
    torch.testing.assert_close(with_pattern_of_another([OTHER_KEY] * 3, related=NO_KEY), PATTERN[0, 0])
    torch.testing.assert_close(with_pattern_of_another([OWN_KEY] * 3), PATTERN[0, 0])


def test_values_stay_those_of_the_own_sequence():
    """The new output is the other pattern times the own values."""
    pool = PatternPool({LOOKING: ROWS}, {KIND: torch.stack([OTHER_KEY] * 3)})
    replacement = resampled_pattern(pool, {KIND: OWN_KEY[None]}, VISIBLE, {LOOKING: KIND}, torch.tensor([[2, 0, 1]]))
    v = torch.tensor([[[1.0], [10.0], [100.0], [1000.0]]])[:, :, None]
    pattern = PATTERN[:, None]
    new = replacement(0, HeadInputs(z=torch.zeros_like(v), v=v, pattern=pattern))
    assert new.flatten().tolist() == pytest.approx([0.1 + 1 + 80])


def test_a_kind_whose_keys_are_the_same_everywhere_never_differs():
    own = torch.stack([OWN_KEY, NO_KEY])  # two sequences of one query
    described, differs = described_and_differing(own, torch.stack([OWN_KEY, OWN_KEY]))
    assert (described.tolist(), differs.tolist()) == ([[True], [False]], [[False], [True]])
    _, differs = described_and_differing(own, torch.stack([OWN_KEY, OTHER_KEY]))
    assert differs.tolist() == [[True], [True]]


def test_every_sequence_has_an_order_of_its_own_wherever_chunks_begin():
    batch = Lego(n_vars=2).sample(6, generator=torch.Generator().manual_seed(0))
    whole = random_orders(32, batch, seed=1, first=0)
    torch.testing.assert_close(random_orders(32, batch.select(slice(4, 6)), seed=1, first=4), whole[4:])
    assert whole.sort(-1).values.tolist() == [list(range(32))] * 6
    assert len(whole.unique(dim=0)) == 6
    assert not torch.equal(random_orders(32, batch, seed=2, first=0), whole)
