"""Strata of an audit: accuracy lost within kinds of examples, such as those with a rare answer.

A head that is harmless on all sequences together may be decisive on a few of them. `Task.strata` names kinds of
examples. Within each, the accuracy that a removal by the mean costs is measured on the sequences of the audit, from the
losses that are computed anyway; only the set `largest_harmless` is removed once more.

A stratum is a set of sequences, for each outcome. Losses are those of all answers of an outcome in these sequences.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float

from hooks.interventions.ablation_engine import Head
from hooks.typed import COUNT, DIFFERENCE, SHARE
from interp.auditing.experiments import HeadExperiments
from interp.auditing.sentences import name_of
from interp.auditing.significance import (
    FACTORS_OF_N,
    SUSPECTED,
    GrowingEvidence,
    exact_p_values,
    on_every_outcome,
    on_some_outcome,
    sequences_needed,
    share_of_look,
)
from interp.core.statistics import SHARE_THAT_COUNTS, drop_interval, drop_tests
from interp.tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class StratumCost:
    """Accuracy lost within a stratum when heads are replaced by their means, on the outcome where this is clearest."""

    heads: Annotated[tuple[Head, ...], COUNT]
    """One head, or the set `largest_harmless`."""
    stratum: str
    """Its name."""
    outcome: str
    n: Annotated[int, COUNT]
    """Sequences of the stratum that have the outcome."""
    share: Annotated[float, SHARE]
    """Fraction of the sequences that these are."""
    clean: Annotated[float, SHARE]
    """Accuracy of the whole model within the stratum."""
    threshold: Annotated[float, SHARE]
    """Loss that counts: a fifth of the accuracy above chance within the stratum."""
    drop: Annotated[float, DIFFERENCE]
    """Accuracy lost."""
    low: Annotated[float, DIFFERENCE]
    high: Annotated[float, DIFFERENCE]
    """Bounds of its 95 % interval."""
    p_matters: Annotated[float, SHARE]
    """p value of "the loss is at most the threshold", Bonferroni over heads, strata, outcomes and looks; 0 or 1 if
    every input was run."""
    suspected: bool
    """Whether the loss is above the threshold at a level of 0.05 that is not corrected."""
    n_to_decide: int | None = None
    """Number of sequences of the audit that would show a suspected loss, if further ones are like those so far; None if
    it is shown or not suspected, or if 250 times that number would not show it."""


@dataclass(frozen=True, kw_only=True)
class Strata:
    """The strata of the sequences of an audit, and the model's answers there."""

    names: tuple[str, ...]
    members: Bool[np.ndarray, "stratum sample outcome"]
    """Whether a sequence belongs to a stratum, for each outcome that counts."""
    right: Float[np.ndarray, "sample outcome"]
    """Right answers of the whole model."""
    total: Float[np.ndarray, "sample outcome"]
    """Answers scored."""
    chance: Float[np.ndarray, " outcome"]
    """Accuracy at chance."""
    outcomes: tuple[str, ...]
    """Names of the outcomes that count."""
    named_by_task: bool
    """Whether the task defines its strata; the default ones are the correct answers."""

    @property
    def n_tests(self) -> int:
        """Number of tests of one removal."""
        return len(self.names) * len(self.outcomes)

    def rows(self, stratum: int, outcome: int, size: int) -> np.ndarray:
        """Indices of the sequences of a stratum that have an outcome, among the first `size` sequences."""
        return np.flatnonzero(self.members[stratum, :size, outcome] & (self.total[:size, outcome] > 0))

    @property
    def clean_on_all(self) -> Float[np.ndarray, " outcome"]:
        """Accuracy of the whole model on all sequences."""
        return self.right.sum(0) / np.maximum(self.total.sum(0), 1e-300)

    def clean(self, stratum: int, outcome: int, rows: np.ndarray) -> float:
        """Accuracy of the whole model on some sequences."""
        return float(self.right[rows, outcome].sum() / self.total[rows, outcome].sum())


