"""Claims about the algorithm that minimal Dyck models compute: the top of a stack is looked up, or brackets counted."""

from functools import partial

from case_studies.dyck.heads import MINIMAL
from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.rules import Below
from case_studies.recipes.algorithms import IMPLEMENTING, AlgorithmFor, algorithm_verdicts
from interp.algorithms import bracket_stack, depth_counter

SEEN = Preregistration(
    "after first models", "these models, trained and judged by other claims; none had been tested for an algorithm."
)
ALGORITHMS: dict[str, tuple[AlgorithmFor, AlgorithmFor, str]] = {
    "stack": (bracket_stack, depth_counter, "look up the top of the stack"),
    "counter": (depth_counter, bracket_stack, "count brackets of each type and depth"),
}
SOURCES = {
    "stack": "ours, after bounded Dyck, Section 4: stack-like attention is not what training finds",
    "counter": "ours, after bounded Dyck, Corollary 1 and Eq. 11: counting satisfies the balance condition",
}


def _claim(name: str) -> Claim:
    algorithm, rival, description = ALGORITHMS[name]
    return Claim(
        id=f"algorithm.{name}.minimal",
        source=SOURCES[name],
        statement=f"Fewer than half of the minimal models {description}.",
        method="Share of the models that have learned their task which `interp.implements` finds to do so, with the "
        "other of the two algorithms as rival; exact interval over models",
        rule=Below(0.5),
        preregistration=SEEN,
        quantity="share of models",
        value_range=SHARE,
        measure=partial(algorithm_verdicts, groups=MINIMAL, algorithm=algorithm, rivals=(rival,)),
        judged=IMPLEMENTING,
        needs=MINIMAL,
    )


CLAIMS = tuple(map(_claim, ALGORITHMS))
