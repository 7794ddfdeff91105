"""Heads that a user names."""

import operator
import reprlib
from typing import Any

import torch

from hooks.interventions.ablation_engine import Head, every_head
from hooks.interventions.clean_pass import Net


def check_heads(name: str, heads: Any, model: Net) -> list[Head]:
    """The heads that a user names, as (layer, head).

    Args:
        name: Name of the argument, and of the set within it if it has several.
        heads: The argument.
        model: Model with the heads.

    Raises:
        ValueError: something else than pairs of integers, no head, one twice, or one that does not exist.
    """
    argument = reprlib.repr(heads)
    last_head = (model.cfg.n_layers - 1, model.cfg.n_heads - 1)
    example = f"it must be a list of (layer, head), such as {[(0, 0), last_head]}"
    try:
        pairs = [(_integer(layer), _integer(head)) for layer, head in heads]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is {argument}; {example}.") from error
    if not pairs or len(set(pairs)) < len(pairs):
        raise ValueError(f"{name} is {argument}; give at least one head, each only once.")
    if missing := [head for head in pairs if head not in every_head(model)]:
        raise ValueError(
            f"{name} has head {missing[0]}; this model has layers 0 to {model.cfg.n_layers - 1} with heads 0 to "
            f"{model.cfg.n_heads - 1}."
        )
    return pairs


def _integer(value: Any) -> int:
    """An index that is no boolean, which Python and torch take as 0 or 1.

    Raises:
        TypeError: something else.
    """
    if isinstance(value, bool) or getattr(value, "dtype", None) == torch.bool:
        raise TypeError("a boolean is no index.")
    return operator.index(value)
