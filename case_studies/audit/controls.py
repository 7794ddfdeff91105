"""Is the audit right where the truth is known, and silent where there is nothing?"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from scipy import stats

from case_studies.audit.models import ALL
from case_studies.frame.audits import N, outcomes_of
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement
from case_studies.frame.evidence import Evidence, ModelSpec
from hooks.model.architectures import make_model
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.core.randomness import derived_seed
from interp.core.statistics import proportion_interval
from interp.known_answers import SUITE, KnownAnswer, known_answer
from interp.tasks.base import Batch, Task

SUITE_SEEDS = {"quick": 1, "standard": 3, "paper": 10}
PER_GROUP = {"quick": 2, "standard": 6, "paper": 8}
"""Models of each group that the silent controls look at."""
FAMILIES = {"lego": ("loop", "shortcut"), "dyck": ("dyck",), "template": ("template",)}
MORE = 4
"""An answer with an undecided head is audited again on so many times more sequences."""


def measure_known(evidence: Evidence, *, family: str) -> Measurement:
    """Heads of known answers whose verdict is the planted truth, partners included."""
    names = [name for name in SUITE if name.startswith(FAMILIES[family])]
    counts: Counter = Counter()
    right: list[bool] = []
    rows: list[list] = [["model", "head", "truth", "verdict", "what was found"]]
    for seed in range(SUITE_SEEDS[evidence.size]):
        for name in names:
            answer = known_answer(name, seed)
            result = audited(answer, seed=evidence.seed)
            wrong = misjudged(answer, result)
            right += [head not in wrong for head in result.heads]
            for head, verdict, sentence in zip(result.heads, result.verdict, result.sentences(), strict=True):
                truth = answer.heads[head].truth
                counts[truth, verdict] += 1
                if head in wrong:
                    rows.append([answer.name, f"{head[0]}.{head[1]}", truth, verdict, sentence])
    n, hits = len(right), sum(right)
    low, high = proportion_interval(np.array(hits), n)
    truths = sorted({truth for truth, _ in counts})
    verdicts = sorted({verdict for _, verdict in counts})
    crossed = [["truth", *verdicts], *([truth, *(counts[truth, one] for one in verdicts)] for truth in truths)]
    return Measurement(
        value=hits / n, low=float(low), high=float(high), n=n, unit="heads",
        numbers={"models": len(names) * SUITE_SEEDS[evidence.size], "wrong": n - hits,
                 "faithful where they are not": sum(count for (truth, verdict), count in counts.items()
                                                    if verdict == "faithful" != truth)},
        tables=[("Truth (rows) and verdict", crossed), ("Heads judged otherwise", rows)],
        note="Models written down, each with random sizes, scales, order of heads and, where the norms allow, basis. "
        f"One with a head undecided is audited again on {MORE} times more sequences.",
    )  # fmt: skip


def audited(answer: KnownAnswer, *, seed: int) -> AuditResult:
    """The audit of a known answer, with more sequences where it asks for them."""
    result = audit(answer.model, answer.task, seed=seed)
    return audit(answer.model, answer.task, n=MORE * result.n, seed=seed) if result.of("undecided") else result


def misjudged(answer: KnownAnswer, result: AuditResult) -> set[tuple[int, int]]:
    """Heads whose verdict is not the truth, or whose partners are others."""
    wrong = set()
    for head, verdict, partners in zip(result.heads, result.verdict, result.partners, strict=True):
        known = answer.heads[head]
        if verdict != known.truth or (verdict == "redundant" and set(partners) != set(known.partners)):
            wrong.add(head)
    return wrong


def judge_all(m: Measurement) -> ClaimVerdict:
    """Every single one."""
    return "reproduced" if m.value == 1 else "not reproduced"


@dataclass(frozen=True)
class Shuffled:
    """A task whose labels are those of other examples: the same sequences and relations, and nothing to know."""

    task: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def sample(self, n: int, *, generator: torch.Generator, split: str = "train") -> Batch:
        """Examples of the task, each with the labels of another."""
        batch = self.task.sample(n, generator=generator, split=split)
        order = torch.randperm(n, generator=generator)
        return batch.with_labels_of(order)


def measure_silent(evidence: Evidence, *, shuffled: bool) -> Measurement:
    """Audits with a faithful verdict, of untrained models or of trained ones on shuffled labels."""
    loud, verdicts = [], Counter()
    rows: list[list] = [["models", "seed", "heads called faithful"]]
    for group in ALL:
        for spec in evidence.specs(group)[: PER_GROUP[evidence.size]]:
            result = _silent(evidence, spec, shuffled=shuffled)
            found = result.of("faithful")
            loud.append(bool(found))
            verdicts.update(result.verdict)
            if found:
                rows.append([group, spec.seed, " ".join(f"{layer}.{head}" for layer, head in found)])
    n, hits = len(loud), sum(loud)
    low, high = proportion_interval(np.array(hits), n)
    return Measurement(
        value=hits / n, low=float(low), high=float(high), n=n, unit="models",
        numbers={"with a faithful verdict": hits, "level": LEVEL,
                 "p": float(stats.binom.sf(hits - 1, n, LEVEL)), **dict(verdicts)},
        tables=[("Models with a head called faithful", rows)],
        note="Verdicts on all heads: " + ", ".join(f"{count} {name}" for name, count in verdicts.most_common()) + ".",
    )  # fmt: skip


def _silent(evidence: Evidence, spec: ModelSpec, *, shuffled: bool) -> AuditResult:
    settings: dict[str, Any] = {
        "n": N[evidence.size], "outcomes": outcomes_of(spec.task), "at_chance": True, "seed": evidence.seed,
        "alpha": LEVEL,
    }  # fmt: skip
    if shuffled:
        return audit(evidence.run(spec).model, cast(Task, Shuffled(spec.task)), **settings)
    return audit(make_model(spec.config, seed=derived_seed(spec.seed, "untrained") % 2**31), spec.task, **settings)


LEVEL = 0.01
"""Level of an audit: one in so many may have a false verdict."""


def judge_silent(m: Measurement) -> ClaimVerdict:
    """Not more often than the level allows."""
    return "not reproduced" if m.numbers["p"] < 0.05 else "reproduced"


CLAIMS = (
    *(
        Claim(
            id=f"known.{family}",
            source="ours: models whose algorithm is written down",
            statement=f"The audit gives every head of the {family} models of the suite of known answers its true "
            "verdict.",
            rule="Reproduced if every head of every model has the planted verdict, and redundant ones the planted "
            "partners; else not reproduced.",
            quantity="share of heads judged rightly",
            measure=partial(measure_known, family=family),
            judge=judge_all,
        )
        for family in FAMILIES
    ),
    Claim(
        id="silent.untrained",
        source="ours: control",
        statement="The audit calls no head of an untrained model faithful.",
        rule="Reproduced unless the number of audits with a faithful verdict is more than their level (0.01) allows "
        "(binomial p below 0.05).",
        quantity="share of audits with a faithful verdict",
        measure=partial(measure_silent, shuffled=False),
        judge=judge_silent,
        needs=ALL,
    ),
    Claim(
        id="silent.shuffled",
        source="ours: control",
        statement="On labels that belong to other examples the audit calls no head of a trained model faithful.",
        rule="As silent.untrained, for trained models and shuffled labels.",
        quantity="share of audits with a faithful verdict",
        measure=partial(measure_silent, shuffled=True),
        judge=judge_silent,
        needs=ALL,
    ),
)
