"""Claims about fully connected networks: which of them fail on unseen symbols, and why? (Section 4)"""

from functools import partial

import numpy as np

from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, above
from case_studies.frame.evidence import Evidence
from case_studies.template.measures import BARELY, SOLVED, by_n, judge_fails, judge_solved, loss_chart, scores
from case_studies.template.models import NETWORKS
from interp.core.statistics import proportion_interval


def measure_network(evidence: Evidence, *, inputs: str, seed: str) -> Measurement:
    """Accuracy on unseen symbols at the largest n, of the `best` or the `worst` seed."""
    models = {name: scores(evidence, f"network {name}") for name in NETWORKS}
    rows: list[list] = [["inputs", "n", "seed", "accuracy", "test loss", "validation loss"]]
    for name, part in models.items():
        for one in part:
            rows.append([name, one.n, one.seed, *(f"{x:.3f}" for x in (one.accuracy, one.loss, one.validation))])
    groups = by_n(models[inputs])
    last = groups[max(groups)]
    chosen = (max if seed == "best" else min)(last, key=lambda one: one.accuracy)
    low, high = proportion_interval(np.array(chosen.right), chosen.total)
    return Measurement(
        value=chosen.accuracy, low=float(low), high=float(high), n=chosen.total, unit="unseen strings",
        numbers={"n": chosen.n, "seeds": len(last)},
        tables=[("aba against abb on unseen symbols", rows)],
        charts=[loss_chart(models, figure="aba-abb", title="fully connected networks, aba against abb")],
        note=f"Measured is the {seed} of {len(last)} seeds. A constant answer has loss 1.",
    )  # fmt: skip


def judge_learns(m: Measurement) -> ClaimVerdict:
    """Well above chance."""
    return above(m, BARELY)


NEEDS = tuple(f"network {name}" for name in NETWORKS)

CLAIMS = (
    Claim(
        id="networks.one-hot", source="template paper, Theorem 4.1 and Section 5",
        statement="A fully connected network on one-hot inputs does not carry over to unseen symbols.",
        paper="loss 1.0 at every n",
        rule=f"Accuracy of the best seed at the largest n: reproduced if its exact interval lies below {BARELY}, not "
        "reproduced if above, else inconclusive.",
        quantity="accuracy, best seed",
        measure=partial(measure_network, inputs="one-hot", seed="best"), judge=judge_fails, needs=NEEDS,
    ),
    Claim(
        id="networks.equality", source="template paper, Section 5",
        statement="AnyModel which positions are equal (X X^T) beside them, it does.",
        paper="n = 256: loss 0.14",
        rule=f"Accuracy of the worst seed at the largest n: reproduced if its interval lies at or above {SOLVED}, not "
        "reproduced if below, else inconclusive.",
        quantity="accuracy, worst seed",
        measure=partial(measure_network, inputs="one-hot and equality", seed="worst"), judge=judge_solved, needs=NEEDS,
    ),
    Claim(
        id="networks.shared-embedding", source="ours, the control of Theorem 4.1",
        statement="It is the columns that fail, not the network: with one embedding per token for all positions a "
        "fully connected network does carry over.",
        rule=f"Accuracy of the worst seed at the largest n: reproduced if its interval lies above {BARELY}, not "
        "reproduced if below, else inconclusive. The theorem needs a column of its own for each token and position.",
        quantity="accuracy, worst seed",
        measure=partial(measure_network, inputs="shared embedding", seed="worst"), judge=judge_learns, needs=NEEDS,
    ),
)  # fmt: skip
