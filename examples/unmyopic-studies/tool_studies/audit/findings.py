"""What the study found, and the words that it uses."""

from case_studies.frame.finding import Finding

FINDINGS = (
    Finding(
        text="A readable attention pattern is weak evidence of what a head does: of the heads of trained LEGO models "
        "that look like association or manipulation, a share of {readable.lego} acts through that pattern.",
        not_reproduced=("readable.lego",),
    ),
    Finding(
        text="Most heads of trained LEGO models that look like association or manipulation act through that pattern: "
        "a share of {readable.lego}.",
        reproduced=("readable.lego",),
    ),
    Finding(
        text="Ordinary training gives a share of {misleading.found} of the models a misleading head; in bounded Dyck "
        "a share of {hidden.dyck.first-layer} of the needed heads of the first layer has no readable pattern.",
        reproduced=("misleading.found", "hidden.dyck.first-layer"),
    ),
    Finding(
        text="The audit itself was right about every head of a share of {known.lego} of the hand-written LEGO models, "
        "of all Dyck and template ones, and called a head of an untrained model faithful in {silent.untrained} "
        "of its audits.",
        reproduced=("known.dyck", "known.template", "silent.untrained"),
        not_reproduced=("known.lego",),
    ),
    Finding(
        text="The audit itself was right about every head of all hand-written models, and called a head of an "
        "untrained model faithful in {silent.untrained} of its audits.",
        reproduced=("known.lego", "known.dyck", "known.template", "silent.untrained"),
    ),
)
WORDS = {
    "readable": "the attention pattern matches a known kind of head, such as association (attending to the same token)",
    "needed": "accuracy falls when the head is replaced by its mean",
    "faithful": "needed, and acts through its readable pattern",
    "misleading": "readable, but it does not act through that pattern",
    "hidden": "needed, but not readable",
    "mimicking": "heads were first taught a pattern, before the task",
}
