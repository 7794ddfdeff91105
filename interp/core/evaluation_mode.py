"""Verbs run a model in evaluation mode, and leave it as they found it."""

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
    """Put models into evaluation mode, and give every module the mode and every parameter the `requires_grad` it had.

    Other threads wait until the block ends.

    Args:
        *models: Modules, wrapped bridges or training runs; anything else is left to the verb, which refuses it.
    """
    nets = [net for net in map(_module, models) if net is not None]
    with holding(*nets):
        yield from _evaluating(nets)


def _evaluating(nets: list[nn.Module]) -> Iterator[None]:
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
    first = next(iter(signature(verb).parameters))

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        models = args[0] if args else kwargs.get(first)
        several = list(models) if isinstance(models, list | tuple) else [models]
        with evaluation_mode(*several):
            return verb(*args, **kwargs)

    return run


def _module(model: Any) -> nn.Module | None:
    held = (model, getattr(model, "bridge", None), getattr(model, "model", None))
    return next((one for one in held if isinstance(one, nn.Module)), None)
