"""Level of an audit that may stop at any look: `python -m benchmarks.optional_stopping --tries 2000`.

Each try draws the losses of six heads under every intervention, each exactly at the threshold, so that "it costs" and
"it is harmless" are both false of every one of them. It looks three times, and stops at the first significant test.
"""

import argparse

import numpy as np

from interp.auditing.evidence import Evidence, planned_looks
from interp.auditing.verdicts import CANCELLING, JUDGED, NEEDED_IN, corrections
from interp.core.statistics import proportion_interval

HEADS, RATE = 6, 0.1


def false_alarm(seed: int, *, alpha: float, limit: int = 1024) -> bool:
    """Whether any look of one audit has a significant test."""
    looks, rng = planned_looks("enough", limit), np.random.default_rng(seed)
    evidence = Evidence(np.array([RATE]), looks, corrections(HEADS, HEADS, 0))
    for n in np.diff([0, *looks]).tolist():
        drop = {name: (rng.random((n, HEADS, 1)) < RATE).astype(float) for name in JUDGED}
        none = dict.fromkeys((NEEDED_IN, CANCELLING), np.zeros((n, 0, 1)))
        evidence.add(drop | none, np.ones((n, 1)))
        p = evidence.p
        if any((getattr(p, kind)[name] <= alpha).any() for kind in ("matters", "harmless") for name in JUDGED):
            return True
    return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=2000)
    given = parser.parse_args()
    for alpha in (0.01, 0.05):
        alarms = sum(false_alarm(seed, alpha=alpha) for seed in range(given.tries))
        low, high = proportion_interval(np.array(alarms), given.tries)
        print(f"level {alpha}: {alarms} of {given.tries} audits with a false claim, 95 % [{low:.4f}, {high:.4f}]")
