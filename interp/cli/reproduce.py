"""`interp reproduce`: the studies of installed packages."""

import importlib.metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from interp.cli.output import Device, Json, Output, did_you_mean

Size = Literal["quick", "standard", "paper"]
CLAIM = ("id", "source", "statement", "paper", "rule", "sizes")
"""What `--list --json` prints of a claim."""


def reproduce(
    study: Annotated[str | None, typer.Argument(help="The study to run. Default: list all studies.")] = None,
    size: Annotated[str, typer.Option(help="quick (minutes), standard, or paper (a GPU).")] = "quick",
    only: Annotated[list[str] | None, typer.Option(help="A claim id, or the prefix of several; repeatable.")] = None,
    list_claims: Annotated[bool, typer.Option("--list", help="Print the claims and their rules; run nothing.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for models and results.")] = Path("runs/reproduce"),
    seed: Annotated[int, typer.Option(help="Seed of the measurements; each model has its own seed.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Repeat finished training and measurements.")] = False,
    jobs: Annotated[int, typer.Option(help="Number of parallel processes.")] = 2,
    device: Device = None,
    as_json: Json = False,
) -> Output:
    """Test a paper's claims: train, measure, judge, and write a page. An interrupted run is resumed."""
    from hooks.modules.basic import check_choice

    check_choice("size", size, Size)
    found = _studies()
    if study is None:
        return _list_studies(found)
    chosen, options = _load_study(study, found), {"only": only or ()}
    if list_claims:
        claims = [{name: getattr(claim, name) for name in CLAIM} for claim in chosen.choose(**options)]
        values = {"study": study, "title": chosen.title, "claims": claims}
        return Output(text=chosen.listing(**options), values=values)
    options |= {"size": size, "folder": out, "n_jobs": jobs, "fresh": fresh, "seed": seed, "device": device}
    result = chosen.run(**options)
    return Output(text=f"\n{result}\npage: {result.page}", values={**result.to_dict(), "page": str(result.page)})


def _list_studies(found: dict[str, Any]) -> Output:
    studies, lines = [], []
    for name in found:
        try:
            studies.append({"study": name, "title": _load_study(name, found).title})
        except ValueError as error:
            studies.append({"study": name, "error": str(error)})
        lines.append(f"{name:<12} {studies[-1].get('title') or studies[-1]['error']}")
    lines.append("next: interp reproduce STUDY --list" if found else "no study is installed (group interp.studies).")
    return Output(text="\n".join(lines), values={"studies": studies})


def _studies() -> dict[str, Any]:
    """Entry points of the group `interp.studies`, from this package and others, by name."""
    found = {}
    for point in importlib.metadata.entry_points(group="interp.studies"):
        if found.setdefault(point.name, point).value != point.value:
            raise ValueError(f"two studies are called {point.name}: {found[point.name].value} and {point.value}.")
    return dict(sorted(found.items()))


def _load_study(name: str, found: dict[str, Any]) -> Any:
    """Load a study from its entry point; it must have the parts of a `Study` that this command uses."""
    if name not in found:
        hint = did_you_mean(name, list(found))
        raise ValueError(f"there is no study {name!r}; there is {', '.join(found) or 'none'}.{hint}")
    try:
        study = found[name].load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the study {name} ({found[name].value}) cannot be loaded: {error}.") from error
    missing = [part for part in ("title", "choose", "listing", "run") if not hasattr(study, part)]
    if missing:
        raise ValueError(f"the study {name} ({found[name].value}) lacks {', '.join(missing)}.")
    return study
