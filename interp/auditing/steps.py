"""The steps of an audit: what is tested of each head, which sets are searched, and looks at further sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter

import numpy as np
from jaxtyping import Float

from hooks.checks import check_names, check_number
from hooks.interventions.ablation_engine import Head
from hooks.interventions.clean_pass import Net
from interp.auditing.acts_like import kinds_to_try
from interp.auditing.experiments import Effects, HeadExperiments
from interp.auditing.interventions import LABEL_TESTS, ON_ALL_HEADS, ON_UNDECIDED_HEADS, ROWS_OF_LABEL
from interp.auditing.outcomes import JudgedOutcomes
from interp.auditing.parallel_experiments import ParallelExperiments
from interp.auditing.records import FactsAbout, HeadVerdict, InterventionCost, cost_of_set, head_verdicts
from interp.auditing.sets import HeadSets, effects_of_sets, find_sets, undecided_sets
from interp.auditing.significance import (
    LITTLE,
    GrowingEvidence,
    PValues,
    corrections,
    on_every_outcome,
    planned_looks,
)
from interp.auditing.strata import Strata, StratumCost, costs_of_audit, heads_needed_in_strata
from interp.auditing.verdicts import HeadFacts, Look, decide, doubtful_heads, facts_about_heads
from interp.core.inputs import inputs_or_sample
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.sample import Sample
from interp.core.statistics import check_level
from interp.heads.classify import HeadPatterns
from interp.heads.interventions import HeadIntervention
from interp.tasks.base import Batch, Task
from interp.tasks.check import check_task
from interp.tasks.splits import ALL, sample_split

SEARCHED = 4
"""Sets of heads are searched for on a separate batch, smaller by this factor."""
CONFIRMED = 128
"""Number of further sequences on which the sets that were found must cost accuracy too."""
MOST_SEARCHED = 1024
"""Number of inputs on which sets of heads are searched for, with `n="all"`, if there are more: of a loss of half the
threshold there, a tenth of the accuracy above chance, the standard error is at most a sixth. Sets that are found are
removed on every input."""
LEAST_SEARCHED = 64
"""Least number of sequences of that batch: a loss of half the threshold is then above its noise."""

NO_STRATA: Mapping[Head, tuple[int, str]] = {}
"""Of an audit in progress: what is needed within a stratum only is asked at its end."""

InJobs = HeadExperiments | ParallelExperiments


def check_settings(
    task: Task, *, n: int | str, limit: int, seconds: float | None, alpha: float, outcomes: Sequence[str] | None
) -> None:
    """Check the settings of an audit, and that its task is consistent, before the task is run on a model.

    Raises:
        ValueError: an inconsistent task, or a setting that is out of range.
    """
    planned_looks(n, limit)
    check_task(task, splits=("test",) if n == ALL else ("validation", "test"))
    check_level(alpha)
    check_names("outcomes", outcomes)
    if seconds is not None:
        check_number("seconds", seconds, above=0)


def every_input_of(task: Task) -> Batch:
    """Every input of the test split, of an audit of which nothing is drawn."""
    return inputs_or_sample(task, ALL, generator=derived_generator(0, "audit"))


@dataclass(frozen=True, kw_only=True)
class ExperimentSource:
    """Gives experiments on the heads of an audit, on sequences of its task."""

    model: Net
    task: Task
    chosen: tuple[Head, ...] | None
    """Heads to audit; if None, all."""
    further: Mapping[str, HeadIntervention]
    """Interventions of the caller's, by name."""
    inputs: Batch | None
    """Every input, if the audit is about all of them; else sequences are drawn."""
    seed: int
    n_jobs: int

    def on(self, batch: Batch, *, first: int = 0) -> HeadExperiments:
        """Experiments on a batch; `first` is the number of sequences of the audit before it."""
        return HeadExperiments(self.model, self.sample_of(batch, first), chosen=self.chosen, further=self.further)

    def sample_of(self, batch: Batch, first: int) -> Sample:
        """A batch as a sample, with `first` sequences of the audit before it."""
        return Sample(self.task, batch, self.seed, exact=self.inputs is not None, first=first, every=self.inputs)

    def on_further(self, n: int, *, size: int) -> HeadExperiments:
        """Experiments on the last n sequences of a look at `size` sequences."""
        generator = derived_generator(self.seed, "audit", size)
        return self.on(sample_split(self.task, n, generator=generator, split="test"), first=size - n)

    def in_jobs(self, experiments: HeadExperiments) -> InJobs:
        """Experiments, in processes if there are several."""
        return experiments if self.n_jobs == 1 else ParallelExperiments(experiments, self.n_jobs)

    def searches(self, on_first: InJobs, n_first: int) -> tuple[InJobs, InJobs | None]:
        """Experiments to search kinds and sets on, and those that confirm the sets; None if nothing needs that.

        Args:
            on_first: Experiments on the first sequences; every input, if the audit is about all of them.
            n_first: Number of these sequences.
        """
        if self.inputs is None:
            n_searched = max(LEAST_SEARCHED, n_first // SEARCHED)
            return self._on_validation(n_searched), self._on_validation(CONFIRMED)
        # Every input has no chance findings to confirm; of many inputs the first ones, in a random order, do
        if len(self.inputs) <= MOST_SEARCHED:
            return on_first, None
        return self.in_jobs(self.on(self.inputs.select(slice(0, MOST_SEARCHED)))), on_first

    def _on_validation(self, n: int) -> InJobs:
        generator = derived_generator(self.seed, "search", n)
        return self.in_jobs(self.on(sample_split(self.task, n, generator=generator, split="validation")))


@dataclass(frozen=True, kw_only=True)
class HeadTests:
    """What was tested of each head on the first sequences."""

    first: HeadExperiments
    """Experiments on these sequences."""
    effects: Effects
    """Effects of the interventions on each head alone, on all outcomes of the task."""
    labels: Mapping[Head, str]
    """Kind of each head that looks like one."""
    tried: Mapping[Head, str]
    """Kind of each needed head without a label that may act like it."""
    tested: Mapping[Head, str]
    """Those of both whose pattern was tested: others are not needed."""
    needed: Sequence[Head]
    """Heads that cost more than counts when removed."""
    search: InJobs
    """Experiments on other sequences, to search sets on."""
    further: InJobs | None
    """Experiments that confirm the sets; None if nothing is by chance."""
    on_first: InJobs
    """`first`, in processes if there are several."""
    seconds_per_head: float
    """Wall time of a sequence and head."""

    @property
    def kinds(self) -> dict[Head, str]:
        """Kind of each head that looks like one, or may act like it."""
        return {**self.labels, **self.tried}

    @cached_property
    def looks_of_heads(self) -> dict[Head, Look]:
        """Where the kind of each head comes from."""
        looks: dict[Head, Look] = dict.fromkeys(self.first.heads, "none")
        looks |= dict.fromkeys(self.labels, "labelled")
        looks |= dict.fromkeys(self.tried, "tried")
        return looks


def tests_of_heads(
    source: ExperimentSource, first: HeadExperiments, patterns: HeadPatterns | None, judged: JudgedOutcomes
) -> HeadTests:
    """Test every head alone; its label only if its removal costs enough to matter for a verdict.

    Args:
        source: Gives experiments on other sequences.
        first: Experiments on the first sequences.
        patterns: What each head looks like; None of parts that have no pattern.
        judged: Outcomes that count.
    """
    started = perf_counter()
    on_first, heads = source.in_jobs(first), first.heads
    labels = {} if patterns is None else _kinds_of_labelled_heads(patterns, heads)
    effects = on_first.effects((*ON_ALL_HEADS, *source.further), labels)
    loss = effects.mean("mean")[:, judged.indices]
    needed = [head for head, row in zip(heads, loss, strict=True) if (row > judged.threshold).any()]

    # Needed heads without a label may act like a kind: the kind is chosen on other sequences, and tested on these
    search, further = source.searches(on_first, len(first.batch))
    without_label = [head for head in needed if head not in labels]
    tried: dict[Head, str] = {}
    if patterns is not None:
        tried = kinds_to_try(search, patterns, without_label, judged.indices, judged.threshold)
    effects = effects.with_heads_of(on_first.effects(ROWS_OF_LABEL, tried, heads=tried))
    tested = labels_to_test(labels, heads, loss, judged.threshold) | tried
    effects |= on_first.effects(LABEL_TESTS, tested, heads=tested)
    return HeadTests(
        first=first,
        effects=effects,
        labels=labels,
        tried=tried,
        tested=tested,
        needed=needed,
        search=search,
        further=further,
        on_first=on_first,
        seconds_per_head=(perf_counter() - started) / (len(first.batch) * len(heads)),
    )


def sets_of_heads(tests: HeadTests, judged: JudgedOutcomes) -> HeadSets:
    """Sets of heads that back each other up or cancel, searched on other sequences than they are tested on."""
    every_input = tests.first.sample.exact
    return find_sets(
        tests.search, tests.needed, judged.indices, judged.threshold, further=tests.further, every_input=every_input
    )


@dataclass(frozen=True, kw_only=True)
class Question:
    """What an audit asks of each head, once its labels and sets are known."""

    tests: HeadTests
    sets: HeadSets
    judged: JudgedOutcomes
    alpha: float

    @property
    def heads(self) -> list[Head]:
        """The heads that are audited."""
        return self.tests.first.heads

    @cached_property
    def doubtful(self) -> dict[str, set[Head]]:
        """Heads whose removal costs accuracy on an outcome that is left out, by kind of removal."""
        return doubtful_heads(self.tests.effects, self.heads, self.judged.too_few)

    def first_evidence(self, looks: Sequence[int]) -> GrowingEvidence:
        """Evidence on the first sequences."""
        tests, sets = self.tests, self.sets
        n_sets = len(sets.needed_pairs) + len(sets.cancelling)
        factors = corrections(len(self.heads), len(tests.kinds), n_sets)
        on_sets = effects_of_sets(
            tests.on_first, sets, self.judged.indices, pairs=sets.needed_pairs, cancelling=sets.cancelling
        )
        effects = tests.effects.on(self.judged.indices) | on_sets
        return GrowingEvidence.of(effects, self.judged.threshold, looks=looks, factors=factors)

    def effects_on(
        self, experiments: InJobs, evidence: GrowingEvidence, *, tested: Sequence[Head], undecided: Sequence[Head]
    ) -> Effects:
        """Effects on further sequences: of the interventions on heads that are still tested, and of open sets."""
        tests = self.tests
        pairs, cancelling = undecided_sets(evidence.p, self.sets, undecided, alpha=self.alpha)
        with_kind = [head for head in tested if head in tests.tested]
        on_heads = experiments.effects(ON_UNDECIDED_HEADS, tests.kinds, heads=tested)
        on_heads |= experiments.effects(LABEL_TESTS, tests.tested, heads=with_kind)
        on_sets = effects_of_sets(experiments, self.sets, self.judged.indices, pairs=pairs, cancelling=cancelling)
        return on_heads.on(self.judged.indices) | on_sets

    def facts(
        self,
        p: PValues,
        *,
        losses: Float[np.ndarray, "head outcome"],
        strata: Mapping[Head, tuple[int, str]] = NO_STRATA,
    ) -> list[list[HeadFacts]]:
        """What p values show about each head on each outcome.

        Args:
            p: Corrected p values.
            losses: Loss of each head, relative to what counts.
            strata: Outcome and stratum of heads that are needed within a stratum only.
        """
        return facts_about_heads(
            p,
            losses=losses,
            heads=self.tests.looks_of_heads,
            sets=self.sets,
            strata=strata,
            doubtful=self.doubtful,
            at_chance=self.judged.at_chance,
            alpha=self.alpha,
        )

    def cost_of_largest_harmless(self) -> InterventionCost | None:
        """Cost of the largest harmless set on the first sequences; None if there is none."""
        if not self.sets.largest_harmless:
            return None
        indices, first = self.judged.indices, self.tests.first
        lost = self.tests.on_first.removed([self.sets.largest_harmless])[:, 0][:, indices]
        answers = first.score.total.double().numpy()[:, indices]
        return cost_of_set(lost, answers, every_input=first.sample.exact)

    def costs_in_strata(
        self, runs: Sequence[HeadExperiments], strata: Strata, evidence: GrowingEvidence
    ) -> tuple[StratumCost, ...]:
        """Losses within strata of the sequences, also those of the largest harmless set."""
        return costs_of_audit(runs, strata, self.judged.indices, evidence, self.sets.largest_harmless, alpha=self.alpha)

    def facts_with_strata(self, in_strata: Sequence[StratumCost]) -> FactsAbout:
        """`facts`, where a head may be needed within a stratum only."""
        needed_in_strata = {}
        for head, cost in heads_needed_in_strata(in_strata, alpha=self.alpha).items():
            needed_in_strata[head] = self.judged.names.index(cost.outcome), cost.stratum
        return partial(self.facts, strata=needed_in_strata)

    def verdicts(
        self,
        patterns: HeadPatterns,
        evidence: GrowingEvidence,
        in_strata: Sequence[StratumCost],
        *,
        interventions: Sequence[str],
    ) -> tuple[HeadVerdict, ...]:
        """The verdict on each head, with everything that was measured of it."""
        return head_verdicts(
            self.heads,
            patterns,
            evidence,
            self.facts_with_strata(in_strata),
            sets=self.sets,
            outcomes=self.judged.names,
            tried=self.tests.tried,
            interventions=interventions,
        )


def evidence_until_decided(
    source: ExperimentSource, question: Question, looks: Sequence[int], *, end: float, progress: Count
) -> tuple[GrowingEvidence, list[HeadExperiments]]:
    """Evidence on growing numbers of sequences, until every head is decided, or the looks or the time end.

    Args:
        source: Gives experiments on further sequences.
        question: What is asked of each head.
        looks: Planned numbers of sequences.
        end: Time of `perf_counter` after which no look may end.
        progress: Is advanced by each look.

    Returns:
        The evidence, and the experiments on each batch of sequences.
    """
    evidence = question.first_evidence(looks)
    runs = [question.tests.first]
    undecided = tested = question.heads
    for size in looks:
        # Who was left out once is left out again: all sequences so far are behind a p value
        facts_by_head = zip(question.heads, question.facts(evidence.p, losses=evidence.losses), strict=True)
        undecided = [head for head, facts in facts_by_head if head in undecided and decide(facts).is_open]
        n_further = size - evidence.n
        if perf_counter() + question.tests.seconds_per_head * n_further * len(undecided) > end:
            break
        if n_further > 0 and undecided:
            experiments = source.on_further(n_further, size=size)
            runs.append(experiments)
            # Of a head that does nothing alone only its sets are open
            done = heads_that_do_nothing(question.heads, evidence, alpha=question.alpha)
            tested = [head for head in tested if head in undecided and head not in done]
            on_look = question.effects_on(source.in_jobs(experiments), evidence, tested=tested, undecided=undecided)
            evidence = evidence.with_look(on_look)
        progress.advance()
    return evidence, runs


def heads_that_do_nothing(heads: Sequence[Head], evidence: GrowingEvidence, *, alpha: float) -> set[Head]:
    """Heads that are shown to be harmless alone, and cost at most a little on every outcome."""
    is_harmless = on_every_outcome(evidence.p.harmless["mean"], alpha)
    return {
        head
        for head, is_shown, losses in zip(heads, is_harmless, evidence.losses.tolist(), strict=True)
        if is_shown and max(losses) <= LITTLE
    }


def _kinds_of_labelled_heads(patterns: HeadPatterns, heads: Sequence[Head]) -> dict[Head, str]:
    """Kind that each of these heads is labelled with, if its label is one."""
    label_by_head = {(layer, head): patterns.label[layer][head] for layer, head in heads}
    return {head: label for head, label in label_by_head.items() if label in patterns.kinds}


def labels_to_test(
    labels: Mapping[Head, str],
    heads: Sequence[Head],
    loss: Float[np.ndarray, "head outcome"],
    threshold: Float[np.ndarray, " outcome"],
) -> dict[Head, str]:
    """Labels of heads whose removal costs more than a little: that others are needed can hardly be shown later."""
    may_be_needed = {head for head, row in zip(heads, loss, strict=True) if (row >= LITTLE * threshold).any()}
    return {head: label for head, label in labels.items() if head in may_be_needed}
