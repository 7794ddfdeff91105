"""Claims about the algorithm that LEGO models compute: a loop along the chain, or a count of signs."""

from dataclasses import replace
from functools import partial

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.lego.shortcut import BROKEN
from case_studies.recipes.algorithms import implements_test, measure_algorithm_share, measure_decided_algorithm_share
from case_studies.recipes.learned import has_learned
from interp.algorithms import chain_loop, nearest_clause, sign_count
from interp.theory.signs import sign_counting

LOOP = "ours, after LEGO, Section 4.1: a tied model is like a for-loop"
COUNTING = "ours, after LEGO, Section 4.3: models can count signs in place of following the chain"
SEEN = Preregistration(
    "after first models",
    "the first tied model on chains of six: its loop's values #1 and #2 are at no place (0.76, 0.75), after which "
    "places that join a clause and the next use of its variable were added (0.76, 0.83). No other model was tested.",
)
RIVALS = (sign_count, nearest_clause)
COUNTED = (sign_count, chain_loop, nearest_clause)
WHY_NOT = "Chains of four leave no variable that is neither an input nor an answer before the last one is learned."
TRAINED = "trained on the first variables of chains of"


def _loop(name: str, models: str, group: str, source: str) -> Claim:
    return Claim(
        id=f"algorithm.loop.{name}",
        source=source,
        statement=f"Most {models} compute the loop along the chain.",
        method="Share of the models that have learned their task which `interp.implements` finds to implement the "
        "loop, against counting signs and reading the nearest clause; exact interval over models",
        rule=Above(0.5),
        preregistration=SEEN,
        quantity="share of models",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=WHY_NOT,
        measure=partial(measure_algorithm_share, groups=(group,), algorithm=chain_loop, rivals=RIVALS),
        needs=(group,),
    )


SIGNS = ("classical-tied", "classical-untied", "start-random", "start-mimic", "start-query-key")
FURTHER = ("spare-tied", "spare-untied", "untaught-tied", "untaught-untied")
"""The other arms over signs whose first variables are supervised, in two parts."""
LAST = ("shortcut-random", "shortcut-mimic", "mimic-last")
"""Arms whose last variable is supervised, and some before it are not."""
MORE_SEEN = Preregistration(
    "after first models",
    "the verdicts of plain and long arms, all of them neither; none of these models had been tested.",
)
STOCHASTIC_SEEN = Preregistration(
    "after first models",
    "the verdicts of the other arms, none of them the loop; no model with stochastic depth had been tested.",
)
COUNT_SEEN = Preregistration(
    "after a result",
    "all 8 models that know the last variable were undecided, and counted as not counting; since then undecided models "
    "count either way.",
)
EITHER = "exact interval over models, where undecided ones may be either"
HOW = "Share of the models that have learned their task which `interp.implements` finds to"


def measure_count(evidence: Evidence) -> Measurement:
    """Share of the models that count signs, and what they answer when the chain is broken."""
    # Beside each verdict, the answers on broken chains, which only a count of signs determines
    rows: list[list] = [["group", "seed", "verdict", "answer is the parity of signs, chain broken"]]
    for group in LAST:
        for spec in evidence.specs(group):
            if has_learned(evidence, spec):
                verdict = implements_test(evidence, spec, *COUNTED).verdict
                broken = sign_counting(evidence.run(spec).model, spec.task, n=BROKEN, seed=evidence.seed)
                row = broken.measures.index("broken")
                rows.append([group, spec.seed, verdict, broken.share[row, -1].text()])
    measurement = measure_decided_algorithm_share(evidence, groups=LAST, algorithm=sign_count, rivals=COUNTED[1:])
    title = "The last variable of broken chains, where only a count has an answer; chance is 0.5"
    return replace(measurement, tables=[*measurement.tables, (title, rows)])


CLAIMS = (
    _loop("plain-tied", f"tied models {TRAINED} six", "plain-tied", LOOP),
    _loop("long-tied", f"tied models {TRAINED} up to eight", "long-tied", LOOP),
    _loop("plain-untied", f"untied models {TRAINED} six", "plain-untied", "ours, after LEGO, Section 4.1"),
    _loop("long-untied", f"untied models {TRAINED} up to eight", "long-untied", "ours, after LEGO, Section 4.1"),
    *(
        Claim(
            id=f"algorithm.loop.{name}",
            source=LOOP,
            statement=f"Most {models} compute the loop.",
            method=f"{HOW} implement the loop, against counting signs and reading the nearest clause; {EITHER}",
            rule=Above(0.5),
            preregistration=prior_knowledge,
            quantity="share of models",
            value_range=SHARE,
            sizes=LARGE_SIZES,
            sizes_reason=WHY_NOT,
            measure=partial(measure_decided_algorithm_share, groups=groups, algorithm=chain_loop, rivals=RIVALS),
            needs=groups,
        )
        for name, models, groups, prior_knowledge in (
            ("signs", "models that are trained on every variable, or begin in different ways,", SIGNS, MORE_SEEN),
            ("further", "models with spare layers, or without mimicking,", FURTHER, MORE_SEEN),
            ("stochastic", "tied models trained with stochastic depth", ("long-stochastic",), STOCHASTIC_SEEN),
        )
    ),
    Claim(
        id="algorithm.loop.groups",
        source=LOOP,
        statement="Most models of chains over S3 and Z5 compute the loop.",
        method=f"{HOW} implement the loop, against reading the nearest clause; {EITHER}",
        rule=Above(0.5),
        preregistration=MORE_SEEN,
        quantity="share of models",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=WHY_NOT,
        measure=partial(
            measure_decided_algorithm_share,
            groups=("group-s3", "group-z5"),
            algorithm=chain_loop,
            rivals=(nearest_clause,),
        ),
        needs=("group-s3", "group-z5"),
    ),
    Claim(
        id="algorithm.count",
        source=COUNTING,
        statement="Most models that learn the last variable without those before it count signs.",
        method=f"{HOW} implement counting of signs, against the loop and reading the nearest clause; {EITHER}",
        rule=Above(0.5),
        preregistration=COUNT_SEEN,
        quantity="share of models",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=WHY_NOT,
        measure=measure_count,
        needs=LAST,
    ),
)
