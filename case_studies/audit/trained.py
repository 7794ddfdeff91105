"""Claims about the heads of trained models: shares by verdict, misleading heads, agreement over seeds, redundancy."""

from collections.abc import Sequence

import numpy as np

from case_studies.audit.models import ALL, DYCK, LEGO, TEMPLATE
from case_studies.frame.audits import EXCLUDED, LIMIT, Audited, audits, needed, readable, share, share_claim
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, more_than_half
from case_studies.frame.evidence import Evidence
from case_studies.frame.learned import excluded
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.view.points import small_maps

FEWEST_MODELS = 60
"""Fewest models over which the absence of misleading heads counts as a result."""
SHOWN = 6


def measure_misleading(evidence: Evidence) -> Measurement:
    """Share of readable heads that are misleading, and again on other sequences."""
    found = list(audits(evidence, ALL))
    looked = [int(readable(one.result).sum()) for one in found]
    rows: list[list] = [["models", "seed", "head", "verdict on other sequences", "finding"]]
    confirmed, shown = [0] * len(found), []
    for index, one in enumerate(found):
        misleading = one.result.of("misleading")
        if not misleading:
            continue
        again = _again(evidence, one)
        for second, sentence in zip(again.heads, again.sentences(), strict=True):
            if second.place not in misleading:
                continue
            confirmed[index] += second.verdict == "misleading"
            rows.append([one.group, one.spec.seed, f"{second.layer}.{second.head}", second.verdict, sentence])
            if second.verdict == "misleading":
                shown.append((second.score, one, second.place))
    value, low, high = share(confirmed, looked)
    return Measurement(
        value=value, low=low, high=high, n=max(1, len(found)), unit="models",
        numbers={"confirmed": sum(confirmed), "models with one": int(np.count_nonzero(confirmed)),
                 "readable heads": sum(looked), "models": len(found)},
        tables=[("Misleading heads, audited again", rows[: 1 + 40]), *excluded(evidence, ALL)],
        charts=[_maps(evidence, shown)] if shown else [],
        note=f"Each model is audited on up to {LIMIT[evidence.size]} sequences, and one with a misleading head again "
        "on others. The share is of heads with a readable pattern; if none is found, the upper end of "
        f"the interval is the largest share that is compatible with that. {EXCLUDED}",
    )  # fmt: skip


def _again(evidence: Evidence, one: Audited) -> AuditResult:
    """The audit of a model on other sequences."""
    limit, outcomes = LIMIT[evidence.size], one.spec.task.audited_outcomes
    options = {"limit": limit, "outcomes": outcomes, "seed": evidence.seed + 1}
    return audit(evidence.run(one.spec).model, one.spec.task, n="enough", **options)


def _maps(evidence: Evidence, shown: Sequence[tuple[float, Audited, tuple[int, int]]]):
    """The patterns of the misleading heads with the highest scores, on one example each."""
    maps = {}
    for score, one, (layer, head) in sorted(shown, key=lambda entry: -entry[0])[:SHOWN]:
        batch = one.spec.task.sample(1, generator=derived_generator(evidence.seed, "shown"), split="test")
        pattern = patterns_on([evidence.run(one.spec).model], batch)[layer, 0, 0, head]
        (label,) = (other.label for other in one.result.heads if other.place == (layer, head))
        name = f"{one.group} {one.spec.seed}, head {layer}.{head}: {label} {score:.2f}"
        maps[name] = pattern.numpy()
    widest = max(len(pattern) for pattern in maps.values())
    return small_maps(maps, tokens=[str(index) for index in range(widest)],
                      title="misleading heads of trained models, rows are queries")  # fmt: skip


def judge_found(m: Measurement) -> ClaimVerdict:
    """Reproduced with one confirmed head; not reproduced with none over enough models."""
    if m.numbers["confirmed"]:
        return "reproduced"
    return "not reproduced" if m.numbers["models"] >= FEWEST_MODELS else "inconclusive"


def measure_agreement(evidence: Evidence) -> Measurement:
    """Over readable, needed heads: mean share of the other seeds with a head of the same label, verdict and layer."""
    rows: list[list] = [["models", "readable heads that are needed", "other seeds: same label and verdict",
                         "same label"]]  # fmt: skip
    hits, of = [], []
    for group in LEGO:
        results = [one.result for one in audits(evidence, [group])]
        if len(results) < 2:
            continue
        heads = [[(head.layer, head.label, head.verdict) for head in result.heads] for result in results]
        whole, looks, total = 0.0, 0.0, 0
        for index, result in enumerate(results):
            others = [set(found) for place, found in enumerate(heads) if place != index]
            chosen = readable(result) & needed(result)
            mine = [head for head, taken in zip(heads[index], chosen, strict=True) if taken]
            agree = sum(np.mean([one in other for other in others]) for one in mine)
            looks += sum(np.mean([one[:2] in {entry[:2] for entry in other} for other in others]) for one in mine)
            hits.append(float(agree))
            of.append(len(mine))
            whole, total = whole + agree, total + len(mine)
        rows.append([group, total, f"{whole / max(1, total):.2f}", f"{looks / max(1, total):.2f}"])
    value, low, high = share(hits, of)  # type: ignore[arg-type]  # sums of shares, not counts
    return Measurement(
        value=value, low=low, high=high, n=max(1, len(of)), unit="models",
        numbers={"heads": sum(of)},
        tables=[("Share of the other seeds with a head of the same label and verdict in the same layer", rows),
                *excluded(evidence, LEGO)],
        note="Compared with the other models of the same group. Mimicking trains heads 0 and 1 of every layer to "
        f"attend to given positions. {EXCLUDED}",
    )  # fmt: skip


