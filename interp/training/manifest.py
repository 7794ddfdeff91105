"""Manifest of a training run: what determines its weights, and where they were trained."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from hooks.checks import shown
from hooks.files import shortened
from hooks.model.architectures import Model, config_from_dict
from hooks.typed import COUNT, MAY_BE_INFINITE, MAY_BE_MISSING, POSITIVE_COUNT, SHARE, SIZE, restored
from interp.core.environment import Environment, environment
from interp.core.weight_sums import same_weights, weight_sums
from interp.tasks.base import Task
from interp.tasks.check import check_task
from interp.tasks.registry import class_path
from interp.training.compatibility import check_compatible
from interp.training.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Manifest(Environment):
    """The fields of a manifest, for their check when it is read; those with defaults are not in every manifest."""

    seed: int
    task: dict[str, Any]
    task_class: str
    outcomes: tuple[str, ...]
    chance: Annotated[float, SHARE]
    config: dict[str, Any]
    settings: dict[str, Any]
    initial_weights: tuple[float, ...]
    """`weight_sums` of the model before training."""
    pretrained: str | None = None
    symbols: dict[str, str] | None = None
    fresh_heads: tuple[tuple[int, int], ...] | None = None
    read_out_fit: str = ""
    """How the read-out was fitted before training, if it was."""
    resumed_on: tuple[dict[str, Any], ...] = ()
    """Hardware and threads of each process that resumed it with others than before."""
    sha256: dict[str, str]
    stacked: Annotated[int, POSITIVE_COUNT] | None = None
    """Number of models that were trained as one."""
    command: str = ""
    """The command that trained the model that is shipped."""


@dataclass(frozen=True, kw_only=True)
class MetricsRecord:
    """One evaluation during training, a line of `metrics.jsonl`."""

    steps_done: Annotated[int, COUNT]
    phase: Literal["task", "mimic"] = "task"
    loss: Annotated[float, MAY_BE_INFINITE]
    accuracy: tuple[Annotated[float, SHARE, MAY_BE_MISSING], ...]
    validation_loss: tuple[Annotated[float, MAY_BE_INFINITE], ...]
    stage: Annotated[int, COUNT] | None = None
    seconds: Annotated[float, SIZE]
    total: Annotated[int, COUNT] | None = None


def check_manifest_fields(values: Mapping[str, Any]) -> None:
    """Check the fields of a stored manifest, and those of its config and settings.

    Raises:
        ValueError: a field that is unknown or missing, or has another type or a number out of range.
    """
    restored(Manifest, values)
    for name, read in (("settings", TrainSettings.from_dict), ("config", config_from_dict)):
        try:
            read(values[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


IDENTITY = ("seed", "task", "config", "settings", "initial_weights")
"""Manifest fields that must agree for a run to be resumed: what was asked for, and the weights up to rounding."""
ORIGIN = ("pretrained", "symbols", "fresh_heads")
"""Further such fields, which only manifests of models with a pretrained one have."""
PLACE = ("hardware", "threads")
"""Manifest fields about the machine; a run may be resumed on another one."""


def manifest_of(
    model: Model, task: Task, settings: TrainSettings, seed: int, origin: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The manifest of a run that starts with this model, which gets the task's tokenizer.

    Args:
        model: The model.
        task: The task.
        settings: Training settings.
        seed: Seed of the training.
        origin: `pretrained`, `symbols` and `fresh_heads` of the model's specification, where they are set.

    Raises:
        ValueError: an inconsistent task, or a model or settings that do not fit it.
    """
    check_task(task)
    check_compatible(model, task, settings)
    model.tokenizer = task.vocab
    return {
        "seed": seed,
        "task": task.describe(),
        "task_class": class_path(type(task)),
        "outcomes": list(task.outcomes),
        "chance": task.chance,
        "config": model.cfg.to_dict(),
        "settings": settings.to_dict(),
        "initial_weights": list(weight_sums(model)),
        **(origin or {}),
        **({"read_out_fit": model.read_out_fit} if hasattr(model, "read_out_fit") else {}),
        **environment(),
    }


SHOWN_DIFFERENCES = 3
"""Differences between two runs that an error names."""


def manifest_differences(
    stored: Mapping[str, Any], manifest: Mapping[str, Any], names: Sequence[str] = IDENTITY
) -> str:
    """How fields of a stored manifest differ from those of this one, the first three in words; empty if they do not."""
    expected = json.loads(json.dumps(dict(manifest)))  # lists in place of tuples, as in the stored one
    differing = [name for name in names if not _agree(name, stored.get(name), expected.get(name))]
    # Other sizes have other weights, which goes without saying
    if "config" in differing and "initial_weights" in differing:
        differing.remove("initial_weights")
    by_field = [_differences(name, stored.get(name), expected.get(name)) for name in differing]
    # One of each field before the second of any
    texts = [texts[0] for texts in by_field] + [text for texts in by_field for text in texts[1:]]
    n_more = len(texts) - SHOWN_DIFFERENCES
    return "; ".join(texts[:SHOWN_DIFFERENCES]) + (f"; and {n_more} more" if n_more > 0 else "")


def _agree(name: str, stored: Any, expected: Any) -> bool:
    """Whether two values of a field are of the same run."""
    if name == "initial_weights" and stored and expected:
        return same_weights(stored, expected)
    return stored == expected


def _differences(name: str, stored: Any, expected: Any) -> list[str]:
    """How a field of a manifest differs, in words; of two tasks, only their names."""
    if name == "initial_weights":
        return ["initial_weights is of another model"]
    if not (isinstance(stored, dict) and isinstance(expected, dict)):
        return [f"{name} is {shown(stored)}, not {shown(expected)}"]
    keys = [key for key in {**stored, **expected} if stored.get(key) != expected.get(key)]
    if name == "task" and "task" in keys:
        keys = ["task"]
    return [f"{name}.{key} is {_value(stored, key)}, not {_value(expected, key)}" for key in keys]


def _value(fields: Mapping[str, Any], key: str) -> str:
    """A value in words; fields that were added later are omitted at their defaults."""
    return shortened(shown(fields[key]), 40) if key in fields else "the default"
