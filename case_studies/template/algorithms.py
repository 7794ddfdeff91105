"""The claim about the algorithm that template models compute: an equality test, or a shortcut."""

from functools import partial

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.rules import Above
from case_studies.recipes.algorithms import IMPLEMENTING_OR_UNDECIDED, algorithm_verdicts
from case_studies.template.answers import WHERE
from case_studies.template.solved import GROUPS
from interp.algorithms import equality, majority_symbol

MODELS = tuple(GROUPS.values())

CLAIMS = (
    Claim(
        id="algorithm.equality.aba-abb",
        source="ours, after template paper, Section 3: which symbols are equal decides the template",
        statement="Most models that have learned aba against abb compute the equality test.",
        method="Share of the models that have learned their task, on unseen symbols, which `interp.implements` finds "
        "to compute which symbols are equal, against seeing only how often symbols occur (where the first symbol is "
        "again decides aba against abb too, and so is no rival); exact interval over models, where undecided ones may "
        "be either",
        rule=Above(0.5),
        preregistration=Preregistration(
            "after first models",
            "these models, judged by other claims; none had been tested for an algorithm. After a result undecided "
            "models count either way, which changed no verdict.",
        ),
        quantity="share of models",
        value_range=SHARE,
        needs=MODELS,
        measure=partial(algorithm_verdicts, groups=MODELS, algorithm=equality, rivals=(majority_symbol,)),
        judged=IMPLEMENTING_OR_UNDECIDED,
        **WHERE,
    ),
)
