"""Significance in an audit: every p value, and every correction of one.

`alpha` is the level of all verdicts of an audit together. Questions get a share of it each (`SHARE_OF_QUESTION`), and
the interventions that answer a question share equally (Bonferroni, `corrections`). With a growing number of sequences,
looks share the level once more (`share_of_look`). The audit of probes is corrected for all its tests together (Holm).

Of every input of a task nothing is estimated: a "p value" is 0 if what it speaks against is false, and 1 if it is true
(`exact_p_values`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.auditing.experiments import Effects
from interp.auditing.interventions import CANCELLING, LABEL_TESTS, MOSTLY_SHARED, NEEDED_IN, TESTED
from interp.core.statistics import EQUAL, drop_interval, drop_tests, holm
from interp.tasks.splits import ALL

SHARE_OF_QUESTION = {"needed": 0.5, "pattern": 0.25, "sets": 0.25}
"""Share of the level that each question gets: whether a head is needed, which decides every verdict; what its other
interventions cost; and what its sets cost."""
FIRST_LOOK = 128
"""Sequences of the first look, with `n="enough"`; every further look doubles their number."""
SHARE_OF_LAST_LOOK = 0.9
"""Share of the level that the last of several looks gets: heads that are decided before have p values far below it."""
LITTLE, MUCH = 0.25, 2.0
"""Multiples of the threshold between which a loss is about as much as counts: one twentieth and two fifths of the
accuracy above chance. Of a true loss at most one of the claims "more", "less" and "about as much" that are made at
level alpha is false, and two that are nested share their error, so these claims need no correction of their own."""
SUSPECTED = 0.05
"""p value at which the search suspects that a set costs accuracy. Its sets are tested again, on other sequences and at
the audit's level."""
MARGIN = 0.1
"""Share of the threshold within which a loss of every input is marginal, and not decided: trained again, or on another
processor, such a model would lose a little more or less."""
FACTORS_OF_N = tuple(1.25**power for power in range(1, 26))
"""Factors, up to about 260, by which the number of sequences is multiplied to find how many would decide a head."""


# p values of single tests


@dataclass(frozen=True)
class PValues:
    """p values of tests on heads and sets, on each outcome, by intervention. NaN where an intervention was not tried.

    They are multiplied by the number of outcomes, so that what is shown on any outcome counts.
    """

    matters: Mapping[str, Float[np.ndarray, "_ outcome"]]
    """p value of "the outcome loses at most its threshold"."""
    harmless: Mapping[str, Float[np.ndarray, "_ outcome"]]
    """p value of "the outcome loses more than its threshold"."""
    more_than_little: Mapping[str, Float[np.ndarray, "_ outcome"]]
    """p value of "the outcome loses at most `LITTLE` times its threshold"."""
    limited: Mapping[str, Float[np.ndarray, "_ outcome"]]
    """p value of "the outcome loses more than `MUCH` times its threshold"."""

    def times(self, factors: Mapping[str, float]) -> "PValues":
        """These p values times the factor of their intervention, at most 1."""
        corrected = {}
        for question, p_values in vars(self).items():
            corrected[question] = {name: np.minimum(factors[name] * p, 1) for name, p in p_values.items()}
        return PValues(**corrected)

    def or_smaller(self, p_values: "PValues") -> "PValues":
        """The smaller of these and others; NaN only where both are."""
        smaller = {}
        for question, later in vars(p_values).items():
            smaller[question] = {name: np.fmin(p, later[name]) for name, p in vars(self)[question].items()}
        return PValues(**smaller)


def uncorrected_p_values(effects: Effects, threshold: Float[np.ndarray, " outcome"], *, times: float = 1.0) -> PValues:
    """Test the effect of every tested intervention on every head or set, not corrected for their number.

    Args:
        effects: Effects on heads and sets.
        threshold: Loss of accuracy that counts.
        times: The p values are those of this many times the sequences, if all are like these.
    """
    n_outcomes = len(threshold)
    matters, harmless, more_than_little, limited = {}, {}, {}, {}
    for name, drop in effects.drop.items():
        if name not in (*TESTED, NEEDED_IN, MOSTLY_SHARED, CANCELLING):
            continue
        tried = np.isfinite(drop).all(0)
        filled, total = np.nan_to_num(drop), effects.total[:, None]
        bar = np.zeros_like(threshold) if name == MOSTLY_SHARED else threshold
        tests_of = exact_p_values if effects.every_input else partial(drop_tests, times=times)
        # Of every input a cost near the threshold is marginal, but for cancelling sets, which have no such verdict
        tests_at_bar = tests_of
        if effects.every_input and name != CANCELLING:
            tests_at_bar = partial(exact_p_values, margin=MARGIN)
        p_larger, p_smaller = tests_at_bar(filled, total, bar)
        if name == MOSTLY_SHARED and not effects.every_input:
            # A comparison of two costs, of which either may be larger, and not of a cost with the threshold
            p_smaller, _ = tests_of(-filled, total, bar)
        p_more_than_little, _ = tests_of(filled, total, LITTLE * bar)
        _, p_limited = tests_of(filled, total, MUCH * bar)
        tests = (
            (matters, p_larger),
            (harmless, p_smaller),
            (more_than_little, p_more_than_little),
            (limited, p_limited),
        )
        for p_values, p in tests:
            p_values[name] = np.where(tried, np.minimum(p * n_outcomes, 1), np.nan)
    return PValues(matters, harmless, more_than_little, limited)


