"""Which outcomes verdicts are based on: worked by hand for answers with a chance of one half."""

import numpy as np
import pytest
import torch

from interp.auditing.experiments import Effects
from interp.auditing.outcomes import judged_outcomes
from interp.auditing.significance import uncorrected_p_values
from interp.tasks import Lego
from interp.tasks.base import Score

TASK = Lego(n_vars=2)  # two outcomes, each with a chance of one half


def judged(right, scored, n, wanted=None, *, factor=8.0, alpha=0.05, at_chance=False):
    """Outcomes that count if the first sequences are right, and the first `scored` have an answer."""
    total = (torch.arange(n)[:, None] < torch.tensor(scored)).float()
    answers = (torch.arange(n)[:, None] < torch.tensor(right)).float()
    score = Score(right=answers, loss=torch.zeros(n, 2), total=total)
    options = {"factor": factor, "alpha": alpha, "at_chance": at_chance, "of_constants": np.zeros(len(TASK.outcomes))}
    return judged_outcomes(score, TASK, wanted, **options)


def test_the_outcomes_of_the_example():
    assert (len(TASK.outcomes), TASK.chances) == (2, (0.5, 0.5))


def test_accuracy_above_chance_is_tested_on_all_outcomes_together():
    """39 of 64 are above one half with p = 0.045: enough for one outcome at 0.05, not for two."""
    one = judged((39, 39), (64, 64), 64, TASK.outcomes[:1], at_chance=True)
    two = judged((39, 39), (64, 64), 64, at_chance=True)
    assert one.warnings[0].startswith("With 64 sequences, where ")
    assert two.warnings[0].startswith("The model is not above chance (at most 0.61")


def test_the_threshold_of_a_model_at_chance_is_a_fifth_of_the_accuracy_above_chance():
    found = judged((32, 32), (64, 64), 64, at_chance=True)
    assert found.at_chance
    np.testing.assert_allclose(found.threshold, [0.1, 0.1])
    assert found.clean.tolist() == [0.5, 0.5]


def test_more_sequences_are_needed_where_half_of_them_have_the_outcome():
    """Threshold 0.1, level 0.05 / 8: 0.9^49 is the first below it; 49 answers are in 98 sequences."""
    name = TASK.outcomes[:1]
    with pytest.raises(ValueError, match="n is 96; 98 sequences are needed"):
        judged((48, 0), (48, 0), 96, name)
    found = judged((49, 0), (49, 0), 98, name)
    assert (found.names, found.at_chance) == (name, False)
    np.testing.assert_allclose(found.threshold, [0.1])
    with pytest.raises(ValueError, match="n is 48; 49 sequences are needed"):
        judged((48, 0), (48, 0), 48, name)


def test_p_values_are_at_most_one_and_count_the_outcomes():
    """Nothing lost on two outcomes; then 13 of 64 on the first: p = 0.028, times two."""
    drop = np.zeros((64, 2, 2))
    drop[:13, 1, 0] = 1
    p = uncorrected_p_values(Effects(np.ones((64, 2)), {"mean": drop}), np.array([0.1, 0.1]))
    assert p.matters["mean"][0].tolist() == [1, 1]
    assert p.matters["mean"][1] == pytest.approx([2 * 0.0282, 1], abs=2e-3)
    assert p.harmless["mean"][0] == pytest.approx([2 * 0.9**64] * 2, rel=1e-6)  # no loss in 64 trials
    assert p.harmless["mean"][1, 0] > 0.9
    assert p.limited["mean"][0] == pytest.approx([2 * 0.8**64] * 2, rel=1e-4)
    assert p.more_than_little["mean"][1, 0] < p.matters["mean"][1, 0] / 10
