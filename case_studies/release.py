"""Measuring a release: everything that an earlier commit measured is measured by this one, cheapest first.

    python -m case_studies.release --plan
    python -m case_studies.release lego dyck --at-most 60
    python -m case_studies.release template --only identity.b-saves-less

Numbers are written to the results that are shipped as soon as they are measured, so that an interrupted release goes
on where it was. A statement that it does not measure keeps its number, which says the commit that measured it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from case_studies.frame.claims import Claim
from case_studies.frame.results import ClaimResult, details_of
from case_studies.frame.running import Run
from case_studies.frame.stored import StoredResults, costs_of, read_results, write_files
from case_studies.study import Study
from hooks.files import user_path
from interp.cli.installed_studies import load_study, study_entry_points
from interp.core.environment import environment, source_version
from interp.core.progress import say
from interp.sweeps.status import run_status
from interp.training.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a release has to measure of one study."""

    study: Study
    stored: StoredResults
    run: Run
    to_measure: tuple[Claim, ...]
    """Claims to measure, cheapest first."""
    without_models: tuple[Claim, ...]
    """Claims that this commit has not measured, whose models are not in the folder."""
    left_out: tuple[Claim, ...]
    """Chosen claims that this commit has not measured, and that are too expensive or lack their data."""

    def __str__(self) -> str:
        costs = costs_of(self.stored)
        known = [costs[claim.id] for claim in self.to_measure if claim.id in costs]
        text = f"{self.study.name}: {len(self.to_measure)} to measure, about {sum(known) / 60:.1f} minutes of one core"
        unknown = len(self.to_measure) - len(known)
        text = f"{text} and {unknown} of unknown cost" if unknown else text
        for name, claims in (("without their models", self.without_models), ("left out", self.left_out)):
            if claims:
                text = f"{text}\n  {name}: {', '.join(claim.id for claim in claims)}"
        return text


def plan_release(
    study: Study, *, folder: str | Path, only: Sequence[str] = (), at_most: float | None = None, n_jobs: int = 2
) -> Release:
    """What this commit has not measured of a study yet.

    Args:
        study: The study; its shipped results are those of the earlier commits.
        folder: Folder of studies and models, as of `Study.run`.
        only: Claim ids or prefixes of ids; default: all.
        at_most: Seconds that measuring a claim took before; more expensive claims are left out.
        n_jobs: Number of processes.

    Raises:
        ValueError: the study ships no results, or a name that matches no claim.
    """
    stored = read_results(study.shipped, study.name) if study.shipped else None
    if stored is None:
        raise ValueError(f"the study {study.name} ships no results; run it once, and copy its two files.")
    seed = int(stored.content["manifest"]["seed"])
    run = Run(study, size=stored.size, folder=user_path(folder), n_jobs=n_jobs, seed=seed)
    chosen = study.choose(only)
    costs = costs_of(stored)
    due = [claim for claim in chosen if stored.size in claim.sizes and not _is_of_this_commit(stored, claim)]
    affordable = [claim for claim in due if at_most is None or costs.get(claim.id, 0.0) <= at_most]
    measurable = [claim for claim in affordable if not claim.missing_input]
    with_models = [claim for claim in measurable if _has_models(run, claim)]
    return Release(
        study=study,
        stored=stored,
        run=run,
        to_measure=tuple(sorted(with_models, key=lambda claim: costs.get(claim.id, 0.0))),
        without_models=tuple(claim for claim in measurable if claim not in with_models),
        left_out=tuple(claim for claim in due if claim not in measurable),
    )


def release(plan: Release) -> dict[str, str]:
    """Measure what a release has to measure, and write the shipped results after each batch.

    Returns:
        The tracebacks of claims that could not be measured, by id.
    """
    assert plan.study.shipped is not None
    errors: dict[str, str] = {}
    content, details = plan.stored.content, plan.stored.details
    for first in range(0, len(plan.to_measure), plan.run.n_jobs):
        started = time.perf_counter()
        batch = plan.to_measure[first : first + plan.run.n_jobs]
        errors |= plan.run.measure(plan.run.to_measure(batch, fresh=False), costs_of(plan.stored))
        results = [plan.run.result(claim, errors) for claim in batch]
        measured = [result for result in results if result.measurement]
        content, details = _with_results(plan, content, details, measured)
        content["manifest"]["wall_seconds"] = round(time.perf_counter() - started, 1)
        write_files(content, details, plan.study.shipped)
    return errors


