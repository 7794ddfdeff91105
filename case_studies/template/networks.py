"""Claims about fully connected networks: which inputs let them generalise to unseen symbols."""

from functools import partial

from case_studies.frame.claims import SHARE, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, AtLeast, Below
from case_studies.template.measures import (
    BARELY,
    SOLVED,
    by_n,
    exact_interval,
    loss_chart,
    mean_accuracy,
    scores,
)
from case_studies.template.models import NETWORKS
from case_studies.template.preregistration import over_models

HOW = "Mean accuracy at the largest n, t interval over models (seeds)"


def measure_network(evidence: Evidence, *, inputs: str) -> Measurement:
    """Mean accuracy on unseen symbols at the largest n, over models."""
    models = {name: scores(evidence, f"network {name}") for name in NETWORKS}
    rows: list[list] = [["inputs", "n", "seed", "accuracy", "95 % over strings", "test loss", "validation loss"]]
    for name, models_of_inputs in models.items():
        for scored in models_of_inputs:
            numbers = [f"{loss:.3f}" for loss in (scored.loss, scored.validation)]
            rows.append([name, scored.n, scored.seed, f"{scored.accuracy:.3f}", exact_interval(scored), *numbers])
    # Judged at the largest n, where a network has the best chance to generalise
    groups = by_n(models[inputs])
    last = groups[max(groups)]
    interval = mean_accuracy(last)
    return Measurement.from_interval(
        interval,
        unit="models",
        numbers={
            "n": max(groups),
            "lowest accuracy": min(scored.accuracy for scored in last),
            "highest accuracy": max(scored.accuracy for scored in last),
            "strings per model": last[0].total,
        },
        tables=[("aba against abb on unseen symbols", rows)],
        charts=[loss_chart(models, figure="aba-abb", title="fully connected networks, aba against abb")],
        note="A constant prediction has loss 1.",
    )


NEEDS = tuple(f"network {name}" for name in NETWORKS)

CLAIMS = (
    Claim(
        id="networks.one-hot",
        source="template paper, Theorem I.2 and Figure 21",
        statement="A fully connected network on one-hot inputs does not generalise to unseen symbols.",
        paper="loss 1.0 at every n",
        method=HOW,
        rule=Below(BARELY),
        preregistration=over_models("0.51 [0.49, 0.53], 2,000 strings of the best of three seeds"),
        quantity="accuracy",
        value_range=SHARE,
        measure=partial(measure_network, inputs="one-hot"),
        needs=NEEDS,
    ),
    Claim(
        id="networks.equality",
        source="template paper, Figure 24",
        statement="A fully connected network does generalise if its inputs also encode which positions are equal "
        "(X X^T).",
        paper="n = 256: loss 0.14",
        method=HOW,
        rule=AtLeast(SOLVED),
        preregistration=over_models("1.0, 2,000 strings of the worst of three seeds"),
        quantity="accuracy",
        value_range=SHARE,
        measure=partial(measure_network, inputs="one-hot and equality"),
        needs=NEEDS,
    ),
    Claim(
        id="networks.shared-embedding",
        source="ours, the control of Theorem I.2",
        statement="With one embedding per token, shared by all positions, a fully connected network does generalise: "
        "that it fails on one-hot inputs is due to their columns.",
        method=f"{HOW}; the theorem needs a separate column for each token and position",
        rule=Above(BARELY),
        preregistration=over_models("1.0, 2,000 strings of the worst of three seeds"),
        quantity="accuracy",
        value_range=SHARE,
        measure=partial(measure_network, inputs="shared embedding"),
        needs=NEEDS,
    ),
)
