"""Claims about which heads of a real pretrained encoder do what they look like: on chains after fine-tuning, on text.

There is one model of each, so units are its heads.
"""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence, Size
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast
from case_studies.lego.real_models import SOURCE, real_groups
from case_studies.recipes.judges import Share
from case_studies.recipes.masked_tokens import MaskedTokens
from case_studies.recipes.pretrained_weights import PretrainedWeights
from interp.auditing.audit import audit
from interp.auditing.result import AuditResult
from interp.core.verbs import AnyModel
from interp.heads.classify import classify_heads
from interp.heads.kinds import known_kinds
from interp.sweeps.spec import ModelSpec
from interp.tasks.base import Task
from interp.training.pretrained import pretrained

AUDITED = "real-audited"
"""The group of the fine-tuned model."""
LABELLED, VERDICT, LOST = "has a label", "verdict", "accuracy lost without it"
MOST = 0.5
"""Share of the labelled heads that counts as most of them."""
MOST_SEQUENCES = 512
"""Held-out sequences of heads that fewer do not decide."""
N_LABELS = 256
"""Sequences behind the labels."""
WEIGHTS = PretrainedWeights()
NO_TIME = "An audit of a real encoder takes longer than this size."
AFTER_128_SEQUENCES = Preregistration(
    "after a result",
    "audits of all heads with 128 sequences. Chains: of 39 labelled heads 2 were faithful, 14 misleading, 2 redundant "
    "and 21 undecided. Text: of 56 labelled heads 2 were misleading and 54 undecided. Undecided heads counted as not "
    "faithful then; now they may be either. The half was fixed before any audit.",
    looks=1,
)


def audited_groups(size: Size) -> dict[str, Sequence[ModelSpec]]:
    """The first fine-tuned model."""
    return {AUDITED: real_groups(size)["real-pretrained"][:1]}


def measure_chains(evidence: Evidence) -> Readings:
    """Share of the labelled heads that are faithful, of the encoder that was fine-tuned on chains."""
    (spec,) = evidence.specs(AUDITED)
    result = _audit_of_labelled_heads(evidence.run(spec).model, spec.task, seed=evidence.seed)
    return _readings(result, "Chains of six variables, four of them trained.")


def measure_text(evidence: Evidence) -> Readings:
    """Share of the labelled heads that are faithful, of the frozen encoder with a fitted read-out of masked tokens."""
    task = MaskedTokens()
    model = pretrained(task, SOURCE, readout="fitted", seed=evidence.seed)
    result = _audit_of_labelled_heads(model, task, seed=evidence.seed)
    answers = " ".join(task.answer_names)
    return _readings(result, f"{model.read_out_fit}. Text: Python's language reference; answers: {answers}")


def _audit_of_labelled_heads(model: AnyModel, task: Task, *, seed: int) -> AuditResult:
    """The audit of the heads with a label, on more sequences while some are undecided."""
    patterns = classify_heads(model, task, n=N_LABELS, seed=seed)
    heads = [head for kind in patterns.kinds for head in patterns.heads(kind)]
    return audit(model, task, heads=heads, n="enough", limit=MOST_SEQUENCES, seconds=None, seed=seed)


def _readings(result: AuditResult, note: str) -> Readings:
    """The verdict on every audited head, one row a head; those without a label are not judged."""
    kinds = known_kinds()
    rows = []
    for head in result.heads:
        row = {"head": f"{head.layer}.{head.head}", "label": head.label, LABELLED: head.label in kinds}
        row |= {"score": float(head.score), VERDICT: head.verdict, "why": head.reason}
        rows.append(row | {LOST: " ".join(f"{drop:+.3f}" for drop in head.costs["mean"].drop)})
    frame = pd.DataFrame(rows)
    by_label = pd.crosstab(frame["label"], frame[VERDICT])
    verdicts = Counter(row[VERDICT] for row in rows if row[LABELLED])
    return Readings(
        frame=frame,
        title=f"Every head; accuracy lost on {', '.join(result.outcomes)}",
        numbers={
            **{f"labelled heads that are {name}": verdicts[name] for name in by_label.columns},
            "heads that can be removed together": len(result.largest_harmless),
            "accuracy": [float(value) for value in result.clean],
            "largest number of sequences": result.n,
        },
        tables=[("Verdicts by label", by_label.reset_index())],
        note=f"Exact interval over heads, which are not independent; undecided heads may be either. {note}",
    )


FAITHFUL = Share(
    VERDICT,
    "faithful",
    undecided="undecided",
    unit="heads of one model",
    where={LABELLED: True},
    without_rows=(0.0, 0.0, 1.0),
)
"""Share of the labelled heads that are faithful; a head that is undecided may be or not."""


def _claim(name: str, statement: str, **options) -> Claim:
    return Claim(
        id=f"real.audit.{name}",
        source="ours, after LEGO, Section 5 and Appendix F; here all-MiniLM-L6-v2",
        statement=statement,
        rule=AtLeast(MOST),
        preregistration=AFTER_128_SEQUENCES,
        quantity="share of labelled heads",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=NO_TIME,
        packs=WEIGHTS,
        judged=FAITHFUL,
        **options,
    )


METHOD = (
    "Share of the heads with a label (classify_heads, {labels} sequences) that an audit of these heads calls faithful "
    "(up to {n} sequences{task}), exact interval over heads, in which undecided heads may be either"
)
CLAIMS = (
    _claim(
        "chains",
        "After fine-tuning on chains, most labelled heads of a pretrained model do what they look like.",
        method=METHOD.format(labels=N_LABELS, n=MOST_SEQUENCES, task=" of the variables that are known"),
        measure=measure_chains,
        needs=(AUDITED,),
    ),
    _claim(
        "text",
        "On masked tokens of text, most labelled heads of a pretrained model do what they look like.",
        method=METHOD.format(labels=N_LABELS, n=MOST_SEQUENCES, task=", read-out fitted on the frozen model"),
        measure=measure_text,
    ),
)
