"""Verdict rules: the outcomes that count, tests of each cost, and the verdict on each head. See docs/audit.md."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.core.statistics import drop_tests
from interp.tasks.base import Score, Task

Verdict = Literal["faithful", "misleading", "hidden", "idle", "redundant", "undecided"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
JUDGED = ("mean", "zero", "resample", "uniform", "wrong_key", "other_read", "ideal", "read_part")
"""Interventions that are tested; the others are only reported."""
NEEDED_IN, CANCELLING, TOGETHER = "needed in", "cancelling", "together"
"""Names of the costs of sets: what a head costs beyond the others of its set and the whole cost of a cancelling set,
which are tested; and the whole cost of every set."""
SHARE = 0.2
"""A head is needed if removing it costs more than this fraction of the accuracy above chance on some outcome."""


@dataclass(frozen=True, kw_only=True)
class JudgedOutcomes:
    """The outcomes that verdicts are based on."""

    places: list[int]
    """Their indices among the task's outcomes."""
    names: tuple[str, ...]
    clean: Float[np.ndarray, " outcome"]
    threshold: Float[np.ndarray, " outcome"]
    at_chance: bool
    """The model is above chance on none of them, so that no accuracy can be lost."""
    too_few: dict[int, float]
    """Outcomes on which the model is above chance, but not by enough for this number of sequences: the loss of accuracy
    that counts on each, by its index."""
    warnings: tuple[str, ...]


def judged_outcomes(
    score: Score, task: Task, wanted: Sequence[str] | None, *, factor: float, alpha: float, at_chance: bool
) -> JudgedOutcomes:
    """Select the outcomes on which the model is above chance by enough to detect a loss of a fifth of it.

    Args:
        score: Score of the model on each sequence.
        task: Gives the outcomes and their chance level.
        wanted: Names to choose from; if None, all.
        factor: Factor of the p values that decide whether a head is needed.
        alpha: Level of the family.
        at_chance: Accept a model that is not above chance on any outcome.

    Raises:
        ValueError: an unknown outcome, a model at chance, or too few sequences (says how many are needed).
    """
    unknown = [name for name in wanted or () if name not in task.outcomes]
    if unknown:
        raise ValueError(f"outcomes has {unknown[0]!r}; this task has {', '.join(task.outcomes)}.")
    chosen = [i for i, name in enumerate(task.outcomes) if wanted is None or name in wanted]
    right, total = score.right.double().numpy()[:, chosen], score.total.double().numpy()[:, chosen]
    n, scored = len(right), (total > 0).sum(0)
    clean = right.sum(0) / np.maximum(total.sum(0), 1e-300)
    # testing for accuracy above chance: a "drop" from nothing to `right` answers, against chance as the threshold
    chance = np.array(task.chances)[chosen]
    p_guessing, _ = drop_tests(right, total, chance)
    above_chance = (p_guessing * len(chosen) <= alpha) & (total.sum(0) > 0)
    threshold = SHARE * np.maximum(clean - chance, 1e-9)
    least = np.array([sequences_needed(factor, alpha, float(one)) for one in threshold])
    needed = np.ceil(least * n / np.maximum(scored, 1)).astype(int)  # more if not every sequence has the outcome
    enough = above_chance & (n >= needed)
    warnings, names = [], np.array(task.outcomes)[chosen]
    best = f"at most {np.nanmax(clean):.2f}, chance {_in_words(chance)}"
    if not above_chance.any() and not at_chance:
        raise ValueError(
            f"the model is not above chance ({_in_words(chance)}) on any outcome (at most {np.nanmax(clean):.2f}), so "
            f"no intervention can cost accuracy. Train it, or pass at_chance=True to audit it anyway."
        )
    if enough.any():
        kept = np.flatnonzero(enough)
        for index in np.flatnonzero(above_chance & ~enough):
            warnings.append(
                f"Outcome {names[index]} is left out: at an accuracy of {clean[index]:.2f}, {needed[index]} sequences "
                f"are needed to detect a loss of {SHARE:.0%} of the accuracy above chance."
            )
        for index in np.flatnonzero(~above_chance):
            warnings.append(f"Outcome {names[index]} is left out: {clean[index]:.2f} is not above chance.")
    elif at_chance:
        kept, threshold = np.flatnonzero(scored > 0), SHARE * (1 - chance)
        if above_chance.any():
            few = f"With {n} sequences, where {int(needed[above_chance].min())} are needed,"
            warnings.append(f"{few} no head can be called harmless ({best}).")
        else:
            warnings.append(f"The model is not above chance ({best}), so no head can be called harmless.")
    else:
        raise ValueError(
            f"n is {n}; {int(needed[above_chance].min())} sequences are needed to call any of the heads harmless at "
            f"level {alpha:g}. Pass a larger n or a larger alpha."
        )
    return JudgedOutcomes(
        places=[chosen[index] for index in kept],
        names=tuple(names[kept].tolist()),
        clean=clean[kept],
        threshold=threshold[kept],
        at_chance=not enough.any(),
        too_few={chosen[index]: float(threshold[index]) for index in np.flatnonzero(above_chance & ~enough)},
        warnings=tuple(warnings),
    )


