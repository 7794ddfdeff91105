"""Claims about the algorithm that template models compute: an equality test, or a shortcut."""

from functools import partial

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.rules import Above
from case_studies.recipes.algorithms import AlgorithmFor, measure_decided_algorithm_share
from case_studies.recipes.template_models import A_AND_B
from case_studies.template.answers import WHERE
from case_studies.template.models import PSYCHOMETRIC
from case_studies.template.solved import GROUPS
from interp.algorithms import equality, first_symbol, majority_symbol

SEEN = Preregistration(
    "after first models",
    "these models, judged by other claims; none had been tested for an algorithm. After a result undecided models "
    "count either way, which changed no verdict.",
)


def _claim(
    name: str, description: str, groups: tuple[str, ...], rivals: tuple[AlgorithmFor, ...], against: str
) -> Claim:
    return Claim(
        id=f"algorithm.equality.{name}",
        source="ours, after template paper, Section 2: which symbols are equal decides the template",
        statement=f"Most models that have learned {description} compute the equality test.",
        method="Share of the models that have learned their task, on unseen symbols, which `interp.implements` finds "
        "to "
        f"compute which symbols are equal, against {against}; exact interval over models, where undecided ones may be "
        "either",
        rule=Above(0.5),
        preregistration=SEEN,
        quantity="share of models",
        value_range=SHARE,
        needs=groups,
        measure=partial(measure_decided_algorithm_share, groups=groups, algorithm=equality, rivals=rivals),
        **WHERE,
    )


SHORTCUTS = (first_symbol, majority_symbol)
WHICH = "seeing only where the first symbol is again, and only how often symbols occur"
CLAIMS = (
    _claim(
        "aba-abb",
        "aba against abb",
        tuple(GROUPS.values()),
        (majority_symbol,),
        "seeing only how often symbols occur (where the first symbol is again decides aba against abb too, and so is "
        "no rival)",
    ),
    _claim(
        "psychometric", "psychometric tasks", tuple(f"psychometric {name}" for name in PSYCHOMETRIC), SHORTCUTS, WHICH
    ),
    _claim("programs", "which symbol a program prints", (f"symbolic programs {A_AND_B}",), SHORTCUTS, WHICH),
)
