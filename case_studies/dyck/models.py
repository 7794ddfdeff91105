"""Which models does the study train? Groups of seeds, by size.

`words` are complete words of up to 28 brackets, the paper's main setting; `prefixes` are its Appendix D.2. Two-layer
models learn words too slowly for minutes: at size quick they are trained on prefixes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from case_studies.frame.claims import Size
from case_studies.frame.evidence import ModelSpec
from hooks.model.embeddings import Encoding
from interp.tasks import Dyck
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

PREFIXES = Dyck(loss_on="closers")
WORDS = Dyck(words="complete", loss_on="closers")
GPT_PREFIXES = Dyck()
"""Prefixes with a loss on every token: two layers learn this in 700 steps, where closers alone take longer."""
LANGUAGES = {"words": WORDS, "prefixes": PREFIXES}
CONTRASTIVE = 0.3
"""The paper's weight of the contrastive loss."""

SEEDS: dict[Size, dict[str, int]] = {
    "quick": {"gpt": 8, "prefixes": 8, "minimal": 8, "uniform": 4, "grid": 0, "encodings": 0},
    "standard": {"gpt": 30, "prefixes": 30, "minimal": 40, "uniform": 16, "grid": 8, "encodings": 8},
    "paper": {"gpt": 30, "prefixes": 30, "minimal": 40, "uniform": 30, "grid": 30, "encodings": 30},
}
GRID = [(types, depth, layers) for types in (2, 3) for depth in (4, 8) for layers in (2, 3)]
"""Table 1: types of bracket, greatest depth, layers."""
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
"""Eq. 19, 20 and 21."""


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; a group that a size does not train is empty."""
    n = SEEDS[size]
    standard = GPT_PREFIXES if size == "quick" else WORDS
    prefixes = PREFIXES if size == "paper" else GPT_PREFIXES
    found = {
        "gpt": _specs(n["gpt"], standard, "dyck_gpt", _gpt(size, standard)),
        "gpt-linear": _specs(n["gpt"], standard, "dyck_gpt", _gpt(size, standard), positions="linear"),
        "gpt-prefixes": _specs(n["prefixes"], prefixes, "dyck_gpt", _gpt(size, prefixes)),
        "uniform": _specs(n["uniform"], prefixes, "dyck_uniform", _uniform(size, prefixes)),
    }
    for loss_on, language in (("closers", "words"), ("all", "words"), ("closers", "prefixes")):
        task = replace(LANGUAGES[language], loss_on=loss_on)
        for name, weight in (("", 0.0), ("-contrastive", CONTRASTIVE)):
            settings = replace(_minimal(size, task), contrastive=weight)
            found[f"minimal-{language}-{loss_on}{name}"] = _specs(n["minimal"], task, "dyck_minimal", settings)
    for types, depth, layers in GRID:
        task = replace(WORDS, n_types=types, max_depth=depth)
        found[grid_name(types, depth, layers)] = _specs(n["grid"], task, "dyck_gpt", _grid(size, task), n_layers=layers)
    for encoding in ENCODINGS:
        for head in ("linear", "mlp"):
            settings, sizes = _encodings(size, encoding), {"encoding": encoding, "mlp_head": head == "mlp"}
            found[f"encoding-{encoding}-{head}"] = _specs(n["encodings"], WORDS, "dyck_minimal", settings, **sizes)
    for name, layers in (("one", 1), ("two", 2)):
        sizes = {"n_layers": layers, "d_model": 8, "d_mlp": 16}
        found[f"narrow-{name}"] = _specs(2, GPT_PREFIXES, "dyck_eq6", _settings(1000, 24, 6e-3), **sizes)
    return found


def grid_name(types: int, depth: int, layers: int) -> str:
    """The group of a cell of Table 1."""
    return f"grid-k{types}-d{depth}-l{layers}"


def _specs(seeds: int, task: Dyck, family: str, settings: TrainSettings, **sizes: Any) -> list[ModelSpec]:
    config = config_for(task, family, **sizes)
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(seeds)]


def _settings(steps: int, batch_size: int, learning_rate: float) -> TrainSettings:
    return TrainSettings(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=0.0,
        eval_every=max(50, steps // 4),
        n_eval=300,
        checkpoint_every=500,
    )


def _paper(task: Dyck, epochs: int, learning_rate: float) -> TrainSettings:
    """The paper's: 100,000 tokens, which are 10,500 words or 3,572 prefixes, in batches of 100."""
    n_train = 3572 if task.words == "prefixes" else 10_500
    return replace(_settings(epochs * (n_train // 100), 100, learning_rate), n_train=n_train)


def _gpt(size: Size, task: Dyck) -> TrainSettings:
    """The paper has 40 epochs at 3e-3. At 6e-3 prefixes are learned soonest, but with words some seeds get stuck."""
    if size == "paper":
        return _paper(task, 40, 3e-3)
    if size == "quick":
        return _settings(700, 24, 6e-3)
    return _settings(1400, 24 if task is GPT_PREFIXES else 48, 3e-3)


def _uniform(size: Size, task: Dyck) -> TrainSettings:
    """Uniform attention learns in as many steps at every size."""
    return _gpt(size if size == "paper" else "quick", task)


def _grid(size: Size, task: Dyck) -> TrainSettings:
    """More types and levels take longer."""
    return _paper(task, 40, 3e-3) if size == "paper" else _settings(1400, 48, 6e-3)


def _minimal(size: Size, task: Dyck) -> TrainSettings:
    """The paper has 10 epochs at 1e-2."""
    if size == "paper":
        return _paper(task, 10, 1e-2)
    return _settings(600, 32, 1e-2) if size == "quick" else _settings(600, 48, 1e-2)


def _encodings(size: Size, encoding: Encoding) -> TrainSettings:
    """The paper has 10 epochs for Eq. 19, 20 for Eq. 20 and 40 for Eq. 21."""
    if size == "paper":
        return _paper(WORDS, {"pair": 10, "type_and_depth": 20, "type_and_angle": 40}[encoding], 1e-2)
    return _settings(1500, 48, 1e-2)
