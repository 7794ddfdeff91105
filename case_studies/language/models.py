"""Models of the language study: a GPT-2 and a BERT, plain and with a I and b I, by size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from case_studies.frame.claims import Preregistration
from case_studies.frame.evidence import Size
from interp.sweeps.spec import ModelSpec
from interp.tasks import Text
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

PLAIN, BOTH = "plain", "+ a I, b I"
VARIANTS: dict[str, dict[str, Any]] = {PLAIN: {}, BOTH: {"qk_identity": True, "vo_identity": True}}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt", {"objective": "next_token"}),
    "bert": ("bert_encoder", {"objective": "masked", "next_sentence": True}),
}
"""Preset and training objective of each family."""

COMMITTED = Preregistration(
    "after first models",
    "pilot models, none of which is judged. The rules were committed half an hour before the results, while the models "
    "were in training.",
)
"""When the rules were fixed."""
ALSO_NEEDED = {
    "gpt2": "",
    "bert": "BERT that has left the plateau of single tokens: 10,000 steps of pretraining a model, about 45 min of one "
    "core each",
}
"""What would decide claims about each family apart from more seeds."""


def with_six_seeds(prior_knowledge: str) -> Preregistration:
    """The rule of `COMMITTED`, with more seeds of GPT-2 since a result was seen."""
    return Preregistration(
        "after a result", f"{prior_knowledge} over three seeds. The rule is older; three seeds were added after that."
    )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Models and training at one size of the study."""

    sizes: Mapping[str, int]
    """Sizes of the models."""
    vocab_size: int
    n_ctx: int
    steps: int
    tokens_per_step: int
    learning_rate: float
    seeds: Mapping[str, int]
    """Models of each family, with and without the scalars."""
    windows: int
    """Number of held-out windows for perplexity."""


THREE = dict.fromkeys(FAMILIES, 3)
SCALES: dict[Size, Scale] = {
    "quick": Scale(
        sizes={"d_model": 64, "n_heads": 4, "n_layers": 2},
        vocab_size=512,
        n_ctx=64,
        steps=150,
        tokens_per_step=1024,
        learning_rate=3e-3,
        seeds=THREE,
        windows=200,
    ),
    "standard": Scale(
        sizes={"d_model": 128, "n_heads": 4, "n_layers": 4},
        vocab_size=2048,
        n_ctx=128,
        steps=1000,
        tokens_per_step=2048,
        learning_rate=1e-3,
        seeds={"gpt2": 6, "bert": 3},
        windows=500,
    ),
    "paper": Scale(
        sizes={"d_model": 768, "n_heads": 12, "n_layers": 12},
        vocab_size=8192,
        n_ctx=512,
        steps=5000,
        tokens_per_step=16384,
        learning_rate=3e-4,
        seeds=THREE,
        windows=1000,
    ),
}


def group(family: str, variant: str) -> str:
    """The name of a group of models."""
    return f"{family} {variant}"


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models: both families and both variants, with the same text, steps and seeds."""
    return {
        group(family, variant): _models(size, family, added)
        for family in FAMILIES
        for variant, added in VARIANTS.items()
    }


def _models(size: Size, family: str, added: Mapping[str, Any]) -> list[ModelSpec]:
    scale = SCALES[size]
    preset, objective = FAMILIES[family]
    task = Text(n_ctx=scale.n_ctx, vocab_size=scale.vocab_size, **objective)
    settings = TrainSettings(
        steps=scale.steps,
        tokens_per_step=scale.tokens_per_step,
        learning_rate=scale.learning_rate,
        weight_decay=0.0,
        eval_every=max(10, scale.steps // 20),
        n_eval=64,
        checkpoint_every=100,
    )
    config = config_for(task, preset, **{**scale.sizes, **added})
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(scale.seeds[family])]
