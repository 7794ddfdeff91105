"""Fields of tasks: properties that a field may replace, and their values in manifests."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    default = property
else:

    class default(cached_property):  # a decorator
        """A property that a subclass may replace by a dataclass field, with or without a default value."""

        def __get__(self, instance, owner=None):
            """Compute the value once; raise AttributeError on the class."""
            if instance is None:  # else a dataclass would take the property for the default value of the field
                raise AttributeError(self.attrname)
            return super().__get__(instance, owner)


def plain(value: Any, name: str, task: Any) -> Any:
    """The value of a field of a task, as JSON holds it.

    Raises:
        ValueError: a type that JSON does not have.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(item, name, task) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(item, name, task) for key, item in value.items()}
    raise ValueError(
        f"the field {name!r} of {type(task).__name__} has a {type(value).__name__}, which a manifest cannot hold; use "
        f"numbers, text, tuples and dicts, or override describe and from_description."
    )


def tuples(value: Any) -> Any:
    """The value of a field from JSON: lists become tuples."""
    if isinstance(value, dict):
        return {key: tuples(item) for key, item in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value
