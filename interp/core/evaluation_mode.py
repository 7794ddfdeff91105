"""Evaluation mode of models while a verb runs; the caller's mode and gradients are restored."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from torch import nn

from hooks.model.locks import holding

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def evaluation_mode(*models: Any) -> Iterator[None]:
    """Put models into evaluation mode; then restore the mode of every module and `requires_grad` of every parameter.

    Other threads wait until the block ends.

    Args:
        *models: Modules, wrapped bridges or training runs. Other objects are ignored: the verb refuses them.
    """
    nets = [net for net in map(_module_of, models) if net is not None]
    with holding(*nets):
        modes = [(module, module.training) for net in nets for module in net.modules()]
        gradients = [(parameter, parameter.requires_grad) for net in nets for parameter in net.parameters()]
        for net in nets:
            net.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
            for parameter, required in gradients:
                if parameter.requires_grad != required:
                    parameter.requires_grad_(required)


def in_evaluation_mode(verb: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a verb: its first argument, a model or several, is in evaluation mode while it runs."""
    first_name = next(iter(signature(verb).parameters))

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        first = args[0] if args else kwargs.get(first_name)
        models = first if isinstance(first, list | tuple) else [first]
        with evaluation_mode(*models):
            return verb(*args, **kwargs)

    return run


def _module_of(model: Any) -> nn.Module | None:
    """The module itself, of a wrapped bridge or of a training run; None for another object."""
    for candidate in (model, getattr(model, "bridge", None), getattr(model, "model", None)):
        if isinstance(candidate, nn.Module):
            return candidate
    return None