def costs_of_audit(
    runs: Sequence[HeadExperiments],
    strata: Strata,
    indices: Sequence[int],
    evidence: GrowingEvidence,
    largest_harmless: Sequence[Head],
    *,
    alpha: float,
) -> tuple[StratumCost, ...]:
    """`stratum_costs` of all heads and of `largest_harmless`, which is removed for it.

    Args:
        runs: Experiments on consecutive batches of sequences.
        strata: Strata of these sequences.
        indices: Indices of the outcomes that count.
        evidence: Losses of every head on these sequences.
        largest_harmless: The set to remove.
        alpha: Level of all tests of the strata together.
    """
    heads = runs[0].heads
    if not strata.names:
        return ()
    if len(largest_harmless) < 2:
        return stratum_costs(evidence, strata, heads, alpha=alpha)
    drop = np.concatenate([run.removed([largest_harmless])[:, 0, indices] for run in runs])
    return stratum_costs(evidence, strata, heads, alpha=alpha, together=largest_harmless, drop_together=drop)


def strata_of(task: Task, runs: Sequence[HeadExperiments], indices: Sequence[int]) -> Strata:
    """The strata of the sequences of an audit.

    Args:
        task: Names the strata.
        runs: Experiments on consecutive batches of sequences.
        indices: Indices of the outcomes that count.

    Raises:
        ValueError: strata whose names differ between batches.
    """
    masks_of_runs = [_masks(task, run, indices) for run in runs]
    names = tuple(masks_of_runs[0])
    for masks in masks_of_runs:
        if tuple(masks) != names:
            difference = ", ".join(sorted(set(names) ^ set(masks)))
            raise ValueError(
                f"{type(task).__name__}.strata gives {difference} for some batches only; give every name for every "
                "batch, with False where no example belongs to it."
            )
    # Strata without any sequence are left out
    members_by_name = {name: np.concatenate([masks[name] for masks in masks_of_runs]) for name in names}
    members_by_name = {name: members for name, members in members_by_name.items() if members.any()}
    shape = (0, sum(len(run.batch) for run in runs), len(indices))
    right, total = (
        np.concatenate([getattr(run.score, field).double().numpy()[:, indices] for run in runs])
        for field in ("right", "total")
    )
    return Strata(
        names=tuple(members_by_name),
        members=np.stack(list(members_by_name.values())) if members_by_name else np.zeros(shape, dtype=bool),
        right=right,
        total=total,
        chance=np.array(task.chances)[list(indices)],
        outcomes=tuple(task.outcomes[index] for index in indices),
        named_by_task=type(task).strata is not Task.strata,
    )


def _masks(task: Task, run: HeadExperiments, indices: Sequence[int]) -> dict[str, Bool[np.ndarray, "sample outcome"]]:
    """Members of each stratum for each outcome that counts."""
    n_outcomes = len(task.outcomes)
    masks = {}
    for name, mask in task.strata(run.batch).items():
        of_outcomes = mask[:, None].expand(-1, n_outcomes) if mask.ndim == 1 else mask
        masks[name] = of_outcomes[:, list(indices)].numpy()
    return masks


