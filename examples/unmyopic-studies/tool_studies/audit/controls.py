"""Controls of the audit: its verdicts on models with known answers, and on models with nothing to find."""

from collections import Counter
from functools import partial
from typing import Any

import torch

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Below, Equal, Value
from case_studies.recipes.audits import MOST_SEQUENCES
from case_studies.recipes.intervals import proportion
from case_studies.recipes.known_suite import KnownAnswers
from hooks.model.architectures import make_model
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.core.randomness import derived_seed
from interp.known_answers import SUITE, KnownAnswer, known_answer
from interp.sweeps.spec import ModelSpec
from interp.tasks.base import Batch, Task
from tool_studies.audited_models import AUDITED_GROUPS

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


def measure_known(evidence: Evidence, *, family: str) -> Measurement:
    """Share of known answers in which the verdict and the partners of every head are the planted truth."""
    names = [name for name in SUITE if name.startswith(FAMILIES[family])]
    counts: Counter = Counter()
    heads = wrong_heads = 0
    right = []
    rows: list[list] = [["model", "head", "truth", "verdict", "finding"]]
    for seed in range(SUITE_SEEDS[evidence.size]):
        for name in names:
            answer = known_answer(name, seed)
            result = audited(answer, seed=evidence.seed)
            # A model counts as right if every head is
            wrong = misjudged(answer, result)
            right.append(not wrong)
            heads += len(result.heads)
            wrong_heads += len(wrong)
            for head, sentence in zip(result.heads, result.sentences(), strict=True):
                truth = answer.heads[head.place].truth
                counts[truth, head.verdict] += 1
                if head.place in wrong:
                    rows.append([answer.name, f"{head.layer}.{head.head}", truth, head.verdict, sentence])
    interval = proportion(sum(right), len(right))
    # Number of heads by truth and verdict
    truths = sorted({truth for truth, _ in counts})
    verdicts = sorted({verdict for _, verdict in counts})
    crossed = [["truth", *verdicts]]
    crossed += [[truth, *(counts[truth, verdict] for verdict in verdicts)] for truth in truths]
    called_faithful = {truth: counts[truth, "faithful"] for truth in truths if truth != "faithful"}
    return Measurement.from_interval(
        interval,
        unit="models",
        numbers={
            "heads": heads,
            "wrong": wrong_heads,
            "faithful where they are not": sum(called_faithful.values()),
        },
        tables=[("Truth (rows) and verdict", crossed), ("Heads with a wrong verdict", rows)],
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


def measure_silent(evidence: Evidence, *, shuffled: bool) -> Measurement:
    """Share of audits with a faithful verdict, of untrained models or of trained models on shuffled labels."""
    alarms, verdicts = [], Counter()
    rows: list[list] = [["models", "seed", "faithful heads"]]
    for group in AUDITED_GROUPS:
        for spec in evidence.specs(group)[: PER_GROUP[evidence.size]]:
            # Nothing can be found in these models, so that a faithful head is a false alarm
            result = _audit(evidence, spec, shuffled=shuffled)
            faithful = result.of("faithful")
            alarms.append(bool(faithful))
            verdicts.update(head.verdict for head in result.heads)
            if faithful:
                rows.append([group, spec.seed, " ".join(f"{layer}.{head}" for layer, head in faithful)])
    hits = sum(alarms)
    return Measurement.from_interval(
        proportion(hits, len(alarms)),
        unit="models",
        numbers={"with a faithful verdict": hits, "level": LEVEL, **dict(verdicts)},
        tables=[("Models with a faithful head", rows)],
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
