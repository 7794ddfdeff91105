"""Heading of a page: task, model, seed, command, commit and date, in words."""

from typing import Any

from interp.core.environment import command_line, environment, source_line, source_version
from interp.tasks.base import Task
from interp.view.html import PageIdentity


def page_identity(model: Any = None, task: Task | None = None, *, seed: int | str = "") -> PageIdentity:
    """The heading of a page that this process writes now.

    Args:
        model: The model that it is about, if one.
        task: Its task.
        seed: Seed of training or of the analysis, or both in words.
    """
    return PageIdentity(
        task=task.description if task is not None else "",
        model=model_line(model) if model is not None else "",
        seed=str(seed),
        command=command_line(),
        commit=source_line(source_version()),
        date=environment()["time"],
    )


def model_line(model: Any) -> str:
    """Architecture and size of a model in one line."""
    cfg = model.cfg
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    tied = getattr(cfg, "tied", False)
    depth = f"one block applied {quantity(cfg.n_layers, 'time')}" if tied else quantity(cfg.n_layers, "layer")
    names = (getattr(cfg, name, "") for name in ("block", "model_name", "architecture"))
    kind = next(filter(None, names), "")
    attention = getattr(cfg, "attention", "")
    facts = [kind, f"{depth} of {quantity(cfg.n_heads, 'head')}", f"width {cfg.d_model}", attention]
    facts += [f"{n_parameters:,} parameters", getattr(model, "read_out_fit", "")]
    return ", ".join(str(fact) for fact in facts if fact)


def quantity(n: int, noun: str) -> str:
    """A number with its noun: 1 layer, 2 layers."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
