"""Claims on what cheap approximations of removing a head find and miss."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from case_studies.frame.claims import BEFORE_ANY_MODEL, DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.packs import OutsideFiles, Packs
from case_studies.frame.rules import Above, AtLeast, Below, Rule, Value
from case_studies.recipes.intervals import interval_columns
from case_studies.recipes.judges import Row
from case_studies.recipes.known_suite import KnownAnswers
from case_studies.recipes.learned import excluded_models
from interp.core.intervals import Interval
from tool_studies.approximations import table
from tool_studies.approximations.agreement import (
    auroc,
    auroc_difference,
    mean_rank_correlation,
    n_concerned,
    wrong_difference,
    wrong_share,
)
from tool_studies.approximations.decoys import BEST, UNUSED, measure_decoys
from tool_studies.approximations.estimates import DIRECT, LOGIT, LOSS, MASS, NORM, PATTERN
from tool_studies.approximations.programs import AUROC as AREA
from tool_studies.approximations.programs import measure_auroc_of_programs
from tool_studies.approximations.scores import (
    CANCELLED,
    COMPILED,
    DECOY,
    EXACT,
    KNOWN,
    REDUNDANT,
    SATURATED,
    ModelScores,
    compiled_scores,
    known_scores,
    trained_scores,
)
from tool_studies.audited_models import AUDITED_GROUPS

JAIN = "ours, after Jain & Wallace 2019 (arXiv:1902.10186); there of tokens, here of heads"
KOBAYASHI = "ours, after Kobayashi et al. 2020 (arXiv:2004.10102)"
MICHEL = "ours, after Michel et al. 2019 (arXiv:1905.10650), Section 4.1; here at the pattern"
NANDA = "ours, after Nanda 2023, Attribution Patching; Syed et al. 2023 (arXiv:2310.10348)"
KRAMAR = "ours, after Kramár et al. 2024 (arXiv:2403.00745), Section 3"
OURS = "ours"
TRAINED = "trained models"
APPROXIMATION, MODELS = "approximation", "models"
GAIN, WRONG, MISSED_MORE = "difference of AUROCs", "share of wrong heads", "difference of the shares missed"
RANK_CORRELATION = "mean rank correlation"
EARLIER = {
    "order": "0.71 [0.68, 0.74]",
    "attention.known": "0.72 [0.68, 0.75]",
    "values.known": "0.06 [0.04, 0.08]",
    "gradient.known": "0.76 [0.74, 0.78]",
    "patching.known": "0.78 [0.76, 0.79]",
    "direct.known": "0.20 [0.16, 0.23]",
    "redundancy.patching": "0.88 [0.71, 0.96], over heads as units,",
    "redundancy.alone": "0.88 [0.71, 0.96], over heads as units,",
    "cancellation.patching": "0.88 [0.81, 0.93], over heads as units,",
}
"""Numbers of the suite before it grew, by claim."""
AUROC = "AUROC over pairs of a needed and another head of the same model, interval over models"


def models_of(evidence: Evidence, packs: Packs, family: str) -> list[ModelScores]:
    """The models of a family."""
    if family == COMPILED:
        return compiled_scores(packs, evidence.size, evidence.seed)
    return known_scores(evidence.size, evidence.seed) if family == KNOWN else trained_scores(evidence)


def measure_auroc(evidence: Evidence, *, packs: Packs, family: str) -> Readings:
    """AUROC of every approximation on a family, one row an approximation."""
    models = models_of(evidence, packs, family)
    frame = by_approximation({name: auroc(models, name) for name in table.METHODS}, AREA)
    return Readings(frame=frame, title=f"AUROC on {family}")


def by_approximation(intervals: Mapping[str, Interval], name: str) -> pd.DataFrame:
    """A frame with one row an approximation."""
    rows = [{APPROXIMATION: method, **columns_of(interval, name)} for method, interval in intervals.items()]
    return pd.DataFrame(rows)


def columns_of(interval: Interval, name: str) -> dict[str, Any]:
    """An estimate, its ends and its number of models."""
    return {**interval_columns(interval, name), MODELS: interval.n}


def measure_auroc_gain(evidence: Evidence, *, packs: Packs, family: str, better: str, worse: str) -> Readings:
    """AUROC of one approximation minus that of another on a family, in one row."""
    models = models_of(evidence, packs, family)
    difference = auroc_difference(models, better, worse, seed=evidence.seed)
    return Readings(
        frame=pd.DataFrame([columns_of(difference, GAIN)]),
        numbers={name: float(auroc(models, name)) for name in (better, worse)},
    )


def measure_wrong_heads(evidence: Evidence, *, packs: Packs, family: str, method: str, cause: str) -> Readings:
    """Share of the heads that a cause concerns on which an approximation is wrong, in one row."""
    models = models_of(evidence, packs, family)
    return Readings(
        frame=pd.DataFrame([columns_of(wrong_share(models, method, cause), WRONG)]),
        numbers={"heads": n_concerned(models, cause)},
        tables=[table.bar_table({family: models})],
    )


def measure_saturation(evidence: Evidence, *, packs: Packs, family: str) -> Readings:
    """Share of the needed heads of saturated models that the loss misses, minus the share that the logits miss."""
    models = models_of(evidence, packs, family)
    difference = wrong_difference(models, LOSS, LOGIT, SATURATED, seed=evidence.seed)
    shares = {name: float(wrong_share(models, name, SATURATED)) for name in (LOSS, LOGIT)}
    return Readings(
        frame=pd.DataFrame([columns_of(difference, MISSED_MORE)]),
        numbers={**shares, "heads": n_concerned(models, SATURATED)},
    )


def measure_rank_order(evidence: Evidence, *, packs: Packs) -> Readings:
    """Mean rank correlation of every approximation with the exact effect, over the models of all families."""
    families = table.families(evidence, packs)
    # The pool of all trained models has those of each family once more
    families_alone = [models for name, models in families.items() if name != table.ALL_TRAINED]
    models = [model for family in families_alone for model in family]
    pooled = {name: models for name, models in families.items() if not name.startswith("trained: ")}
    correlations = {name: mean_rank_correlation(models, name, seed=evidence.seed) for name in table.METHODS}
    return Readings(
        frame=by_approximation(correlations, RANK_CORRELATION),
        numbers={name: float(correlation) for name, correlation in correlations.items() if name != EXACT},
        note=table.READING,
        tables=[
            table.main_table(families, seed=evidence.seed),
            table.cause_table(pooled),
            table.bar_table(pooled),
            ("Causes", table.cause_note()),
            *excluded_models(evidence, AUDITED_GROUPS),
        ],
    )


def after_growth(number: str) -> Preregistration:
    """That of a rule of before any model whose number was seen before the suite grew."""
    return Preregistration(
        "after a result",
        f"the rule dates from before any model. {number} on the 159 models that the suite had; models that look up "
        "and recall were added after that.",
        looks=1,
    )


def claims(packs: Packs) -> tuple[Claim, ...]:
    """The claims, with compiled programs from these packs."""

    def study_claim(
        name: str, statement: str, method: str, rule: Rule, measure: Callable[..., Readings], **options: object
    ) -> Claim:
        needs: Sequence[str] = AUDITED_GROUPS if name.endswith("trained") or name == "order" else ()
        # Compiled programs, and the suite; of the order both
        data: OutsideFiles | None = None
        if name == "order":
            data = KnownAnswers(packs=packs)
        elif not name.endswith("trained"):
            data = KnownAnswers()
        # The number of a claim that reads no packs is the same with any packs.
        bound = partial(measure, packs=packs if name == "order" else Packs())
        fields = {
            "preregistration": BEFORE_ANY_MODEL if name.endswith("trained") else after_growth(EARLIER[name]),
            "needs": needs,
            "packs": data,
            **options,
        }
        return Claim(id=name, statement=statement, method=method, rule=rule, measure=bound, **fields)  # type: ignore[arg-type]

    def need(name: str, method: str, family: str, rule: Rule, statement: str, source: str) -> Claim:
        return study_claim(
            name,
            statement,
            f"{method}, {family}: {AUROC}",
            rule,
            partial(measure_auroc, family=family),
            judged=Row(AREA, unit=MODELS, units=MODELS, where={APPROXIMATION: method}),
            source=source,
            value_range=SHARE,
            quantity=f"AUROC of {method}",
        )

    def gain(name: str, better: str, worse: str, family: str, statement: str, source: str) -> Claim:
        return study_claim(
            name,
            statement,
            f"{better} minus {worse}, {family}: difference of AUROCs, bootstrap interval over models",
            Above(0),
            partial(measure_auroc_gain, family=family, better=better, worse=worse),
            source=source,
            value_range=DIFFERENCE,
            quantity=GAIN,
            judged=Row(GAIN, unit=MODELS, units=MODELS),
        )

    def wrong(name: str, method: str, cause: str, statement: str, source: str) -> Claim:
        return study_claim(
            name,
            statement,
            f"{method}, {KNOWN}: share of the heads on which it is wrong ({table.CAUSES[cause]}); a "
            f"head is found if its share of the largest score of its model is above that of {table.PERCENTILE:g} % of "
            "the idle heads; interval over models",
            Above(0.5),
            partial(measure_wrong_heads, family=KNOWN, method=method, cause=cause),
            source=source,
            value_range=SHARE,
            quantity=WRONG,
            judged=Row(WRONG, unit=MODELS, units=MODELS),
        )

    def saturated(name: str, family: str) -> Claim:
        return study_claim(
            name,
            "Where the loss is saturated, its gradient misses needed heads that the logit difference's finds.",
            f"Share of the {table.CAUSES[SATURATED]} that {LOSS} misses minus the share that {LOGIT} misses, {family}, "
            "bootstrap interval over models",
            Above(0),
            partial(measure_saturation, family=family),
            source=KRAMAR,
            value_range=DIFFERENCE,
            quantity=MISSED_MORE,
            judged=Row(MISSED_MORE, unit=MODELS, units=MODELS),
        )

    return (
        study_claim(
            "order",
            "Attribution patching orders the heads of a model nearly as their removal does.",
            f"{LOSS}: Spearman's correlation of its size with the rise of the loss, mean over models of all families, "
            "bootstrap interval over models",
            Above(0.8),
            measure_rank_order,
            source=NANDA,
            value_range=DIFFERENCE,
            quantity=RANK_CORRELATION,
            judged=Row(RANK_CORRELATION, unit=MODELS, units=MODELS, where={APPROXIMATION: LOSS}),
        ),
        need(
            "attention.known",
            MASS,
            KNOWN,
            Below(0.7),
            "How sharp its pattern is does not distinguish the heads that the answers need.",
            JAIN,
        ),
        gain(
            "values.known",
            NORM,
            MASS,
            KNOWN,
            "Attention weighted by its values distinguishes needed heads better than attention.",
            KOBAYASHI,
        ),
        gain(
            "values.trained",
            NORM,
            MASS,
            TRAINED,
            "Attention weighted by its values distinguishes needed heads better than attention.",
            KOBAYASHI,
        ),
        need(
            "gradient.known",
            PATTERN,
            KNOWN,
            AtLeast(0.8),
            "The gradient of the pattern distinguishes needed heads.",
            MICHEL,
        ),
        need(
            "patching.known",
            LOSS,
            KNOWN,
            AtLeast(0.9),
            "Attribution patching distinguishes needed heads of hand-written models.",
            NANDA,
        ),
        Claim(
            id="patching.compiled",
            source=NANDA,
            statement="Attribution patching distinguishes needed heads of compiled programs.",
            method=f"{LOSS}, {COMPILED}: AUROC over pairs of a needed and another head of the same program, over all "
            "programs",
            rule=Value(AtLeast(0.9)),
            preregistration=Preregistration(
                "after a result",
                "0.86 [0.74, 0.94], by the same bar, when the interval took the programs as a sample. They are all "
                "programs of ours, so the number has none.",
            ),
            value_range=SHARE,
            quantity=f"AUROC of {LOSS}",
            packs=packs,
            measure=partial(measure_auroc_of_programs, packs=packs, method=LOSS),
            judged=Row(AREA, unit="programs", units="programs", exact=True),
        ),
        need(
            "patching.trained",
            LOSS,
            TRAINED,
            AtLeast(0.9),
            "Attribution patching distinguishes needed heads of trained models.",
            NANDA,
        ),
        gain(
            "direct.known",
            LOGIT,
            DIRECT,
            KNOWN,
            "Direct logit attribution misses needed heads that act through later heads: patching is better.",
            OURS,
        ),
        wrong("redundancy.patching", LOSS, REDUNDANT, "Attribution patching misses redundant heads.", KRAMAR),
        wrong("redundancy.alone", EXACT, REDUNDANT, "Removing heads one at a time misses redundant heads.", KRAMAR),
        wrong(
            "cancellation.patching",
            LOSS,
            CANCELLED,
            "Attribution patching finds heads that cancel each other to be needed.",
            OURS,
        ),
        Claim(
            id="pattern.attention",
            source=JAIN,
            statement="Attention mass finds readable heads that are not needed.",
            method=f"{MASS}, {KNOWN}: share of the {table.CAUSES[DECOY]} that are found. A head is found if its share "
            "of the largest score of its model is at or above a bar: that with the largest difference between the "
            "share of needed heads and the share of idle heads that are found (Youden 1950), the highest if there are "
            "several. Bootstrap interval over models, with the bar chosen again in each resample",
            rule=Above(0.5),
            preregistration=Preregistration(
                "after a result",
                "0.68 [0.63, 0.74] on 159 models, and 0.52 on today's 186, when the bar was the score that 95 % of "
                "the idle heads did not exceed, where many of them are, and heads were the units. The rule for the "
                "bar was chosen after that, before its number.",
                looks=1,
            ),
            value_range=SHARE,
            quantity="share of unused readable heads that are found",
            packs=KnownAnswers(),
            measure=measure_decoys,
            judged=Row(UNUSED, unit=MODELS, units=MODELS, where={"bar": BEST}),
        ),
        saturated("saturation.trained", TRAINED),
    )
