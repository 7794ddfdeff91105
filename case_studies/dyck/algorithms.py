"""Claims about the algorithm that Dyck models compute: the top of a stack is looked up, or brackets are counted."""

from functools import partial

from case_studies.dyck.heads import GROUPS, MINIMAL
from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, SIZES
from case_studies.frame.rules import Below
from case_studies.recipes.algorithms import AlgorithmFor, measure_algorithm_share, measure_decided_algorithm_share
from interp.algorithms import bracket_stack, depth_counter

SEEN = Preregistration(
    "after first models", "these models, trained and judged by other claims; none had been tested for an algorithm."
)
LATER = Preregistration(
    "after a result",
    "38 of the 60 models were undecided, and counted as not computing it; since then undecided ones count either way.",
)
WHY_NOT = "Interchanges in two layers take longer than this size allows."
ALGORITHMS: dict[str, tuple[AlgorithmFor, AlgorithmFor, str]] = {
    "stack": (bracket_stack, depth_counter, "look up the top of the stack"),
    "counter": (depth_counter, bracket_stack, "count brackets of each type and depth"),
}
SOURCES = {
    "stack": "ours, after bounded Dyck, Section 4: stack-like attention is not what training finds",
    "counter": "ours, after bounded Dyck, Corollary 1 and Eq. 11: counting satisfies the balance condition",
}


def _claim(name: str, kind: str, groups: tuple[str, ...]) -> Claim:
    algorithm, rival, description = ALGORITHMS[name]
    large = kind == "two-layer"
    either = ", where undecided ones may be either" if large else ""
    measure = measure_decided_algorithm_share if large else measure_algorithm_share
    return Claim(
        id=f"algorithm.{name}.{kind}",
        source=SOURCES[name],
        statement=f"Fewer than half of the {kind} models {description}.",
        method="Share of the models that have learned their task which `interp.implements` finds to do so, with the "
        "other "
        f"of the two algorithms as rival; exact interval over models{either}",
        rule=Below(0.5),
        preregistration=LATER if large else SEEN,
        quantity="share of models",
        value_range=SHARE,
        measure=partial(measure, groups=groups, algorithm=algorithm, rivals=(rival,)),
        needs=groups,
        sizes=LARGE_SIZES if large else SIZES,
        sizes_reason=WHY_NOT if large else "",
    )


CLAIMS = tuple(
    _claim(name, kind, groups) for kind, groups in (("two-layer", GROUPS), ("minimal", MINIMAL)) for name in ALGORITHMS
)
