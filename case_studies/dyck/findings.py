"""What the study found, and the words that it uses."""

from case_studies.frame.finding import Finding

FINDINGS = (
    Finding(
        text="Transformers that learn to close brackets (accuracy {learned.no-positions}) attend differently from "
        "seed to seed: their patterns are {variation.no-positions.last-layer} times as far apart as random ones.",
        reproduced=("learned.no-positions", "variation.no-positions.last-layer"),
    ),
    Finding(
        text="A share of {heads.not-stack-like.minimal} of the heads does not read like a stack, and replacing a "
        "stack-like pattern costs no more accuracy than replacing another one (difference "
        "{heads.stack-like-matters-no-more}).",
        reproduced=("heads.not-stack-like.minimal", "heads.stack-like-matters-no-more"),
    ),
    Finding(
        text="What solutions share is a balance condition on whole layers: models that violate it less generalise "
        "better to longer words (correlation {balance.length.across}), and training towards it raises the "
        "accuracy at length 450 by {contrastive.words.length}.",
        reproduced=("balance.length.across", "contrastive.words.length"),
    ),
    Finding(
        text="The patterns are further apart than the paper says: {variation.no-positions.close} times as far as "
        "random square matrices.",
        not_reproduced=("variation.no-positions.close",),
    ),
)
WORDS = {
    "bounded Dyck": "strings of brackets of several types that close properly, nested up to a limited depth",
    "variation": "mean squared distance between the attention patterns of two models on the same input",
    "minimal first layer": "a first layer whose output depends on type and depth of a bracket only",
    "stack-like": "attending to the open brackets, as one would look up the top of a stack",
    "balance violation": "how much a matched pair of brackets still changes what a layer adds; 0 if it is balanced",
    "contrastive loss": "an extra loss that trains towards balance",
    "prefixes": "training on beginnings of words, in place of whole words",
}
