"""Fields of tasks: properties that a field may replace, and their values in manifests."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    default = property
else:

    class default(cached_property):
        """A cached property that a subclass may replace by a dataclass field, with or without a default value."""

        def __get__(self, instance, owner=None):
            """Compute the value once; raise AttributeError on the class."""
            # otherwise a dataclass would use the property as the default value of the field
            if instance is None:
                raise AttributeError(self.attrname)
            return super().__get__(instance, owner)


def json_value(value: Any, name: str, task: Any) -> Any:
    """The value of a field of a task as JSON stores it: numbers, strings, lists, dicts.

    Raises:
        ValueError: a type that JSON does not have.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [json_value(element, name, task) for element in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: json_value(element, name, task) for key, element in value.items()}
    raise ValueError(
        f"the field {name!r} of {type(task).__name__} has a {type(value).__name__}, which a manifest cannot store; use "
        f"numbers, strings, tuples and dicts, or override describe and from_description."
    )


def tuples(value: Any) -> Any:
    """The value of a field from JSON: lists become tuples."""
    if isinstance(value, dict):
        return {key: tuples(element) for key, element in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value
