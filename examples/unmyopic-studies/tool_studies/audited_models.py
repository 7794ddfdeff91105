"""Models that are audited: LEGO by weight tying and start, Dyck by positional encoding, template tasks by a I.

Dyck, template and LEGO models without mimicking have the same keys as in their own studies, so they are trained only
once.
"""

from collections.abc import Mapping, Sequence

from case_studies.frame.evidence import Size
from case_studies.recipes.dyck_models import two_layer_models
from case_studies.recipes.lego_models import chain_models
from case_studies.recipes.seeds import more_seeds, with_seeds
from case_studies.recipes.template_models import PLAIN, SCALES, A, template_models
from interp.sweeps.spec import ModelSpec
from interp.training.settings import Association

STARTS: dict[str, tuple[bool, Association]] = {
    "lego-untied": (False, "mimic"),
    "lego-tied": (True, "mimic"),
    "lego-untied-unseeded": (False, "query_key"),
    "lego-tied-unseeded": (True, "query_key"),
}
"""Weight tying, and the start: mimicking trains heads 0 and 1 to attend to given positions, or W_K = W_Q at first."""
SEEDS: dict[Size, dict[str, int]] = {
    "quick": {"untied": 2, "tied": 0, "unseeded": 0, "dyck": 4, "template": 2},
    "standard": {"untied": 8, "tied": 8, "unseeded": 6, "dyck": 12, "template": 5},
    "paper": {"untied": 20, "tied": 20, "unseeded": 20, "dyck": 30, "template": 10},
}
SAME_DIFFERENT: dict[Size, int] = {"quick": 512, "standard": 512, "paper": 4096}
"""Training strings of the audited models of same against different."""
LEGO = tuple(STARTS)
NO_MIMICKING = tuple(name for name, (_, start) in STARTS.items() if start != "mimic")
FURTHER_SEEDS = 10
"""Models of each group without mimicking at size standard, for a claim that the ordinary number could not decide."""
DYCK = ("dyck-none", "dyck-linear")
TEMPLATE = ("aba-abb-plain", "aba-abb-identity", "same-different-plain", "same-different-identity")
AUDITED_GROUPS = (*LEGO, *DYCK, *TEMPLATE)


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; empty where the size does not audit the group."""
    seeds, scale = SEEDS[size], SCALES[size]
    specs_by_group: dict[str, list[ModelSpec]] = {}
    # LEGO by weight tying and start, with further seeds of the models without mimicking
    for name, (tied, start) in STARTS.items():
        kind = "tied" if tied else "untied"
        if start != "mimic":
            kind = "unseeded"
        specs_by_group[name] = chain_models(seeds[kind], tied=tied, association=start)
        if name in NO_MIMICKING:
            specs_by_group[more_seeds(name)] = with_seeds(specs_by_group[name], FURTHER_SEEDS, size)
    # Dyck by positional encoding
    for positions in ("none", "linear"):
        specs_by_group[f"dyck-{positions}"] = two_layer_models(size, seeds["dyck"], positions=positions)
    # Template tasks with and without a I, with a large training alphabet: such models are most likely to have learned
    for name, n in (("aba-abb", max(scale.grid)), ("same-different", SAME_DIFFERENT[size])):
        for label, variant in (("plain", PLAIN), ("identity", A)):
            large = template_models(size, name.replace("-", "_"), [n], variant)
            specs_by_group[f"{name}-{label}"] = large[: seeds["template"]]
    return specs_by_group
