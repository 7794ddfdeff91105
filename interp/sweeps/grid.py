"""Grids of models to train: one specification, and what varies."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from hooks.checks import check_class, did_you_mean
from hooks.files import shortened
from interp.sweeps.spec import ModelSpec
from interp.training.configs import config_for

SECTIONS = ("task", "config", "settings")
FROM_TASK = ("d_vocab", "d_vocab_out", "n_ctx", "attention")
"""Fields of a config that follow from the task."""
SEED = "seed"


@dataclass(frozen=True)
class Sweep:
    """A grid of models: every combination of what varies.

    Args:
        base: The model from which the others differ.
        vary: Values by name: `seed`; `task`, `config` or `settings` as a whole; or one of their fields, such as
            `settings.learning_rate`, `config.n_layers`, `settings.mimicking.steps`, `task.n_vars`. A mapping gives the
            values names, which tables and charts show. If the task varies, the vocabulary and length of the config
            follow it, and fields of the task that have their default keep it: with `task.n_vars`, all variables of a
            LEGO task stay supervised.

    Raises:
        ValueError: an unknown name, no values, a value that does not fit its field, or one model twice.
    """

    base: ModelSpec
    vary: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_class("base", self.base, ModelSpec)
        check_class("vary", self.vary, Mapping)
        # Names, each with several values
        for name, values in self.vary.items():
            self._check_name(name)
            if isinstance(values, str) or not isinstance(values, Sequence | Mapping | range) or not len(values):
                raise ValueError(
                    f"vary[{name!r}] is {shortened(repr(values))}; give a list of values, or names: values."
                )
        for name in self.vary:
            containing = [prefix for prefix in self.vary if name.startswith(f"{prefix}.")]
            if containing:
                raise ValueError(f"vary has {containing[0]!r} and {name!r}, which is a part of it; give one of them.")
        # Labels must distinguish the values of a name, and keys the models
        for name, values in self._values.items():
            repeated = _first_repeated([label for label, _ in values])
            if repeated:
                raise ValueError(
                    f"vary[{name!r}] has {repeated!r} twice, or values that look the same; give them names."
                )
        keys = self.keys  # makes every specification, so that values that do not fit raise an error here
        repeated = _first_repeated(keys)
        if repeated is not None:
            first, second = [str(self.labels(index)) for index, key in enumerate(keys) if key == repeated][:2]
            raise ValueError(f"two models of the sweep are the same: {first} and {second}; give each value once.")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of what varies, as tables have them: the last part of each name if that is unique; `seed` is last."""
        short_names = [name.rsplit(".", 1)[-1] for name in self._names]
        columns = []
        for name, short_name in zip(self._names, short_names, strict=True):
            columns.append(short_name if short_names.count(short_name) == 1 else name)
        return tuple(columns)

    @property
    def combined(self) -> list[str]:
        """Names of what varies besides seeds."""
        return [name for name in self.columns if name != SEED]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Key of each model, in order; see `ModelSpec.key`."""
        return tuple(self[index].key for index in range(len(self)))

    def __len__(self) -> int:
        return math.prod(len(values) for values in self._values.values())

    def __getitem__(self, index: int) -> ModelSpec:
        """A model of the sweep; seeds vary fastest."""
        if not 0 <= index < len(self):
            raise IndexError(f"index is {index}; the sweep has {len(self)} models.")
        positions = dict(zip(self._names, self._positions(index), strict=True))
        chosen = tuple((name, positions[name]) for name in self._names if name != SEED)
        task, config, settings = self._sections(chosen)
        _, seed = self._values[SEED][positions[SEED]]
        return replace(self.base, task=task, config=config, settings=settings, seed=seed)

    def labels(self, index: int) -> dict[str, Any]:
        """What a model of the sweep is, by column."""
        columns = zip(self.columns, self._names, self._positions(index), strict=True)
        return {column: self._values[name][position][0] for column, name, position in columns}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return (*(name for name in self.vary if name != SEED), SEED)

    @cached_property
    def _values(self) -> dict[str, list[tuple[Any, Any]]]:
        """Labels and values, by name."""
        pairs_by_name = {}
        for name in self._names:
            values = self.vary.get(name, [self.base.seed])
            if isinstance(values, Mapping):
                pairs_by_name[name] = list(values.items())
            else:
                pairs_by_name[name] = [(_label(value), value) for value in values]
        return pairs_by_name

    def _positions(self, index: int) -> list[int]:
        """Position among the values of each name."""
        positions = []
        for values in reversed(self._values.values()):
            index, position = divmod(index, len(values))
            positions.append(position)
        return positions[::-1]

    @cached_property
    def _sections(self) -> Any:
        return lru_cache(maxsize=4096)(self._make_sections)  # the seeds of a combination share them

    def _make_sections(self, chosen: tuple[tuple[str, int], ...]) -> tuple[Any, Any, Any]:
        """Task, config and settings with these values.

        Args:
            chosen: Name and position of each value.
        """
        values: dict[str, Any] = {section: getattr(self.base, section) for section in SECTIONS}
        for section in SECTIONS:
            for name, position in chosen:
                if name.split(".")[0] == section:
                    values[section] = self._changed_section(values[section], name, position)
            # A config follows another task before its own fields are changed
            if section == "task" and values["task"] != self.base.task:
                values["config"] = _fitted(values["config"], values["task"])
        return values["task"], values["config"], values["settings"]

    def _changed_section(self, section: Any, name: str, position: int) -> Any:
        """A task, config or settings with one of the values of a name."""
        label, value = self._values[name][position]
        section_name, *path = name.split(".")
        change = _with_defaults if section_name == "task" and len(path) == 1 else _changed
        try:
            return change(section, path, value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"vary has {name} = {label}: {error}") from error

    def _check_name(self, name: str) -> None:
        if name == SEED or name in SECTIONS:
            return
        section, _, path = name.partition(".")
        if section not in SECTIONS or not path:
            raise ValueError(
                f"vary has {name!r}; give seed, task, config, settings, or a field of one, such as settings.steps."
            )
        # Every name on the path is a field of the object before it
        owner = getattr(self.base, section)
        for field_name in path.split("."):
            field_names = [field.name for field in fields(owner)] if is_dataclass(owner) else []
            if field_name not in field_names:
                hint = did_you_mean(field_name, field_names)
                raise ValueError(f"vary has {name!r}, but {type(owner).__name__} has no field {field_name!r}.{hint}")
            owner = getattr(owner, field_name)


def _first_repeated(values: Sequence[Any]) -> Any:
    """The first value that occurs again; None if all are distinct."""
    counts = Counter(values)
    return next((value for value in values if counts[value] > 1), None)


def _label(value: Any) -> Any:
    """A value as tables show it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return shortened(str(value))


def _changed(owner: Any, path: Sequence[str], value: Any) -> Any:
    """A dataclass with another value of a field, which may be a field of a field."""
    if not path:
        return value
    return replace(owner, **{path[0]: _changed(getattr(owner, path[0]), path[1:], value)})


def _with_defaults(owner: Any, path: Sequence[str], value: Any) -> Any:
    """As `_changed`, but fields at a default that depends on the changed field get its new value."""
    (name,) = path
    values = {field.name: getattr(owner, field.name) for field in fields(owner) if field.init}
    try:
        default = type(owner)(**{name: values[name]})
    except (TypeError, ValueError):  # some fields have no default
        return _changed(owner, path, value)
    # Fields that differ from their defaults are kept; the others get theirs anew
    explicit = {field: current for field, current in values.items() if current != getattr(default, field)}
    return type(owner)(**{**explicit, name: value})


def _fitted(config: Any, task: Any) -> Any:
    """A config with the vocabulary, length and attention of a task."""
    task_config = config_for(task)
    field_names = {field.name for field in fields(config)}
    changed = {name: getattr(task_config, name) for name in FROM_TASK if name in field_names}
    return replace(config, **changed)
