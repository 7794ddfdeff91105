"""The studies of installed packages, by their entry points in the group `interp.studies`."""

import importlib.metadata
import importlib.util
import tomllib
from pathlib import Path
from typing import Any

from hooks.checks import did_you_mean, shown
from hooks.files import read_json
from interp.tasks.registry import loaded, reason_of

ENTRY_POINTS = "interp.studies"
"""Entry-point group of studies."""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
"""Folder of packages with tasks and studies; only a checkout has it."""
STUDY_METHODS = ("title", "choose", "listing", "run", "draw", "check", "again", "bundle", "plan")
"""Attributes of a study that `interp reproduce` uses."""
MORE_STUDIES = " More studies are packages in examples/ of unmyopic's repository."


def study_entry_points() -> dict[str, Any]:
    """The entry points of studies, from this package and others, by name.

    Raises:
        ValueError: two studies of one name.
    """
    points: dict[str, Any] = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if points.setdefault(point.name, point).value != point.value:
            raise ValueError(f"two studies are called {point.name}: {points[point.name].value} and {point.value}.")
    return dict(sorted(points.items()))


def check_study(name: str, entry_points: dict[str, Any]) -> None:
    """Check that there is an entry point of this name."""
    if name not in entry_points:
        hint = _package_hint(name) or did_you_mean(name, list(entry_points)) or MORE_STUDIES
        raise ValueError(f"there is no study {name!r}; there is {', '.join(entry_points) or 'none'}.{hint}")


def _package_hint(name: str) -> str:
    """How the package of `examples/` with a study is installed; empty if there is none."""
    for path in sorted(EXAMPLES.glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        if name in project.get("entry-points", {}).get(ENTRY_POINTS, {}):
            folder = f"examples/{path.parent.name}"
            return f" It is in a package of its own. Next, in the folder of unmyopic: pip install {folder}"
    return ""


def load_study(name: str, entry_points: dict[str, Any]) -> Any:
    """Load a study from its entry point; it must have the attributes of a `Study` that `interp reproduce` uses.

    Raises:
        ValueError: there is no such study, or it cannot be loaded.
    """
    check_study(name, entry_points)
    point = entry_points[name]
    study = loaded(point, f"the study {name}")
    try:
        missing = [attribute for attribute in STUDY_METHODS if not hasattr(study, attribute)]
    except Exception as error:  # another's class may raise when it is asked
        raise ValueError(f"the study {name} ({point.value}) cannot be read: {reason_of(error)}.") from error
    if missing:
        raise ValueError(f"the study {name} ({point.value}) lacks {', '.join(missing)}.")
    return study


def study_folder(entry_point: Any) -> Path:
    """The folder of a study's module, with its results; only the packages that the module is in are imported.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    module, _, _ = entry_point.value.partition(":")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no module {module}")
    return Path(spec.origin).parent


def study_title(name: str, entry_points: dict[str, Any]) -> str:
    """The title of a study: from its shipped results, which takes no import, else from the study.

    Raises:
        ValueError: it cannot be loaded.
    """
    try:
        title = read_json(study_folder(entry_points[name]) / "results/claims.json", "results of a study")["title"]
    except (Exception, SystemExit):  # none are shipped, or the package of the module raises when it is imported
        title = load_study(name, entry_points).title
    if not isinstance(title, str):
        raise ValueError(f"the study {name} ({entry_points[name].value}) has no title: {shown(title)} is no text.")
    return title
