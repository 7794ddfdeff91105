"""Audits of trained models, one per model and process, and claims about shares of their heads."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence, once_per_model
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Below, Conditional, Number
from case_studies.recipes.intervals import as_interval
from case_studies.recipes.judges import Row
from case_studies.recipes.learned import LEARNED, excluded_models, has_learned
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.auditing.verdicts import HEAD_VERDICTS
from interp.core.intervals import Interval
from interp.core.statistics import pooled_interval
from interp.sweeps.spec import ModelSpec
from interp.view.points import scatter

MOST_SEQUENCES = {"quick": 128, "standard": 1024, "paper": 4096}
"""Largest number of sequences of an audit, which goes up to it only for undecided heads."""
SHARE = "share of heads"
FEWEST_HEADS = 8
"""Smallest number of heads for judging a share."""
AFTER_AUDITS = Preregistration(
    "after a result",
    "the bar of one half and the fewest heads date from before any model. After a result undecided heads were counted "
    "for either side, and models with an accuracy below 0.9 were excluded.",
)
EXCLUDED_LATER = Preregistration(
    "after a result", "the bar dates from before any model; after a result models below 0.9 were excluded."
)
EXCLUDED = (
    f"Models with an accuracy below {LEARNED} on an outcome that they were trained for have not learned their task "
    "and are excluded. (This bar was set after a run that excluded only models at chance: most undecided heads were in "
    "models that got 50 to 90 % of some variables right.)"
)


@dataclass(frozen=True)
class AuditedModel:
    """A trained model and its audit."""

    group: str
    spec: ModelSpec
    result: AuditResult


def audit_models(evidence: Evidence, groups: Sequence[str]) -> Iterator[AuditedModel]:
    """Audit every model of these groups; models that have not learned their task are skipped."""
    for group in groups:
        for spec in evidence.specs(group):
            if has_learned(evidence, spec):
                yield AuditedModel(group, spec, _audit(evidence, spec))


@once_per_model
def _audit(evidence: Evidence, spec: ModelSpec) -> AuditResult:
    """The audit of a model with up to the largest number of sequences of the study's size."""
    return audit(
        evidence.run(spec).model,
        spec.task,
        n="enough",
        limit=MOST_SEQUENCES[evidence.size],
        outcomes=spec.task.audited_outcomes,
        at_chance=True,
        seed=evidence.seed,
    )


def readable_heads(result: AuditResult) -> np.ndarray:
    """Mask of the heads whose label is a kind of head."""
    return np.array([head.readable for head in result.heads])


def needed_heads(result: AuditResult) -> np.ndarray:
    """Mask of the heads that are needed: removing them costs accuracy, and no other heads cancel them."""
    return np.array([head.needed["mean"] is True and head.reason != "cancelled" for head in result.heads])


Among = Literal["readable", "needed"]
"""The heads that a share is of."""
MASK_AND_VERDICT: dict[Among, tuple[Callable[[AuditResult], np.ndarray], str]] = {
    "readable": (readable_heads, "faithful"),
    "needed": (needed_heads, "hidden"),
}
"""The mask of these heads, and the verdict of those that count."""


def _of_layer(result: AuditResult, layer: int | None) -> np.ndarray:
    """Mask of the heads of a layer, which may be counted from the end; of all heads without one."""
    layers = np.array([head.layer for head in result.heads])
    if layer is None:
        return np.full(len(layers), True)
    return layers == range(layers.max() + 1)[layer]


def _verdicts(result: AuditResult) -> np.ndarray:
    """The verdict on each head."""
    return np.array([head.verdict for head in result.heads])


def head_share(hits: Sequence[float], heads: Sequence[int]) -> Interval:
    """Share of heads over models, with an interval that takes models, not heads, as independent.

    Without heads: 0, interval [0, 1].

    Args:
        hits: Number of heads that count, of each model.
        heads: Number of heads that the share is of, of each model.
    """
    if not sum(heads):
        return as_interval(0.0, 0.0, 1.0, len(heads))
    value, low, high = pooled_interval(np.array(hits, dtype=float), np.array(heads, dtype=float))
    return as_interval(float(value), float(low), float(high), len(heads))


