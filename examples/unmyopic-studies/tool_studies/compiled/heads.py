"""Claims on the heads of compiled programs: verdicts, need under three removals, and labels."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
import torch

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.packs import Packs
from case_studies.frame.rules import Equal, Value
from case_studies.recipes.judges import Row, Share
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
RIGHT, WRONG, DIFFER, HAS_LABEL = "share of right answers", "wrong", "differ", "has the label of a selector"
DECIDED, OF_CLAIM = "decided", "is judged"
"""Columns that say which heads are judged."""
NO_HEADS = (0.0, 0.0, 1.0)
"""Share and interval if there is no head of which it is one."""
YES_NO = {None: "undecided", True: "yes", False: "no"}


def measure_correct_answers(evidence: Evidence, *, packs: Packs) -> Readings:
    """Share of the answers of all programs that our transformers give, at every position of every example."""
    rows = []
    for answer in programs(packs):
        task: Any = answer.task
        batch = task.examples(torch.arange(len(task.program.examples)))
        inputs: dict[str, Any] = batch.model_inputs()
        with torch.no_grad():
            score = task.score(logits_at_targets(answer.model(batch.tokens, **inputs), batch), batch)
        rows.append(
            {
                "program": task.program.name,
                "what it computes": task.program.description,
                "output": "number" if task.program.numerical else f"one of {len(task.answer_names)}",
                "answers": int(score.total[:, 0].sum()),
                "right": int(score.right[:, 0].sum()),
            }
        )
    table: Any = pd.DataFrame(rows)
    total = int(table["answers"].sum())
    return Readings(
        frame=pd.DataFrame([{RIGHT: int(table["right"].sum()) / total, "answers": total}]),
        numbers={"programs": len(table)},
        tables=[("Programs", table)],
    )


def heads_of(evidence: Evidence, packs: Packs) -> Iterator[tuple[KnownAnswer, HeadTruth, HeadVerdict, str]]:
    """Every head of every program: its program, truth, verdict and sentence."""
    for answer, result in audited_programs(packs, evidence.seed):
        for head, sentence in zip(result.heads, result.sentences(), strict=True):
            yield answer, answer.heads[head.place], head, sentence


def verdict_table(evidence: Evidence, packs: Packs) -> pd.DataFrame:
    """Truth, need, verdict and finding of every head of every program, one row a head."""
    rows = []
    for answer, truth, head, sentence in heads_of(evidence, packs):
        needed = ", ".join(name for name, is_needed in (truth.needed or {}).items() if is_needed) or "no"
        rows.append((answer.name, f"{head.layer}.{head.head}", truth.truth, needed, head.verdict, sentence))
    return pd.DataFrame(rows, columns=["program", "head", "truth", "needed by brute force", "verdict", "finding"])


def measure_wrong_verdicts(evidence: Evidence, *, packs: Packs, verdict: str) -> Readings:
    """Whether the truth of a head excludes a verdict: faithful where it is not, idle where it is needed."""
    table: Any = verdict_table(evidence, packs)
    # An idle head may be one that is not needed for another reason; a faithful one must be faithful
    wrong = table["truth"].isin(["faithful", "hidden", "redundant"]) if verdict == "idle" else table["truth"] != verdict
    is_other = table["truth"] != table["verdict"]
    return Readings(
        frame=table.assign(**{WRONG: wrong}),
        table=table[is_other],
        title="Heads with another verdict than the truth",
        numbers={"heads": len(table), "heads with their true verdict": int((~is_other).sum())},
        tables=[("Truth (rows) and verdict", pd.crosstab(table["truth"], table["verdict"]).reset_index())],
    )


def measure_needed(evidence: Evidence, *, packs: Packs, removal: str) -> Readings:
    """Whether the audit decides otherwise than brute force that a head is needed, one row a head."""
    rows, by_removal = [], []
    for answer, truth, head, _ in heads_of(evidence, packs):
        needed_under = truth.needed or {}
        by_brute_force, by_audit = needed_under[removal], head.needed[removal]
        name = {"program": answer.name, "head": f"{head.layer}.{head.head}"}
        rows.append(
            {
                **name,
                DIFFER: by_brute_force != by_audit,
                DECIDED: by_audit is not None,
                "needed by brute force": YES_NO[by_brute_force],
                "needed by the audit": YES_NO[by_audit],
            }
        )
        words = {f"needed under {under}": YES_NO[needed_under[under]] for under in REMOVALS}
        by_removal.append({**name, "truth": truth.truth, **words, DIFFER: len(set(needed_under.values())) > 1})
    frame: Any = pd.DataFrame(rows)
    of_removals = pd.DataFrame(by_removal)
    return Readings(
        frame=frame,
        table=frame[frame[DIFFER]].drop(columns=[DIFFER, DECIDED]),
        title="Heads on which they differ",
        numbers={
            "needed by brute force": int((frame["needed by brute force"] == "yes").sum()),
            "undecided": int((~frame[DECIDED]).sum()),
        },
        tables=[
            (
                "Heads of which the need depends on the removal, by brute force",
                of_removals[of_removals[DIFFER]].drop(columns=DIFFER),
            ),
        ],
    )


def measure_labels(evidence: Evidence, *, packs: Packs, idle: bool) -> Readings:
    """Whether a head with a selector has its label; or an idle head that of any selector. One row a head."""
    rows = []
    for answer in programs(packs):
        task: Any = answer.task
        kinds = selector_kinds(answer)
        # The program's selectors are the kinds of heads to tell apart
        labels = None
        if kinds:
            with with_kinds(kinds):
                labels = classify_heads(answer.model, task, n=N, kinds=tuple(kinds), seed=evidence.seed).label
        same = equal_selectors(answer)
        words = {
            f"selector_{number}": selector.selects for number, selector in enumerate(task.program.selectors, start=1)
        }
        # Heads without a selector must have no label, heads with one that of an equal selector
        for (layer, head), truth in answer.heads.items():
            label, looks = labels[layer][head] if labels else "", truth.looks
            rows.append(
                {
                    "program": answer.name,
                    "head": f"{layer}.{head}",
                    HAS_LABEL: label in (kinds if looks is None else same[looks]),
                    OF_CLAIM: bool(kinds) and idle == (looks is None),
                    "selects": words.get(looks or "", "nothing"),
                    "label": label,
                }
            )
    frame: Any = pd.DataFrame(rows)
    return Readings(
        frame=frame,
        table=frame[frame[OF_CLAIM] & (frame[HAS_LABEL] == idle)].drop(columns=[HAS_LABEL, OF_CLAIM]),
        title="Heads with a selector's label" if idle else "Heads without their label",
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
            judged=Row(RIGHT, unit="answers", units="answers", exact=True),
            **preregistration,
        ),
        Claim(
            id="heads.faithful",
            statement="No head is called faithful that does not act through what it selects.",
            method="Share of the heads called faithful whose true verdict is another one",
            rule=Value(Equal(0)),
            quantity="share of wrong ones among the heads called faithful",
            measure=partial(measure_wrong_verdicts, packs=packs, verdict="faithful"),
            judged=Share(WRONG, unit="heads", where={"verdict": "faithful"}, without_rows=NO_HEADS),
            **preregistration,
        ),
        Claim(
            id="heads.idle",
            statement="No head that the answers need is called idle.",
            method="Share of the heads called idle that are faithful, hidden or redundant",
            rule=Value(Equal(0)),
            quantity="share of needed ones among the heads called idle",
            measure=partial(measure_wrong_verdicts, packs=packs, verdict="idle"),
            judged=Share(WRONG, unit="heads", where={"verdict": "idle"}, without_rows=NO_HEADS),
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
                judged=Share(DIFFER, unit="heads", where={DECIDED: True}, without_rows=NO_HEADS),
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
            judged=Share(HAS_LABEL, unit="heads", where={OF_CLAIM: True}, without_rows=NO_HEADS),
            **preregistration,
        ),
        Claim(
            id="selectors.idle",
            statement="No other head has the label of a selector.",
            method=f"Share of the heads without a selector that is a relation, {N} sequences",
            rule=Value(Equal(0)),
            quantity="share of other heads with the label of a selector",
            measure=partial(measure_labels, packs=packs, idle=True),
            judged=Share(HAS_LABEL, unit="heads", where={OF_CLAIM: True}, without_rows=NO_HEADS),
            **preregistration,
        ),
    )