def _in_words(chance: Float[np.ndarray, " outcome"]) -> str:
    return ", ".join(f"{one:.2f}" if one >= 0.01 else f"{one:.1g}" for one in dict.fromkeys(chance.tolist()))


def sequences_needed(factor: float, alpha: float, threshold: float) -> int:
    """Number of sequences, one answer each, needed to call a head harmless if not a single answer is lost."""
    return int(np.ceil(np.log(alpha / factor) / np.log1p(-threshold)))


SHARES = {"needed": 0.5, "pattern": 0.25, "sets": 0.25}
"""Share of the level that each question gets: whether a head is needed, which decides every verdict; what its other
interventions cost; and what its sets cost."""
ON_ALL = ("zero", "resample", "uniform")
"""Interventions other than the mean that are tried on all heads; the rest of `JUDGED` is tried on readable heads."""


def corrections(n_heads: int, n_readable: int, n_sets: int) -> dict[str, float]:
    """Factor by which the p values of each intervention are multiplied, so that the level is that of a whole audit.

    Of an intervention on a head or set, either "it costs more than the threshold" or "it does not" is false, so that
    each has one true hypothesis to reject by mistake, not two (the partitioning principle, Finner & Strassburger 2002):
    Bonferroni over interventions, with a share of the level for each question.
    """
    n_pattern = len(ON_ALL) * n_heads + (len(JUDGED) - 1 - len(ON_ALL)) * n_readable
    factors = dict.fromkeys(JUDGED, n_pattern / SHARES["pattern"]) | {"mean": n_heads / SHARES["needed"]}
    return factors | dict.fromkeys((NEEDED_IN, CANCELLING), n_sets / SHARES["sets"])


@dataclass(frozen=True)
class PValues:
    """p values of tests on heads and sets. NaN where an intervention was not tried."""

    matters: Mapping[str, Float[np.ndarray, " head"]]
    """By intervention: p value of "every outcome loses at most its threshold"."""
    harmless: Mapping[str, Float[np.ndarray, " head"]]
    """By intervention: p value of "some outcome loses more than its threshold"."""

    def corrected(self, factors: Mapping[str, float]) -> "PValues":
        """These p values times the factor of their intervention, at most 1."""
        return PValues(*(
            {name: np.minimum(factors[name] * values, 1) for name, values in getattr(self, kind).items()}
            for kind in KINDS
        ))  # fmt: skip

    def unknown(self) -> "PValues":
        """The same tests, none of them done."""
        return PValues(*(
            {name: np.full_like(values, np.nan) for name, values in getattr(self, kind).items()} for kind in KINDS
        ))  # fmt: skip

    def smallest(self, other: "PValues", factor: float) -> "PValues":
        """The smaller of these and `factor` times the others; NaN only where both are."""
        return PValues(*(
            {name: np.fmin(mine[name], np.minimum(factor * values, 1)) for name, values in theirs.items()}
            for mine, theirs in ((self.matters, other.matters), (self.harmless, other.harmless))
        ))  # fmt: skip


KINDS = ("matters", "harmless")


def raw_p_values(
    drop: Mapping[str, Float[np.ndarray, "sample head outcome"]],
    total: Float[np.ndarray, "sample outcome"],
    threshold: Float[np.ndarray, " outcome"],
    *,
    times: float = 1.0,
) -> PValues:
    """Test the cost of every intervention on every head or set of heads, not corrected for their number.

    A head matters if some outcome loses more than its threshold, so p is the smallest over outcomes times their number;
    it is harmless if every outcome loses less, so p is the largest.

    Args:
        drop: Right answers lost in each sequence, by intervention.
        total: Answers scored in each sequence.
        threshold: Loss of accuracy that counts.
        times: The p values are those of this many times the sequences, all like these.
    """
    found: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in KINDS}
    for name, values in drop.items():
        matters, harmless = drop_tests(np.nan_to_num(values), total[:, None], threshold, times=times)
        known = np.isfinite(values).all((0, 2))
        found["matters"][name] = np.where(known, np.minimum(matters.min(-1) * len(threshold), 1), np.nan)
        found["harmless"][name] = np.where(known, harmless.max(-1), np.nan)
    return PValues(**found)


@dataclass(frozen=True)
class SetFindings:
    """What sets of heads show about single heads: the partners of each head concerned."""

    redundant: Mapping[Head, tuple[Head, ...]] = field(default_factory=dict)
    """Harmless alone, and needed once others are gone."""
    cancelled: Mapping[Head, tuple[Head, ...]] = field(default_factory=dict)
    """Needed alone, and in a set that is harmless."""
    maybe_redundant: Mapping[Head, tuple[Head, ...]] = field(default_factory=dict)
    maybe_cancelled: Mapping[Head, tuple[Head, ...]] = field(default_factory=dict)
    """As above, if what is undecided about the set is true."""


