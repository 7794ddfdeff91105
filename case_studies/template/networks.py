"""Claims about fully connected networks: which inputs let them generalise to unseen symbols (Section 4)."""

from functools import partial

from case_studies.frame.claims import Claim, Measurement, above, at_least, below, proportion
from case_studies.frame.evidence import Evidence
from case_studies.template.measures import BARELY, SOLVED, by_n, loss_chart, scores
from case_studies.template.models import NETWORKS


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
    value, low, high = proportion(chosen.right, chosen.total)
    return Measurement(
        value=value, low=low, high=high, n=chosen.total, unit="unseen strings",
        numbers={"n": chosen.n, "seeds": len(last)},
        tables=[("aba against abb on unseen symbols", rows)],
        charts=[loss_chart(models, figure="aba-abb", title="fully connected networks, aba against abb")],
        note=f"The {seed} of {len(last)} seeds. A constant prediction has loss 1.",
    )  # fmt: skip


NEEDS = tuple(f"network {name}" for name in NETWORKS)

CLAIMS = (
    Claim(
        id="networks.one-hot", source="template paper, Theorem 4.1 and Section 5",
        statement="A fully connected network on one-hot inputs does not generalise to unseen symbols.",
        paper="loss 1.0 at every n",
        rule=f"Accuracy of the best seed at the largest n: reproduced if its exact interval is below {BARELY}, not "
        "reproduced if above, else inconclusive.",
        quantity="accuracy, best seed", measure=partial(measure_network, inputs="one-hot", seed="best"),
        judge=partial(below, bar=BARELY), needs=NEEDS,
    ),
    Claim(
        id="networks.equality", source="template paper, Section 5",
        statement="It does generalise if the inputs also encode which positions are equal (X X^T).",
        paper="n = 256: loss 0.14",
        rule=f"Accuracy of the worst seed at the largest n: reproduced if its interval is at or above {SOLVED}, not "
        "reproduced if below, else inconclusive.",
        quantity="accuracy, worst seed", measure=partial(measure_network, inputs="one-hot and equality", seed="worst"),
        judge=partial(at_least, bar=SOLVED), needs=NEEDS,
    ),
    Claim(
        id="networks.shared-embedding", source="ours, the control of Theorem 4.1",
        statement="The failure is due to the input columns, not the network: with one embedding per token, shared by "
        "all positions, a fully connected network does generalise.",
        rule=f"Accuracy of the worst seed at the largest n: reproduced if its interval is above {BARELY}, not "
        "reproduced if below, else inconclusive. The theorem needs a separate column for each token and position.",
        quantity="accuracy, worst seed", measure=partial(measure_network, inputs="shared embedding", seed="worst"),
        judge=partial(above, bar=BARELY), needs=NEEDS,
    ),
)  # fmt: skip
