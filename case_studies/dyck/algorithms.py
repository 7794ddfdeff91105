"""Claims about the algorithm that Dyck models compute: the top of a stack is looked up, or brackets are counted."""

from functools import partial

from case_studies.dyck.heads import GROUPS, MINIMAL
from case_studies.frame.claims import SHARE, Claim, Fixed
from case_studies.frame.evidence import LARGE, SIZES
from case_studies.frame.rules import Below
from case_studies.recipes.algorithms import Make, measure_decided_share, measure_share
from interp.algorithms import bracket_stack, depth_counter

SEEN = Fixed(
    "after first models", "these models, trained and judged by other claims; none had been tested for an algorithm."
)
LATER = Fixed(
    "after a result",
    "38 of the 60 models were undecided, and counted as not computing it; since then undecided ones count either way.",
)
WHY_NOT = "Interchanges in two layers take longer than this size allows."
ALGORITHMS: dict[str, tuple[Make, Make, str]] = {
    "stack": (bracket_stack, depth_counter, "look up the top of the stack"),
    "counter": (depth_counter, bracket_stack, "count brackets of each type and depth"),
}
SOURCES = {
    "stack": "ours, after bounded Dyck, Section 4: stack-like attention is not what training finds",
    "counter": "ours, after bounded Dyck, Corollary 1 and Eq. 11: counting satisfies the balance condition",
}


def _claim(name: str, kind: str, groups: tuple[str, ...]) -> Claim:
    own, rival, what = ALGORITHMS[name]
    large = kind == "two-layer"
    either = ", where undecided ones may be either" if large else ""
    measure = measure_decided_share if large else measure_share
    return Claim(
        id=f"algorithm.{name}.{kind}", source=SOURCES[name],
        statement=f"Fewer than half of the {kind} models {what}.",
        how="Share of the models that have learned their task which `interp.implements` finds to do so, with the other "
        f"of the two algorithms as rival; exact interval over models{either}",
        rule=Below(0.5), fixed=LATER if large else SEEN, quantity="share of models", within=SHARE,
        measure=partial(measure, groups=groups, algorithm=own, rivals=(rival,)), needs=groups,
        sizes=LARGE if large else SIZES, why_not=WHY_NOT if large else "",
    )  # fmt: skip


CLAIMS = tuple(
    _claim(name, kind, groups) for kind, groups in (("two-layer", GROUPS), ("minimal", MINIMAL)) for name in ALGORITHMS
)
