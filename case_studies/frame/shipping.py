"""The results that are shipped with a study, written again from its newest measurements and those stored before.

A number is written only if its models, its quantity and the code of its measure are those that its rule names today.
Other claims are written as not measured.

    python -m case_studies.frame.shipping lego --folder runs/reproduce
"""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from case_studies.frame.claims import Claim, StudyClaims
from case_studies.frame.code_digest import code_digest
from case_studies.frame.evidence import settings_of
from case_studies.frame.measuring import StoredMeasurement, models_of
from case_studies.frame.results import ClaimResult, StudyResult
from case_studies.frame.running import Run, judged_measurement
from case_studies.frame.stored import PAGE, read_results, write_results
from hooks.files import FAULTS, read_json, user_path
from interp.core.environment import environment


def ship(study: StudyClaims, *, folder: str | Path = "runs/reproduce") -> StudyResult:
    """Write the shipped results of a study again.

    Args:
        study: The study.
        folder: Folder of studies and models, as of `Study.run`. Measurements there come first, whatever the versions
            of packages and of the toolkit that they were made with.

    Returns:
        What is shipped now; it prints as a table.

    Raises:
        ValueError: the study has no shipped results, or they cannot be read.
    """
    stored = read_results(study.shipped, study.name) if study.shipped else None
    if stored is None or study.shipped is None:
        raise ValueError(f"the study {study.name} has no shipped results; run it, and copy its two files.")
    seed = int(stored.content["manifest"]["seed"])
    run = Run(study, size=stored.size, folder=user_path(folder), n_jobs=1, seed=seed)
    # The newest measurement of each claim, else the stored one
    groups = study.groups(stored.size)
    claims: list[ClaimResult] = []
    n_new = 0
    for claim in study.claims:
        measured = _measured(run, claim)
        n_new += measured is not None
        claims.append(measured or stored.claim(claim, groups))
    # Facts of all measurements; the environment is that of the newest ones
    before = stored.content["manifest"]
    manifest = (environment() if n_new else before) | {
        "seed": seed,
        "models": before["models"] | {"used": len(run.specs_of(study.claims)), "there": _n_models(claims)},
        "measured_now": n_new,
        "seconds": round(_seconds(claims), 1),
        "wall_seconds": before["wall_seconds"],
    }
    result = StudyResult(
        study=study.name,
        title=study.title,
        size=stored.size,
        claims=tuple(claims),
        manifest=manifest,
        page=study.shipped / PAGE,
    )
    write_results(result, study.shipped)
    return result


def _measured(run: Run, claim: Claim) -> ClaimResult | None:
    """The measurement of a claim in the folder of a run, if it belongs to today's rule."""
    if claim.id not in run.files:
        return None
    try:
        stored = StoredMeasurement.from_dict(read_json(run.files[claim.id].path, "a measurement"))
    except (OSError, *FAULTS):
        return None
    evidence = run.evidence[claim.id]
    of_today = (models_of(evidence), code_digest(claim.measure), run.seed, claim.packs_digest)
    if of_today != (stored.models, stored.code, stored.seed, stored.provenance.get("packs", "")):
        return None
    settings = {name: settings_of(specs) for name, specs in evidence.groups.items()}
    return judged_measurement(claim, stored, settings)


def _n_models(claims: list[ClaimResult]) -> int:
    """Number of models that the measured claims were measured on."""
    return len({key for claim in claims for settings in claim.settings.values() for key in settings["keys"]})


def _seconds(claims: list[ClaimResult]) -> float:
    """Computing time of all measurements, and of the trainings of their models, each set of models once."""
    trainings: dict[str, float] = {}
    for claim in claims:
        trained: Any = (claim.provenance or {}).get("trained")
        if trained:
            trainings[trained["weights"]] = trained["seconds"]
    return sum(trainings.values()) + sum(claim.cost["seconds"] for claim in claims if claim.cost)


def main(
    study: str,
    folder: Annotated[Path, typer.Option(help="Folder of studies and models.")] = Path("runs/reproduce"),
) -> None:
    """Write the shipped results of a study again, from the measurements in a folder and those stored before."""
    result = ship(import_module(f"case_studies.{study}.study").STUDY, folder=folder)
    typer.echo(f"{result}\n{result.manifest['measured_now']} claims are newly measured")


if __name__ == "__main__":
    typer.run(main)
