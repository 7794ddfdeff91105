"""Dyck languages and two-layer transformers that more than one study trains."""

from dataclasses import replace
from typing import Any

from case_studies.frame.evidence import Size
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Dyck
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

WORDS = Dyck(words="complete", loss_on="closers")
"""Complete words of up to 28 brackets: the paper's main setting."""
GPT_PREFIXES = Dyck()
"""Prefixes with a loss on every token: two layers learn them in 700 steps; with a loss on closers they need more."""


def two_layer_models(size: Size, seeds: int, **sizes: Any) -> list[ModelSpec]:
    """Two-layer transformers, on prefixes at size quick: they learn complete words too slowly for minutes."""
    task = GPT_PREFIXES if size == "quick" else WORDS
    return seeded(task, config_for(task, "dyck_gpt", **sizes), two_layer_settings(size, task), seeds)


def two_layer_settings(size: Size, task: Dyck) -> TrainSettings:
    """The paper uses 40 epochs at 3e-3. Prefixes are learned fastest at 6e-3, where some seeds get stuck on words."""
    if size == "paper":
        return paper_settings(task, 40, 3e-3)
    if size == "quick":
        return dyck_settings(700, 24, 6e-3)
    return dyck_settings(1400, 24 if task is GPT_PREFIXES else 48, 3e-3)


def dyck_settings(steps: int, batch_size: int, learning_rate: float) -> TrainSettings:
    """Training settings of every Dyck model."""
    return TrainSettings(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=0.0,
        eval_every=max(50, steps // 4),
        n_eval=300,
        checkpoint_every=500,
    )


def paper_settings(task: Dyck, epochs: int, learning_rate: float) -> TrainSettings:
    """The paper's: 100,000 tokens (10,500 words or 3,572 prefixes) in batches of 100."""
    n_train = 3572 if task.words == "prefixes" else 10_500
    return replace(dyck_settings(epochs * (n_train // 100), 100, learning_rate), n_train=n_train)
