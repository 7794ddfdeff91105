"""Specifications of models to train: everything that determines their weights, and the key of that."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hooks.model.architectures import Config
from interp.core.content_key import content_key
from interp.tasks.base import Task
from interp.training.settings import TrainSettings

PER_WIDTH, PER_WEIGHT = 17, 2.5
"""Numbers kept for the backward pass, per layer and token: for each unit of width, and for each attention weight.
Source: Korthikanti et al., "Reducing activation recomputation" (arXiv:2205.05198), Equation 2, which counts bytes."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model to train: everything that determines its weights.

    Raises:
        ValueError: symbols without a pretrained model.
    """

    task: Task
    config: Config
    settings: TrainSettings
    seed: int
    pretrained: "ModelSpec | str | None" = None
    """The pretrained model: a spec, which is trained first, or a folder or hub name as in `interp.pretrained`.
    If None, the weights are initialised."""
    symbols: tuple[tuple[str, str], ...] = ()
    """With `pretrained`: pairs of a task token and the pretrained vocabulary's token that represents it."""

    def __post_init__(self) -> None:
        if self.symbols and self.pretrained is None:
            raise ValueError("symbols are tokens of a pretrained model; give pretrained, or omit symbols.")

    @cached_property
    def description(self) -> dict[str, Any]:
        """Plain values, as in a run's manifest; `pretrained` and `symbols` only if set."""
        described: dict[str, Any] = {
            "task": self.task.describe(),
            "config": self.config.to_dict(),
            "settings": self.settings.to_dict(),
            "seed": self.seed,
        }
        if self.pretrained is not None:
            described["pretrained"] = self.pretrained.key if isinstance(self.pretrained, ModelSpec) else self.pretrained
        if self.symbols:
            described["symbols"] = dict(self.symbols)
        return described

    @cached_property
    def key(self) -> str:
        """Hash of everything that determines the weights; equal models share it across studies and sizes."""
        return content_key(self.description)

    @property
    def work(self) -> float:
        """Estimated training cost, used to start the longest trainings first."""
        return float(self.settings.total_steps * self._tokens * max(1, self.config.n_layers) * self.config.d_model)

    @property
    def operations(self) -> float:
        """Estimated floating-point operations of the training: 6 per weight and token, and those of attention.

        Source: Kaplan et al., "Scaling laws for neural language models" (arXiv:2001.08361), Section 2.1; embeddings and
        evaluation are not counted. A tied block counts once for each application.
        """
        cfg, pos = self.config, self.task.n_ctx
        heads = cfg.n_heads * getattr(cfg, "d_head", 0)
        layer = weights_of_layer(cfg) + 2 * pos * heads
        per_token = max(1, cfg.n_layers) * layer + cfg.d_model * self.task.d_vocab_out
        return 6.0 * self.settings.total_steps * self._tokens * per_token

    @property
    def memory(self) -> float:
        """Estimated bytes of the training: weights, gradients and AdamW's state, and numbers for the backward pass."""
        cfg, pos = self.config, self.task.n_ctx
        layers = 1 if getattr(cfg, "tied", False) else max(1, cfg.n_layers)
        weights = layers * weights_of_layer(cfg) + cfg.d_model * (self.task.d_vocab + self.task.d_vocab_out + pos)
        short = 0.5 if self.settings.precision == "bfloat16" else 1.0
        return 16.0 * weights + short * activation_bytes(cfg, self._tokens, pos)

    @property
    def _tokens(self) -> int:
        """Tokens of one step."""
        s = self.settings
        return s.batch_size * self.task.n_ctx if s.batch_size else s.tokens_per_step

    @property
    def sources(self) -> "tuple[ModelSpec, ...]":
        """The models to train before this one, in order: its pretrained model, preceded by that model's own."""
        return (*self.pretrained.sources, self.pretrained) if isinstance(self.pretrained, ModelSpec) else ()


def seeded(task: Task, config: Config, settings: TrainSettings, seeds: int) -> list[ModelSpec]:
    """One model per seed, from 0 on."""
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(seeds)]


def weights_of_layer(cfg: Config) -> int:
    """Weights of the matrices of one layer."""
    heads = cfg.n_heads * getattr(cfg, "d_head", 0)
    return 4 * cfg.d_model * heads + 2 * cfg.d_model * (getattr(cfg, "d_mlp", None) or cfg.d_model)


def activation_bytes(cfg: Config, tokens: int, pos: int) -> float:
    """Estimated bytes that a forward pass in single precision keeps for the backward pass.

    Args:
        cfg: Config of the model.
        tokens: Tokens of the batch.
        pos: Tokens of a sequence.
    """
    width = max(cfg.d_model, (getattr(cfg, "d_mlp", None) or 0) // 4)
    return 4.0 * tokens * max(1, cfg.n_layers) * (PER_WIDTH * width + PER_WEIGHT * cfg.n_heads * pos)
