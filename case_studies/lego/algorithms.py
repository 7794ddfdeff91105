"""Claims about the algorithm that LEGO models compute: a loop along the chain, or a count of signs."""

from functools import partial

from case_studies.frame.algorithms import measure_share
from case_studies.frame.claims import SHARE, Claim, Fixed
from case_studies.frame.rules import Above, Below
from case_studies.lego.generalisation import LARGE
from interp.algorithms import chain_loop, nearest_clause, sign_count

LOOP = "ours, after LEGO, Section 4.1: a tied model is like a for-loop"
COUNTING = "ours, after LEGO, Section 4.3: models can count signs in place of following the chain"
SEEN = Fixed(
    "after first models",
    "the first tied model on chains of six: its loop's values #1 and #2 are at no place (0.76, 0.75), after which "
    "places that join a clause and the next use of its variable were added (0.76, 0.83). No other model was tested.",
)
RIVALS = (sign_count, nearest_clause)
WHY_NOT = "Chains of four leave no variable that is neither an input nor an answer before the last one is learned."
TRAINED = "trained on the first variables of chains of"


def _loop(name: str, what: str, group: str, source: str) -> Claim:
    return Claim(
        id=f"algorithm.loop.{name}", source=source, statement=f"Most {what} compute the loop along the chain.",
        how="Share of the models that have learned their task which `interp.implements` finds to implement the loop, "
        "against counting signs and reading the nearest clause; exact interval over models",
        rule=Above(0.5), fixed=SEEN, quantity="share of models", within=SHARE, sizes=LARGE, why_not=WHY_NOT,
        measure=partial(measure_share, groups=(group,), algorithm=chain_loop, rivals=RIVALS), needs=(group,),
    )  # fmt: skip


CLAIMS = (
    _loop("plain-tied", f"tied models {TRAINED} six", "plain-tied", LOOP),
    _loop("long-tied", f"tied models {TRAINED} up to eight", "long-tied", LOOP),
    _loop("plain-untied", f"untied models {TRAINED} six", "plain-untied", "ours, after LEGO, Section 4.1"),
    _loop("long-untied", f"untied models {TRAINED} up to eight", "long-untied", "ours, after LEGO, Section 4.1"),
    Claim(
        id="algorithm.count", source=COUNTING,
        statement="Few models that are trained on the first variables of their chains count signs.",
        how="Share of the models that have learned their task which `interp.implements` finds to implement counting of "
        "signs, against the loop and reading the nearest clause; exact interval over models",
        rule=Below(0.5), fixed=SEEN, quantity="share of models", within=SHARE, sizes=LARGE, why_not=WHY_NOT,
        measure=partial(
            measure_share, groups=("plain-tied", "plain-untied", "long-tied", "long-untied"), algorithm=sign_count,
            rivals=(chain_loop, nearest_clause),
        ),
        needs=("plain-tied", "plain-untied", "long-tied", "long-untied"),
    ),
)  # fmt: skip