def stratum_costs(
    evidence: GrowingEvidence,
    strata: Strata,
    heads: Sequence[Head],
    *,
    alpha: float,
    together: Sequence[Head] = (),
    drop_together: Float[np.ndarray, "sample outcome"] | None = None,
) -> tuple[StratumCost, ...]:
    """What the removal of each head, and of a set, costs within each stratum.

    Left out are strata on which the model is not above chance, where nothing can be lost.

    Args:
        evidence: Losses of every head under its mean, on the outcomes that count.
        strata: Strata of the same sequences.
        heads: All heads.
        alpha: Level of all tests of the strata together.
        together: Heads that were removed together; fewer than two are ignored.
        drop_together: Right answers lost without them.
    """
    drop = evidence.effects.drop["mean"]
    removals: list[tuple[tuple[Head, ...], np.ndarray, int]] = []
    for index, (head, size) in enumerate(zip(heads, evidence.effects.n("mean").tolist(), strict=True)):
        removals.append(((head,), drop[:, index], size))
    if drop_together is not None and len(together) > 1:
        removals.append((tuple(together), drop_together, evidence.n))
    # The level is shared by all tests, and by the looks, of which each removal has its last one here
    factor = len(removals) * strata.n_tests
    costs = []
    for members, drop_of_removal, size in removals:
        corrected = factor / share_of_look(size, evidence.looks)
        for stratum in range(len(strata.names)):
            records = _costs_by_outcome(
                members,
                drop_of_removal,
                size,
                strata,
                stratum,
                corrected,
                alpha,
                every_input=evidence.effects.every_input,
            )
            costs += sorted(records, key=lambda cost: (cost.p_matters, -cost.drop / cost.threshold))[:1]
    return tuple(costs)


def _costs_by_outcome(
    heads: tuple[Head, ...],
    drop: Float[np.ndarray, "sample outcome"],
    size: int,
    strata: Strata,
    stratum: int,
    factor: float,
    alpha: float,
    *,
    every_input: bool,
) -> Iterator[StratumCost]:
    """The cost of a removal within a stratum on each outcome on which the model is above chance there."""
    for outcome, outcome_name in enumerate(strata.outcomes):
        rows = strata.rows(stratum, outcome, size)
        if len(rows) < 2:
            continue
        # One cell: this outcome in this stratum
        cell = np.ix_(rows, np.array([outcome]))
        lost, total = drop[cell], strata.total[cell]
        # Nothing can be lost unless the model is above chance; whether a loss is shown is tested below, corrected
        chance = strata.chance[[outcome]]
        p_chance, _ = drop_tests(strata.right[cell], total, chance)
        clean = strata.clean(stratum, outcome, rows)
        if clean <= chance[0] or p_chance[0] > SUSPECTED:
            continue
        threshold = SHARE_THAT_COUNTS * (clean - chance)
        if every_input:
            p_uncorrected = exact_p_values(lost, total, threshold)[0].item()
            value = low = high = float(lost.sum() / total.sum())
        else:
            p_uncorrected = drop_tests(lost, total, threshold)[0].item()
            value, low, high = (ends.item() for ends in drop_interval(lost, total))
        p = min(1.0, p_uncorrected * factor)
        suspected = p_uncorrected <= SUSPECTED

        def p_after(times: float, lost=lost, total=total, threshold=threshold) -> float:
            return drop_tests(lost, total, threshold, times=times)[0].item() * factor

        yield StratumCost(
            heads=heads,
            stratum=strata.names[stratum],
            outcome=outcome_name,
            n=len(rows),
            share=len(rows) / size,
            clean=clean,
            threshold=threshold.item(),
            drop=value,
            low=low,
            high=high,
            p_matters=p,
            suspected=suspected,
            n_to_decide=_n_to_decide(size, p_after, alpha) if suspected and p > alpha else None,
        )


def _n_to_decide(size: int, p_after: Callable[[float], float], alpha: float) -> int | None:
    """Number of sequences after which a loss would be shown."""
    for times in FACTORS_OF_N:
        if p_after(times) <= alpha:
            return ceil(size * times)
    return None


def heads_needed_in_strata(costs: Sequence[StratumCost], *, alpha: float) -> dict[Head, StratumCost]:
    """Heads that are shown to be needed within some stratum, with the cost on the one on which this is clearest.

    Args:
        costs: From `stratum_costs`; sets of several heads are ignored.
        alpha: Level of all tests of the strata together.
    """
    needed: dict[Head, StratumCost] = {}
    for cost in sorted(costs, key=lambda cost: cost.p_matters):
        if len(cost.heads) == 1 and cost.p_matters <= alpha:
            needed.setdefault(cost.heads[0], cost)
    return needed


