"""Checks of what the fields of a result say about each other."""

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from hooks.checks import shown
from hooks.typed import ROUNDING


def check_that(is_true: Any, text: str) -> None:
    """Check what must be true of several fields.

    Raises:
        ValueError: it is not; with this text.
    """
    if not is_true:
        raise ValueError(text)


def check_known(name: str, values: Iterable[Any], known: Collection[Any], owner: str) -> None:
    """Check that values are among those of another field.

    Args:
        name: Name of the field.
        values: Its values.
        known: The values that there are.
        owner: The field that has them, for the error.

    Raises:
        ValueError: a value that is not there.
    """
    unknown = [value for value in values if value not in known]
    check_that(not unknown, f"{name} has {shown(unknown[:1])[1:-1]}; {owner} has {shown(tuple(known))}.")


def check_heads_of_shape(name: str, heads: Sequence[tuple[int, int]], shape: Sequence[int]) -> None:
    """Check that heads are each there once, and in a model with this number of layers and heads.

    Raises:
        ValueError: a head that is there twice, or that the model does not have.
    """
    unknown = [(layer, head) for layer, head in heads if layer >= shape[0] or head >= shape[1]]
    text = f"{name} has head {shown(unknown[:1])[1:-1]}; the model has {shape[0]} layers of {shape[1]} heads."
    check_that(not unknown, text)
    check_that(len(set(heads)) == len(heads), f"{name} has a head twice: {shown(heads)}.")


def grid(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Every (layer, head) of a model, in its order."""
    return list(product(*map(range, shape)))


def check_lost_accuracy(name: str, drop: Any, clean: Any) -> None:
    """Check that the accuracy that is left is a share.

    Args:
        name: Name of the field.
        drop: Accuracy lost; the last axis is that of `clean`.
        clean: Accuracy of the whole model.

    Raises:
        ValueError: more is lost than there is, or more gained than is missing.
    """
    remaining = np.asarray(clean) - np.asarray(drop)
    outside = (remaining < -ROUNDING) | (remaining > 1 + ROUNDING)
    if outside.any():
        place = tuple(np.argwhere(outside)[0].tolist())
        accuracy = np.broadcast_to(clean, remaining.shape)[place]
        raise ValueError(
            f"{name} is {np.asarray(drop)[place]:g} at {list(place)}, where clean is {accuracy:g}: no accuracy is left "
            f"that could be."
        )


def check_same_numbers(name: str, values: Any, expected: Any, owner: str, *, margin: float = ROUNDING) -> None:
    """Check that numbers equal what other fields say they are, up to rounding, missing ones included.

    Args:
        name: Name of the field.
        values: Its numbers.
        expected: Those that follow from other fields.
        owner: How they follow, for the error.
        margin: Difference that is rounding, for numbers of size 1.

    Raises:
        ValueError: the first number that differs.
    """
    values, expected = np.broadcast_arrays(np.asarray(values, dtype=float), np.asarray(expected, dtype=float))
    both = np.isfinite(values) & np.isfinite(expected)
    difference = np.abs(np.where(both, values, 0) - np.where(both, expected, 0))
    differs = difference > margin * (1 + np.abs(np.where(both, expected, 0)))
    differs |= np.isnan(values) != np.isnan(expected)
    if differs.any():
        place = tuple(np.argwhere(differs)[0].tolist())
        where = f" at {list(place)}" if place else ""
        raise ValueError(f"{name} is {values[place]:g}{where}; {owner} is {expected[place]:g}.")
