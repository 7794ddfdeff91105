"""Evidence whose models are given and not trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from case_studies.frame.evidence import Evidence, Size
from interp.sweeps.spec import seeded
from interp.training.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Planted(Evidence):
    """Evidence with given models, by group."""

    given: dict[str, list[Any]]

    def models(self, group: str) -> list[Any]:
        return list(self.given[group])


def planted(task, given, size: Size = "quick", seed=0):
    """Evidence for these models of a task: a list for each group."""
    settings = TrainSettings(steps=1)
    groups = {name: tuple(seeded(task, models[0].cfg, settings, len(models))) for name, models in given.items()}
    return Planted(size=size, seed=seed, groups=groups, folder=Path("nowhere"), given=given)
