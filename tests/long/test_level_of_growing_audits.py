"""Level of an audit that may stop at any look: losses at the threshold, where every claim is false."""

import numpy as np
import pytest
from scipy import stats

from interp.auditing.experiments import Effects
from interp.auditing.interventions import CANCELLING, NEEDED_IN, TESTED
from interp.auditing.significance import GrowingEvidence, corrections, planned_looks

pytestmark = pytest.mark.long
AUDITS, HEADS, THRESHOLD = 2000, 6, 0.1
FALSE_ALARM = 1e-3
"""Probability that the test fails although the level holds."""


def has_false_claim(seed, *, alpha):
    """Whether a test of any head is significant at any look of one audit.

    Under every intervention each head costs exactly the threshold: that it matters is false, and that it is harmless.
    """
    looks, rng = planned_looks("enough", 1024), np.random.default_rng(seed)
    threshold, factors, evidence = np.array([THRESHOLD]), corrections(HEADS, HEADS, 0), None
    for n in np.diff([0, *looks]).tolist():
        losses = {name: (rng.random((n, HEADS, 1)) < THRESHOLD).astype(float) for name in TESTED}
        no_sets = {name: np.zeros((n, 0, 1)) for name in (NEEDED_IN, CANCELLING)}
        effects = Effects(np.ones((n, 1)), losses | no_sets)
        if evidence is None:
            evidence = GrowingEvidence.of(effects, threshold, looks=looks, factors=factors)
        else:
            evidence = evidence.with_look(effects)
        p = evidence.p
        if any((getattr(p, kind)[name] <= alpha).any() for kind in ("matters", "harmless") for name in TESTED):
            return True
    return False


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_audits_with_a_false_claim_are_within_the_level(alpha):
    alarms = sum(has_false_claim(seed, alpha=alpha) for seed in range(AUDITS))
    assert alarms <= stats.binom.isf(FALSE_ALARM, AUDITS, alpha)
