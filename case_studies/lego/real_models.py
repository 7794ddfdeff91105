"""Models that are fine-tuned on chains from real pretrained weights, whole or with some heads initialised again.

Chains of six variables, four of them trained. Every group has the same seeds, which fix the training examples. The
settings were chosen on one model of each start, seed 0, in runs of at most 950 steps.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from case_studies.frame.evidence import Size
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego
from interp.training.configs import config_for
from interp.training.settings import Mimicking, TrainSettings

Heads = tuple[tuple[int, int], ...]
SOURCE = "minilm"
TASK = Lego(n_vars=6, supervised=(0, 1, 2, 3), sentence_format="paper")
CONFIG = config_for(TASK, "bert_encoder", n_layers=6, n_heads=12, d_model=384, head="linear")
"""The config of the pretrained weights for this task."""
SETTINGS = TrainSettings(
    steps=1500,
    batch_size=256,
    learning_rate=1e-4,
    warmup_steps=100,
    decay_share=0.3,
    betas=(0.9, 0.999),
    precision="bfloat16",
    eval_every=50,
    checkpoint_every=250,
)
MIMICKED = replace(SETTINGS, association="mimic", mimicking=Mimicking(steps=500, batch_size=200, learning_rate=2e-4))
LONGER = replace(SETTINGS, steps=6000)
"""For random weights, which stay on a plateau that pretrained ones leave."""
SEEDS = 5
LONGER_SEEDS = 3
ASSOCIATION: Heads = ((1, 1), (2, 9), (0, 6), (3, 5), (0, 8))
"""The heads with the highest association scores on these chains before training, the highest first: .59, .59, .23, .15
and .14. The first two are labelled association."""
MANIPULATION: Heads = ((0, 2), (1, 8), (2, 11), (1, 9), (2, 8))
"""The heads with the highest manipulation scores, the highest first: .74, .61, .57, .52 and .49."""
DOSES = (2, 5)
"""Numbers of heads that are initialised again."""


def real_groups(size: Size) -> dict[str, list[ModelSpec]]:
    """Every group of these models; empty at size quick."""
    seeds = range(0 if size == "quick" else SEEDS)
    random = [ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=seed) for seed in seeds]
    pretrained = [replace(spec, pretrained=SOURCE) for spec in random]
    groups = {
        "real-random": random,
        "real-random-longer": [replace(spec, settings=LONGER) for spec in random[:LONGER_SEEDS]],
        "real-mimic": [replace(spec, settings=MIMICKED) for spec in random],
        "real-pretrained": pretrained,
    }
    for dose in DOSES:
        groups[without("association", dose)] = _without(pretrained, ASSOCIATION[:dose])
        groups[without("manipulation", dose)] = _without(pretrained, MANIPULATION[:dose])
        groups[without("random", dose)] = [replace(spec, fresh_heads=_drawn(spec.seed, dose)) for spec in pretrained]
    return groups


def without(kind: str, dose: int) -> str:
    """Name of the group that starts without so many heads of a kind."""
    return f"real-without-{dose}-{kind}"


def _without(specs: Sequence[ModelSpec], heads: Heads) -> list[ModelSpec]:
    return [replace(spec, fresh_heads=heads) for spec in specs]


def _drawn(seed: int, dose: int) -> Heads:
    """Heads drawn among those that are neither association nor manipulation heads; fewer are the first of more."""
    named = {*ASSOCIATION, *MANIPULATION}
    rest = [(layer, head) for layer, head in np.ndindex(CONFIG.n_layers, CONFIG.n_heads) if (layer, head) not in named]
    order = np.random.default_rng(seed).permutation(len(rest))
    return tuple(rest[index] for index in order[:dose])
