"""Which analyses accept a wrapped model: a package of analyses registers a function that gives the obstacles."""

from importlib import import_module
from typing import Any

REGISTERED: dict[str, str] = {}
"""The function of each package, as `module:name`: from capabilities to the obstacle of each verb, empty if there is
none. It is imported when capabilities are printed."""


def verb_obstacles(capabilities: Any) -> dict[str, str]:
    """Why each registered verb does not accept a model of these capabilities; empty if it does."""
    obstacles: dict[str, str] = {}
    for path in REGISTERED.values():
        module, name = path.split(":")
        obstacles |= getattr(import_module(module), name)(capabilities)
    return obstacles
