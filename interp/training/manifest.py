"""Manifest of a training run: what determines its weights, and where they were trained."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hooks.model.architectures import Model
from interp.core.environment import environment
from interp.core.verbs import prepare_scorable
from interp.tasks.base import Task
from interp.tasks.check import check_task
from interp.tasks.registry import class_path
from interp.training.compatibility import check_compatible
from interp.training.settings import TrainSettings

IDENTITY = ("seed", "task", "config", "settings", "initial_weights")
"""Manifest fields that must agree for a run to be resumed."""
ORIGIN = ("pretrained", "symbols")
"""Further such fields, which only manifests of models with a pretrained one have."""


def manifest_of(
    model: Model, task: Task, settings: TrainSettings, seed: int, origin: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The manifest of a run that starts with this model, which is checked and gets the task's tokenizer.

    Args:
        model: The model.
        task: The task.
        settings: Training settings.
        seed: Seed of the training.
        origin: `pretrained` and `symbols` of the model's specification, where they are set.

    Raises:
        ValueError: an inconsistent task, or a model or settings that do not fit it.
    """
    prepare_scorable(model, "train")
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
        "initial_weights": weights_fingerprint(model),
        **(origin or {}),
        **environment(),
    }


def weights_fingerprint(model: Model) -> str:
    """Hash of the names and values of all weights."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()[:16]


def manifest_differences(
    stored: Mapping[str, Any], manifest: Mapping[str, Any], names: Sequence[str] = IDENTITY
) -> str:
    """How fields of a stored manifest differ from those of this one, in words; empty if they do not."""
    expected = json.loads(json.dumps(dict(manifest)))  # lists in place of tuples, as in the stored one
    differing = [name for name in names if stored.get(name) != expected.get(name)]
    return "; ".join(_difference(name, stored.get(name), expected.get(name)) for name in differing)


def _difference(name: str, stored: Any, expected: Any) -> str:
    if isinstance(stored, dict) and isinstance(expected, dict):
        keys = [key for key in {**stored, **expected} if stored.get(key) != expected.get(key)]
        return ", ".join(f"{name}.{key} is {stored.get(key)!r}, not {expected.get(key)!r}" for key in keys)
    return f"{name} is {stored!r}, not {expected!r}"
