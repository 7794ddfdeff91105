"""Controls of the audit: its verdicts on models with known answers, and on models with nothing to find."""

from collections import Counter
from functools import partial
from typing import Any

import pandas as pd
import torch

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Below, Equal, Value
from case_studies.recipes.audits import MOST_SEQUENCES
from case_studies.recipes.judges import Share
from case_studies.recipes.known_suite import KnownAnswers
from hooks.model.architectures import make_model
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.core.randomness import derived_seed
from interp.known_answers import SUITE, KnownAnswer, known_answer
from interp.sweeps.spec import ModelSpec
from interp.tasks.base import Batch, Task
from tool_studies.audited_models import AUDITED_GROUPS

RIGHT, WRONG, ALARM = "every head is right", "wrong", "has a faithful head"
SUITE_SEEDS = {"quick": 1, "standard": 1, "paper": 10}
PER_GROUP = {"quick": 2, "standard": 6, "paper": 8}
"""Models of each group in the untrained and shuffled controls."""
FAMILIES = {"lego": ("loop", "shortcut"), "dyck": ("dyck",), "template": ("template",)}
N = {"quick": 128, "standard": 256, "paper": 1024}
"""Number of sequences of the audits that must find nothing."""
LEVEL = 0.01
"""Significance level of an audit: its probability of a false verdict."""
SILENT = 0.1
"""Share of audits with a false verdict that the controls must exclude: what 56 models can with at most one alarm."""


def measure_known(evidence: Evidence, *, family: str) -> Readings:
    """Whether the verdict and the partners of every head are the planted truth, one row a known answer."""
    names = [name for name in SUITE if name.startswith(FAMILIES[family])]
    rows, heads = [], []
    for seed in range(SUITE_SEEDS[evidence.size]):
        for name in names:
            answer = known_answer(name, seed)
            result = audited(answer, seed=evidence.seed)
            # A model counts as right if every head is
            wrong = misjudged(answer, result)
            counts = {"heads": len(result.heads), "wrong heads": len(wrong)}
            rows.append({"model": answer.name, "seed": seed, RIGHT: not wrong, **counts})
            for head, sentence in zip(result.heads, result.sentences(), strict=True):
                truth = answer.heads[head.place].truth
                place = f"{head.layer}.{head.head}"
                heads.append((answer.name, place, truth, head.verdict, sentence, head.place in wrong))
    table: Any = pd.DataFrame(heads, columns=["model", "head", "truth", "verdict", "finding", WRONG])
    called_faithful = table[table["verdict"] == "faithful"]
    return Readings(
        frame=pd.DataFrame(rows),
        table=table[table[WRONG]].drop(columns=WRONG),
        title="Heads with a wrong verdict",
        numbers={
            "heads": len(table),
            "wrong": int(table[WRONG].sum()),
            "faithful where they are not": int((called_faithful["truth"] != "faithful").sum()),
        },
        tables=[("Truth (rows) and verdict", pd.crosstab(table["truth"], table["verdict"]).reset_index())],
        note="Hand-written models with random sizes, scales, order of heads and, if the norms allow it, basis. "
        f"A model is audited on the number of sequences that its heads need, up to {MOST_SEQUENCES['standard']}.",
    )


def audited(answer: KnownAnswer, *, seed: int) -> AuditResult:
    """The audit of a known answer."""
    return audit(answer.model, answer.task, n="enough", limit=MOST_SEQUENCES["standard"], seconds=None, seed=seed)


def misjudged(answer: KnownAnswer, result: AuditResult) -> set[tuple[int, int]]:
    """Heads whose verdict is not the truth, and redundant heads with other partners than the planted ones."""
    wrong = set()
    for head in result.heads:
        truth = answer.heads[head.place]
        if head.verdict != truth.truth or (head.verdict == "redundant" and set(head.partners) != set(truth.partners)):
            wrong.add(head.place)
    return wrong


