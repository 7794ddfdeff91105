"""Claims about the algorithm that LEGO models compute: do they implement a loop along the chain?"""

from functools import partial

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES
from case_studies.frame.rules import Above
from case_studies.recipes.algorithms import IMPLEMENTING, IMPLEMENTING_OR_UNDECIDED, algorithm_verdicts
from interp.algorithms import chain_loop, nearest_clause, sign_count

SEEN = Preregistration(
    "after first models",
    "the first tied model on chains of six: its loop's values #1 and #2 are at no place (0.76, 0.75), after which "
    "places that join a clause and the next use of its variable were added (0.76, 0.83). No other model was tested.",
)
RIVALS = (sign_count, nearest_clause)
WHY_NOT = "Chains of four leave no variable that is neither an input nor an answer before the last one is learned."


def _loop(name: str, group: str) -> Claim:
    return Claim(
        id=f"algorithm.loop.{name}",
        method="Share of the models that have learned their task which `interp.implements` finds to implement the "
        "loop, against counting signs and reading the nearest clause; exact interval over models",
        rule=Above(0.5),
        preregistration=SEEN,
        quantity="share of models",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=WHY_NOT,
        measure=partial(algorithm_verdicts, groups=(group,), algorithm=chain_loop, rivals=RIVALS),
        judged=IMPLEMENTING,
        needs=(group,),
    )


MORE_SEEN = Preregistration(
    "after first models",
    "the verdicts of plain and long arms, all of them neither; none of these models had been tested.",
)
STOCHASTIC_SEEN = Preregistration(
    "after first models",
    "the verdicts of the other arms, none of them the loop; no model with stochastic depth had been tested.",
)
EITHER = "exact interval over models, where undecided ones may be either"
HOW = "Share of the models that have learned their task which `interp.implements` finds to"
CLAIMS = (
    _loop("plain-tied", "plain-tied"),
    _loop("long-tied", "long-tied"),
    _loop("plain-untied", "plain-untied"),
    _loop("long-untied", "long-untied"),
    Claim(
        id="algorithm.loop.stochastic",
        method=f"{HOW} implement the loop, against counting signs and reading the nearest clause; {EITHER}",
        rule=Above(0.5),
        preregistration=STOCHASTIC_SEEN,
        quantity="share of models",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=WHY_NOT,
        measure=partial(algorithm_verdicts, groups=("long-stochastic",), algorithm=chain_loop, rivals=RIVALS),
        judged=IMPLEMENTING_OR_UNDECIDED,
        needs=("long-stochastic",),
    ),
    Claim(
        id="algorithm.loop.groups",
        method=f"{HOW} implement the loop, against reading the nearest clause; {EITHER}",
        rule=Above(0.5),
        preregistration=MORE_SEEN,
        quantity="share of models",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=WHY_NOT,
        measure=partial(
            algorithm_verdicts, groups=("group-s3", "group-z5"), algorithm=chain_loop, rivals=(nearest_clause,)
        ),
        judged=IMPLEMENTING_OR_UNDECIDED,
        needs=("group-s3", "group-z5"),
    ),
)
