"""The parts of the pages of a study: one template with a macro for each."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def fragment(name: str, *values: Any) -> Markup:
    """HTML of a part of a page.

    Args:
        name: Macro of `parts.html.jinja`.
        values: Its arguments, in order; texts are escaped.
    """
    return Markup(getattr(_macros(), name)(*values).strip())


@cache
def _macros() -> Any:
    loader = PackageLoader("case_studies.frame", ".")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    return environment.get_template("parts.html.jinja").module
