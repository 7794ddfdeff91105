"""Verdict rules: the outcomes that count, tests of each cost, and the verdict on each head. See docs/audit.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.core.statistics import drop_tests, holm
from interp.tasks.base import Score, Task

Verdict = Literal["faithful", "misleading", "hidden", "idle", "redundant", "undecided"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
JUDGED = ("mean", "uniform", "ideal", "read_part")
"""Interventions that verdicts depend on; the others are only reported."""
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
    warnings: tuple[str, ...]


def judged_outcomes(
    score: Score, task: Task, wanted: Sequence[str] | None, *, n_tests: int, alpha: float, at_chance: bool
) -> JudgedOutcomes:
    """Select the outcomes on which the model is above chance by enough to detect a loss of a fifth of it.

    Args:
        score: Score of the model on each sequence.
        task: Gives the outcomes and their chance level.
        wanted: Names to choose from; if None, all.
        n_tests: Number of tests in the family.
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
    least = np.array([sequences_needed(n_tests, alpha, float(one)) for one in threshold])
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
        warnings=tuple(warnings),
    )


def _in_words(chance: Float[np.ndarray, " outcome"]) -> str:
    return ", ".join(f"{one:.2f}" if one >= 0.01 else f"{one:.1g}" for one in dict.fromkeys(chance.tolist()))


def sequences_needed(n_tests: int, alpha: float, threshold: float) -> int:
    """Number of sequences, one answer each, needed to call a head harmless if not a single answer is lost."""
    return int(np.ceil(np.log(alpha / n_tests) / np.log1p(-threshold)))


@dataclass(frozen=True)
class PValues:
    """p values of one family of tests, corrected for all of it (Holm). NaN where an intervention was not tried."""

    matters: Mapping[str, Float[np.ndarray, " head"]]
    """By intervention: p value of "every outcome loses at most its threshold"."""
    harmless: Mapping[str, Float[np.ndarray, " head"]]
    """By intervention: p value of "some outcome loses at least its threshold"."""


def p_values(
    drop: Mapping[str, Float[np.ndarray, "sample head outcome"]],
    total: Float[np.ndarray, "sample outcome"],
    threshold: Float[np.ndarray, " outcome"],
) -> PValues:
    """Test the cost of every intervention on every head or set of heads.

    A head matters if some outcome loses more than its threshold, so p is the smallest over outcomes times their number;
    it is harmless if every outcome loses less, so p is the largest. Both kinds of p are one family for Holm's
    correction.

    Args:
        drop: Right answers lost in each sequence, by intervention.
        total: Answers scored in each sequence.
        threshold: Loss of accuracy that counts.
    """
    raw: dict[tuple[str, str], np.ndarray] = {}
    for name, values in drop.items():
        matters, harmless = drop_tests(np.nan_to_num(values), total[:, None], threshold)
        known = np.isfinite(values).all((0, 2))
        raw["matters", name] = np.where(known, np.minimum(matters.min(-1) * len(threshold), 1), np.nan)
        raw["harmless", name] = np.where(known, harmless.max(-1), np.nan)
    family = np.concatenate(list(raw.values()))
    corrected = np.full(family.shape, np.nan)
    corrected[np.isfinite(family)] = holm(family[np.isfinite(family)])
    parts = np.split(corrected, np.cumsum([len(values) for values in raw.values()])[:-1])
    by_key = dict(zip(raw, parts, strict=True))
    return PValues(*({name: by_key[kind, name] for name in drop} for kind in ("matters", "harmless")))


def redundant_partners(
    fatal: Sequence[tuple[Head, ...]], p: PValues, *, heads: Sequence[Head], alpha: float
) -> dict[Head, tuple[Head, ...]]:
    """Heads that are harmless alone, in a set that costs more than its heads alone; with the others of the smallest."""
    partners: dict[Head, tuple[Head, ...]] = {}
    for index, chosen in sorted(enumerate(fatal), key=lambda entry: len(entry[1])):
        for head in chosen if p.matters["sets"][index] <= alpha else ():
            if p.harmless["mean"][heads.index(head)] <= alpha:
                partners.setdefault(head, tuple(other for other in chosen if other != head))
    return partners


def cancelled_partners(
    opposed: Sequence[tuple[Head, Head]], p: PValues, *, heads: Sequence[Head], alpha: float
) -> dict[Head, tuple[Head, ...]]:
    """Heads that matter alone and are harmless together with a head of opposite writes; with those heads.

    Opposed pairs are the last of the sets that were tested.
    """
    partners: dict[Head, tuple[Head, ...]] = {}
    for index, chosen in enumerate(opposed, start=len(p.matters["sets"]) - len(opposed)):
        if p.harmless["sets"][index] <= alpha:
            for head, other in (chosen, chosen[::-1]):
                if p.matters["mean"][heads.index(head)] <= alpha:
                    partners[head] = (*partners.get(head, ()), other)
    return partners


@dataclass(frozen=True)
class Judged:
    """A verdict, the rule that gave it, and the other heads involved."""

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
    redundant: Mapping[Head, tuple[Head, ...]],
    cancelled: Mapping[Head, tuple[Head, ...]],
    alpha: float,
    at_chance: bool = False,
) -> list[Judged]:
    """Apply the verdict rules to every head.

    Args:
        heads: Heads to judge.
        readable: Whether each has a label that is a kind.
        p: Corrected p values, heads in the same order.
        redundant: Heads of sets that are needed together, with the others of the set.
        cancelled: Heads that are needed alone but not together with another, with that other.
        alpha: Level.
        at_chance: The model has no accuracy to lose, so that no head can be called harmless.
    """

    def judged(index: int, head: Head) -> Judged:
        def matters(name: str) -> bool:
            return bool(p.matters[name][index] <= alpha)

        def harmless(name: str) -> bool:
            return bool(p.harmless[name][index] <= alpha)

        unneeded: Verdict = "misleading" if readable[index] else "idle"
        if head in redundant:
            return Judged("redundant", "together", redundant[head])
        if head in cancelled:
            return Judged(unneeded, "cancelled", cancelled[head])
        if at_chance and not matters("mean"):
            return Judged("undecided", "nothing to lose")
        if harmless("mean"):
            return Judged(unneeded, "not needed")
        if not matters("mean"):
            return Judged("undecided", "too close")
        if not readable[index]:
            return Judged("hidden", "needed")
        if harmless("uniform"):
            return Judged("misleading", "not through its pattern")
        if not matters("uniform"):
            return Judged("undecided", "pattern too close")
        if harmless("ideal") or harmless("read_part"):
            return Judged("faithful", "through its pattern")
        if matters("ideal") and matters("read_part"):
            return Judged("misleading", "through something else")
        return Judged("undecided", "reading too close")

    return [judged(index, head) for index, head in enumerate(heads)]