def exact_p_values(
    drop: Float[np.ndarray, "sample *cells"],
    total: Float[np.ndarray, "sample *#cells"],
    threshold: Float[np.ndarray, "*#cells"],
    *,
    margin: float = 0.0,
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Whether a drop of accuracy over every input is larger than a threshold, and whether it is not, as p values.

    A loss counts if it is more than the threshold: one that equals it does not.

    Args:
        drop: Correct answers in each input before the intervention minus those after.
        total: Answers scored in each input.
        threshold: One fraction per cell; broadcast.
        margin: Share of the threshold within which a drop is neither shown to be larger nor not to be.

    Returns:
        p values of "the drop is at most the threshold" and of "the drop is more than the threshold": 0 or 1. Both are 1
        in cells without answers.
    """
    answers = total.sum(0)
    loss = drop.sum(0) / np.where(answers == 0, 1, answers)
    is_larger = loss > (1 + margin) * threshold + EQUAL
    is_smaller = loss <= (1 - margin) * threshold + EQUAL
    is_empty = np.broadcast_to(answers == 0, is_larger.shape)
    return np.where(is_larger & ~is_empty, 0.0, 1.0), np.where(is_smaller & ~is_empty, 0.0, 1.0)


def on_some_outcome(p: Float[np.ndarray, "head outcome"], alpha: float) -> list[bool]:
    """Whether something is shown of each head or set on some outcome, from its p values."""
    return np.any(p <= alpha, axis=-1).tolist()


def on_every_outcome(p: Float[np.ndarray, "head outcome"], alpha: float) -> list[bool]:
    """Whether something is shown of each head or set on every outcome, from its p values."""
    return np.all(p <= alpha, axis=-1).tolist()


def is_above_chance(
    right: Float[np.ndarray, "sample outcome"],
    total: Float[np.ndarray, "sample outcome"],
    chance: Float[np.ndarray, " outcome"],
    alpha: float,
) -> Bool[np.ndarray, " outcome"]:
    """Whether accuracy on each outcome is above chance, at a level for all of them together (Bonferroni).

    Args:
        right: Right answers in each sequence.
        total: Answers scored in each sequence.
        chance: Accuracy at chance.
        alpha: Level.
    """
    p, _ = drop_tests(right, total, chance)  # a drop from `right` answers to none, with chance as the threshold
    return (p * len(chance) <= alpha) & (total.sum(0) > 0)


def is_suspected(
    drop: Float[np.ndarray, "sample set outcome"],
    total: Float[np.ndarray, "sample #set outcome"],
    threshold: Float[np.ndarray, " outcome"],
    *,
    every_input: bool = False,
) -> Bool[np.ndarray, " set"]:
    """Whether each set may cost accuracy: at `SUSPECTED`, over all outcomes together (Bonferroni); of every input,
    whether it does."""
    p, _ = (exact_p_values if every_input else drop_tests)(drop, total, threshold)
    return p.min(-1) * len(threshold) <= SUSPECTED


def readable_p_values(
    n_correct: Float[np.ndarray, "layer target"],
    bar: Float[np.ndarray, "layer target"],
    n: Int[np.ndarray, " target"],
    *,
    every_input: bool = False,
) -> tuple[Float[np.ndarray, "layer target"], Float[np.ndarray, "layer target"]]:
    """p values of "the accuracy of a probe is at most the bar" and of "it is at least the bar".

    Args:
        n_correct: Examples that the probe reads correctly.
        bar: Accuracy above which a label is readable; 1 if a control is perfect, which no probe can beat.
        n: Examples that were scored.
        every_input: They are all that there are: p values are 0 or 1.
    """
    if every_input:
        is_readable = n_correct / n > bar + EQUAL
        return np.where(is_readable, 0.0, 1.0), np.where(is_readable, 1.0, 0.0)
    of_cell = np.broadcast_to(n, n_correct.shape)
    example = np.arange(of_cell.max())[:, None, None]
    correct, total = (example < n_correct).astype(float), (example < of_cell).astype(float)
    readable, not_readable = drop_tests(correct, total, bar, of_cell)
    return readable, np.where(bar >= 1, 0.0, not_readable)


def used_p_values(
    changes: Iterable[Float[np.ndarray, "sample layer target 3"]],
    share: float,
    n: Int[np.ndarray, " target"],
    uncovered: Float[np.ndarray, " target"],
    *,
    every_input: bool = False,
) -> tuple[Float[np.ndarray, "layer target"], Float[np.ndarray, "layer target"]]:
    """p values of "a label is not used" (no edit changes more than a share of the examples) and of "it is used".

    It is used if an edit changes more than its placebo does, by more than the share. It is not used if no edit changes
    more than the share, whatever its placebo does: where both change much, neither is shown.

    Args:
        changes: For each of two edits: in each example, whether it changes an answer minus whether its placebo does,
            whether the example counts, and whether the edit changes an answer.
        share: Share of the examples above which a label is used.
        n: Examples that were edited, at least 1.
        uncovered: Share of the examples that could not be edited, any of which an edit might change. With more than
            `share` of them it is not shown that a label is not used; the p value is then that of the others alone.
        every_input: The examples are all that there are: p values are 0 or 1.
    """
    tests_of = exact_p_values if every_input else partial(drop_tests, n=n)
    bar = np.where(uncovered < share, (share - uncovered) / np.maximum(1 - uncovered, 1e-9), share)
    p_more, p_less = [], []
    for values in changes:
        p_more.append(tests_of(values[..., 0], values[..., 1], np.array(share))[0])
        p_less.append(tests_of(values[..., 2], values[..., 1], bar)[1])
    return np.minimum(len(p_more) * np.minimum(*p_more), 1), np.maximum(*p_less)


def sequences_needed(factor: float, alpha: float, threshold: float) -> int:
    """Number of sequences, one answer each, needed to call a head harmless if not a single answer is lost."""
    return int(np.ceil(np.log(alpha / factor) / np.log1p(-threshold)))


# Corrections


def corrections(n_heads: int, n_labelled: int, n_sets: int) -> dict[str, float]:
    """Factor by which the p values of each intervention are multiplied, so that the level is that of a whole audit.

    "It costs more than the threshold" and "it costs less" are tested with the same correction: only one of the two can
    be true, so that only one of them can be rejected in error (the partitioning principle, Finner & Strassburger 2002).
    Bonferroni over interventions, with a share of the level for each question.
    """
    # Of the interventions on all heads, the mean answers a question of its own
    n_other_tests_on_all = len(TESTED) - len(LABEL_TESTS) - 1
    n_pattern_tests = n_other_tests_on_all * n_heads + len(LABEL_TESTS) * n_labelled
    factors = dict.fromkeys(TESTED, n_pattern_tests / SHARE_OF_QUESTION["pattern"])
    factors["mean"] = correction_of_needed(n_heads)
    return factors | dict.fromkeys((NEEDED_IN, MOSTLY_SHARED, CANCELLING), n_sets / SHARE_OF_QUESTION["sets"])


def correction_of_needed(n_heads: int) -> float:
    """Factor of the p values that decide whether a head is needed."""
    return n_heads / SHARE_OF_QUESTION["needed"]


def corrected_together(
    p: Sequence[Float[np.ndarray, "layer target"]],
) -> Float[np.ndarray, "question layer target"]:
    """p values of several questions about every layer and target, corrected for all of them (Holm)."""
    return holm(np.stack(p))


def planned_looks(n: int | str, limit: int, n_inputs: int = 0) -> list[int]:
    """Numbers of sequences at which an audit may stop: n, or with "enough" doublings from `FIRST_LOOK` to the limit.

    Args:
        n: Number of sequences, "enough", or "all" for all inputs.
        limit: Largest number with "enough".
        n_inputs: Number of all inputs.

    Raises:
        ValueError: n is neither a number nor "enough" or "all", or too small a number.
    """
    if limit < 8:
        raise ValueError(f"limit is {limit}; at least 8 sequences are needed for an interval.")
    if n == ALL:
        return [n_inputs]
    if isinstance(n, str):
        if n != "enough":
            raise ValueError(
                f"n is {n!r}; give a number of sequences, 'enough' for as many as the verdicts need, or 'all' for "
                f"every input of the task."
            )
        # Doubling: all looks together cost at most twice the last one
        looks = [min(FIRST_LOOK, limit)]
        while looks[-1] < limit:
            looks.append(min(2 * looks[-1], limit))
        return looks
    if n < 8:
        raise ValueError(f"n is {n}; at least 8 sequences are needed for an interval.")
    return [n]


def share_of_look(size: int, looks: Sequence[int]) -> float:
    """Share of the level of a planned look: most for the last of several, equal parts of the rest for the others."""
    if len(looks) == 1:
        return 1.0
    return SHARE_OF_LAST_LOOK if size == looks[-1] else (1 - SHARE_OF_LAST_LOOK) / (len(looks) - 1)


# Evidence that grows


@dataclass(frozen=True, kw_only=True)
class GrowingEvidence:
    """Effects of every intervention over the looks so far, and their p values.

    A p value is the smallest over the looks so far, each divided by the share of the level that the look gets, times
    the factor of its intervention (`corrections`). It is valid at whichever look the audit stops, since the error of
    all looks together is at most the sum of theirs.

    Source: Lan & DeMets 1983 (alpha spending; here with fixed shares, which are valid however the looks depend on each
    other).
    """

    effects: Effects
    threshold: Float[np.ndarray, " outcome"]
    looks: Sequence[int]
    """Planned numbers of sequences."""
    factors: Mapping[str, float]
    """By intervention: factor of its p values."""
    p_of_looks: PValues
    """p values corrected for the looks only."""

    @staticmethod
    def of(
        effects: Effects,
        threshold: Float[np.ndarray, " outcome"],
        *,
        looks: Sequence[int],
        factors: Mapping[str, float],
    ) -> "GrowingEvidence":
        """The evidence of a first look."""
        p = _corrected_for_look(uncorrected_p_values(effects, threshold), effects.n_sequences, looks)
        return GrowingEvidence(effects=effects, threshold=threshold, looks=looks, factors=factors, p_of_looks=p)

    def with_look(self, effects: Effects) -> "GrowingEvidence":
        """The evidence after further sequences. Heads that an earlier look left out must be left out again."""
        effects = self.effects.followed_by(effects)
        p = _corrected_for_look(uncorrected_p_values(effects, self.threshold), effects.n_sequences, self.looks)
        return replace(self, effects=effects, p_of_looks=self.p_of_looks.or_smaller(p))

    @property
    def n(self) -> int:
        """Number of sequences so far."""
        return self.effects.n_sequences

    @property
    def losses(self) -> Float[np.ndarray, "head outcome"]:
        """Accuracy lost without each head so far, as a multiple of the threshold."""
        drop = self.effects.drop["mean"]
        answers = np.where(np.isfinite(drop), self.effects.total[:, None], 0).sum(0)
        return np.nansum(drop, 0) / np.maximum(answers, 1e-300) / self.threshold

    @property
    def p(self) -> PValues:
        """Corrected p values so far."""
        return self.p_of_looks.times(self.factors)

    def p_after(self, times: float) -> PValues:
        """Corrected p values after this many times the sequences, if all are like those so far."""
        later = uncorrected_p_values(self.effects, self.threshold, times=times)
        later = _corrected_for_look(later, self.looks[-1], self.looks)
        return self.p_of_looks.or_smaller(later).times(self.factors)

    def intervals(self, name: str) -> Float[np.ndarray, "3 head outcome"]:
        """Accuracy lost on each head and outcome, with the ends of its interval; NaN where it was not tried."""
        # Heads that were decided early have fewer sequences
        drop, sizes = self.effects.drop[name], self.effects.n(name)
        intervals = np.full((3, *drop.shape[1:]), np.nan)
        if self.effects.every_input:
            # Nothing was estimated: the ends are the value
            value = drop.sum(0) / np.maximum(self.effects.total.sum(0), 1e-300)
            return np.broadcast_to(value, intervals.shape).copy()
        for size in set(sizes.tolist()) - {0}:
            heads = sizes == size
            intervals[:, heads] = drop_interval(drop[:size, heads], self.effects.total[:size, None])
        return intervals

    def n_to_decide(self, is_decided: Callable[[PValues], Sequence[bool]]) -> list[int | None]:
        """Number of sequences that would decide each undecided head, if further ones are like those so far.

        Args:
            is_decided: Whether p values decide each head.

        Returns:
            A number for each head; None for heads that are decided, or that the largest of `FACTORS_OF_N` would not
            decide.
        """
        # Try larger and larger numbers until every head is decided
        n_heads = self.effects.drop["mean"].shape[1]
        numbers: list[int | None] = [None] * n_heads
        if self.effects.every_input:
            return numbers
        undecided = [index for index, decided in enumerate(is_decided(self.p)) if not decided]
        for times in FACTORS_OF_N:
            if not undecided:
                break
            decided = is_decided(self.p_after(times))
            for index in undecided:
                if decided[index]:
                    numbers[index] = int(np.ceil(self.n * times))
            undecided = [index for index in undecided if not decided[index]]
        return numbers


def _corrected_for_look(p: PValues, size: int, looks: Sequence[int]) -> PValues:
    return p.times(dict.fromkeys(p.matters, 1 / share_of_look(size, looks)))
