"""What the study found, and the words that it uses."""

from case_studies.frame.finding import Finding

FINDINGS = (
    Finding(
        text="Models that learn the last variable of a chain early predict it by counting minus signs before they "
        "follow the chain (share of models {shortcut.first}), and at the end of training they keep a share of "
        "{shortcut.kept} of it.",
        reproduced=("shortcut.first", "shortcut.kept"),
    ),
    Finding(
        text="Once the task is learned, only a share of {roles.late} of the heads still changes its label.",
        reproduced=("roles.late",),
    ),
    Finding(
        text="Whether heads learn association before manipulation is open: they do in a share of {association.first} "
        "of the models.",
        inconclusive=("association.first",),
    ),
    Finding(
        text="Heads learn association before manipulation, in a share of {association.first} of the models.",
        reproduced=("association.first",),
    ),
)
WORDS = {
    "chain": "variables, each defined by the one before it, such as a=+1; b=-a",
    "association": "a head attends to the same letter elsewhere; manipulation: it reads the sign inside a clause",
    "count of signs": "predicting a variable from the number of minus signs, without following the chain",
    "mimicking": "heads are first taught hard-coded attention patterns, before the task",
    "label": "the kind of head that a pattern is classified as",
}