def stratum_warnings(
    costs: Sequence[StratumCost],
    strata: Strata,
    evidence: GrowingEvidence,
    heads: Sequence[Head],
    *,
    alpha: float,
    named: Callable[[Head], str] = name_of,
    noun: str = "head ",
) -> tuple[str, ...]:
    """A warning for each head, or set, that is not needed on all sequences and costs accuracy within a stratum; and one
    for strata of the task that are too rare to be judged.

    A loss that is shown is named unless the head is shown to be needed anyway; a suspected one only of heads that are
    shown to be harmless on all sequences, since the others are not called harmless.

    Args:
        costs: What removals cost within strata.
        strata: The strata.
        evidence: Evidence on all sequences.
        heads: All heads, or places of other parts.
        alpha: Level.
        named: Name of a head, or of another part.
        noun: What one of them is called, before its name.
    """
    p = evidence.p
    is_needed = dict(zip(heads, on_some_outcome(p.matters["mean"], alpha), strict=True))
    is_harmless = dict(zip(heads, on_every_outcome(p.harmless["mean"], alpha), strict=True))
    warnings = []
    removals: dict[tuple[Head, ...], list[StratumCost]] = {}
    for cost in costs:
        removals.setdefault(cost.heads, []).append(cost)
    for members, costs_of_removal in removals.items():
        is_set = len(members) > 1
        first_head = next(iter(members))
        if not is_set and is_needed[first_head]:
            continue
        # The stratum with the clearest loss
        worst = min(costs_of_removal, key=lambda cost: cost.p_matters)
        is_shown = worst.p_matters <= alpha
        if is_shown or (worst.suspected and (is_set or is_harmless[first_head])):
            removed = [named(head) for head in worst.heads]
            removal = f"{', '.join(removed[:-1])} and {removed[-1]} together" if is_set else f"{noun}{removed[0]}"
            warnings.append(_warning(worst, removal, is_shown=is_shown, every_input=evidence.effects.every_input))
    if strata.named_by_task and costs and not evidence.effects.every_input:
        warnings += _too_rare(strata, len(heads), alpha)
    return tuple(warnings)


def _warning(cost: StratumCost, removed: str, *, is_shown: bool, every_input: bool) -> str:
    """A warning of a loss within a stratum, without what was removed."""
    loss = f"{cost.drop:.2f}" if every_input else f"{cost.drop:.2f} [{cost.low:.2f}, {cost.high:.2f}]"
    text = (
        f"Removing {removed} costs {loss} of {cost.outcome} on the stratum {cost.stratum!r} "
        f"({_percent(cost.share)} of the sequences, n = {cost.n}), of an accuracy of {cost.clean:.2f}"
    )
    if is_shown:
        return f"{text}, more than its threshold {cost.threshold:.2f}: needed there, though not on all sequences."
    if cost.n_to_decide is None:
        return f"{text}: more than its threshold {cost.threshold:.2f} may be lost there."
    return f"{text}: {cost.n_to_decide:,} sequences would decide whether that is more than {cost.threshold:.2f}."


def _too_rare(strata: Strata, n_heads: int, alpha: float) -> list[str]:
    """A warning of strata with fewer sequences than are needed to call a head harmless if it loses no answer there."""
    rare, needed = [], []
    size = strata.members.shape[1]
    for stratum, name in enumerate(strata.names):
        for outcome in range(len(strata.outcomes)):
            rows = strata.rows(stratum, outcome, size)
            if not len(rows):
                continue
            above_chance = strata.clean(stratum, outcome, rows) - strata.chance[outcome]
            if above_chance <= 0:
                continue
            n_needed = sequences_needed(float(n_heads * strata.n_tests), alpha, float(SHARE_THAT_COUNTS * above_chance))
            if len(rows) < n_needed:
                rare.append(f"{name!r} (n = {len(rows)})")
                needed.append(ceil(n_needed * size / len(rows)))
                break
    if not rare:
        return []
    return [
        f"Too rare among {size} sequences to call a head harmless there: {', '.join(rare)}; {max(needed):,} sequences "
        "would be enough."
    ]


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"
