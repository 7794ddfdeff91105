"""Models of the language study: a small GPT-2, plain and with a I and b I, by size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from case_studies.frame.claims import Preregistration
from case_studies.frame.evidence import Size
from interp.sweeps.spec import ModelSpec
from interp.tasks import Text
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

# a I adds a_h x x^T to the scores of head h, b I adds b_h A_h x to its output; a_h and b_h are learned scalars
PLAIN, WITH_IDENTITIES = "gpt2 plain", "gpt2 + a I, b I"
VARIANTS: dict[str, dict[str, Any]] = {PLAIN: {}, WITH_IDENTITIES: {"qk_identity": True, "vo_identity": True}}
"""Config fields of each group, added to those of the preset."""
PRESET = "gpt"


def after_larger_models(prior_knowledge: str) -> Preregistration:
    """When rules were fixed: after models of twice the width, whose result is `prior_knowledge`, and before these."""
    return Preregistration(
        "after a result",
        f"{prior_knowledge} over three models of 1.1 million weights, which were not measured again. Those of this "
        "size, and their numbers, were fixed before any of them was measured.",
        looks=1,
    )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Models and training at one size of the study."""

    dimensions: Mapping[str, int]
    """Config fields: d_model, n_heads, n_layers."""
    vocab_size: int
    n_ctx: int
    steps: int
    tokens_per_step: int
    learning_rate: float
    n_seeds: int
    """Plain models."""
    n_pairs: int
    """Models with the scalars, each compared with the plain one of its seed."""
    n_windows: int
    """Number of held-out windows for perplexity."""


SCALES: dict[Size, Scale] = {
    "quick": Scale(
        dimensions={"d_model": 64, "n_heads": 4, "n_layers": 2},
        vocab_size=512,
        n_ctx=64,
        steps=150,
        tokens_per_step=1024,
        learning_rate=3e-3,
        n_seeds=3,
        n_pairs=3,
        n_windows=200,
    ),
    "standard": Scale(
        dimensions={"d_model": 64, "n_heads": 4, "n_layers": 4},
        vocab_size=1024,
        n_ctx=128,
        steps=800,
        tokens_per_step=2048,
        learning_rate=2e-3,
        n_seeds=8,
        n_pairs=6,
        n_windows=500,
    ),
    "paper": Scale(
        dimensions={"d_model": 768, "n_heads": 12, "n_layers": 12},
        vocab_size=8192,
        n_ctx=512,
        steps=5000,
        tokens_per_step=16384,
        learning_rate=3e-4,
        n_seeds=3,
        n_pairs=3,
        n_windows=1000,
    ),
}


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Both groups of models, with the same text and steps, and seeds from 0 on."""
    n_models = {PLAIN: SCALES[size].n_seeds, WITH_IDENTITIES: SCALES[size].n_pairs}
    return {group: _models(size, added, n_models[group]) for group, added in VARIANTS.items()}


def _models(size: Size, added: Mapping[str, Any], n_models: int) -> list[ModelSpec]:
    scale = SCALES[size]
    task = Text(n_ctx=scale.n_ctx, vocab_size=scale.vocab_size, objective="next_token")
    settings = TrainSettings(
        steps=scale.steps,
        tokens_per_step=scale.tokens_per_step,
        learning_rate=scale.learning_rate,
        weight_decay=0.0,
        eval_every=max(10, scale.steps // 20),
        n_eval=64,
        checkpoint_every=100,
    )
    config = config_for(task, PRESET, **{**scale.dimensions, **added})
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(n_models)]
