"""Does training produce misleading heads by itself? And do readable heads come out alike from seed to seed?"""

from collections.abc import Sequence

import numpy as np

from case_studies.audit.models import ALL, LEGO
from case_studies.frame.audits import Audited, N, audits, needed, outcomes_of, readable, share
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, more_than_half
from case_studies.frame.evidence import Evidence
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.view.points import small_maps

FEWEST_MODELS = 60
SHOWN = 6


def measure_misleading(evidence: Evidence) -> Measurement:
    """Heads called misleading, and again on other sequences."""
    found = list(audits(evidence, ALL))
    looked = [int(readable(one.result).sum()) for one in found]
    rows: list[list] = [["models", "seed", "head", "verdict on other sequences", "what was found"]]
    confirmed, shown = [0] * len(found), []
    for index, one in enumerate(found):
        misleading = one.result.of("misleading")
        if not misleading:
            continue
        again = _again(evidence, one)
        for head in misleading:
            place = one.result.heads.index(head)
            second = again.verdict[place]
            confirmed[index] += second == "misleading"
            rows.append([one.group, one.spec.seed, f"{head[0]}.{head[1]}", second, again.sentences()[place]])
            if second == "misleading":
                shown.append((float(again.score[place]), one, head))
    value, low, high = share(confirmed, looked)
    return Measurement(
        value=value, low=low, high=high, n=max(1, len(found)), unit="models",
        numbers={"confirmed": sum(confirmed), "models with one": int(np.count_nonzero(confirmed)),
                 "readable heads": sum(looked), "models": len(found)},
        tables=[("Heads called misleading, audited again", rows[: 1 + 40])],
        charts=[_maps(evidence, shown)] if shown else [],
        note=f"Audited on {N[evidence.size]} sequences, and again on as many others. The share is of heads with a "
        "readable pattern; its upper end is what none found would still allow.",
    )  # fmt: skip


def _again(evidence: Evidence, one: Audited) -> AuditResult:
    return audit(
        evidence.run(one.spec).model,
        one.spec.task,
        n=N[evidence.size],
        outcomes=outcomes_of(one.spec.task),
        seed=evidence.seed + 1,
    )


def _maps(evidence: Evidence, shown: Sequence[tuple[float, Audited, tuple[int, int]]]):
    """The clearest-looking of them, on one example each."""
    maps = {}
    for score, one, (layer, head) in sorted(shown, key=lambda entry: -entry[0])[:SHOWN]:
        batch = one.spec.task.sample(1, generator=derived_generator(evidence.seed, "shown"), split="test")
        pattern = patterns_on([evidence.run(one.spec).model], batch)[layer, 0, 0, head]
        place = one.result.heads.index((layer, head))
        name = f"{one.group} {one.spec.seed}, head {layer}.{head}: {one.result.label[place]} {score:.2f}"
        maps[name] = pattern.numpy()
    widest = max(len(pattern) for pattern in maps.values())
    return small_maps(maps, tokens=[str(index) for index in range(widest)],
                      title="misleading heads of trained models, rows are queries")  # fmt: skip


def judge_found(m: Measurement) -> ClaimVerdict:
    """One is enough; none is an answer only over enough models."""
    if m.numbers["confirmed"]:
        return "reproduced"
    return "not reproduced" if m.numbers["models"] >= FEWEST_MODELS else "inconclusive"


def measure_agreement(evidence: Evidence) -> Measurement:
    """For each readable head that is needed: how many retrained twins have its like in that layer?"""
    rows: list[list] = [["models", "readable heads that are needed", "twins with its like", "with its look alone"]]
    hits, of = [], []
    for group in LEGO:
        results = [one.result for one in audits(evidence, [group])]
        if len(results) < 2:
            continue
        whole, looks, total = 0.0, 0.0, 0
        for index, result in enumerate(results):
            twins = [_likes(other) for place, other in enumerate(results) if place != index]
            mine = [
                (head[0], label, verdict)
                for head, label, verdict, taken in zip(
                    result.heads, result.label, result.verdict, readable(result) & needed(result), strict=True
                )
                if taken
            ]
            agree = sum(np.mean([one in like for like in twins]) for one in mine)
            looks += sum(np.mean([one[:2] in {entry[:2] for entry in like} for like in twins]) for one in mine)
            hits.append(float(agree))
            of.append(len(mine))
            whole, total = whole + agree, total + len(mine)
        rows.append([group, total, f"{whole / max(1, total):.2f}", f"{looks / max(1, total):.2f}"])
    value, low, high = share(hits, of)  # type: ignore[arg-type]  # shares of twins, not counts
    return Measurement(
        value=value, low=low, high=high, n=max(1, len(of)), unit="models",
        numbers={"heads": sum(of)},
        tables=[("Do twins of other seeds have a head of the same look and verdict in the same layer?", rows)],
        note="Twins are the other models of the same group. Mimicking tells heads 0 and 1 where to look, in every "
        "layer.",
    )  # fmt: skip


def _likes(result: AuditResult) -> set[tuple[int, str, str]]:
    return {
        (head[0], label, verdict)
        for head, label, verdict in zip(result.heads, result.label, result.verdict, strict=True)
    }


CLAIMS = (
    Claim(
        id="misleading.found",
        source="bounded Dyck, title and Section 6: myopic interpretation misleads",
        statement="Training by itself produces misleading heads: readable ones that do not matter, or not through what "
        "they show.",
        rule=f"Reproduced if the audit calls at least one head of a trained model misleading, and does so again on "
        f"other sequences; not reproduced if none of at least {FEWEST_MODELS} models has one; else inconclusive.",
        quantity="share of readable heads that are misleading",
        measure=measure_misleading,
        judge=judge_found,
        needs=ALL,
    ),
    Claim(
        id="twins.agree",
        source="ours, after LEGO, Section 4",
        statement="Readable heads of LEGO models that are needed have their like in models of other seeds.",
        rule="Share of the other models of a group with a head of the same label and verdict in the same layer, mean "
        "over readable heads that are needed: reproduced if the interval lies above one half, not reproduced if "
        "below, else inconclusive.",
        quantity="share of twins that agree",
        measure=measure_agreement,
        judge=more_than_half,
        needs=LEGO,
    ),
)
