"""Audit of attention heads: does each head do what it looks like?"""

from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Literal

import numpy as np
from jaxtyping import Float

from hooks.checks import check_names, check_number, checks_types
from hooks.interventions.ablation_engine import Head, every_head
from hooks.state import restores_state
from interp.auditing.acts_like import kinds_to_try
from interp.auditing.experiments import HeadExperiments
from interp.auditing.interventions import INTERVENTIONS, LABEL_TESTS, ON_ALL_HEADS, ON_UNDECIDED_HEADS, ROWS_OF_LABEL
from interp.auditing.outcomes import choose_outcomes
from interp.auditing.parallel_experiments import ParallelExperiments
from interp.auditing.records import HeadVerdict, cost_of_set, head_verdicts, set_costs
from interp.auditing.result import AuditResult
from interp.auditing.sets import MOST_PAIRED, effects_of_sets, find_sets, undecided_sets
from interp.auditing.significance import LITTLE, GrowingEvidence, corrections, on_every_outcome, planned_looks
from interp.auditing.strata import StratumCost, costs_of_audit, heads_needed_in_strata, strata_of, stratum_warnings
from interp.auditing.verdicts import Look, decide, doubtful_heads, facts_about_heads
from interp.core.devices import check_jobs
from interp.core.heads import check_heads
from interp.core.inputs import inputs_or_sample
from interp.core.page_identity import quantity
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.sample import Sample
from interp.core.statistics import check_level
from interp.core.verbs import HEAD_INPUTS, HEAD_OUTPUTS, AnyModel, Needs, prepare_model
from interp.core.weight_sums import subject_key, weight_sums
from interp.heads.classify import HeadPatterns, classify_heads
from interp.heads.interventions import HeadIntervention, check_intervention
from interp.heads.kinds import known_kinds
from interp.tasks.base import Batch, Task
from interp.tasks.check import check_task
from interp.tasks.splits import ALL, sample_split

SEARCHED = 4
"""Sets of heads are searched for on a separate batch, smaller by this factor."""
CONFIRMED = 128
"""Number of further sequences on which the sets that were found must cost accuracy too."""
SEQUENCES_OF_LABELS = 256
"""Least number of sequences behind the labels, with `n="enough"`."""
MOST_SEARCHED = 1024
"""Number of inputs on which sets of heads are searched for, with `n="all"`, if there are more: of a loss of half the
threshold there, a tenth of the accuracy above chance, the standard error is at most a sixth. Sets that are found are
removed on every input."""
LEAST_SEARCHED = 64
"""Least number of sequences of that batch: a loss of half the threshold is then above its noise."""


NEEDS = Needs("audit", edits=HEAD_OUTPUTS, reads=HEAD_INPUTS, answers=True, exact_outputs=True, untrained=True)


