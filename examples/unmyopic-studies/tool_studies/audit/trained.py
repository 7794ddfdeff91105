"""Claims about the heads of trained models: shares by verdict, misleading heads, agreement over seeds, redundancy."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.recipes.audits import (
    EXCLUDED,
    EXCLUDED_LATER,
    MOST_SEQUENCES,
    AuditedModel,
    audit_models,
    head_share,
    head_share_claim,
    measure_head_share_longer,
    needed_heads,
    readable_heads,
)
from case_studies.recipes.intervals import interval_columns
from case_studies.recipes.judges import Row, Share
from case_studies.recipes.learned import excluded_models, has_learned
from case_studies.recipes.seeds import more_seeds
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.view.charts import pattern_maps
from tool_studies.audited_models import AUDITED_GROUPS, DYCK, LEGO, NO_MIMICKING, TEMPLATE

ERRORS = 0.05
"""Significance level of an audit: the largest share of models with a wrong verdict."""
SHOWN = 6
HAS_LEARNED, MISLEADING, NO_NEEDED = "learned", "has a misleading head", "no head needed alone"
NO_HEADS = {"misleading heads": 0, "readable heads": 0}
"""The counts of a model that is not audited."""
AGREE = "share of other seeds that agree"
UNTAUGHT_FIXED = Preregistration("after a result", "that of readable.lego and hidden.lego, over all LEGO models.")
BY_LAYER = Preregistration(
    "after a result", "over both layers 0.91 of the needed heads were hidden, most in the first layer."
)


def measure_misleading(evidence: Evidence) -> Readings:
    """Whether a model has a readable head that is misleading, and again on other sequences. One row a model."""
    rows, heads, shown = [], [], []
    for audited in audit_models(evidence, AUDITED_GROUPS):
        misleading = audited.result.of("misleading")
        again = _again(evidence, audited) if misleading else None
        # A head counts if it is misleading on other sequences too
        confirmed = 0
        for second, sentence in zip(again.heads, again.sentences(), strict=True) if again else ():
            if second.place not in misleading:
                continue
            place = f"{second.layer}.{second.head}"
            heads.append((audited.group, audited.spec.seed, place, second.verdict, sentence))
            if second.verdict == "misleading":
                confirmed += 1
                shown.append((second.score, audited, second.place))
        rows.append(
            {
                "models": audited.group,
                "seed": audited.spec.seed,
                MISLEADING: confirmed > 0,
                HAS_LEARNED: True,
                "misleading heads": confirmed,
                "readable heads": int(readable_heads(audited.result).sum()),
            }
        )
    # Models that have not learned their task are not judged
    left_out = [
        {"models": group, "seed": spec.seed, HAS_LEARNED: False, MISLEADING: False, **NO_HEADS}
        for group in AUDITED_GROUPS
        for spec in evidence.specs(group)
        if not has_learned(evidence, spec)
    ]
    frame: Any = pd.DataFrame([*rows, *left_out])
    confirmed, readable = frame["misleading heads"], frame["readable heads"]
    of_heads = head_share(confirmed[frame[HAS_LEARNED]].tolist(), readable[frame[HAS_LEARNED]].tolist())
    columns = ["models", "seed", "head", "verdict on other sequences", "finding"]
    return Readings(
        frame=frame,
        table=pd.DataFrame(heads[:40], columns=columns),
        title="Misleading heads, audited again",
        numbers={
            "confirmed": int(confirmed.sum()),
            "models with one": int((confirmed > 0).sum()),
            "readable heads": int(readable.sum()),
            "models": len(rows),
            "share of readable heads": float(of_heads),
            "its interval": [of_heads.low, of_heads.high],
        },
        tables=excluded_models(evidence, AUDITED_GROUPS),
        charts=[_maps(evidence, shown)] if shown else [],
        note=f"Each model is audited on up to {MOST_SEQUENCES[evidence.size]} sequences, and one with a misleading "
        f"head again on others. {EXCLUDED}",
    )


def _again(evidence: Evidence, audited: AuditedModel) -> AuditResult:
    """The audit of a model on other sequences."""
    return audit(
        evidence.run(audited.spec).model,
        audited.spec.task,
        n="enough",
        limit=MOST_SEQUENCES[evidence.size],
        outcomes=audited.spec.task.audited_outcomes,
        seed=evidence.seed + 1,
    )


def _maps(evidence: Evidence, shown: Sequence[tuple[float, AuditedModel, tuple[int, int]]]):
    """The patterns of the misleading heads with the highest scores, on one example each."""
    maps = {}
    for score, audited, (layer, head) in sorted(shown, key=lambda entry: -entry[0])[:SHOWN]:
        batch = audited.spec.task.sample(1, generator=derived_generator(evidence.seed, "shown"), split="test")
        pattern = patterns_on([evidence.run(audited.spec).model], batch)[layer, 0, 0, head]
        (label,) = (verdict.label for verdict in audited.result.heads if verdict.place == (layer, head))
        name = f"{audited.group} {audited.spec.seed}, head {layer}.{head}: {label} {score:.2f}"
        maps[name] = pattern.numpy()
    widest = max(len(pattern) for pattern in maps.values())
    return pattern_maps(
        maps,
        tokens=[str(index) for index in range(widest)],
        title="misleading heads of trained models, rows are queries",
    )


def measure_agreement_of_seeds(evidence: Evidence) -> Readings:
    """Over readable, needed heads: mean share of the other seeds with a head of the same label, verdict and layer.

    A single row; its table has one row a group.
    """
    rows, hits, of = [], [], []
    for group in LEGO:
        results = [audited.result for audited in audit_models(evidence, [group])]
        if len(results) < 2:
            continue
        heads = [[(head.layer, head.label, head.verdict) for head in result.heads] for result in results]
        agreements, looks, total = 0.0, 0.0, 0
        for index, result in enumerate(results):
            # Readable heads of this seed that are needed, compared with all heads of each other seed
            other_seeds = [set(heads_of_seed) for place, heads_of_seed in enumerate(heads) if place != index]
            chosen = readable_heads(result) & needed_heads(result)
            mine = [head for head, is_chosen in zip(heads[index], chosen, strict=True) if is_chosen]
            agree = sum(np.mean([head in heads_of_seed for heads_of_seed in other_seeds]) for head in mine)
            # The same without the verdict: layer and label only
            labels = [{head[:2] for head in heads_of_seed} for heads_of_seed in other_seeds]
            looks += sum(np.mean([head[:2] in labels_of_seed for labels_of_seed in labels]) for head in mine)
            hits.append(float(agree))
            of.append(len(mine))
            agreements += agree
            total += len(mine)
        rows.append((group, total, agreements / max(1, total), looks / max(1, total)))
    interval = head_share(hits, of)
    columns = ["models", "readable heads that are needed", "other seeds: same label and verdict", "same label"]
    return Readings(
        frame=pd.DataFrame([{**interval_columns(interval, AGREE), "models": interval.n}]),
        table=pd.DataFrame(rows, columns=columns),
        title="Share of the other seeds with a head of the same label and verdict in the same layer",
        numbers={"heads": sum(of)},
        tables=excluded_models(evidence, LEGO),
        note="Compared with the other models of the same group. Mimicking trains heads 0 and 1 of every layer to "
        f"attend to given positions. {EXCLUDED}",
    )


def measure_no_single_head(evidence: Evidence) -> Readings:
    """Share of models with a I in which no head is needed alone, in one row; plain models are in the table only."""
    groups: list[dict[str, Any]] = []
    none: list[int] = []
    for group in TEMPLATE:
        results = [audited.result for audited in audit_models(evidence, [group])]
        without_needed = [int(not needed_heads(result).any()) for result in results]
        # Sets of redundant heads that together cost more than the threshold
        sizes = []
        for result in results:
            redundant_heads = set(result.of("redundant"))
            sizes += [len(head_set.heads) for head_set in result.sets if set(head_set.heads) <= redundant_heads]
        groups.append(
            {
                "group": group,
                "models": len(results),
                NO_NEEDED: sum(without_needed),
                "with redundant heads": sum(bool(result.of("redundant")) for result in results),
                "smallest fatal set": np.median(sizes) if sizes else None,
            }
        )
        if group.endswith("identity"):  # the claim is about models with a I; the others are shown
            none += without_needed
    interval = head_share(none, [1] * len(none))
    return Readings(
        frame=pd.DataFrame([{**interval_columns(interval, NO_NEEDED), "models": interval.n}]),
        table=pd.DataFrame(groups),
        title="Template models by group",
        tables=excluded_models(evidence, TEMPLATE),
        note="The smallest fatal set is the median, over the sets found, of the number of heads that must be ablated "
        f"together to lose more accuracy than the threshold. {EXCLUDED}",
    )


LEGO_HEADS = "ours, after LEGO, Section 4: association and manipulation heads"
DYCK_HEADS = "ours, after bounded Dyck, Section 3 and Figure 1: readings can mislead"
TEMPLATE_HEADS = "ours, after the template paper: a I lets heads attend to equal symbols"
UNTAUGHT_MODELS = "In models of LEGO chains without mimicking,"
MORE_UNTAUGHT = tuple(map(more_seeds, NO_MIMICKING))
TAUGHT = "In models of LEGO chains, most of them taught by mimicking where to look,"
SHARES = (
    head_share_claim(
        "readable.lego",
        groups=LEGO,
        among="readable",
        above=True,
        source=LEGO_HEADS,
        statement=f"{TAUGHT} heads labelled association or manipulation act through that pattern.",
    ),
    head_share_claim(
        "readable.lego-untaught",
        groups=NO_MIMICKING,
        among="readable",
        above=True,
        source=LEGO_HEADS,
        statement=f"{UNTAUGHT_MODELS} heads labelled association or manipulation act through that pattern.",
        preregistration=UNTAUGHT_FIXED,
    ),
    head_share_claim(
        "readable.template",
        groups=TEMPLATE,
        among="readable",
        above=True,
        source=TEMPLATE_HEADS,
        statement="In models of template tasks, heads with a readable pattern act through it.",
    ),
    head_share_claim(
        "hidden.lego",
        groups=LEGO,
        among="needed",
        above=False,
        source=LEGO_HEADS,
        statement=f"{TAUGHT} the heads that are needed are readable.",
    ),
    head_share_claim(
        "hidden.lego-untaught",
        groups=MORE_UNTAUGHT,
        among="needed",
        above=False,
        measure=partial(measure_head_share_longer, groups=MORE_UNTAUGHT, among="needed"),
        source=LEGO_HEADS,
        statement=f"{UNTAUGHT_MODELS} the heads that are needed are readable.",
        preregistration=Preregistration(
            "after a result",
            f"{UNTAUGHT_FIXED.prior_knowledge} Then 0.16 [0.02, 0.59] over twelve models of "
            "this claim; eight more, and four times the sequences, were fixed after that.",
            looks=1,
        ),
    ),
    *(
        head_share_claim(
            f"hidden.dyck.{name}-layer",
            groups=DYCK,
            among="needed",
            above=True,
            layer=layer,
            source=DYCK_HEADS,
            statement=f"In models of bounded Dyck, the heads of the {name} layer that are needed have no "
            "readable pattern.",
            preregistration=BY_LAYER,
        )
        for name, layer in (("first", 0), ("last", -1))
    ),
)

CLAIMS = (
    *SHARES,
    Claim(
        id="misleading.found",
        source="bounded Dyck, abstract and conclusion: single heads can mislead; here over models of all three papers",
        statement="Ordinary training produces misleading heads: readable heads that do not matter, or not through "
        "their pattern.",
        method="Share of models with a head that the audit calls misleading, and again on other sequences, exact "
        f"interval; wrong verdicts alone would give at most {ERRORS}",
        rule=Above(ERRORS),
        preregistration=Preregistration(
            "after a result", "the first rule required one such head in all models; 33 of 72 models had one."
        ),
        quantity="share of models with a misleading head",
        measure=measure_misleading,
        judged=Share(MISLEADING, unit="models", where={HAS_LEARNED: True}, without_rows=(0.0, 0.0, 1.0)),
        needs=AUDITED_GROUPS,
    ),
    Claim(
        id="twins.agree",
        source="ours, after LEGO, Section 4",
        statement="Readable heads of LEGO models that are needed have counterparts in models of other seeds.",
        method="Share of the other models of a group with a head of the same label and verdict in the same layer, mean "
        "over readable heads that are needed; interval over models",
        rule=Above(0.5),
        preregistration=EXCLUDED_LATER,
        quantity=AGREE,
        measure=measure_agreement_of_seeds,
        judged=Row(AGREE, unit="models", units="models"),
        needs=LEGO,
    ),
    Claim(
        id="redundant.identity",
        source="ours, about template tasks with a I on W_Q W_K^T",
        statement="In template models with a I no head is needed alone: heads can replace each other.",
        method="Share of models with a I in which no head is judged needed alone, its output replaced by its mean over "
        "other sequences, exact interval",
        rule=Above(0.5),
        preregistration=EXCLUDED_LATER,
        quantity="share of models without a needed head",
        measure=measure_no_single_head,
        judged=Row(NO_NEEDED, unit="models", units="models"),
        needs=TEMPLATE,
    ),
)
