"""What the study found, and the words that it uses."""

from case_studies.frame.finding import Finding

FINDINGS = (
    Finding(
        text="Small transformers learn chains such as a=+1; b=-a: their least accurate variable is predicted with an "
        "accuracy of {solved.untied} if every layer has its own weights, and {solved.tied} if one layer is "
        "repeated.",
        reproduced=("solved.untied", "solved.tied"),
    ),
    Finding(
        text="Repeating the layer more often than in training lets a model follow longer chains, by {beyond.turns} in "
        "accuracy; but only a share of {algorithm.loop.long-tied} of such models passes values along the chain "
        "step by step, as a loop would.",
        reproduced=("beyond.turns",),
        not_reproduced=("algorithm.loop.long-tied", "algorithm.loop.stochastic"),
    ),
    Finding(
        text="Repeating the layer more often than in training lets a model follow longer chains, by {beyond.turns} in "
        "accuracy.",
        reproduced=("beyond.turns", "algorithm.loop.long-tied"),
    ),
    Finding(
        text="A pretrained encoder that has never seen a chain has heads that attend to equal tokens, "
        "{real.association.12} above the best head of 20 untrained models, and a share of {real.portion} of its heads "
        "has one of the paper's patterns.",
        reproduced=("real.association.6", "real.association.12", "real.portion"),
    ),
    Finding(
        text="That encoder learns chains of six faster than one of its shape with random weights, by {real.faster} in "
        "mean accuracy over training; without its five strongest association heads it is still ahead, by "
        "{real.lost.remains}.",
        reproduced=("real.faster", "real.lost.remains"),
    ),
    Finding(
        text="If the last variable is trained as well, models find a shortcut: they predict it from the number of "
        "minus signs, before the variable that precedes it.",
        reproduced=("shortcut.last-first", "shortcut.parity"),
    ),
    Finding(
        text="Teaching heads where to look first makes learning faster, by {start.mimic} in accuracy.",
        reproduced=("start.mimic",),
    ),
)
WORDS = {
    "chain": "variables, each defined by the one before it; the first is a constant",
    "tied": "one layer is applied repeatedly; untied: every layer has its own weights",
    "extrapolate": "predict variables further along the chain than those that were trained",
    "association": "a head attends to the same letter elsewhere; manipulation: it reads the sign inside a clause",
    "mimicking": "heads are first taught hard-coded attention patterns, before the task",
    "start": "the weights that training starts from: random, after mimicking, or pretrained on text",
}
