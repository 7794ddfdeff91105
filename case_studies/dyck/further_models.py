"""Further models of the Dyck study: layers of Eq. 6 trained (Appendix C.7), prefixes with linear positions (D.2)."""

from collections.abc import Mapping, Sequence

from case_studies.frame.evidence import Size
from case_studies.recipes.dyck_models import GPT_PREFIXES, WORDS, paper_settings, two_layer_settings
from interp.sweeps.spec import ModelSpec, seeded
from interp.training.configs import config_for

SEEDS: Mapping[Size, dict[str, int]] = {
    "quick": {"eq6": 0, "linear": 0},
    "standard": {"eq6": 8, "linear": 16},
    "paper": {"eq6": 30, "linear": 30},
}
"""Models of each group."""


def further_groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Both groups at a size; empty at size quick, which does not train them.

    Layers of Eq. 6 have the paper's 40 epochs at standard too: with a tenth of the words they stay below 0.95.
    """
    n = SEEDS[size]
    eq6 = config_for(WORDS, "dyck_eq6")
    linear = config_for(GPT_PREFIXES, "dyck_gpt", positions="linear")
    return {
        "eq6": seeded(WORDS, eq6, paper_settings(WORDS, 40, 3e-3), n["eq6"]),
        "gpt-prefixes-linear": seeded(GPT_PREFIXES, linear, two_layer_settings(size, GPT_PREFIXES), n["linear"]),
    }