@checks_types
@restores_state
def audit(
    model: AnyModel,
    task: Task,
    *,
    n: int | Literal["enough", "all"] = "enough",
    limit: int = 4096,
    seconds: float | None = 60.0,
    alpha: float = 0.01,
    outcomes: Sequence[str] | None = None,
    at_chance: bool = False,
    heads: Sequence[Head] | None = None,
    interventions: Sequence[HeadIntervention] = (),
    seed: int = 0,
    n_jobs: int = 1,
) -> AuditResult:
    """Decide for every head whether it does what it looks like.

    The verdicts are faithful, misleading, hidden, redundant, marginal, idle and undecided. For each head the audit
    measures its label (`classify_heads`); its score with each key weighted by the norm of what it writes; and the
    accuracy lost when its output is replaced by zero, its mean or another sequence's, its pattern by a uniform one, a
    random one, the ideal map of its label, its attention to the keys of its label only, one wrong key or its pattern of
    another sequence, or the values at the keys of its label by values of other sequences. It searches for sets of heads
    that share their work, and for sets of needed heads that are harmless together. docs/audit_rules.md states every
    rule and threshold. Models of other seeds: `AuditResult.with_other_seeds`.

    Args:
        model: Model to audit. It is not changed.
        task: Source of sequences, relations and correct answers.
        n: Number of held-out sequences, the independent units of every interval and p value. In a task with few inputs
            sequences repeat, and verdicts hold for these inputs only. "enough": look after 128 sequences, then double
            the number for the undecided heads until all are decided, or `limit` or `seconds` are reached; the level is
            that of all looks together. "all": every input of the test split once, for tasks that list them
            (`Task.every_input`). Costs are then exact, each head is decided, and a loss that equals the threshold does
            not count. Means are over all inputs. An intervention that takes something from another sequence, or at
            random, is averaged over a fixed family of pairings of inputs: 1,024 pairs or more, of up to 32 inputs all
            pairs (`interp.core.inputs`).
        limit: Largest number of sequences with `n="enough"`.
        seconds: Wall time with `n="enough"`: a look that would end later is not begun, and a warning says so. The
            number of sequences then depends on the machine. If None, time is no limit.
        alpha: Level of all verdicts of an audit together (Bonferroni), and of labels.
        outcomes: Names of the outcomes that count; if None, all of the task's. Verdicts are based on those on which the
            model is far enough above chance for n sequences.
        at_chance: Accept a model that is not above chance, for which few verdicts are possible.
        heads: Heads to audit, as (layer, head); if None, all. The level is theirs together, and sets are searched among
            them: a head whose work a head outside them also does is misleading or idle. A warning says so.
        interventions: Further interventions of your own, measured on every head. They are reported beside the others
            (`HeadVerdict.costs`); no verdict depends on them.
        seed: Determines sequences, references and random rows. Without effect with `n="all"`.
        n_jobs: Number of processes, each with one torch thread, that share the layers of the model. The numbers are the
            same. Processes that are started for it take some seconds of imports.

    Raises:
        ValueError: an inconsistent task, a model that does not fit it, a task without relations visible to the model,
            an unknown outcome, heads that do not exist, too few sequences for any verdict (says how many are needed),
            or a model at chance.

    Example:
        >>> import interp
        >>> known = interp.known_answers.known_answer("template copy, zero decoy", seed=0)
        >>> result = interp.audit(known.model, known.task, n=128)
        >>> [(head.place, head.verdict) for head in result.heads]
        [((0, 0), 'idle'), ((0, 1), 'misleading'), ((0, 2), 'faithful')]

    Source: rules on growing samples: see `GrowingEvidence`.
    """
    planned_looks(n, limit)  # raises an error before the task is run
    check_task(task, splits=("test",) if n == ALL else ("validation", "test"))
    model = prepare_model(model, NEEDS, task)
    check_level(alpha)
    check_names("outcomes", outcomes)
    if seconds is not None:
        check_number("seconds", seconds, above=0)
    check_jobs(n_jobs, model)
    chosen = None if heads is None else tuple(sorted(check_heads("heads", heads, model)))
    reported = further_interventions(interventions, task)

    # With n="all" nothing is drawn, but for the untrained models of the labels: these are the same for every seed
    inputs = None
    if n == ALL:
        seed = 0
        inputs = inputs_or_sample(task, n, generator=derived_generator(seed, "audit"))

    def experiments_on(batch: Batch, *, first: int = 0) -> HeadExperiments:
        sample = Sample(task, batch, seed, exact=inputs is not None, first=first, every=inputs)
        return HeadExperiments(model, sample, chosen=chosen, further=reported)

    def experiments_for_search(n_searched: int) -> HeadExperiments:
        generator = derived_generator(seed, "search", n_searched)
        return experiments_on(sample_split(task, n_searched, generator=generator, split="validation"))

    def in_jobs(experiments: HeadExperiments) -> HeadExperiments | ParallelExperiments:
        return experiments if n_jobs == 1 else ParallelExperiments(experiments, n_jobs)

    looks = planned_looks(n, limit, 0 if inputs is None else len(inputs))
    started = perf_counter()
    with Count("auditing heads", 2 + len(looks)) as count:
        # 1. Outcomes that count, with the smallest planned number of sequences that is enough for all of them
        experiments, judged = choose_outcomes(
            experiments_on, task, looks, outcomes, alpha=alpha, at_chance=at_chance, seed=seed, inputs=inputs
        )
        audited = experiments.heads
        n_first = len(experiments.batch)
        runs = [experiments]
        on_first = in_jobs(experiments)
        count.advance()

        # 2. Labels: what each head looks like
        n_labels = max(n_first, SEQUENCES_OF_LABELS) if n == "enough" else n
        patterns = classify_heads(model, task, n=n_labels, alpha=alpha, seed=seed)
        labels = _kinds_of_labelled_heads(patterns, audited)
        count.advance()

        # 3. Experiments on heads; the label is tested only of heads whose removal costs enough to matter for a verdict
        experiments_started = perf_counter()
        on_heads = on_first.effects((*ON_ALL_HEADS, *reported), labels)
        loss = on_heads.mean("mean")[:, judged.indices]
        needed = [head for head, row in zip(audited, loss, strict=True) if (row > judged.threshold).any()]
        tested_labels = labels_to_test(labels, audited, loss, judged.threshold)

        # Needed heads without a label may act like a kind: the kind is chosen on other sequences, and tested on these
        if inputs is None:
            search = in_jobs(experiments_for_search(max(LEAST_SEARCHED, n_first // SEARCHED)))
            further = in_jobs(experiments_for_search(CONFIRMED))
        else:
            # Every input has no chance findings to confirm; of many inputs the first ones, in a random order, do
            search, further = on_first, None
            if len(inputs) > MOST_SEARCHED:
                first_inputs = inputs.select(slice(0, MOST_SEARCHED))
                search, further = in_jobs(experiments_on(first_inputs)), on_first
        without_label = [head for head in needed if head not in labels]
        tried = kinds_to_try(search, patterns, without_label, judged.indices, judged.threshold)
        on_heads = on_heads.with_heads_of(on_first.effects(ROWS_OF_LABEL, tried, heads=tried))
        tested_labels |= tried
        labels_in_experiments = labels | tried
        on_heads |= on_first.effects(LABEL_TESTS, tested_labels, heads=tested_labels)
        seconds_per_head = (perf_counter() - experiments_started) / (n_first * len(audited))

        # 4. Sets of heads that back each other up or cancel: searched on other sequences, tested on these
        sets = find_sets(
            search, needed, judged.indices, judged.threshold, further=further, every_input=inputs is not None
        )
        on_sets = effects_of_sets(on_first, sets, judged.indices, pairs=sets.needed_pairs, cancelling=sets.cancelling)

        harmless_cost = None
        if sets.largest_harmless:
            lost = on_first.removed([sets.largest_harmless])[:, 0][:, judged.indices]
            answers = experiments.score.total.double().numpy()[:, judged.indices]
            harmless_cost = cost_of_set(lost, answers, every_input=inputs is not None)

        # 5. Verdicts: the rules, applied to what is significant about each head
        n_sets = len(sets.needed_pairs) + len(sets.cancelling)
        factors = corrections(len(audited), len(labels_in_experiments), n_sets)
        effects = on_heads.on(judged.indices) | on_sets
        evidence = GrowingEvidence.of(effects, judged.threshold, looks=looks, factors=factors)
        looks_of_heads: dict[Head, Look] = {}
        for head in audited:
            looks_of_heads[head] = "labelled" if head in labels else "none"
        for head in tried:
            looks_of_heads[head] = "tried"
        facts_about = partial(
            facts_about_heads,
            heads=looks_of_heads,
            sets=sets,
            strata={},
            doubtful=doubtful_heads(on_heads, audited, judged.too_few),
            at_chance=judged.at_chance,
            alpha=alpha,
        )

        # With n="enough": steps 3 to 5 again on further sequences, for the heads that these may decide
        undecided, still_tested = audited, audited
        for size in looks:
            # Who was left out once is left out again: all sequences so far are behind a p value
            facts_by_head = zip(audited, facts_about(evidence.p, losses=evidence.losses), strict=True)
            undecided = [head for head, facts in facts_by_head if head in undecided and decide(facts).is_open]
            seconds_of_look = seconds_per_head * (size - evidence.n) * len(undecided)
            if seconds is not None and perf_counter() + seconds_of_look > started + seconds:
                break
            if size > evidence.n and undecided:
                # Further sequences, and the labels and sets that are still open
                batch = sample_split(
                    task, size - evidence.n, generator=derived_generator(seed, "audit", size), split="test"
                )
                experiments = experiments_on(batch, first=evidence.n)
                runs.append(experiments)
                on_look = in_jobs(experiments)
                pairs, cancelling = undecided_sets(evidence.p, sets, undecided, alpha=alpha)
                # Experiments that extend the evidence; of a head that does nothing alone only its sets are open
                does_nothing = set()
                is_harmless = on_every_outcome(evidence.p.harmless["mean"], alpha)
                for head, is_shown, losses in zip(audited, is_harmless, evidence.losses.tolist(), strict=True):
                    if is_shown and max(losses) <= LITTLE:
                        does_nothing.add(head)
                still_tested = [head for head in still_tested if head in undecided and head not in does_nothing]
                still_labelled = [head for head in still_tested if head in tested_labels]
                on_heads = on_look.effects(ON_UNDECIDED_HEADS, labels_in_experiments, heads=still_tested)
                on_heads |= on_look.effects(LABEL_TESTS, tested_labels, heads=still_labelled)
                on_sets = effects_of_sets(on_look, sets, judged.indices, pairs=pairs, cancelling=cancelling)
                evidence = evidence.with_look(on_heads.on(judged.indices) | on_sets)
            count.advance()

        # 6. Losses within strata of the sequences, also those of the largest harmless set
        strata = strata_of(task, runs, judged.indices)
        in_strata: tuple[StratumCost, ...] = ()
        if not judged.at_chance:
            in_strata = costs_of_audit(runs, strata, judged.indices, evidence, sets.largest_harmless, alpha=alpha)
        needed_in_strata = {}
        for head, cost in heads_needed_in_strata(in_strata, alpha=alpha).items():
            needed_in_strata[head] = judged.names.index(cost.outcome), cost.stratum
        facts_about = partial(facts_about, strata=needed_in_strata)
        head_records = head_verdicts(
            audited,
            patterns,
            evidence,
            facts_about,
            sets=sets,
            outcomes=judged.names,
            tried=tried,
            interventions=(*INTERVENTIONS, *reported),
        )
    n_heads = len(every_head(model))
    return AuditResult(
        heads=head_records,
        kinds=patterns.kinds,
        interventions=(*INTERVENTIONS, *reported),
        outcomes=judged.names,
        clean=strata.clean_on_all,
        threshold=judged.threshold,
        sets=set_costs(evidence, sets),
        exact=sets.exact,
        largest_harmless=sets.largest_harmless,
        largest_harmless_cost=harmless_cost,
        smallest_costly=sets.smallest_costly,
        warnings=(
            *judged.warnings,
            *_why_undecided(head_records, evidence, n, limit),
            *_heads_not_audited(len(audited), n_heads),
            *pairs_not_tried(sets.n_pairs, len(audited)),
            *stratum_warnings(in_strata, strata, evidence, audited, alpha=alpha),
        ),
        strata=in_strata,
        alpha=alpha,
        n=evidence.n,
        n_distinct=len({key for run in runs for key in run.batch.input_keys()}),
        n_looks=len(looks),
        n_heads=None if len(audited) == n_heads else n_heads,
        every_input=inputs is not None,
        weights=weight_sums(model),
        subject=subject_key(model, task),
    )


def _why_undecided(
    heads: Sequence[HeadVerdict], evidence: GrowingEvidence, n: int | str, limit: int
) -> tuple[str, ...]:
    """Why an audit that could have grown stopped before every head was decided."""
    undecided = [head for head in heads if head.is_open]
    if n != "enough" or not undecided:
        return ()
    bound = f"limit={limit}" if evidence.n >= limit else "the time (seconds)"
    sizes = [head.n_to_decide for head in undecided]
    outlook = "many more would not decide all of them"
    if None not in sizes:
        outlook = f"about {max(size for size in sizes if size):,} would decide them"
    heads_in_words = quantity(len(undecided), "head")
    return (f"{heads_in_words} undecided after {evidence.n:,} sequences, where {bound} ended the audit: {outlook}.",)


def _heads_not_audited(n_audited: int, n_heads: int) -> tuple[str, ...]:
    """That the audit was about some of the heads."""
    if n_audited == n_heads:
        return ()
    return (
        f"{n_audited} of {n_heads} heads were audited. What the others do is not known: an audited head whose work one "
        f"of them also does is called misleading or idle.",
    )


def pairs_not_tried(n_pairs: int, n_heads: int) -> tuple[str, ...]:
    """That the search removed only some of the pairs of heads."""
    every_pair = n_heads * (n_heads - 1) // 2
    if n_pairs == every_pair:
        return ()
    return (
        f"the search for sets removed {n_pairs:,} of {every_pair:,} pairs of heads: all of the {MOST_PAIRED} heads "
        f"with the largest effects, and those with a needed head. Of two idle heads outside these, each may do the "
        f"work of the other.",
    )


def further_interventions(interventions: Sequence[HeadIntervention], task: Task) -> dict[str, HeadIntervention]:
    """Interventions of the caller's, by name.

    Raises:
        ValueError: no intervention, or one whose name is another's.
    """
    by_name: dict[str, HeadIntervention] = {}
    taken = (*INTERVENTIONS, *known_kinds(task))
    for intervention in interventions:
        check_intervention(intervention, (*taken, *by_name), argument="interventions")
        by_name[intervention.name] = intervention
    return by_name


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
