"""Specifications of models to train: everything that determines their weights, and the key of that."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hooks.model.architectures import Config
from hooks.typed import check_field_types
from interp.core.content_key import content_key
from interp.tasks.base import Task
from interp.training.packaged import weights_identity
from interp.training.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model to train: everything that determines its weights.

    Raises:
        ValueError: a field of another type, or symbols or fresh heads without a pretrained model.
    """

    task: Task
    config: Config
    settings: TrainSettings
    seed: int
    pretrained: "ModelSpec | str | None" = None
    """The pretrained model: a spec, which is trained first, or a name or folder as in `interp.pretrained`; a name of
    packaged weights has their hash in the key. If None, the weights are initialised."""
    fresh_heads: tuple[tuple[int, int], ...] = ()
    """With `pretrained`: heads, (layer, head), that are initialised instead."""
    symbols: tuple[tuple[str, str], ...] = ()
    """With `pretrained`: pairs of a task token and the pretrained vocabulary's token that represents it."""

    def __post_init__(self) -> None:
        check_field_types(self)
        if self.symbols and self.pretrained is None:
            raise ValueError("symbols are tokens of a pretrained model; give pretrained, or omit symbols.")
        if self.fresh_heads and self.pretrained is None:
            raise ValueError("fresh_heads are heads of a pretrained model; give pretrained, or omit fresh_heads.")

    @cached_property
    def description(self) -> dict[str, Any]:
        """Plain values, as in a run's manifest; `pretrained`, `symbols` and `fresh_heads` only if set."""
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
            source = self.pretrained
            described["pretrained"] = source.key if isinstance(source, ModelSpec) else weights_identity(source)
        if self.symbols:
            described["symbols"] = dict(self.symbols)
        if self.fresh_heads:
            described["fresh_heads"] = [list(head) for head in self.fresh_heads]
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
