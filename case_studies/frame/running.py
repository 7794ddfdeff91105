"""One run of a study at one size: which models and claims are missing, training, measuring, judging."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from case_studies.frame.claims import Claim, StudyClaims
from case_studies.frame.evidence import Evidence, Size, settings_of
from case_studies.frame.measuring import StoredMeasurement, measure_claim, measurement_file
from case_studies.frame.provenance import training_seconds
from case_studies.frame.results import ClaimResult
from case_studies.frame.training import Plan, missing_models, plan_training, train_models
from interp.core.environment import environment
from interp.core.processes import in_processes
from interp.core.progress import Count
from interp.sweeps.spec import ModelSpec
from interp.sweeps.status import run_status
from interp.training.folder import RunFolder

MODELS = "models"
"""Name of the folder of trained models, next to those of the studies."""


def judged_measurement(claim: Claim, stored: StoredMeasurement, settings: Mapping[str, Any]) -> ClaimResult:
    """A measurement of a run under the claim's rule.

    Args:
        claim: The claim.
        stored: The measurement.
        settings: Settings of its models, by group.

    Raises:
        Exception: the rule cannot judge it.
    """
    return ClaimResult.judged(
        claim,
        stored.measurement,
        note=stored.measurement.note,
        settings=settings,
        cost=stored.cost,
        provenance=stored.provenance,
    )


class Run:
    """One run of a study at one size.

    Args:
        study: The study.
        size: Its size.
        folder: Folder of studies and models.
        n_jobs: Number of processes.
        seed: Determines the measurements.
        checks: Whether its measurements are kept apart from those of ordinary runs, to compare them.
        scheduler: Address of a Dask scheduler, or a client, whose workers train and measure.

    Raises:
        ValueError: a claim needs a group that the study does not have.
    """

    def __init__(
        self,
        study: StudyClaims,
        *,
        size: Size,
        folder: Path,
        n_jobs: int,
        seed: int,
        checks: bool = False,
        scheduler: Any = None,
    ):
        self.study = study
        self.size: Size = size
        self.n_jobs = n_jobs
        self.seed = seed
        self.scheduler = scheduler
        if scheduler is not None:
            folder = folder.resolve()  # workers start elsewhere
        self.models = folder / MODELS
        self.folder = folder / study.name / size / ("check" if checks else "")
        # The evidence of each claim, and the file of its measurement if it is measured at this size
        groups = {name: tuple(specs) for name, specs in study.groups(size).items()}
        self.evidence = {claim.id: self._evidence(claim, groups) for claim in study.claims}
        self.files = {
            claim.id: measurement_file(self.folder / "measured", study.name, claim, self.evidence[claim.id])
            for claim in study.claims
            if size in claim.sizes
        }

    def _evidence(self, claim: Claim, groups: Mapping[str, tuple[ModelSpec, ...]]) -> Evidence:
        """The models of the groups that a claim needs; none if it is not measured at this size."""
        needs = claim.needs if self.size in claim.sizes else ()
        for name in needs:
            if name not in groups:
                raise ValueError(
                    f"claim {claim.id} needs the group {name!r}, which the study {self.study.name} does not have "
                    f"at size {self.size}; it has {', '.join(groups) or 'none'}."
                )
        needed_groups = {name: groups[name] for name in needs}
        return Evidence(size=self.size, seed=self.seed, groups=needed_groups, folder=self.models)

    def to_measure(self, chosen: Sequence[Claim], *, fresh: bool) -> list[Claim]:
        """The chosen claims that are measured at this size and have no measurement yet, or all of them if fresh."""
        measurable = [claim for claim in chosen if claim.id in self.files and not claim.missing_input]
        if fresh:
            for claim in measurable:
                self.files[claim.id].path.unlink(missing_ok=True)
        return [claim for claim in measurable if self._stored(claim) is None]

    def _stored(self, claim: Claim) -> StoredMeasurement | None:
        return self.files[claim.id].read(StoredMeasurement.from_dict)

    def _specs(self, claims: Sequence[Claim]) -> list[ModelSpec]:
        """The models that claims need trained, without the models that these are pretrained from."""
        needed: list[ModelSpec] = []
        for claim in claims:
            if self.size in claim.before_training:
                continue
            for group in self.evidence[claim.id].groups.values():
                needed += group
        return needed

    def specs_of(self, claims: Sequence[Claim]) -> dict[str, ModelSpec]:
        """The models that claims need trained, each once, by key, with their pretrained models."""
        by_key: dict[str, ModelSpec] = {}
        for spec in self._specs(claims):
            by_key |= {model.key: model for model in (*spec.sources, spec)}
        return by_key

    def check_models(self, claims: Sequence[Claim]) -> None:
        """Check that the trained models of these claims are those of their keys; models may be missing.

        Raises:
            ForeignRun: a folder has another model than its key says.
        """
        for key, spec in self.specs_of(claims).items():
            RunFolder(self.models / key).is_trained(spec.description)

    def train(self, claims: Sequence[Claim], *, fresh: bool, device: str | None) -> int:
        """Train the missing models of these claims, and return their number.

        Raises:
            ForeignRun: a folder has another model than its key says.
        """
        for key in self.specs_of(claims):
            RunFolder(self.models / key).tidy()  # what a killed process left
        stages = missing_models(self._specs(claims), self.models, fresh=fresh)
        if stages:
            plan = self.plan(claims)
            train_models(stages, self.models, plan=plan, fresh=fresh, device=device, scheduler=self.scheduler)
        return sum(map(len, stages))

    def plan(self, claims: Sequence[Claim], *, timed: bool = False) -> Plan:
        """What training the models of these claims takes; see `plan_training`."""
        return plan_training(self.specs_of(claims).values(), self.models, n_jobs=self.n_jobs, timed=timed)

    def measure(self, claims: Sequence[Claim], costs: Mapping[str, float] | None = None) -> dict[str, str]:
        """Measure claims, storing each when finished; returns the tracebacks of those that raised, by id.

        Args:
            claims: The claims to measure.
            costs: Seconds that claims took before, by id, to estimate the remaining time.
        """
        errors: dict[str, str] = {}
        if not claims:
            return errors
        # Estimate the work of each claim by what it took before; a claim without a cost counts as a typical one
        costs = costs or {}
        typical = sum(costs.values()) / len(costs) if costs else 1.0
        work = {claim.id: costs.get(claim.id, typical) + 0.1 for claim in claims}
        # Measure in parallel, and report every claim when it is finished
        claims_by_id = {claim.id: claim for claim in claims}
        calls = [(measure_claim, (claim, self.evidence[claim.id], self.files[claim.id])) for claim in claims]
        n_jobs = min(self.n_jobs, len(claims))
        with Count("measuring claims", len(claims), work=sum(work.values())) as count, warnings.catch_warnings():
            # A process with a memory leak is replaced between claims
            warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
            for claim_id, error in in_processes(calls, n_jobs=n_jobs, scheduler=self.scheduler):
                if error is None:
                    label = self.result(claims_by_id[claim_id], dict(errors)).label
                else:
                    errors[claim_id] = error
                    label = "could not be measured"
                count.advance(f"{claim_id}: {label}", work=work[claim_id])
        return errors

    def result(self, claim: Claim, errors: dict[str, str]) -> ClaimResult:
        """The result of a claim; adds a rule that raises to the errors."""
        if self.size not in claim.sizes:
            return ClaimResult(claim=claim, note=claim.sizes_reason)
        settings = {name: settings_of(specs) for name, specs in self.evidence[claim.id].groups.items()}
        # Judge the measurement, if there is one
        stored = self._stored(claim)
        if stored is not None and not claim.missing_input and claim.id not in errors:
            try:
                return judged_measurement(claim, stored, settings)
            except Exception as error:
                errors[claim.id] = f"{type(error).__name__}: {error}"
        # Else say why there is none
        if claim.missing_input:
            note = claim.missing_input
        elif claim.id in errors:
            note = f"Could not be measured: {errors[claim.id].strip().splitlines()[-1]}"
        else:
            note = "Not measured yet at this size, seed and code."
        return ClaimResult(claim=claim, note=note, settings=settings)

    def models_used(self) -> dict[str, Any]:
        """Number of models needed and trained, with their dates and package versions."""
        runs = self._runs()
        manifests = [run.read_manifest() for run in runs if run_status(run.path) == "trained"]
        times = [manifest["time"] for manifest in manifests]
        versions = environment()["versions"]
        return {
            "used": len(runs),
            "there": len(manifests),
            "oldest": min(times, default=None),
            "newest": max(times, default=None),
            "other_versions": sum(manifest["versions"] != versions for manifest in manifests),
        }

    def training_seconds(self) -> float:
        """Total training time of the study's models, of all runs."""
        return training_seconds([run for run in self._runs() if run_status(run.path) != "mismatch"])

    def _runs(self) -> list[RunFolder]:
        return [RunFolder(self.models / key) for key in self.specs_of(self.study.claims)]
