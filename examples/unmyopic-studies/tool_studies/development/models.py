"""Models of the development study: small trainings that keep snapshots, and the labels of their heads at each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from case_studies.frame.evidence import Evidence, Size, once_per_model
from case_studies.recipes.lego_models import chain_models
from case_studies.recipes.seeds import more_seeds, with_seeds
from interp.comparison.over_training import OverTraining, over_training
from interp.heads.classify import classify_heads
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Lego
from interp.training.configs import config_for
from interp.training.settings import TrainSettings
from interp.training.snapshots import snapshot_steps

SEEDS: Mapping[Size, int] = {"quick": 2, "standard": 8, "paper": 20}
LOGARITHMIC: Mapping[Size, int] = {"quick": 6, "standard": 12, "paper": 24}
"""Snapshots with a constant ratio of steps."""
EVEN: Mapping[Size, int] = {"quick": 3, "standard": 10, "paper": 20}
"""Snapshots with a constant difference of steps, for what happens late."""
SEQUENCES: Mapping[Size, int] = {"quick": 100, "standard": 250, "paper": 500}
"""Sequences of an analysis at one snapshot."""
LAST_ONE = Lego(n_vars=5, supervised=(0, 1, 4))
"""Chains of which the first two variables and the last are supervised: the last can be learned by counting signs."""
ALONE = Lego(n_vars=3, sentence_format="compact")
"""Chains that models learn without mimicking; of four variables none of eight models did in 1400 steps."""
SHORTCUT_STEPS: Mapping[Size, int] = {"quick": 400, "standard": 1000, "paper": 1000}
CHAINS = ("chains", "chains without mimicking")
NO_MODELS = (0.0, 0.0, 1.0)
"""Share and interval if no model is judged."""
FURTHER = more_seeds(CHAINS[1])
FURTHER_SEEDS = 12
"""Models of this group at size standard, for claims that the ordinary number could not decide."""


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models, with snapshots; empty where the size leaves the group out."""
    seeds = SEEDS[size]
    shortcut = TrainSettings(steps=SHORTCUT_STEPS[size], eval_every=100)
    chain_settings = TrainSettings(steps=2000 if size != "quick" else 400, eval_every=100)
    chains = seeded(ALONE, config_for(ALONE, "lego", n_layers=4), chain_settings, seeds)
    groups = {
        CHAINS[0]: chain_models(seeds, tied=False, association="mimic") if size != "quick" else [],
        CHAINS[1]: chains,
        FURTHER: with_seeds(chains, FURTHER_SEEDS, size),
        "shortcut": seeded(LAST_ONE, config_for(LAST_ONE, "lego", n_layers=6), shortcut, seeds),
    }
    return {name: [with_snapshots(spec, size) for spec in specs] for name, specs in groups.items()}


def with_snapshots(spec: ModelSpec, size: Size) -> ModelSpec:
    """The same training, which keeps snapshots: early ones with a constant ratio of steps, late ones evenly."""
    total = spec.settings.total_steps
    even = np.linspace(0, total, EVEN[size] + 1).round().astype(int).tolist()
    steps = tuple(sorted({*snapshot_steps(LOGARITHMIC[size], total), *even}))
    return replace(spec, settings=replace(spec.settings, snapshots=steps))


def step_text(step: float) -> str:
    """An onset as text; one that is not finite has not come by the end of training."""
    return f"{step:.0f}" if np.isfinite(step) else "not by the end"


@once_per_model
def looks(evidence: Evidence, spec: ModelSpec) -> OverTraining:
    """Scores and labels of all heads at each snapshot."""
    return over_training(evidence.run(spec), classify_heads, n=SEQUENCES[evidence.size], seed=evidence.seed)
