"""Audit of attention heads: does each head do what it looks like?"""

from collections.abc import Sequence
from math import inf
from time import perf_counter
from typing import Literal

from hooks.interventions.ablation_engine import Head, every_head
from hooks.state import restores_state
from hooks.typed import checks_types
from interp.auditing.interventions import INTERVENTIONS
from interp.auditing.outcomes import choose_outcomes
from interp.auditing.records import HeadVerdict, set_costs
from interp.auditing.result import AuditResult
from interp.auditing.sets import MOST_PAIRED
from interp.auditing.significance import GrowingEvidence, planned_looks
from interp.auditing.steps import (
    ExperimentSource,
    Question,
    check_settings,
    every_input_of,
    evidence_until_decided,
    sets_of_heads,
    tests_of_heads,
)
from interp.auditing.strata import strata_of, stratum_warnings
from interp.core.devices import check_jobs
from interp.core.heads import check_heads
from interp.core.page_identity import quantity
from interp.core.progress import Count
from interp.core.verbs import HEAD_INPUTS, HEAD_OUTPUTS, AnyModel, Needs, prepare_model
from interp.core.weight_sums import subject_key, weight_sums
from interp.heads.classify import classify_heads
from interp.heads.interventions import HeadIntervention, check_intervention
from interp.heads.kinds import known_kinds
from interp.tasks.base import Task
from interp.tasks.splits import ALL

SEQUENCES_OF_LABELS = 256
"""Least number of sequences behind the labels, with `n="enough"`."""


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
    check_settings(task, n=n, limit=limit, seconds=seconds, alpha=alpha, outcomes=outcomes)
    model = prepare_model(model, NEEDS, task)
    check_jobs(n_jobs, model)
    chosen = None if heads is None else tuple(sorted(check_heads("heads", heads, model)))
    reported = further_interventions(interventions, task)

    # With n="all" nothing is drawn, but for the untrained models of the labels: these are the same for every seed
    inputs = every_input_of(task) if n == ALL else None
    seed = seed if inputs is None else 0
    source = ExperimentSource(
        model=model, task=task, chosen=chosen, further=reported, inputs=inputs, seed=seed, n_jobs=n_jobs
    )
    looks = planned_looks(n, limit, 0 if inputs is None else len(inputs))
    end = inf if seconds is None else perf_counter() + seconds

    with Count("auditing heads", 2 + len(looks)) as count:
        first, judged = choose_outcomes(
            source.on, task, looks, outcomes, alpha=alpha, at_chance=at_chance, seed=seed, inputs=inputs
        )
        count.advance()
        n_of_labels = max(len(first.batch), SEQUENCES_OF_LABELS) if n == "enough" else n
        patterns = classify_heads(model, task, n=n_of_labels, alpha=alpha, seed=seed)
        count.advance()
        tests = tests_of_heads(source, first, patterns, judged)
        sets = sets_of_heads(tests, judged)
        question = Question(tests=tests, sets=sets, judged=judged, alpha=alpha)
        evidence, runs = evidence_until_decided(source, question, looks, end=end, progress=count)
        strata = strata_of(task, runs, judged.indices)
        in_strata = () if judged.at_chance else question.costs_in_strata(runs, strata, evidence)
        records = question.verdicts(patterns, evidence, in_strata, interventions=(*INTERVENTIONS, *reported))
    n_heads = len(every_head(model))
    audited = first.heads
    return AuditResult(
        heads=records,
        kinds=patterns.kinds,
        interventions=(*INTERVENTIONS, *reported),
        outcomes=judged.names,
        clean=strata.clean_on_all,
        threshold=judged.threshold,
        sets=set_costs(evidence, sets),
        exact=sets.exact,
        largest_harmless=sets.largest_harmless,
        largest_harmless_cost=question.cost_of_largest_harmless(),
        smallest_costly=sets.smallest_costly,
        warnings=(
            *judged.warnings,
            *_why_undecided(records, evidence, n, limit),
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