def measure_head_share(
    evidence: Evidence, *, groups: Sequence[str], among: Among, layer: int | None = None
) -> Readings:
    """Share of faithful heads among readable ones, or hidden ones among needed ones, of a layer if given; one row."""
    models = list(audit_models(evidence, groups))
    select_heads, verdict = MASK_AND_VERDICT[among]
    masks = [select_heads(model.result) & _of_layer(model.result, layer) for model in models]
    # Heads of each model: all that are selected, those with the verdict, and those without any
    verdicts = [_verdicts(model.result)[mask] for model, mask in zip(models, masks, strict=True)]
    n_heads = [len(model_verdicts) for model_verdicts in verdicts]
    n_hits = [int((model_verdicts == verdict).sum()) for model_verdicts in verdicts]
    n_undecided = [int((model_verdicts == "undecided").sum()) for model_verdicts in verdicts]
    # Undecided heads are misses at the lower end and hits at the upper end
    low = float(head_share(n_hits, n_heads).low)
    most_hits = [hits + undecided for hits, undecided in zip(n_hits, n_undecided, strict=True)]
    high = float(head_share(most_hits, n_heads).high)
    # The value leaves undecided heads out, so it is between the shares of which these are the ends
    n_decided = sum(n_heads) - sum(n_undecided)
    n_models = sum(len(evidence.specs(group)) for group in groups)
    share = sum(n_hits) / n_decided if n_decided else low
    return Readings(
        frame=pd.DataFrame([{SHARE: share, "low": low, "high": high, "models": max(1, len(models))}]),
        numbers={
            "heads": sum(n_heads),
            "undecided": sum(n_undecided),
            "heads in all": sum(len(model.result.heads) for model in models),
            "models left out": n_models - len(models),
        },
        tables=[
            (f"Verdicts on {among} heads, by group", _verdicts_by_group(models, masks)),
            ("Labels and verdicts", _verdicts_by_label(models, masks)),
            *excluded_models(evidence, groups),
        ],
        charts=[_chart(models)] if models else [],
        note=f"{EXCLUDED} The interval takes models, not heads, as independent; undecided heads are hits at its upper "
        "end and misses at its lower end.",
    )


def measure_head_share_longer(evidence: Evidence, *, groups: Sequence[str], among: Among) -> Readings:
    """As `measure_head_share`, with the longest audits of size paper: four times the sequences of size standard."""
    # The size only sets the audit's length; the models stay those of evidence.groups
    readings = measure_head_share(replace(evidence, size="paper"), groups=groups, among=among)
    return replace(readings, note=f"{readings.note} Audits use up to {MOST_SEQUENCES['paper']:,} sequences.")


def _verdicts_by_group(models: Sequence[AuditedModel], masks: Sequence[np.ndarray]) -> pd.DataFrame:
    """Number of selected heads by group and verdict."""
    rows = []
    for group in dict.fromkeys(model.group for model in models):
        verdicts = [
            _verdicts(model.result)[mask] for model, mask in zip(models, masks, strict=True) if model.group == group
        ]
        counts = Counter(np.concatenate(verdicts).tolist())
        by_verdict = {verdict: counts[verdict] for verdict in HEAD_VERDICTS}
        rows.append({"group": group, "models": len(verdicts), "heads": counts.total(), **by_verdict})
    return pd.DataFrame(rows, columns=["group", "models", "heads", *HEAD_VERDICTS])


def _verdicts_by_label(models: Sequence[AuditedModel], masks: Sequence[np.ndarray]) -> pd.DataFrame:
    """Number of selected heads by label and verdict."""
    counts: Counter[tuple[str, str]] = Counter()
    for model, mask in zip(models, masks, strict=True):
        heads = [head for head, selected in zip(model.result.heads, mask, strict=True) if selected]
        counts.update((head.label, head.verdict) for head in heads)
    labels = sorted({label for label, _ in counts})
    rows = [[label, *(counts[label, verdict] for verdict in HEAD_VERDICTS)] for label in labels]
    return pd.DataFrame(rows, columns=["label", *HEAD_VERDICTS])


def _chart(models: Sequence[AuditedModel]):
    """Every head: score of its pattern against the cost of ablating it."""
    rows = []
    for model in models:
        drop = model.result.cost("mean")[0][:, 0]  # columns: drop, low, high
        heads = zip(model.result.heads, drop, strict=True)
        rows += [(float(head.score), float(accuracy_lost), head.verdict) for head, accuracy_lost in heads]
    columns = ["score on its kind", "accuracy lost when ablated", "verdict"]
    title = f"every head, n = {len(rows)} heads of {len(models)} models"
    table = pd.DataFrame(rows, columns=columns)
    return scatter(table, x=columns[0], y=columns[1], series="verdict", zero=True, title=title)


def head_share_claim(
    name: str,
    *,
    groups: Sequence[str],
    among: Among,
    above: bool,
    layer: int | None = None,
    source: str,
    statement: str,
    preregistration: Preregistration = AFTER_AUDITS,
    **fields: Any,
) -> Claim:
    """A claim about the share of readable heads that are faithful, or of needed heads that are hidden.

    Args:
        name: The claim's id.
        groups: The models to audit.
        among: `readable` or `needed`.
        above: Whether the share must be above one half; if False, below.
        layer: The layer whose heads count, -1 for the last; default: all.
        source: The paper and its section.
        statement: What the paper says.
        preregistration: When the rule was fixed.
        **fields: Other fields of the claim, such as `sizes`, or another `measure`.
    """
    fields.setdefault("measure", partial(measure_head_share, groups=groups, among=among, layer=layer))
    against_one_half = Above(0.5) if above else Below(0.5)
    _, verdict = MASK_AND_VERDICT[among]
    return Claim(
        id=name,
        source=source,
        statement=statement,
        needs=groups,
        method="Share of the heads with a decided verdict; its interval, over models, counts undecided heads as hits "
        "at the upper end and as misses at the lower end",
        rule=Conditional(Number("heads", AtLeast(FEWEST_HEADS)), against_one_half),
        preregistration=preregistration,
        quantity=f"share of {among} heads that are {verdict}",
        judged=Row(SHARE, unit="models", units="models"),
        **fields,
    )