def with_shuffled_labels(task: Task) -> Task:
    """The task with the same sequences and relations, and each example with the labels of another."""
    base: Any = type(task)

    class Shuffled(base):
        def sample(self, n: int, **options: Any) -> Batch:
            batch = super().sample(n, **options)
            return batch.with_labels_of(torch.randperm(n, generator=options["generator"]))

    return Shuffled.from_description(task.describe())


def measure_silent(evidence: Evidence, *, shuffled: bool) -> Readings:
    """Whether an audit has a faithful verdict, of untrained models or of trained models on shuffled labels."""
    rows, verdicts = [], Counter()
    for group in AUDITED_GROUPS:
        for spec in evidence.specs(group)[: PER_GROUP[evidence.size]]:
            # Nothing can be found in these models, so that a faithful head is a false alarm
            result = _audit(evidence, spec, shuffled=shuffled)
            faithful = result.of("faithful")
            verdicts.update(head.verdict for head in result.heads)
            names = " ".join(f"{layer}.{head}" for layer, head in faithful)
            rows.append({"models": group, "seed": spec.seed, ALARM: bool(faithful), "faithful heads": names})
    frame: Any = pd.DataFrame(rows)
    return Readings(
        frame=frame,
        table=frame[frame[ALARM]].drop(columns=ALARM),
        title="Models with a faithful head",
        numbers={"with a faithful verdict": int(frame[ALARM].sum()), "level": LEVEL, **dict(verdicts)},
        note="Verdicts on all heads: " + ", ".join(f"{count} {name}" for name, count in verdicts.most_common()) + ".",
    )


def _audit(evidence: Evidence, spec: ModelSpec, *, shuffled: bool) -> AuditResult:
    if shuffled:
        model = evidence.run(spec).model
        task = with_shuffled_labels(spec.task)
    else:
        model = make_model(spec.config, seed=derived_seed(spec.seed, "untrained") % 2**31)
        task = spec.task
    return audit(
        model,
        task,
        n=N[evidence.size],
        outcomes=spec.task.audited_outcomes,
        at_chance=True,
        seed=evidence.seed,
        alpha=LEVEL,
    )


def _silent_claim(name: str, statement: str, *, shuffled: bool) -> Claim:
    return Claim(
        id=f"silent.{name}",
        source="ours: control",
        statement=statement,
        method=f"Share of audits with a faithful verdict, exact interval over models; the level of an audit is {LEVEL}",
        rule=Below(SILENT),
        preregistration=Preregistration(
            "after a result",
            "the first rule required that no more audits than the level allows had one; none had.",
        ),
        quantity="share of audits with a faithful verdict",
        measure=partial(measure_silent, shuffled=shuffled),
        judged=Share(ALARM, unit="models"),
        needs=AUDITED_GROUPS,
    )


CLAIMS = (
    *(
        Claim(
            id=f"known.{family}",
            source="ours: hand-written models with a known algorithm",
            statement=f"The audit gives every head of the {family} models of the suite of known answers its true "
            "verdict.",
            method="Share of models in which every head has the planted verdict, and redundant heads the planted "
            "partners",
            rule=Value(Equal(1)),
            preregistration=BEFORE_ANY_MODEL
            if family != "template"
            else Preregistration(
                "after a result",
                "the rule dates from before any model. 37 of the 37 template models that the suite had were right; two "
                "were added after that.",
                looks=1,
            ),
            quantity="share of models without a wrong verdict",
            measure=partial(measure_known, family=family),
            judged=Share(RIGHT, unit="models"),
            packs=KnownAnswers(),
            sizes=SIZES if family != "lego" else LARGE_SIZES,
            sizes_reason="" if family != "lego" else "The eighty LEGO models take half an hour.",
        )
        for family in FAMILIES
    ),
    _silent_claim(
        "untrained",
        "The audit calls no head of an untrained model faithful.",
        shuffled=False,
    ),
    _silent_claim(
        "shuffled",
        "With labels shuffled between examples, the audit calls no head of a trained model faithful.",
        shuffled=True,
    ),
)
