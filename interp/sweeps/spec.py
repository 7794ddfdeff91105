"""Specifications of models to train: everything that determines their weights, and the key of that."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hooks.model.architectures import Config
from hooks.typed import check_field_types
from interp.core.content_key import content_key
from interp.tasks.base import Task
from interp.training.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model to train: everything that determines its weights.

    Raises:
        ValueError: a field of another type, or symbols without a pretrained model.
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
        check_field_types(self)
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
        return described | self.origin

    @property
    def origin(self) -> dict[str, Any]:
        """The part of the description that is about the pretrained model; empty without one."""
        described: dict[str, Any] = {}
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
    def sources(self) -> "tuple[ModelSpec, ...]":
        """The models to train before this one, in order: its pretrained model, preceded by that model's own."""
        if not isinstance(self.pretrained, ModelSpec):
            return ()
        return (*self.pretrained.sources, self.pretrained)


def seeded(task: Task, config: Config, settings: TrainSettings, seeds: int) -> list[ModelSpec]:
    """One model per seed, from 0 on."""
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(seeds)]
