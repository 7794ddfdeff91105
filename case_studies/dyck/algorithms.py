"""Claims about the algorithm that Dyck models compute: the top of a stack is looked up, or brackets are counted."""

from functools import partial

from case_studies.dyck.heads import GROUPS, MINIMAL
from case_studies.frame.algorithms import Make, measure_share
from case_studies.frame.claims import SHARE, Claim, Fixed
from case_studies.frame.rules import Below
from interp.algorithms import bracket_stack, depth_counter

SEEN = Fixed(
    "after first models", "these models, trained and judged by other claims; none had been tested for an algorithm."
)
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
    return Claim(
        id=f"algorithm.{name}.{kind}", source=SOURCES[name],
        statement=f"Fewer than half of the {kind} models {what}.",
        how="Share of the models that have learned their task which `interp.implements` finds to do so, with the other "
        "of the two algorithms as rival; exact interval over models",
        rule=Below(0.5), fixed=SEEN, quantity="share of models", within=SHARE,
        measure=partial(measure_share, groups=groups, algorithm=own, rivals=(rival,)), needs=groups,
    )  # fmt: skip


CLAIMS = tuple(
    _claim(name, kind, groups) for kind, groups in (("two-layer", GROUPS), ("minimal", MINIMAL)) for name in ALGORITHMS
)