def measure_no_single_head(evidence: Evidence) -> Measurement:
    """Share of models with a I in which no head is needed alone; plain models are shown for comparison."""
    rows: list[list] = [["group", "models", "no head needed alone", "with redundant heads", "smallest fatal set"]]
    none: list[int] = []
    for group in TEMPLATE:
        results = [one.result for one in audits(evidence, [group])]
        alone = [int(not needed(result).any()) for result in results]
        sizes = [
            len(one.heads) for result in results for one in result.sets if set(one.heads) <= set(result.of("redundant"))
        ]
        redundant = sum(bool(result.of("redundant")) for result in results)
        rows.append([group, len(results), sum(alone), redundant, f"{np.median(sizes):.0f}" if sizes else ""])
        none += alone if group.endswith("identity") else []
    value, low, high = share(none, [1] * len(none))
    return Measurement(
        value=value, low=low, high=high, n=max(1, len(none)), unit="models",
        tables=[("Template models by group", rows), *excluded(evidence, TEMPLATE)],
        note="The smallest fatal set is the median, over the sets found, of the number of heads that must be ablated "
        f"together to lose more accuracy than the threshold. {EXCLUDED}",
    )  # fmt: skip


SHARES = {
    "readable.lego": (LEGO, True, "LEGO, Section 4: association and manipulation heads",
                      "In models of LEGO chains, heads labelled association or manipulation act through that pattern."),
    "readable.dyck": (DYCK, False, "bounded Dyck, Section 5",
                      "In models of bounded Dyck, heads with a readable pattern do not act through it."),
    "readable.template": (TEMPLATE, True, "template tasks, Section 4: attention to equal symbols",
                          "In models of template tasks, heads with a readable pattern act through it."),
    "hidden.lego": (LEGO, False, "LEGO, Section 4",
                    "In models of LEGO chains, the heads that are needed are readable."),
    "hidden.dyck": (DYCK, True, "bounded Dyck, Section 3 and Figure 1",
                    "In models of bounded Dyck, the heads that are needed have no readable pattern."),
    "hidden.template": (TEMPLATE, False, "template tasks, Section 4",
                        "In models of template tasks, the heads that are needed are readable."),
}  # fmt: skip
"""Groups, whether the share must be above one half, source, and statement of each claim about a share of heads."""

CLAIMS = (
    *(
        share_claim(
            name,
            groups=groups,
            among="readable" if name.startswith("readable") else "needed",
            above=above,
            source=source,
            statement=statement,
        )
        for name, (groups, above, source, statement) in SHARES.items()
    ),
    Claim(
        id="misleading.found",
        source="bounded Dyck, title and Section 6: myopic interpretation misleads",
        statement="Ordinary training produces misleading heads: readable heads that do not matter, or not through "
        "their pattern.",
        rule="Reproduced if the audit calls at least one head of a trained model misleading, and does so again on "
        f"other sequences; not reproduced if none of at least {FEWEST_MODELS} models has one; else inconclusive.",
        quantity="share of readable heads that are misleading",
        measure=measure_misleading,
        judge=judge_found,
        needs=ALL,
    ),
    Claim(
        id="twins.agree",
        source="ours, after LEGO, Section 4",
        statement="Readable heads of LEGO models that are needed have counterparts in models of other seeds.",
        rule="Share of the other models of a group with a head of the same label and verdict in the same layer, mean "
        "over readable heads that are needed: reproduced if the interval is above one half, not reproduced if "
        "below, else inconclusive.",
        quantity="share of other seeds that agree",
        measure=measure_agreement,
        judge=more_than_half,
        needs=LEGO,
    ),
    Claim(
        id="redundant.identity",
        source="template tasks, Section 4 (a I on W_K W_Q^T)",
        statement="In template models with a I no head is needed alone: heads can replace each other.",
        rule="Share of models with a I in which no head is judged needed alone: reproduced if its exact interval "
        "is above one half, not reproduced if below, else inconclusive.",
        quantity="share of models without a needed head",
        measure=measure_no_single_head,
        judge=more_than_half,
        needs=TEMPLATE,
    ),
)
