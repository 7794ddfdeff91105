"""Models of the Dyck study: groups of seeds, by size.

`words` are complete words of up to 28 brackets, the paper's main setting; `prefixes` are those of its Appendix D.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from case_studies.frame.evidence import Size
from case_studies.recipes.dyck_models import (
    GPT_PREFIXES,
    WORDS,
    dyck_settings,
    paper_settings,
    two_layer_models,
    two_layer_settings,
)
from hooks.model.embeddings import Encoding
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Dyck
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

PREFIXES = Dyck(loss_on="closers")
LANGUAGES = {"words": WORDS, "prefixes": PREFIXES}
CONTRASTIVE = 0.3
"""The paper's weight of the contrastive loss."""

SEEDS: dict[Size, dict[str, int]] = {
    "quick": {"gpt": 8, "prefixes": 8, "minimal": 8, "many": 8, "uniform": 4, "grid": 0, "encodings": 0},
    "standard": {"gpt": 30, "prefixes": 30, "minimal": 40, "many": 120, "uniform": 16, "grid": 8, "encodings": 8},
    "paper": {"gpt": 30, "prefixes": 30, "minimal": 40, "many": 120, "uniform": 30, "grid": 30, "encodings": 30},
}
GRID = [(types, depth, layers) for types in (2, 3) for depth in (4, 8) for layers in (2, 3)]
"""Table 1: bracket types, maximal depth, layers."""
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
"""Eq. 19, 20 and 21."""
EPOCHS: dict[Encoding, int] = {"pair": 10, "type_and_depth": 20, "type_and_angle": 40}
"""The paper's, for each."""


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; empty where the size does not train the group."""
    n = SEEDS[size]
    prefixes = PREFIXES if size == "paper" else GPT_PREFIXES
    uniform = two_layer_settings("paper" if size == "paper" else "quick", prefixes)  # the same steps at quick, standard
    # Transformers of two layers, and those with uniform attention
    groups = {
        "gpt": two_layer_models(size, n["gpt"]),
        "gpt-linear": two_layer_models(size, n["gpt"], positions="linear"),
        "gpt-prefixes": _specs(n["prefixes"], prefixes, "dyck_gpt", two_layer_settings(size, prefixes)),
        "uniform": _specs(n["uniform"], prefixes, "dyck_uniform", uniform),
    }
    # Minimal first layers, with and without the contrastive loss
    for loss_on, language in (("closers", "words"), ("all", "words"), ("closers", "prefixes")):
        task = replace(LANGUAGES[language], loss_on=loss_on)
        plain = _minimal(size, task, epochs=10, steps=600, batch_size=32 if size == "quick" else 48)
        for name, weight in (("", 0.0), ("-contrastive", CONTRASTIVE)):
            settings = replace(plain, contrastive=weight)
            groups[f"minimal-{language}-{loss_on}{name}"] = _specs(n["minimal"], task, "dyck_minimal", settings)
    words = groups["minimal-words-closers"][0]
    groups["minimal-words-closers-many"] = _specs(n["many"], WORDS, "dyck_minimal", words.settings)
    # The cells of Table 1
    for types, depth, layers in GRID:
        task = replace(WORDS, n_types=types, max_depth=depth)
        settings = paper_settings(task, 40, 3e-3) if size == "paper" else dyck_settings(1400, 48, 6e-3)
        groups[grid_name(types, depth, layers)] = _specs(n["grid"], task, "dyck_gpt", settings, n_layers=layers)
    # Minimal first layers of every embedding
    for encoding in ENCODINGS:
        for head in ("linear", "mlp"):
            settings = _minimal(size, WORDS, epochs=EPOCHS[encoding], steps=1500)
            sizes = {"encoding": encoding, "mlp_head": head == "mlp"}
            groups[f"encoding-{encoding}-{head}"] = _specs(n["encodings"], WORDS, "dyck_minimal", settings, **sizes)
    # Narrow targets for pruning
    for name, layers in (("one", 1), ("two", 2)):
        sizes = {"n_layers": layers, "d_model": 8, "d_mlp": 16}
        groups[f"narrow-{name}"] = _specs(2, GPT_PREFIXES, "dyck_eq6", dyck_settings(1000, 24, 6e-3), **sizes)
    return groups


def grid_name(types: int, depth: int, layers: int) -> str:
    """The group of a cell of Table 1."""
    return f"grid-k{types}-d{depth}-l{layers}"


def _specs(seeds: int, task: Dyck, family: str, settings: TrainSettings, **sizes: Any) -> list[ModelSpec]:
    return seeded(task, config_for(task, family, **sizes), settings, seeds)


def _minimal(size: Size, task: Dyck, *, epochs: int, steps: int, batch_size: int = 48) -> TrainSettings:
    """Settings of minimal models: the paper's epochs at size paper, else a number of steps."""
    return paper_settings(task, epochs, 1e-2) if size == "paper" else dyck_settings(steps, batch_size, 1e-2)
