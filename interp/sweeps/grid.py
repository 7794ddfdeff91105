"""Grids of models to train: one specification, and what varies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any

from hooks.checks import check_class
from hooks.files import shortened
from interp.sweeps.spec import ModelSpec
from interp.training.configs import config_for

PARTS = ("task", "config", "settings")
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
        for name, values in self.vary.items():
            self._check_name(name)
            if isinstance(values, str) or not isinstance(values, Sequence | Mapping | range) or not len(values):
                raise ValueError(
                    f"vary[{name!r}] is {shortened(repr(values))}; give a list of values, or names: values."
                )
        for name in self.vary:
            before = [other for other in self.vary if name.startswith(f"{other}.")]
            if before:
                raise ValueError(f"vary has {before[0]!r} and {name!r}, which is a part of it; give one of them.")
        for name, values in self._values.items():
            labels = [label for label, _ in values]
            if double := next((label for label in labels if labels.count(label) > 1), None):
                raise ValueError(f"vary[{name!r}] has {double!r} twice, or values that look the same; give them names.")
        keys = self.keys  # which makes every specification, so that what does not fit is found now
        if len(set(keys)) < len(keys):
            double = next(key for key in keys if keys.count(key) > 1)
            one, two = [str(self.labels(i)) for i, key in enumerate(keys) if key == double][:2]
            raise ValueError(f"two models of the sweep are the same: {one} and {two}; give each value once.")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of what varies, as tables have them: the last part of each name if that is unique; `seed` is last."""
        short = [name.rsplit(".", 1)[-1] for name in self._names]
        return tuple(one if short.count(one) == 1 else name for name, one in zip(self._names, short, strict=True))

    @property
    def combined(self) -> list[str]:
        """Names of what varies besides seeds."""
        return [name for name in self.columns if name != SEED]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Key of each model, in order; see `ModelSpec.key`."""
        return tuple(self[index].key for index in range(len(self)))

    def __len__(self) -> int:
        number = 1
        for values in self._values.values():
            number *= len(values)
        return number

    def __getitem__(self, index: int) -> ModelSpec:
        """A model of the sweep; seeds vary fastest."""
        if not 0 <= index < len(self):
            raise IndexError(f"index is {index}; the sweep has {len(self)} models.")
        at = dict(zip(self._names, self._positions(index), strict=True))
        chosen = tuple((name, at[name]) for name in self._names if name.split(".")[0] in PARTS)
        task, config, settings = self._parts(chosen)
        seed = self._values[SEED][at[SEED]][1]
        return ModelSpec(
            task=task, config=config, settings=settings, seed=seed, pretrained=self.base.pretrained,
            symbols=self.base.symbols,
        )  # fmt: skip

    def labels(self, index: int) -> dict[str, Any]:
        """What a model of the sweep is, by column."""
        positions = zip(self.columns, self._names, self._positions(index), strict=True)
        return {column: self._values[name][at][0] for column, name, at in positions}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return (*(name for name in self.vary if name != SEED), SEED)

    @cached_property
    def _values(self) -> dict[str, list[tuple[Any, Any]]]:
        """Label and value, by name."""
        found = {}
        for name in self._names:
            values = self.vary.get(name, [self.base.seed])
            pairs = values.items() if isinstance(values, Mapping) else [(_label(one), one) for one in values]
            found[name] = list(pairs)
        return found

    def _positions(self, index: int) -> list[int]:
        found = []
        for values in reversed(self._values.values()):
            index, at = divmod(index, len(values))
            found.append(at)
        return found[::-1]

    @cached_property
    def _parts(self) -> Any:
        return lru_cache(maxsize=4096)(self._make_parts)  # the seeds of a combination share them

    def _make_parts(self, chosen: tuple[tuple[str, int], ...]) -> tuple[Any, Any, Any]:
        parts: dict[str, Any] = {name: getattr(self.base, name) for name in PARTS}
        for part in PARTS:
            for name, at in chosen:
                if name.split(".")[0] == part:
                    label, value = self._values[name][at]
                    try:
                        path = name.split(".")[1:]
                        changed = _with_defaults if part == "task" and len(path) == 1 else _changed
                        parts[part] = changed(parts[part], path, value)
                    except (TypeError, ValueError) as error:
                        raise ValueError(f"vary has {name} = {label}: {error}") from error
            if part == "task" and parts["task"] != self.base.task:
                parts["config"] = _fitted(parts["config"], parts["task"])
        return parts["task"], parts["config"], parts["settings"]

    def _check_name(self, name: str) -> None:
        if name == SEED or name in PARTS:
            return
        part, _, rest = name.partition(".")
        if part not in PARTS or not rest:
            raise ValueError(
                f"vary has {name!r}; give seed, task, config, settings, or a field of one, such as settings.steps."
            )
        one = getattr(self.base, part)
        for field in rest.split("."):
            known = [each.name for each in fields(one)] if is_dataclass(one) else []
            if field not in known:
                near = get_close_matches(field, known, n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise ValueError(f"vary has {name!r}, but {type(one).__name__} has no field {field!r}.{hint}")
            one = getattr(one, field)


def _label(value: Any) -> Any:
    """A value as tables show it."""
    return value if isinstance(value, bool | int | float | str) or value is None else shortened(str(value))


def _changed(one: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    return replace(one, **{path[0]: _changed(getattr(one, path[0]), path[1:], value)})


def _with_defaults(one: Any, path: Sequence[str], value: Any) -> Any:
    """As `_changed`, but fields at a default that depends on the changed field get its new default."""
    (name,) = path
    own = {each.name: getattr(one, each.name) for each in fields(one) if each.init}
    try:
        plain = type(one)(**{name: own[name]})
    except (TypeError, ValueError):  # other fields have no default
        return _changed(one, path, value)
    given = {field: values for field, values in own.items() if values != getattr(plain, field)}
    return type(one)(**{**given, name: value})


def _fitted(config: Any, task: Any) -> Any:
    """A config with the vocabulary, length and attention of a task."""
    wanted = config_for(task)
    known = {each.name for each in fields(config)}
    return replace(config, **{name: getattr(wanted, name) for name in FROM_TASK if name in known})