def _is_of_this_commit(stored: StoredResults, claim: Claim) -> bool:
    """Whether a claim's stored number was measured by the code that runs."""
    entry = stored.entry(claim)
    source = source_version()
    return entry is not None and not source["changed"] and entry["made"].get("source") == source


def _has_models(run: Run, claim: Claim) -> bool:
    """Whether all models that a claim needs are trained."""
    for key, spec in run.specs_of([claim]).items():
        if run_status(RunFolder(run.models / key).path, spec.description) != "trained":
            return False
    return True


def _with_results(
    plan: Release, content: Mapping[str, Any], details: Mapping[str, Any], results: Sequence[ClaimResult]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of a study's two files with new results; numbers of claims that the study no longer has go."""
    entries = {entry["id"]: entry for entry in content["claims"]}
    entries |= {result.claim.id: result.to_store() for result in results}
    ordered = [entries[claim.id] for claim in plan.study.claims if claim.id in entries]
    # Tables, charts and settings of these numbers, and no others
    new_details = details_of(results)
    measured = {result.claim.id for result in results}
    figures = {name: of_claim for name, of_claim in details["figures"].items() if name not in measured}
    figures |= new_details["figures"]
    groups = {**details["groups"], **new_details["groups"]}
    ids = {entry["id"] for entry in ordered}
    digests = {digest for entry in ordered for digest in entry["groups"].values()}
    kept_details = {
        "figures": {name: figures[name] for name in figures if name in ids},
        "groups": {digest: groups[digest] for digest in groups if digest in digests},
    }
    # Computing time of all measurements, and of the training of their models, each set of models once
    trained = [entry["made"]["trained"] for entry in ordered if entry["made"].get("trained")]
    training_seconds = {models["weights"]: models["seconds"] for models in trained}
    seconds = sum(training_seconds.values()) + sum(entry["cost"]["seconds"] for entry in ordered)
    keys = {key for settings in kept_details["groups"].values() for key in settings["keys"]}
    before = content["manifest"]
    models = {**before["models"], "used": len(plan.run.specs_of(plan.study.claims)), "there": len(keys)}
    manifest = {**environment(), "seed": before["seed"], "models": models, "measured_now": len(results)}
    manifest["seconds"] = round(seconds, 1)
    header = {"study": plan.study.name, "title": plan.study.title, "size": plan.stored.size}
    return {**header, "manifest": manifest, "claims": ordered}, kept_details


def main(
    studies: Annotated[list[str] | None, typer.Argument(help="Studies; default: all that are installed.")] = None,
    folder: Annotated[Path, typer.Option(help="Folder of studies and models.")] = Path("runs/reproduce"),
    only: Annotated[list[str] | None, typer.Option(help="Claims, or beginnings of their names.")] = None,
    at_most: Annotated[float | None, typer.Option(help="Seconds that measuring a claim took before.")] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes.")] = 2,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be measured, and measure nothing.")] = False,
) -> None:
    """Measure everything that an earlier commit measured, cheapest first, and write the shipped results."""
    entry_points = study_entry_points()
    for name in studies or entry_points:
        study = load_study(name, entry_points)
        if not studies and study.shipped is None:
            continue  # it ships nothing
        todo = plan_release(study, folder=folder, only=only or (), at_most=at_most, n_jobs=jobs)
        typer.echo(str(todo))
        if plan:
            continue
        errors = release(todo)
        for claim, error in errors.items():
            say(f"{name}:{claim} could not be measured: {error.strip().splitlines()[-1]}")


if __name__ == "__main__":
    typer.run(main)
