"""Rows that replace a head's own: four keys, of which the last is padding, worked by hand."""

import pytest
import torch

from interp.auditing.interventions import ideal_rows, label_only_rows, usual_tokens, wrong_key_rows

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
