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
ALGORITHMS: dict[str, tuple[AlgorithmFor, AlgorithmFor]] = {
    "stack": (bracket_stack, depth_counter),
    "counter": (depth_counter, bracket_stack),
}


def _claim(name: str) -> Claim:
    algorithm, rival = ALGORITHMS[name]
    return Claim(
        id=f"algorithm.{name}.minimal",
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
