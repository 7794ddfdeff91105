"""`interp reproduce`: the studies of installed packages."""

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from interp.cli.output import DIFFERS, DONE, Device, Json, Output, did_you_mean

Size = Literal["quick", "standard", "paper"]
CLAIM = ("id", "source", "statement", "paper", "sizes")
"""What `--list --json` prints of a claim, besides its rule and when that was fixed."""

STUDY = ("title", "choose", "listing", "run", "draw", "check", "bundle", "plan")
"""Parts of a study that this command uses."""


def reproduce(
    study: Annotated[str | None, typer.Argument(help="The study to run. Default: list all studies.")] = None,
    size: Annotated[
        str | None,
        typer.Option(help="quick (minutes), standard, or paper (a GPU). Default: quick; of stored results, theirs."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="A claim id, or the prefix of several; repeatable.")] = None,
    list_claims: Annotated[bool, typer.Option("--list", help="Print the claims and their rules; run nothing.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print how many models it trains, and how long that takes; run nothing.")
    ] = False,
    page: Annotated[bool, typer.Option("--page", help="Draw the page from stored results; run nothing.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Measure again, compare with the shipped results; exit code 3 if one differs."),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="With --check: a bundle, or a folder with claims.json, instead of those shipped."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Write results, hashes, environment and models' keys to this zip file; run nothing."),
    ] = None,
    with_models: Annotated[bool, typer.Option("--with-models", help="With --bundle: the trained models too.")] = False,
    packs: Annotated[
        Path | None, typer.Option(help="Folder of the packs that the study reads, for studies that read packs.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for models and results.")] = Path("runs/reproduce"),
    seed: Annotated[
        int | None, typer.Option(help="Seed of the measurements. Default: 0; with --check that of the results.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Repeat finished training and measurements.")] = False,
    jobs: Annotated[int, typer.Option(help="Number of parallel processes.")] = 2,
    device: Device = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler whose workers train and measure: tcp://host:8786.")
    ] = None,
    as_json: Json = False,
) -> Output:
    """Test a paper's claims: train, measure, judge, and write a page. An interrupted run is resumed."""
    from hooks.checks import check_choice

    check_choice("size", size or "quick", Size)
    _check_modes(
        {"--list": list_claims, "--plan": plan, "--page": page, "--check": check, "--bundle": bundle is not None}
    )
    if against is not None and not check:
        raise ValueError("--against is what --check compares with; add --check.")
    if with_models and bundle is None:
        raise ValueError("--with-models is about a bundle; add --bundle FILE.")
    found = _studies()
    if study is None:
        return _list_studies(found)
    chosen, options = _with_packs(_load_study(study, found), study, packs), {"only": only or ()}
    if list_claims:
        claims = [
            {name: getattr(claim, name) for name in CLAIM}
            | {"rule": claim.rule_text, "fixed": claim.preregistration.text}
            for claim in chosen.choose(**options)
        ]
        values = {"study": study, "title": chosen.title, "claims": claims}
        return Output(text=chosen.listing(**options), values=values)
    if bundle is not None:
        path = chosen.bundle(bundle, size=size, folder=out, with_models=with_models)
        command = f"interp reproduce {study} --check --against {path}"
        return Output(text=f"bundle: {path}\nnext: {command}", values={"bundle": str(path), "next": command})
    if plan:
        found_plan = chosen.plan(size=size or "quick", folder=out, n_jobs=jobs, **options)
        return Output(text=str(found_plan), values=vars(found_plan))
    if page:
        return _shown(chosen.draw(size=size, folder=out))
    options |= {"size": size, "folder": out, "n_jobs": jobs, "fresh": fresh, "seed": seed, "device": device}
    if check:
        if scheduler is not None:
            raise ValueError("--check measures on this machine; omit --scheduler.")
        checked = chosen.check(**options, against=against)
        return Output(text=f"\n{checked}", values=checked.to_dict(), code=DONE if checked.passed else DIFFERS)
    options |= {"size": size or "quick", "seed": seed or 0, "scheduler": scheduler}
    return _shown(chosen.run(**options), [claim.id for claim in chosen.choose(only)] if only else None)


def _with_packs(study: Any, name: str, packs: Path | None) -> Any:
    """The study on this folder of packs."""
    if packs is None:
        return study
    if getattr(study, "of_packs", None) is None:
        raise ValueError(f"--packs is {str(packs)!r}, but the study {name} reads no packs; leave it out.")
    if not packs.is_dir():
        raise ValueError(f"--packs is {str(packs)!r}, which is no folder.")
    found = study.of_packs(packs)
    if any(claim.missing_input for claim in found.claims):
        raise ValueError(f"--packs is {str(packs)!r}, which has no packs (NAME.json and NAME.npz).")
    return found


def _check_modes(given: dict[str, bool]) -> None:
    modes = [name for name in given if given[name]]
    if len(modes) > 1:
        raise ValueError(f"{modes[0]} and {modes[1]} exclude each other; give one of them.")


def _shown(result: Any, only: Sequence[str] | None = None) -> Output:
    """A study's result; with `only`, without the other claims, which are on the page."""
    values = {**result.to_dict(), "page": str(result.page)}
    if only is not None:
        values["claims"] = [one for one in values["claims"] if one["id"] in only]
    return Output(text=f"\n{result}\npage: {result.page}", values=values)


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
    missing = [part for part in STUDY if not hasattr(study, part)]
    if missing:
        raise ValueError(f"the study {name} ({found[name].value}) lacks {', '.join(missing)}.")
    return study
