"""Which trained models are audited? LEGO by tying and start, Dyck by positions, template tasks by a I.

Dyck and template models are those of their own studies, under the same keys: nothing is trained twice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from case_studies.dyck.models import groups as dyck_groups
from case_studies.frame.claims import Size
from case_studies.frame.evidence import ModelSpec
from case_studies.frame.template_models import PLAIN, A
from case_studies.template.models import groups as template_groups
from interp.tasks import Lego
from interp.training.configs import config_for
from interp.training.settings import Association, TrainSettings, curriculum_to

CHAINS = Lego(n_vars=4, sentence_format="compact")
"""Chains that models of width 64 learn in a minute on one core."""
TIED_CURRICULUM = ((2, 100), (3, 350), (4, 550))
"""One block applied again and again takes longer."""
STARTS: dict[str, tuple[bool, Association]] = {
    "lego-untied": (False, "mimic"),
    "lego-tied": (True, "mimic"),
    "lego-untied-unseeded": (False, "query_key"),
    "lego-tied-unseeded": (True, "query_key"),
}
"""Tied or not, and the start: heads 0 and 1 are taught where to look, or all start with W_K = W_Q."""
SEEDS: dict[Size, dict[str, int]] = {
    "quick": {"lego": 2, "unseeded": 0, "dyck": 4, "template": 2},
    "standard": {"lego": 8, "unseeded": 6, "dyck": 12, "template": 5},
    "paper": {"lego": 20, "unseeded": 20, "dyck": 30, "template": 10},
}
TEMPLATES = ("aba-abb", "same-different")
LEGO = tuple(STARTS)
DYCK = ("dyck-none", "dyck-linear")
TEMPLATE = ("aba-abb-plain", "aba-abb-identity", "same-different-plain", "same-different-identity")
ALL = (*LEGO, *DYCK, *TEMPLATE)


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; a group that a size does not audit is empty."""
    seeds = SEEDS[size]
    found: dict[str, list[ModelSpec]] = {}
    for name, (tied, start) in STARTS.items():
        found[name] = _lego(seeds["lego" if start == "mimic" else "unseeded"], tied, start)
    dyck = dyck_groups(size)
    found["dyck-none"] = list(dyck["gpt"])[: seeds["dyck"]]
    found["dyck-linear"] = list(dyck["gpt-linear"])[: seeds["dyck"]]
    template = template_groups(size)
    for name in TEMPLATES:
        for variant, label in ((PLAIN, "plain"), (A, "identity")):
            found[f"{name}-{label}"] = _most_symbols(template[f"{name} {variant}"], seeds["template"])
    return found


def _lego(seeds: int, tied: bool, start: Association) -> list[ModelSpec]:
    config = config_for(CHAINS, "lego", tied=tied)
    curriculum = TIED_CURRICULUM if tied else curriculum_to(CHAINS.n_vars)
    settings = TrainSettings(curriculum=curriculum, association=start)
    return [ModelSpec(task=CHAINS, config=config, settings=settings, seed=seed) for seed in range(seeds)]


def _most_symbols(specs: Sequence[ModelSpec], seeds: int) -> list[ModelSpec]:
    """The models of the largest training alphabet among these: the ones that have most likely learned."""
    sizes: list[Any] = [getattr(spec.task, "train", 0) for spec in specs]
    return [spec for spec, n in zip(specs, sizes, strict=True) if n == max(sizes)][:seeds]
