"""Claims about fully connected networks: which inputs let them generalise to unseen symbols."""

from case_studies.frame.claims import SHARE, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Below
from case_studies.template.measures import (
    BARELY,
    SOLVED,
    accuracy_judge,
    loss_chart,
    scored_frame,
    scores,
)
from case_studies.template.models import NETWORKS
from case_studies.template.preregistration import over_models

LARGEST = "largest n"
HOW = "Mean accuracy at the largest n, t interval over models (seeds)"


def measure_network(evidence: Evidence) -> Readings:
    """Accuracy of every network on unseen symbols; judged at the largest n, with the best chance to generalise."""
    models = {name: scores(evidence, f"network {name}") for name in NETWORKS}
    frame = scored_frame(models, of="inputs")
    return Readings(
        frame=frame.assign(**{LARGEST: frame["n"] == frame.groupby("inputs")["n"].transform("max")}),
        title="aba against abb on unseen symbols",
        charts=[loss_chart(models, figure="aba-abb", title="fully connected networks, aba against abb")],
        note="A constant prediction has loss 1.",
    )


NEEDS = tuple(f"network {name}" for name in NETWORKS)

CLAIMS = (
    Claim(
        id="networks.one-hot",
        method=HOW,
        rule=Below(BARELY),
        preregistration=over_models("0.51 [0.49, 0.53], 2,000 strings of the best of three seeds"),
        quantity="accuracy",
        value_range=SHARE,
        measure=measure_network,
        judged=accuracy_judge(inputs="one-hot", **{LARGEST: True}),
        needs=NEEDS,
    ),
    Claim(
        id="networks.equality",
        method=HOW,
        rule=AtLeast(SOLVED),
        preregistration=over_models("1.0, 2,000 strings of the worst of three seeds"),
        quantity="accuracy",
        value_range=SHARE,
        measure=measure_network,
        judged=accuracy_judge(inputs="one-hot and equality", **{LARGEST: True}),
        needs=NEEDS,
    ),
    Claim(
        id="networks.shared-embedding",
        method=f"{HOW}; the theorem needs a separate column for each token and position",
        rule=Above(BARELY),
        preregistration=over_models("1.0, 2,000 strings of the worst of three seeds"),
        quantity="accuracy",
        value_range=SHARE,
        measure=measure_network,
        judged=accuracy_judge(inputs="shared embedding", **{LARGEST: True}),
        needs=NEEDS,
    ),
)
