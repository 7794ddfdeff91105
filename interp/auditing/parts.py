"""Audit of parts without patterns: does the model need each MLP, neuron, head or the embedding?"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import Literal

from hooks.checks import shown
from hooks.interventions.clean_pass import Net
from hooks.state import restores_state
from hooks.typed import DISTINCT, checks_types
from interp.auditing.audit import pairs_not_tried
from interp.auditing.outcomes import choose_outcomes
from interp.auditing.part_experiments import PartSource
from interp.auditing.part_result import PartAuditResult, PartSet
from interp.auditing.records import part_verdicts, set_costs
from interp.auditing.significance import planned_looks
from interp.auditing.steps import (
    Question,
    check_settings,
    every_input_of,
    evidence_until_decided,
    sets_of_heads,
    tests_of_heads,
)
from interp.auditing.strata import strata_of, stratum_warnings
from interp.core.progress import Count
from interp.core.verbs import AnyModel, prepare_model, without_mlps
from interp.heads.ablate import NEEDS as NEEDS_OF_HEADS
from interp.heads.ablate import NEEDS_OF_PARTS
from interp.heads.parts import KINDS_OF_PARTS, KindOfParts, engine_part, has_mlps, names_of_parts
from interp.tasks.base import Task
from interp.tasks.splits import ALL

NEEDS = replace(
    NEEDS_OF_PARTS, verb="audit_parts", exact_outputs=True, lacks=without_mlps("this model has no MLPs; use audit.")
)


@checks_types
@restores_state
def audit_parts(
    model: AnyModel,
    task: Task,
    *,
    parts: KindOfParts | Sequence[str] = "mlps",
    n: int | Literal["enough", "all"] = "enough",
    limit: int = 4096,
    seconds: float | None = 60.0,
    alpha: float = 0.01,
    outcomes: Sequence[str] | None = None,
    at_chance: bool = False,
    seed: int = 0,
) -> PartAuditResult:
    """Decide for every MLP, or other part, whether the model needs it.

    The verdicts are needed, redundant, marginal, idle and undecided. Each part is replaced by its mean, alone and in
    sets with others, as an audit does with heads: the looks at growing numbers of sequences, the search for parts that
    share their work or cancel, levels and thresholds are those of `audit` (docs/audit_rules.md). What a part looks like
    is not asked, so that no verdict says faithful, misleading or hidden.

    Args:
        model: Model to audit. It is not changed.
        task: Source of sequences and correct answers.
        parts: All `mlps`, all `heads`, or `each` of both; or names: heads (`0.1`), MLPs (`0 MLP`), neurons after the
            nonlinearity (`0 MLP 5`), and the `embedding`. The level is theirs together, and sets are searched among
            them.
        n: Number of held-out sequences; "enough" for as many as the verdicts need, "all" for every input of the test
            split once, without sampling error.
        limit: Largest number of sequences with `n="enough"`.
        seconds: Wall time with `n="enough"`: a look that would end later is not begun. If None, time is no limit.
        alpha: Level of all verdicts together (Bonferroni).
        outcomes: Names of the outcomes that count; if None, all of the task's.
        at_chance: Accept a model that is not above chance, for which few verdicts are possible.
        seed: Determines sequences and references. Without effect with `n="all"`.

    Raises:
        ValueError: parts that do not exist or are named twice, a model that does not fit the task or is at chance, an
            unknown outcome, or too few sequences for any verdict (says how many are needed).

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> interp.audit_parts(lego_loop(task), task, n=128).of("needed")
        ('0 MLP', '1 MLP', '2 MLP')

    Source: rules on growing samples: see `GrowingEvidence`.
    """
    check_settings(task, n=n, limit=limit, seconds=seconds, alpha=alpha, outcomes=outcomes)
    net = prepare_model(model, NEEDS if has_mlps(parts) else replace(NEEDS_OF_HEADS, verb="audit_parts"), task)
    names = _names(net, parts)
    engine_parts = tuple(engine_part(name, net) for name in names)

    inputs = every_input_of(task) if n == ALL else None
    seed = seed if inputs is None else 0
    net.eval()
    source = PartSource(
        model=net, task=task, chosen=None, further={}, inputs=inputs, seed=seed, n_jobs=1, parts=engine_parts
    )
    looks = planned_looks(n, limit, 0 if inputs is None else len(inputs))
    end = inf if seconds is None else perf_counter() + seconds

    with Count("auditing parts", 1 + len(looks)) as count:
        first, judged = choose_outcomes(
            source.on, task, looks, outcomes, alpha=alpha, at_chance=at_chance, seed=seed, inputs=inputs
        )
        count.advance()
        tests = tests_of_heads(source, first, None, judged)
        sets = sets_of_heads(tests, judged)
        question = Question(tests=tests, sets=sets, judged=judged, alpha=alpha)
        evidence, runs = evidence_until_decided(source, question, looks, end=end, progress=count)
        strata = strata_of(task, runs, judged.indices)
        in_strata = () if judged.at_chance else question.costs_in_strata(runs, strata, evidence)

    # Places in the search are names of parts again
    name_by_place = dict(zip(first.heads, names, strict=True))
    facts = question.facts_with_strata(in_strata)
    records = part_verdicts(name_by_place, evidence, facts, sets=sets, outcomes=judged.names)
    of_sets = []
    for members in set_costs(evidence, sets):
        of_sets.append(PartSet(parts=tuple(name_by_place[place] for place in members.heads), cost=members.cost))
    largest_harmless, cost = None, question.cost_of_largest_harmless()
    # At chance nothing can be called harmless
    if cost is not None and not judged.at_chance:
        largest_harmless = PartSet(parts=tuple(name_by_place[place] for place in sets.largest_harmless), cost=cost)
    warnings = stratum_warnings(
        in_strata, strata, evidence, first.heads, alpha=alpha, named=name_by_place.__getitem__, noun=""
    )
    return PartAuditResult(
        parts=records,
        outcomes=judged.names,
        clean=strata.clean_on_all,
        threshold=judged.threshold,
        sets=tuple(of_sets),
        exact=sets.exact,
        largest_harmless=largest_harmless,
        warnings=(*judged.warnings, *pairs_not_tried(sets.n_pairs, len(names)), *warnings),
        alpha=alpha,
        n=evidence.n,
        n_distinct=len({key for run in runs for key in run.batch.input_keys()}),
        n_looks=len(looks),
        every_input=inputs is not None,
    )


def _names(net: Net, parts: str | Sequence[str]) -> list[str]:
    """Names of the parts to audit."""
    if isinstance(parts, str):
        return names_of_parts(net, parts)
    if not parts or not all(isinstance(name, str) for name in parts):
        raise ValueError(f"parts is {shown(parts)}; give {', '.join(map(repr, KINDS_OF_PARTS))}, or names of parts.")
    DISTINCT.check(list(parts), "parts")
    return list(parts)
