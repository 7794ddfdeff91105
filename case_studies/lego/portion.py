"""Claims about how many heads of a pretrained model have one of the paper's patterns (Section 5, Appendix F)."""

from collections import Counter
from functools import partial

import pandas as pd

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast
from case_studies.lego.models import ARMS
from case_studies.lego.starts import NO_TIME, TEXT_PLATEAU, labels_of
from case_studies.recipes.judges import Mean
from interp.heads.classify import HeadPatterns

PATTERNS = ("association", "manipulation", "broadcast")
"""The patterns that the paper hard-codes."""
CONSIDERABLE = 0.25
"""Share of all heads that counts as a considerable portion."""


def share_of_patterns(patterns: HeadPatterns) -> float:
    """Share of a model's heads whose label is one of `PATTERNS`."""
    labels = [label for row in patterns.label for label in row]
    return sum(label in PATTERNS for label in labels) / len(labels)


def measure_portion(evidence: Evidence, *, group: str) -> Readings:
    """Share of the pretrained heads with one of the patterns on LEGO sentences, before fine-tuning; one row a model."""
    task = ARMS[evidence.size]["start"].task()
    rows = []
    for spec in evidence.specs(group):
        trained, before, _ = labels_of(evidence, spec, task)
        counts = Counter(label for row in trained.label for label in row)
        of_patterns = {name: counts[name] for name in PATTERNS}
        rows.append(
            {
                "seed": spec.seed,
                "heads": counts.total(),
                **of_patterns,
                "other labels": counts.total() - sum(of_patterns.values()),
                "share": share_of_patterns(trained),
                "share before pretraining": share_of_patterns(before),
            }
        )
    return Readings(
        frame=pd.DataFrame(rows),
        title="Labels of the pretrained heads on LEGO sentences",
        note="t interval over pretrained models. Heads are labelled by `interp.classify_heads`; the paper looks at "
        "maps. Markers of a sentence, [BOS] and [EOS], are in the place of [CLS] and [SEP].",
    )


CLAIMS = (
    Claim(
        id="heads.portion",
        sizes=LARGE_SIZES,
        sizes_reason=NO_TIME,
        remedy=TEXT_PLATEAU,
        method="Share of the heads that are labelled association, manipulation or broadcast on LEGO sentences, before "
        f"fine-tuning, t interval over models; a considerable portion is at least {CONSIDERABLE:g}",
        rule=AtLeast(CONSIDERABLE),
        preregistration=Preregistration(
            "after first models",
            "one of these models has heads that attend to neighbours and none that attends to equal tokens; a "
            "published sentence encoder had 60 % of its heads with these labels, an untrained one none.",
        ),
        quantity="share of heads",
        value_range=SHARE,
        measure=partial(measure_portion, group="pretrained"),
        judged=Mean("share", unit="models", share_of="heads"),
        needs=("pretrained",),
        before_training=("paper",),
    ),
)
