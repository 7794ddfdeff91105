"""Specifications of models to train: everything that determines their weights, and the key of that."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hooks.model.architectures import Config
from interp.tasks.base import Task
from interp.training.jobs import TrainJob
from interp.training.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model to train: everything that determines its weights."""

    task: Task
    config: Config
    settings: TrainSettings
    seed: int
    pretrained: "ModelSpec | str | None" = None
    """The pretrained model: a spec, which is trained first, or a folder or hub name as in `interp.pretrained`.
    If None, the weights are initialised."""
    symbols: tuple[tuple[str, str], ...] = ()
    """With `pretrained`: pairs of a task token and the pretrained vocabulary's token that represents it."""

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
        return hashlib.sha256(json.dumps(self.description, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def work(self) -> float:
        """Estimated training cost, used to start the longest trainings first."""
        s = self.settings
        tokens = s.batch_size * self.task.n_ctx if s.batch_size else s.tokens_per_step
        return float(s.total_steps * tokens * max(1, self.config.n_layers) * self.config.d_model)

    @property
    def sources(self) -> "tuple[ModelSpec, ...]":
        """The models to train before this one, in order: its pretrained model, preceded by that model's own."""
        return (*self.pretrained.sources, self.pretrained) if isinstance(self.pretrained, ModelSpec) else ()

    def job(self, models: Path) -> TrainJob:
        """The training job that writes to `models/<key>`."""
        source = self.pretrained
        return TrainJob(
            task=self.task,
            config=self.config,
            settings=self.settings,
            seed=self.seed,
            folder=models / self.key,
            pretrained=models / source.key if isinstance(source, ModelSpec) else source,
            symbols=self.symbols,
        )


def seeded(task: Task, config: Config, settings: TrainSettings, seeds: int) -> list[ModelSpec]:
    """One model per seed, from 0 on."""
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(seeds)]
