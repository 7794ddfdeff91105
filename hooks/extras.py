"""Packages of extras, which only some functions need: a missing one is an error that says what to install."""

from importlib.util import find_spec


class MissingExtra(ImportError):
    """A package is not installed that an extra of unmyopic has."""


def require(package: str, *, extra: str) -> None:
    """Check that a package of an extra is installed; it is not imported.

    Args:
        package: Name as in `import`.
        extra: The extra that has it, such as `text`.

    Raises:
        MissingExtra: it is not installed; says the command that installs it.
    """
    if find_spec(package) is None:
        raise MissingExtra(
            f'{package} is not installed, which this needs. Next, in the folder of unmyopic: pip install ".[{extra}]"'
        )
