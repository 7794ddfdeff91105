"""A claim for every published statement: what its rule says, what the audit says of its heads, and both in a word."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pandas as pd

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import Packs
from case_studies.frame.rules import Above, Below, ClaimVerdict, Value
from case_studies.recipes.audits import MOST_SEQUENCES
from case_studies.recipes.judges import Row
from interp.auditing import AuditResult, HeadVerdict
from interp.auditing.audit import audit
from interp.heads.kinds import with_kinds
from interp.tasks.base import Batch, Task
from published_readings.checks import Check, check_by_removal
from published_readings.known import KNOWN
from published_readings.measures import VALUE, number
from published_readings.packs import Reading, places, read_packs, read_readings

SOURCE = "ARENA 2.0 (McDougall 2023): "
WORDS = ("confirmed", "limited", "refuted", "undecided")


@cache
def audited(packs: Packs, name: str, size: str, seed: int) -> AuditResult:
    """The audit of a model; the relations that its readings name are kinds of head."""
    pack = read_packs(packs)[name]
    kinds = KNOWN[name].kinds if name in KNOWN else {}
    task = replace(pack.task, named=kinds)
    with with_kinds({kind: partial(related, name=kind) for kind in kinds}):  # type: ignore[misc]
        return audit(pack.model, task, n="enough", limit=MOST_SEQUENCES[size], seconds=None, at_chance=True, seed=seed)


def related(task: Task, batch: Batch, *, name: str) -> Any:
    """The keys of a relation that a model's readings name; None in other tasks."""
    return task.relations(batch).get(name)


def word_for(kind: str, verdict: ClaimVerdict, heads: Sequence[HeadVerdict], *, limited: bool = False) -> str:
    """What the rule and the audit say together of a published statement.

    Refuted or undecided as by the rule. A true statement is limited if the audit adds what it leaves out:

    - where a head looks: the model does not depend on the head (idle, redundant), or not on its looking there
      (misleading, hidden);
    - what a head computes: the model does not depend on the head (idle, redundant);
    - that a head is needed: its removal costs less than counts (idle), or others can take its place (redundant);
    - that it is not needed: it is with something else in the place of its output, or without other heads (redundant).

    Else it is confirmed, as it is if the audit is undecided.
    """
    if verdict != "reproduced":
        return "refuted" if verdict == "not reproduced" else "undecided"
    against = {"looks": ("idle", "redundant", "misleading", "hidden"), "does": ("idle", "redundant")}
    against |= {"algorithm": against["does"], "needs": ("idle", "redundant"), "not_needed": ("redundant",)}
    limited |= any(head.verdict in against[kind] for head in heads)
    if kind == "not_needed":
        limited |= any(one is True for head in heads for one in head.needed.values())
    return "limited" if limited else "confirmed"


def check_of(packs: Packs, name: str, reading: Reading, digest: str) -> Check:
    """The check written for a reading; else one by removal."""
    if name in KNOWN and KNOWN[name].digest == digest and reading.id in KNOWN[name].checks:
        return KNOWN[name].checks[reading.id]
    return check_by_removal(reading)


def measure_reading(evidence: Evidence, *, packs: Packs, name: str, id: str) -> Readings:
    """What the check of a statement measures, with the audit's verdicts on its heads and the word for both."""
    pack = read_packs(packs)[name]
    reading = pack.readings[id]
    check = check_of(packs, name, reading, pack.digest)
    found = check.measure(pack)
    measured = check.measurement(found)
    limited = check.limits is not None and check.limits.verdict(measured) == "reproduced"
    heads: list[HeadVerdict] = []
    if reading.heads:
        result = audited(packs, name, evidence.size, evidence.seed)
        heads = [head for head in result.heads if head.place in reading.heads]
    word = word_for(reading.kind, check.rule.verdict(measured), heads, limited=limited)
    verdicts = {f"audit of head {places([head.place])}": f"{head.verdict} ({head.label})" for head in heads}
    return replace(found, numbers={**found.numbers, "reading": word, **verdicts})


def measure_words(evidence: Evidence, *, packs: Packs, whole: bool) -> Readings:
    """Share of the statements that are true; or of the true ones about heads, those that the audit does not limit."""
    rows = []
    words: list[tuple[str, bool]] = []
    for name, pack in read_packs(packs).items():
        for id, reading in pack.readings.items():
            check = check_of(packs, name, reading, pack.digest)
            found = check.measurement(measure_reading(evidence, packs=packs, name=name, id=id))
            word = str(found.numbers["reading"])
            words.append((word, bool(reading.heads)))
            audits = [f"{key[14:]} {value}" for key, value in found.numbers.items() if key.startswith("audit of head ")]
            row = {"model": name, "statement": f"{id} {check.statement}", "kind": reading.kind, "is": word}
            rows.append({**row, **shown(found), "n": found.n, "audit": ", ".join(audits)})
    counts = Counter(word for word, _ in words)
    true = [(word, about_heads) for word, about_heads in words if word in ("confirmed", "limited")]
    if whole:
        hits = [word == "confirmed" for word, about_heads in true if about_heads]
    else:
        hits = [word in ("confirmed", "limited") for word, _ in words if word != "undecided"]
    numbers = {word: counts[word] for word in WORDS}
    return share_of_statements(hits, numbers=numbers, tables=[] if whole else [("Every statement", pd.DataFrame(rows))])


