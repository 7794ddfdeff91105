"""LEGO chains and small transformers that more than one study trains."""

from interp.sweeps.spec import ModelSpec, seeded
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


def chain_models(seeds: int, *, tied: bool, association: Association) -> list[ModelSpec]:
    """Models of `CHAINS`, trained with a curriculum, twice as long without mimicking."""
    curriculum = TIED_CURRICULUM if tied else curriculum_to(CHAINS.n_vars)
    if association != "mimic":
        curriculum = tuple((n_vars, LONGER * steps) for n_vars, steps in curriculum)
    settings = TrainSettings(curriculum=curriculum, association=association)
    return seeded(CHAINS, config_for(CHAINS, "lego", tied=tied), settings, seeds)
