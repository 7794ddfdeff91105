"""What the study found, and the words that it uses."""

from case_studies.frame.finding import Finding

FINDINGS = (
    Finding(
        text="Fast approximations find needed heads less well than they should: attribution patching distinguishes "
        "needed from idle heads with an AUROC of {patching.known} on hand-written models, and {patching.trained} "
        "on trained ones, below the threshold of 0.9.",
        not_reproduced=("patching.known", "patching.trained"),
    ),
    Finding(
        text="Large attention weights are no sign of use: of readable heads that are not needed, a share of "
        "{pattern.attention} counts as important by its attention.",
        reproduced=("pattern.attention",),
    ),
    Finding(
        text="Of the edges that trained models need, one gradient (EAP) misses a share of "
        "{edges.eap.missed.trained} and ACDC {edges.acdc.missed.trained}, if as many edges are taken as are needed. "
        "Removing every edge is faster than ACDC by a factor of {edges.time.trained}.",
        not_reproduced=("edges.eap.missed.trained", "edges.acdc.missed.trained"),
        reproduced=("edges.time.trained",),
    ),
)
WORDS = {
    "needed": "the answers get worse if the head is removed; idle: they do not",
    "attribution patching": "a linear estimate, by one gradient, of what replacing the output of a head would do",
    "AUROC": "chance that a needed head gets a higher score than an idle one: one half is guessing, 1 is perfect",
    "EAP": "a linear estimate, by one gradient, of what replacing an edge would do",
    "ACDC": "removes edges one after the other, and keeps those without which the loss rises",
    "attention mass": "how much attention a head gives to single tokens, without looking at what it does",
    "redundant": "heads that replace each other, so that removing one alone changes nothing",
    "hand-written models": "models with known answers: it is known for every head whether it is needed",
}