def shown(found: Measurement) -> dict[str, float]:
    """A number with its interval as columns of a table."""
    return {"measured": found.value, "low": found.low, "high": found.high}


def share_of_statements(hits: Sequence[bool], **more: Any) -> Readings:
    """A share of all statements that there are, which are no sample: without an interval."""
    return number(sum(hits) / max(1, len(hits)), n=max(1, len(hits)), **more)


def measure_shuffled(evidence: Evidence, *, packs: Packs) -> Readings:
    """Share of the true statements that are true as well of the model with shuffled weights: checks that cannot fail.

    A statement that nothing depends on a part is true of a model that computes nothing; these are left out.
    """
    rows, hits = [], []
    for name, pack in read_packs(packs).items():
        control = pack.shuffled(evidence.seed)
        for id, one in pack.readings.items():
            check = check_of(packs, name, one, pack.digest)
            if one.kind == "not_needed" or check.rule.verdict(check.found(pack)) != "reproduced":
                continue
            try:
                found = check.found(control)
            except ValueError:  # a number that such a model does not have, such as a share of no answers
                hits.append(False)
                continue
            hits.append(check.rule.verdict(found) == "reproduced")
            if hits[-1]:
                rows.append({"model": name, "statement": f"{id} {check.statement}", **shown(found)})
    return share_of_statements(hits, tables=[("Statements that are true with shuffled weights", pd.DataFrame(rows))])


def claims(packs: Packs) -> tuple[Claim, ...]:
    """A claim for each statement of each pack, and three on all of them.

    Without the folder, the claims on the models for which checks were written.
    """
    found = []
    if packs.digest:
        for name, (readings, digest) in read_readings(packs).items():
            found += [_claim(packs, name, one.id, check_of(packs, name, one, digest)) for one in readings.values()]
    else:
        found = [_claim(packs, name, id, check) for name, one in KNOWN.items() for id, check in one.checks.items()]
    return (*found, *_claims_on_all(packs))


def _claim(packs: Packs, name: str, id: str, check: Check) -> Claim:
    return Claim(
        id=claim_id(name, id), source=SOURCE + name, statement=check.statement, method=check.method, rule=check.rule,
        preregistration=check.preregistration, quantity=check.quantity, value_range=check.value_range,
        paper=check.reported,
        measure=partial(measure_reading, packs=packs, name=name, id=id), judged=check.judged,
    )  # fmt: skip


def claim_id(name: str, id: str) -> str:
    """The claim about a statement: `sorted-list.so01`."""
    return ".".join(re.sub("[^a-z0-9]+", "-", text.lower()).strip("-") or "x" for text in (name, id))


def _claims_on_all(packs: Packs) -> tuple[Claim, ...]:
    preregistration = {
        "source": "ours",
        "preregistration": Preregistration(
            "after a result",
            "0.82 [0.71, 0.90], 0.49 [0.32, 0.66] and 0.08 [0.03, 0.18] by the same bars, when intervals took the "
            "statements as a sample. They are all statements of four models, so their share has none.",
        ),
        "value_range": SHARE,
        "rule": Value(Above(0.5)),
        "judged": Row(VALUE, unit="statements", exact=True),
    }
    return (
        Claim(
            id="readings.true", statement="Most published statements are true of the weights.",
            method="Share of the decided statements whose rule is met", quantity="share of true statements",
            measure=partial(measure_words, packs=packs, whole=False), **preregistration,
        ),
        Claim(
            id="readings.whole",
            statement="To most true statements about heads the audit adds nothing that limits them.",
            method="Share of the true statements about heads that are confirmed and not limited",
            quantity="share of confirmed ones", measure=partial(measure_words, packs=packs, whole=True),
            **preregistration,
        ),
        Claim(
            id="readings.shuffled", statement="Checks can fail: few true statements are true of shuffled weights.",
            method="Share of the true statements, but for those that a part is not needed, whose rule is met by the "
                   "model "
            "with the numbers of each weight in random order",
            quantity="share of statements true of shuffled weights",
            measure=partial(measure_shuffled, packs=packs), **{**preregistration, "rule": Value(Below(0.25))},
            sizes=LARGE_SIZES,
            sizes_reason="Every statement a second time takes longer than this size allows.",
        ),
    )  # fmt: skip
