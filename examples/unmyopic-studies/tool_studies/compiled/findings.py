"""What the study found, and the words that it uses."""

from case_studies.frame.finding import Finding

FINDINGS = (
    Finding(
        text="On programs that were compiled to transformers, where it is known what every head does, the audit calls "
        "no head faithful that is not (share of wrong ones {heads.faithful}); but it finds only a share of "
        "{heads.found} of those that are.",
        reproduced=("heads.faithful",),
        not_reproduced=("heads.found",),
    ),
    Finding(
        text="On programs that were compiled to transformers, where it is known what every head does, the audit calls "
        "no head faithful that is not (share of wrong ones {heads.faithful}), and finds a share of {heads.found} "
        "of those that are.",
        reproduced=("heads.faithful", "heads.found"),
    ),
    Finding(
        text="Probes read every value of a program at the layer that writes it, and exchanging a value changes the "
        "answer exactly when a later part reads it, for a share of {values.used} of the values.",
        reproduced=("values.written", "values.used"),
    ),
    Finding(
        text="The test of algorithms accepts the graph of each of the programs, and refuses all graphs with one wrong "
        "edge.",
        reproduced=("graphs.own", "graphs.rewired"),
    ),
)
WORDS = {
    "program": "a program in RASP, a language for transformers; Tracr compiles it to weights",
    "selector": "the part of a program that says which positions a head attends to",
    "faithful": "the head is needed, and acts through what it selects; idle: the answers do not need it",
    "probe": "a classifier that reads a value from the activations of a layer",
    "graph": "which value of the program is computed from which others",
}
