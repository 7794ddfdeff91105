"""Models that are audited: LEGO by weight tying and start, Dyck by positional encoding, template tasks by a I.

Dyck and template models have the same keys as in the Dyck and template studies, so they are trained only once.
"""

from collections.abc import Mapping, Sequence

from case_studies.frame.dyck_models import two_layer_models
from case_studies.frame.evidence import ModelSpec, Size, seeded
from case_studies.frame.template_models import PLAIN, SCALES, A, template_models
from interp.tasks import Lego
from interp.tasks.lego.task import curriculum_to
from interp.training.configs import config_for
from interp.training.settings import Association, TrainSettings

CHAINS = Lego(n_vars=4, sentence_format="compact")
"""Chains that models of width 64 learn in a minute on one core."""
TIED_CURRICULUM = ((2, 100), (3, 350), (4, 550))
"""Tied models need more steps."""
LONGER = 2
"""Factor of the steps without mimicking: with the same steps, 11 of 12 models were below 0.99 on some variable."""
STARTS: dict[str, tuple[bool, Association]] = {
    "lego-untied": (False, "mimic"),
    "lego-tied": (True, "mimic"),
    "lego-untied-unseeded": (False, "query_key"),
    "lego-tied-unseeded": (True, "query_key"),
}
"""Weight tying, and the start: mimicking trains heads 0 and 1 to attend to given positions, or W_K = W_Q at first."""
SEEDS: dict[Size, dict[str, int]] = {
    "quick": {"lego": 2, "unseeded": 0, "dyck": 4, "template": 2},
    "standard": {"lego": 8, "unseeded": 6, "dyck": 12, "template": 5},
    "paper": {"lego": 20, "unseeded": 20, "dyck": 30, "template": 10},
}
LEGO = tuple(STARTS)
DYCK = ("dyck-none", "dyck-linear")
TEMPLATE = ("aba-abb-plain", "aba-abb-identity", "same-different-plain", "same-different-identity")
ALL = (*LEGO, *DYCK, *TEMPLATE)


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; empty where the size does not audit the group."""
    seeds, scale = SEEDS[size], SCALES[size]
    found: dict[str, list[ModelSpec]] = {}
    for name, (tied, start) in STARTS.items():
        curriculum = TIED_CURRICULUM if tied else curriculum_to(CHAINS.n_vars)
        if start != "mimic":
            curriculum = tuple((n_vars, LONGER * steps) for n_vars, steps in curriculum)
        settings = TrainSettings(curriculum=curriculum, association=start)
        n = seeds["lego" if start == "mimic" else "unseeded"]
        found[name] = seeded(CHAINS, config_for(CHAINS, "lego", tied=tied), settings, n)
    for positions in ("none", "linear"):
        found[f"dyck-{positions}"] = two_layer_models(size, seeds["dyck"], positions=positions)
    for name, grid in (("aba-abb", scale.grid), ("same-different", scale.same_different)):
        for label, variant in (("plain", PLAIN), ("identity", A)):
            # the largest training alphabet: its models are the most likely to have learned the task
            largest = template_models(size, name.replace("-", "_"), [max(grid)], variant)
            found[f"{name}-{label}"] = largest[: seeds["template"]]
    return found
