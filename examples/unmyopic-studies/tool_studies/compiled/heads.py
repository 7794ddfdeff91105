"""Claims on the heads of compiled programs: verdicts, need under three removals, and labels."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import Packs
from case_studies.frame.rules import Equal, Value
from case_studies.recipes.intervals import proportion
from interp.auditing.records import HeadVerdict
from interp.heads.classify import classify_heads
from interp.heads.kinds import with_kinds
from interp.known_answers import HeadTruth, KnownAnswer
from interp.tasks.base import logits_at_targets
from tool_studies.compiled.programs import audited_programs, programs, selector_kinds

SOURCE = "ours: programs in RASP (Weiss et al. 2021), compiled by tracr (Lindner et al. 2023)"
OTHERS = "31 programs of InterpBench (Gupta et al. 2024)"
"""Programs on which the rules were tried before there were our own."""
N = 256
"""Number of sequences on which heads are labelled."""
REMOVALS = ("zero", "mean", "resample")


def measure_correct_answers(evidence: Evidence, *, packs: Packs) -> Measurement:
    """Share of the answers of all programs that our transformers give, at every position of every example."""
    rows: list[list[Any]] = [["program", "what it computes", "output", "answers", "right"]]
    right = total = 0
    for answer in programs(packs):
        task: Any = answer.task
        batch = task.examples(torch.arange(len(task.program.examples)))
        inputs: dict[str, Any] = batch.model_inputs()
        with torch.no_grad():
            score = task.score(logits_at_targets(answer.model(batch.tokens, **inputs), batch), batch)
        correct = int(score.right[:, 0].sum())
        scored = int(score.total[:, 0].sum())
        kind = "number" if task.program.numerical else f"one of {len(task.answer_names)}"
        rows.append([task.program.name, task.program.description, kind, scored, correct])
        right += correct
        total += scored
    share = right / total
    return Measurement(
        value=share,
        low=share,
        high=share,
        n=total,
        unit="answers",
        exact=True,
        numbers={"programs": len(rows) - 1},
        tables=[("Programs", rows)],
    )


def heads_of(evidence: Evidence, packs: Packs) -> Iterator[tuple[KnownAnswer, HeadTruth, HeadVerdict, str]]:
    """Every head of every program: its program, truth, verdict and sentence."""
    for answer, result in audited_programs(packs, evidence.seed):
        for head, sentence in zip(result.heads, result.sentences(), strict=True):
            yield answer, answer.heads[head.place], head, sentence


def measure_wrong_verdicts(evidence: Evidence, *, packs: Packs, verdict: str) -> Measurement:
    """Share of the heads with a verdict whose truth excludes it: faithful where they are not, idle where needed."""
    counts: Counter = Counter()
    rows: list[list[Any]] = [["program", "head", "truth", "needed by brute force", "verdict", "finding"]]
    heads = list(heads_of(evidence, packs))
    for answer, truth, head, sentence in heads:
        counts[truth.truth, head.verdict] += 1
        if truth.truth != head.verdict:
            needed = ", ".join(name for name, is_needed in (truth.needed or {}).items() if is_needed) or "no"
            rows.append([answer.name, f"{head.layer}.{head.head}", truth.truth, needed, head.verdict, sentence])
    # An idle head may be one that is not needed for another reason; a faithful one must be faithful
    called = [truth.truth for _, truth, head, _ in heads if head.verdict == verdict]
    if verdict == "idle":
        wrong = sum(truth in ("faithful", "hidden", "redundant") for truth in called)
    else:
        wrong = sum(truth != verdict for truth in called)
    interval = proportion(wrong, len(called))
    # Rows are truths, columns are verdicts.
    truths = sorted({true_verdict for true_verdict, _ in counts})
    verdicts = sorted({given_verdict for _, given_verdict in counts})
    crossed = [["truth", *verdicts]]
    crossed += [[truth, *(counts[truth, verdict] for verdict in verdicts)] for truth in truths]
    return Measurement.from_interval(
        interval,
        unit="heads",
        numbers={
            "heads": len(heads),
            "heads with their true verdict": sum(truth.truth == head.verdict for _, truth, head, _ in heads),
        },
        tables=[("Truth (rows) and verdict", crossed), ("Heads with another verdict than the truth", rows)],
    )


def measure_needed(evidence: Evidence, *, packs: Packs, removal: str) -> Measurement:
    """Share of the heads on which the audit decides otherwise than brute force whether they are needed."""
    decided = []
    undecided = needed = 0
    by_removal: list[list[Any]] = [["program", "head", "truth", *(f"needed under {name}" for name in REMOVALS)]]
    rows: list[list[Any]] = [["program", "head", "needed by brute force", "needed by the audit"]]
    for answer, truth, head, _ in heads_of(evidence, packs):
        needed_under = truth.needed or {}
        is_needed = needed_under[removal]
        if len(set(needed_under.values())) > 1:
            words = ["yes" if needed_under[name] else "no" for name in REMOVALS]
            by_removal.append([answer.name, f"{head.layer}.{head.head}", truth.truth, *words])
        judged_needed = head.needed[removal]
        needed += is_needed
        if judged_needed is None:
            undecided += 1
        else:
            decided.append(is_needed != judged_needed)
        if is_needed != judged_needed:
            words = {None: "undecided", True: "yes", False: "no"}
            rows.append([answer.name, f"{head.layer}.{head.head}", words[is_needed], words[judged_needed]])
    interval = proportion(sum(decided), len(decided))
    return Measurement.from_interval(
        interval,
        unit="heads",
        numbers={"needed by brute force": needed, "undecided": undecided},
        tables=[
            ("Heads on which they differ", rows),
            ("Heads of which the need depends on the removal, by brute force", by_removal),
        ],
    )


def measure_labels(evidence: Evidence, *, packs: Packs, idle: bool) -> Measurement:
    """Share of the heads with a selector that have its label; or of the idle heads that have the label of one."""
    hits = []
    rows: list[list[Any]] = [["program", "head", "selects", "label"]]
    for answer in programs(packs):
        task: Any = answer.task
        kinds = selector_kinds(answer)
        if not kinds:
            continue
        # The program's selectors are the kinds of heads to tell apart
        with with_kinds(kinds):
            labels = classify_heads(answer.model, task, n=N, kinds=tuple(kinds), seed=evidence.seed).label
        same = equal_selectors(answer)
        words = {
            f"selector_{number}": selector.selects for number, selector in enumerate(task.program.selectors, start=1)
        }
        # Heads without a selector must have no label, heads with one that of an equal selector
        for (layer, head), truth in answer.heads.items():
            label = labels[layer][head]
            if idle and truth.looks is None:
                hits.append(label in kinds)
            elif not idle and truth.looks is not None:
                hits.append(label in same[truth.looks])
            else:
                continue
            if hits[-1] == idle:
                rows.append([answer.name, f"{layer}.{head}", words.get(truth.looks or "", "nothing"), label])
    interval = proportion(sum(hits), len(hits))
    return Measurement.from_interval(
        interval,
        unit="heads",
        tables=[("Heads with a selector's label" if idle else "Heads without their label", rows)],
    )


def equal_selectors(answer: KnownAnswer) -> dict[str, set[str]]:
    """For each selector, those of its program that select the same keys on all examples, itself included."""
    task: Any = answer.task
    relations = task.relations(task.examples(torch.arange(task.program.relations.shape[1])))
    return {
        name: {selector for selector, keys in relations.items() if torch.equal(keys_of_name, keys)}
        for name, keys_of_name in relations.items()
    }


def claims(packs: Packs) -> tuple[Claim, ...]:
    """The claims on these packs."""
    preregistration = {"source": SOURCE, "preregistration": BEFORE_ANY_MODEL, "value_range": (0.0, 1.0)}
    return (
        Claim(
            id="agreement",
            statement="The transformer of every program gives every answer of its program.",
            method="Share of the answers, at every position of every example, numbers within 0.05",
            rule=Value(Equal(1)),
            quantity="share of right answers",
            measure=partial(measure_correct_answers, packs=packs),
            **preregistration,
        ),
        Claim(
            id="heads.faithful",
            statement="No head is called faithful that does not act through what it selects.",
            method="Share of the heads called faithful whose true verdict is another one",
            rule=Value(Equal(0)),
            quantity="share of wrong ones among the heads called faithful",
            measure=partial(measure_wrong_verdicts, packs=packs, verdict="faithful"),
            **preregistration,
        ),
        Claim(
            id="heads.idle",
            statement="No head that the answers need is called idle.",
            method="Share of the heads called idle that are faithful, hidden or redundant",
            rule=Value(Equal(0)),
            quantity="share of needed ones among the heads called idle",
            measure=partial(measure_wrong_verdicts, packs=packs, verdict="idle"),
            **preregistration,
        ),
        *(
            Claim(
                id=f"needed.{removal}",
                statement=f"The audit finds which heads are needed where {words} takes the place of their output.",
                method="Share of the decided heads on which brute force on all examples says otherwise",
                rule=Value(Equal(0)),
                quantity="share of the heads on which they differ",
                measure=partial(measure_needed, packs=packs, removal=removal),
                **preregistration,
            )
            for removal, words in zip(REMOVALS, ("zero", "its mean", "that of another sequence"), strict=True)
        ),
        Claim(
            id="selectors.found",
            statement="A head whose selector is registered as a kind of head has its label.",
            method=f"Share of the heads with a selector that is a relation, {N} sequences",
            rule=Value(Equal(1)),
            quantity="share of heads with the label of their selector",
            measure=partial(measure_labels, packs=packs, idle=False),
            **preregistration,
        ),
        Claim(
            id="selectors.idle",
            statement="No other head has the label of a selector.",
            method=f"Share of the heads without a selector that is a relation, {N} sequences",
            rule=Value(Equal(0)),
            quantity="share of other heads with the label of a selector",
            measure=partial(measure_labels, packs=packs, idle=True),
            **preregistration,
        ),
    )
