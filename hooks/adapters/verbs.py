"""Which analyses accept a wrapped model: a package of analyses registers a function that gives the obstacles."""

from collections.abc import Callable
from typing import Any

REGISTERED: dict[str, Callable[[Any], dict[str, str]]] = {}
"""The function of each package: from capabilities to the obstacle of each verb, empty if there is none. It is called
when capabilities are printed."""


def verb_obstacles(capabilities: Any) -> dict[str, str]:
    """Why each registered verb does not accept a model of these capabilities; empty if it does."""
    obstacles: dict[str, str] = {}
    for obstacles_of in REGISTERED.values():
        obstacles |= obstacles_of(capabilities)
    return obstacles
