"""The evidence that a measure receives: size, seed, models loaded on demand."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

from interp.core.content_key import content_key
from interp.sweeps.spec import ModelSpec
from interp.tasks.base import Task
from interp.training.folder import RunFolder
from interp.training.run import TrainingRun

P = ParamSpec("P")
T = TypeVar("T")
Size = Literal["quick", "standard", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)
LARGE_SIZES = SIZES[1:]
"""The sizes of claims that take too long, or have too few models, at size quick."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The input of a measure. A measure reads nothing else, so that its result can be cached."""

    size: Size
    """Size of the study."""
    seed: int
    """Determines all random draws of the measurement; each model has its own training seed."""
    groups: Mapping[str, tuple[ModelSpec, ...]]
    """The groups of models that the claim needs, and no others."""
    folder: Path
    """Folder of trained models, each under its key."""
    _loaded: dict[str, list[TrainingRun]] = field(default_factory=dict, repr=False, compare=False)

    def specs(self, group: str) -> tuple[ModelSpec, ...]:
        """The specs of a group's models, without loading any.

        Raises:
            ValueError: the group is not in the claim's `needs`.
        """
        if group not in self.groups:
            needs = ", ".join(self.groups) or "none"
            raise ValueError(f"the group {group!r} is not among those that the claim needs ({needs}); add it to needs.")
        return self.groups[group]

    def run(self, spec: ModelSpec) -> TrainingRun:
        """Load one trained model with its history; it is not cached, so that hundreds can be read in turn."""
        run = TrainingRun.load(self.folder / spec.key, expected=spec.description)
        run.model.tokenizer = spec.task.vocab
        return run

    def history(self, spec: ModelSpec) -> list[dict[str, Any]]:
        """A model's learning curve: one record per evaluation, without loading the model."""
        files = RunFolder(self.folder / spec.key)
        files.read_manifest(spec.description)
        return files.read_metrics()

    def runs(self, group: str) -> list[TrainingRun]:
        """The trained models of a group with their histories, in the order of `specs`; cached, so do not modify them.

        Raises:
            ValueError: the group is not in the claim's `needs`.
        """
        if group not in self._loaded:
            self._loaded[group] = [self.run(spec) for spec in self.specs(group)]
        return self._loaded[group]

    def forget(self) -> None:
        """Release the models that `runs` has loaded."""
        self._loaded.clear()

    def models(self, group: str) -> list[Any]:
        """The trained models of a group."""
        return [run.model for run in self.runs(group)]

    def task(self, group: str) -> Task:
        """The one task of a group's models.

        Raises:
            ValueError: the group is unknown to the claim, empty, or has several tasks.
        """
        specs = self.specs(group)
        # Tasks are equal if their descriptions are
        tasks = {json.dumps(spec.description["task"], sort_keys=True): spec.task for spec in specs}
        if len(tasks) != 1:
            raise ValueError(
                f"the models of group {group!r} have {len(tasks)} tasks; use the task of each of specs({group!r})."
            )
        return next(iter(tasks.values()))


def once_per_model(
    measure: Callable[Concatenate[Evidence, ModelSpec, P], T],
) -> Callable[Concatenate[Evidence, ModelSpec, P], T]:
    """Decorator: cache a function of evidence, model and hashable options for the lifetime of the process."""
    values: dict[tuple, T] = {}

    @wraps(measure)
    def cached(evidence: Evidence, spec: ModelSpec, *args: P.args, **options: P.kwargs) -> T:
        # The folder and the key determine the model; size and seed what is measured of it
        key = (evidence.folder, evidence.size, evidence.seed, spec.key, args, *options.items())
        if key not in values:
            values[key] = measure(evidence, spec, *args, **options)
        return values[key]

    return cached


def keys_digest(keys: Sequence[str]) -> str:
    """Digest of the keys of a group's models, 16 hexadecimal digits: the same models in the same order have it."""
    return content_key(list(keys), length=16)


def settings_of(specs: Sequence[ModelSpec]) -> dict[str, Any]:
    """Descriptions of a group of models merged into one, and their keys.

    A value that differs between models is given as `{"varies": [...]}`.
    """
    descriptions = [spec.description for spec in specs]
    settings: dict[str, Any] = {"models": len(specs), "seeds": sorted({spec.seed for spec in specs})}
    settings["keys"] = [spec.key for spec in specs]
    for section in ("task", "config", "settings"):
        settings[section] = _merged([description[section] for description in descriptions])
    if any(spec.pretrained is not None for spec in specs):
        origins = [{"by": _origin(spec), "symbols": dict(spec.symbols)} for spec in specs]
        settings["pretrained"] = _merged(origins)
    return settings


def _origin(spec: ModelSpec) -> str | None:
    """The pretrained model in words."""
    source = spec.pretrained
    if not isinstance(source, ModelSpec):
        return source
    return f"model {source.key} (task {source.description['task']['task']}, seed {source.seed})"


def _merged(descriptions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Descriptions as one, with every value of a field that differs."""
    # The distinct values of each field, by their text, as values may be lists
    values_by_field: dict[str, dict[str, Any]] = {}
    names = dict.fromkeys(chain.from_iterable(descriptions))
    for description in descriptions:
        for name in names:
            value = description.get(name)
            values_by_field.setdefault(name, {}).setdefault(json.dumps(value, sort_keys=True), value)
    # A field with one value has that value
    merged: dict[str, Any] = {}
    for name in names:
        values = list(values_by_field[name].values())
        merged[name] = values[0] if len(values) == 1 else {"varies": values}
    return merged