def set_findings(
    needed_in: Sequence[tuple[Head, tuple[Head, ...]]],
    cancelling: Sequence[tuple[Head, ...]],
    p: PValues,
    *,
    heads: Sequence[Head],
    alpha: float,
) -> SetFindings:
    """Partners of every head in sets that were tested.

    Args:
        needed_in: Heads, each with a set in which it may be needed, in the order of their p values.
        cancelling: Sets of needed heads, or of these and others, that may be harmless, in the same way.
        p: Corrected p values, with those of the heads alone in the order of `heads`.
        heads: All heads.
        alpha: Level.
    """
    of_cancelling = [(head, chosen) for chosen in cancelling for head in chosen]
    which = [at for at, chosen in enumerate(cancelling) for _ in chosen]

    def partners(
        pairs: Sequence[tuple[Head, tuple[Head, ...]]], taken: np.ndarray, alone: str
    ) -> dict[Head, tuple[Head, ...]]:
        """Of each head that is harmless, or matters, alone: the others in the smallest sets taken."""
        found: dict[Head, tuple[int, set[Head]]] = {}
        for head, chosen in sorted(
            (one for one, there in zip(pairs, taken, strict=True) if there), key=lambda x: len(x[1])
        ):
            if getattr(p, alone)["mean"][heads.index(head)] <= alpha:
                size, others = found.setdefault(head, (len(chosen), set()))
                if len(chosen) == size:
                    others.update(set(chosen) - {head})
        return {head: tuple(sorted(others)) for head, (_, others) in found.items()}

    def significant(kind: str, name: str) -> np.ndarray:
        return getattr(p, kind).get(name, np.ones(0)) <= alpha

    cancel = {kind: significant(kind, CANCELLING)[which] for kind in KINDS}
    need = {kind: significant(kind, NEEDED_IN) for kind in KINDS}
    return SetFindings(
        redundant=partners(needed_in, need["matters"], "harmless"),
        cancelled=partners(of_cancelling, cancel["harmless"], "matters"),
        maybe_redundant=partners(needed_in, ~need["matters"] & ~need["harmless"], "harmless"),
        maybe_cancelled=partners(of_cancelling, ~cancel["matters"] & ~cancel["harmless"], "matters"),
    )


@dataclass(frozen=True)
class Judged:
    """Verdict on one head, the rule that gave it, and the other heads involved."""

    verdict: Verdict
    reason: str
    """A key of `interp.auditing.result.REASONS`."""
    partners: tuple[Head, ...] = ()
    """Heads that do the same work, or that cancel this one."""


def judge(
    heads: Sequence[Head],
    readable: Sequence[bool],
    p: PValues,
    *,
    sets: SetFindings,
    alpha: float,
    at_chance: bool = False,
    doubtful: Collection[Head] = (),
) -> list[Judged]:
    """Apply the verdict rules to every head.

    Args:
        heads: Heads to judge.
        readable: Whether each has a label that is a kind.
        p: Corrected p values, heads in the same order.
        sets: What sets of heads show about each.
        alpha: Level.
        at_chance: The model has no accuracy to lose, so that no head can be called harmless.
        doubtful: Heads whose removal costs accuracy on an outcome that is left out for too few sequences.
    """

    def judged(index: int, head: Head) -> Judged:
        def matters(name: str) -> bool:
            return bool(p.matters[name][index] <= alpha)

        def harmless(name: str) -> bool:
            return bool(p.harmless[name][index] <= alpha)

        unneeded: Verdict = "misleading" if readable[index] else "idle"
        if head in sets.redundant:
            return Judged("redundant", "together", sets.redundant[head])
        if head in sets.cancelled:
            return Judged(unneeded, "cancelled", sets.cancelled[head])
        if at_chance and not matters("mean"):
            return Judged("undecided", "nothing to lose")
        if head in sets.maybe_redundant:
            return Judged("undecided", "together too close", sets.maybe_redundant[head])
        if harmless("mean") and head in doubtful:
            return Judged("undecided", "left out")
        if harmless("mean"):
            return Judged(unneeded, "not needed")
        if not matters("mean"):
            return Judged("undecided", "too close")
        if head in sets.maybe_cancelled:
            return Judged("undecided", "cancelling too close", sets.maybe_cancelled[head])
        if not readable[index]:
            return Judged("hidden", "needed")
        if harmless("uniform"):
            return Judged("misleading", MUST_COST["uniform"])
        if matters("ideal") and matters("read_part"):
            return Judged("misleading", "through something else")
        for name, reason in MUST_COST.items():
            if harmless(name):
                return Judged("misleading", reason)
        for name in MUST_COST:
            if not matters(name):
                return Judged("undecided", f"{name} too close")
        if harmless("ideal") or harmless("read_part"):
            return Judged("faithful", "through its pattern")
        return Judged("undecided", "reading too close")

    return [judged(index, head) for index, head in enumerate(heads)]


MUST_COST = {
    "uniform": "not through its pattern",
    "resample": "only its range",
    "wrong_key": "any key",
    "other_read": "nothing read",
}
"""Interventions that must cost if a head acts through its pattern, and why it is misleading if one does not."""
