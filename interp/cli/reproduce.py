"""`interp reproduce`: the studies of installed packages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hooks.files import shortened
from interp.cli.installed_studies import check_study, load_study, study_entry_points, study_title
from interp.cli.output import DIFFERS, DONE, Device, Json, Output
from interp.cli.study_list import claims_text, claims_values

Size = Literal["quick", "standard", "paper"]


def reproduce(
    study: Annotated[
        str | None,
        typer.Argument(
            help="The study to run. Default: list all studies.", autocompletion=lambda: list(study_entry_points())
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help="quick (minutes), standard, or paper (a GPU). Default: quick; of stored results, theirs."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="A claim id, or the prefix of several; repeatable.")] = None,
    list_claims: Annotated[bool, typer.Option("--list", help="Print the claims and their rules; run nothing.")] = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print what there is to train and to measure, and how long it takes; run nothing."),
    ] = False,
    page: Annotated[bool, typer.Option("--page", help="Draw the page from stored results; run nothing.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Measure again, compare with the shipped results; exit code 3 if one differs."),
    ] = False,
    again: Annotated[
        int | None,
        typer.Option(help="Measure so many claims again, drawn at random by --seed, and compare them as --check does."),
    ] = None,
    at_most: Annotated[
        float | None, typer.Option(help="With --again: most seconds that a claim and its models took before.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="With --check: a bundle, or a folder with claims.json, instead of those shipped."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Write results, hashes, environment and models' keys to this zip file; run nothing."),
    ] = None,
    with_models: Annotated[bool, typer.Option("--with-models", help="With --bundle: the trained models too.")] = False,
    half: Annotated[
        bool, typer.Option("--half", help="With --with-models: weights in half precision where claims allow it.")
    ] = False,
    packs: Annotated[
        Path | None,
        typer.Option(help="Folder of the compiled or published models to measure, for studies that read some."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Folder of the weights that the study reads, such as a clone, for studies that do."),
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
    modes = {"--list": list_claims, "--plan": plan, "--page": page, "--check": check}
    modes |= {"--again": again is not None, "--bundle": bundle is not None}
    _check_modes(modes)
    if at_most is not None and again is None:
        raise ValueError("--at-most is about the claims that --again draws; add --again N.")
    if again is not None and (fresh or device):
        option = "--fresh" if fresh else "--device"
        raise ValueError(f"{option} is about training everything; --again uses models that are there; omit {option}.")
    if again is not None and size is not None:
        raise ValueError("--again compares with the shipped numbers, at their size; omit --size.")
    if against is not None and not check:
        raise ValueError("--against is what --check compares with; add --check.")
    if with_models and bundle is None:
        raise ValueError("--with-models is about a bundle; add --bundle FILE.")
    if half and not with_models:
        raise ValueError("--half is about the models of a bundle; add --bundle FILE --with-models.")
    if only and bundle is not None:
        raise ValueError("--only chooses claims, but a bundle has all of them; omit --only or --bundle.")
    # the study; without a name all are listed
    entry_points = study_entry_points()
    if study is None:
        for mode, is_chosen in modes.items():
            if is_chosen and not list_claims:
                raise ValueError(f"{mode} is about one study; there is {', '.join(entry_points)}.")
        if only:
            raise ValueError(f"--only is about the claims of one study; there is {', '.join(entry_points)}.")
        return _list_studies(entry_points)
    # loading takes seconds, so a first line says what begins
    check_study(study, entry_points)
    if not (list_claims or as_json):
        mode = next((name.removeprefix("--") for name, is_chosen in modes.items() if is_chosen), "run")
        print(_first_line(study, size, out, mode=mode))
    chosen_study = load_study(study, entry_points)
    for option, folder in (("packs", packs), ("weights", weights)):
        if folder is not None:
            chosen_study = _with_files(chosen_study, study, option, folder)
    claim_ids = only or ()
    # modes that measure nothing
    if list_claims:
        listing = _listing(chosen_study, entry_points[study])
        return Output(text=claims_text(listing, claim_ids), values=claims_values(listing, claim_ids))
    if bundle is not None:
        path = chosen_study.bundle(bundle, size=size, folder=out, with_models=with_models, half=half)
        command = f"interp reproduce {study} --check --against {path}"
        return Output(text=f"bundle: {path}\nnext: {command}", values={"bundle": str(path), "next": command})
    if plan:
        training_plan = chosen_study.plan(size=size or "quick", folder=out, n_jobs=jobs, only=claim_ids)
        return Output(text=str(training_plan), values=vars(training_plan))
    if page:
        return _result_output(chosen_study.draw(size=size, only=claim_ids, folder=out))
    # measure, and compare or judge
    options = {"only": claim_ids, "folder": out, "n_jobs": jobs, "fresh": fresh, "device": device}
    if check or again is not None:
        if scheduler is not None:
            raise ValueError(f"{'--check' if check else '--again'} measures on this machine; omit --scheduler.")
        if again is None:
            comparison = chosen_study.check(**options, size=size, seed=seed, against=against)
        else:
            comparison = chosen_study.again(
                again, only=claim_ids, folder=out, n_jobs=jobs, at_most=at_most, seed=seed or 0
            )
        code = DONE if comparison.passed else DIFFERS
        return Output(text=f"\n{comparison}", values=comparison.to_dict(), code=code)
    result = chosen_study.run(**options, size=size or "quick", seed=seed or 0, scheduler=scheduler)
    return _result_output(result, [claim.id for claim in chosen_study.choose(only)] if only else None)


def _first_line(study: str, size: str | None, out: Path, *, mode: str) -> str:
    """What is printed before a study is loaded."""
    # the size of a page, a check or a bundle is by default that of the stored results
    known_size = size or ("quick" if mode in ("plan", "run") else None)
    size_text = f" at size {known_size}" if known_size else ""
    return f"{mode} of {study}{size_text}, with the models and results in {out} ..."


def _check_modes(modes: dict[str, bool]) -> None:
    """Check that at most one of the options that choose what to do is given."""
    chosen_modes = [name for name, is_chosen in modes.items() if is_chosen]
    if len(chosen_modes) > 1:
        raise ValueError(f"{chosen_modes[0]} and {chosen_modes[1]} exclude each other; give one of them.")


def _listing(study: Any, entry_point: Any) -> Mapping[str, Any]:
    """The claims of a study, with the verdicts of its shipped results."""
    try:
        return study.listing()
    except ValueError:
        raise
    except Exception as error:
        text = shortened(f"{type(error).__name__}: {error}")
        raise ValueError(f"the study {entry_point.name} ({entry_point.value}) cannot be listed: {text}.") from error


def _with_files(study: Any, name: str, option: str, folder: Path) -> Any:
    """The study with the packs or the weights of a folder as its input."""
    study_of_files = getattr(study, f"of_{option}", None)
    if study_of_files is None:
        raise ValueError(f"--{option} is {str(folder)!r}, but the study {name} reads no {option}; omit it.")
    if not folder.is_dir():
        raise ValueError(f"--{option} is {str(folder)!r}, which is not a folder.")
    study_with_files = study_of_files(folder)
    missing = [claim.packs.missing for claim in study_with_files.claims if claim.missing_input]
    if missing:
        raise ValueError(f"--{option} is {str(folder)!r}, which has {missing[0]}.")
    return study_with_files


def _list_studies(entry_points: dict[str, Any]) -> Output:
    studies, lines = [], []
    width = max(map(len, entry_points), default=0)
    for name in entry_points:
        try:
            study = {"study": name, "title": study_title(name, entry_points)}
        except ValueError as error:
            study = {"study": name, "error": str(error)}
        studies.append(study)
        lines.append(f"{name:<{width}}  {study.get('title') or study['error']}")
    hint = "next: interp reproduce STUDY --list" if studies else "no study is installed (group interp.studies)."
    return Output(text="\n".join([*lines, hint]), values={"studies": studies})


def _result_output(result: Any, claim_ids: Sequence[str] | None = None) -> Output:
    """A study's result; the values of these claims only, if they are named. All are on the page."""
    values = {**result.to_dict(), "page": str(result.page)}
    if claim_ids is not None:
        values["claims"] = [claim for claim in values["claims"] if claim["id"] in claim_ids]
    return Output(text=f"\n{result}\npage: {result.page}", values=values)
