"""What the study found, and the words that it uses."""

from case_studies.frame.finding import Finding

FINDINGS = (
    Finding(
        text="Transformers learn which symbols of a string are equal also for symbols that they never saw; a fully "
        "connected network on one-hot inputs does not (accuracy {networks.one-hot}; chance is one half).",
        reproduced=("networks.one-hot", "curves.aabb-abab.many"),
    ),
    Finding(
        text="One trainable scalar per head, a I, makes them need fewer samples: it saves {identity.saves.half} "
        "halvings of the training set, which is less than the order of magnitude (three or more) that the paper "
        "reports.",
        reproduced=("identity.saves.half",),
        not_reproduced=("identity.samples.half",),
    ),
    Finding(
        text="One trainable scalar per head, a I, makes them need fewer samples: it saves {identity.saves.half} "
        "halvings of the training set.",
        reproduced=("identity.saves.half", "identity.samples.half"),
    ),
    Finding(
        text="To copy an unseen symbol a second scalar, b I, is needed: with it the accuracy is {copying.identity} at "
        "every width, without it {copying.fails} in the widest models.",
        reproduced=("copying.identity", "copying.fails"),
    ),
)
WORDS = {
    "template": "a string of wildcards, such as aba; symbols replace the wildcards, and the label is the template",
    "unseen symbols": "symbols that are in no training string",
    "a I": "a trainable multiple of the identity, added to W_Q W_K^T of each head; b I: the same for W_V W_O",
    "doublings of n": "how many times the number of training strings doubles: 3 is eight times as many",
    "kernel": "what a very wide network with random features computes",
    "N": "the matrix of a kernel's mean values between templates; if it is nonsingular, the kernel tells them apart",
}
