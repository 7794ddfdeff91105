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

# a I adds a_h x x^T to the scores of head h, b I adds b_h A_h x to its output; a_h and b_h are learned scalars
PLAIN, WITH_IDENTITIES = "plain", "+ a I, b I"
VARIANTS: dict[str, dict[str, Any]] = {PLAIN: {}, WITH_IDENTITIES: {"qk_identity": True, "vo_identity": True}}
"""Config fields of each variant, added to those of the preset."""
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt", {"objective": "next_token"}),
    "bert": ("bert_encoder", {"objective": "masked", "next_sentence": True}),
}
"""Preset (`hooks.presets`) of each family, and the fields of its task (`interp.tasks.Text`) that set the objective."""

BEFORE_RESULTS = Preregistration(
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
    """The rule of `BEFORE_RESULTS`, with more seeds of GPT-2 since a result was seen.

    `prior_knowledge` is that result, a value with its interval such as "0.21 [0.10, 0.32]", before "over three seeds".
    """
    return Preregistration(
        "after a result", f"{prior_knowledge} over three seeds. The rule is older; three seeds were added after that."
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
    n_seeds: Mapping[str, int]
    """Models of each family, with and without the scalars."""
    n_windows: int
    """Number of held-out windows for perplexity."""


THREE = dict.fromkeys(FAMILIES, 3)
SCALES: dict[Size, Scale] = {
    "quick": Scale(
        dimensions={"d_model": 64, "n_heads": 4, "n_layers": 2},
        vocab_size=512,
        n_ctx=64,
        steps=150,
        tokens_per_step=1024,
        learning_rate=3e-3,
        n_seeds=THREE,
        n_windows=200,
    ),
    "standard": Scale(
        dimensions={"d_model": 128, "n_heads": 4, "n_layers": 4},
        vocab_size=2048,
        n_ctx=128,
        steps=1000,
        tokens_per_step=2048,
        learning_rate=1e-3,
        n_seeds={"gpt2": 6, "bert": 3},
        n_windows=500,
    ),
    "paper": Scale(
        dimensions={"d_model": 768, "n_heads": 12, "n_layers": 12},
        vocab_size=8192,
        n_ctx=512,
        steps=5000,
        tokens_per_step=16384,
        learning_rate=3e-4,
        n_seeds=THREE,
        n_windows=1000,
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
    config = config_for(task, preset, **{**scale.dimensions, **added})
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(scale.n_seeds[family])]
