"""One run of a study at one size: which models and claims are missing, training, measuring, judging."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from case_studies.frame.claims import Claim, StudyClaims
from case_studies.frame.evidence import Evidence, Size, settings_of
from case_studies.frame.measuring import MeasureCache, StoredMeasurement, measure_claims
from case_studies.frame.provenance import training_seconds
from case_studies.frame.results import ClaimResult
from case_studies.frame.training import Plan, missing_models, plan_training, train_models
from interp.core.environment import environment
from interp.core.progress import Count
from interp.sweeps.spec import ModelSpec
from interp.training.folder import RunFolder

MODELS = "models"
"""Name of the folder of trained models, next to those of the studies."""


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
        self.evidence = {claim.id: evidence for claim, evidence in self._evidence()}
        cache = MeasureCache(self.folder / "measured", study.name)
        measured_here = [claim for claim in study.claims if size in claim.sizes]
        self.files = {claim.id: cache.file(claim, self.evidence[claim.id]) for claim in measured_here}

    def _evidence(self) -> Iterator[tuple[Claim, Evidence]]:
        """Each claim with its evidence: the models of the groups that it needs."""
        groups = {name: tuple(specs) for name, specs in self.study.groups(self.size).items()}
        for claim in self.study.claims:
            needs = claim.needs if self.size in claim.sizes else ()
            for name in needs:
                if name not in groups:
                    raise ValueError(
                        f"claim {claim.id} needs the group {name!r}, which the study {self.study.name} does not have "
                        f"at size {self.size}; it has {', '.join(groups) or 'none'}."
                    )
            models = {name: groups[name] for name in needs}
            yield claim, Evidence(size=self.size, seed=self.seed, groups=models, folder=self.models)

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
        """The models that claims need, without the models that these are pretrained from."""
        return [spec for claim in claims for specs in self.evidence[claim.id].groups.values() for spec in specs]

    def specs_of(self, claims: Sequence[Claim]) -> dict[str, ModelSpec]:
        """The models that claims need, each once, by key, with their pretrained models."""
        return {model.key: model for spec in self._specs(claims) for model in (*spec.sources, spec)}

    def train(self, claims: Sequence[Claim], *, fresh: bool, device: str | None) -> int:
        """Train the missing models of these claims, and return their number."""
        stages = missing_models(self._specs(claims), self.models, fresh=fresh)
        if stages:
            plan = self.plan(claims)
            train_models(stages, self.models, plan=plan, fresh=fresh, device=device, scheduler=self.scheduler)
        return sum(map(len, stages))

    def plan(self, claims: Sequence[Claim]) -> Plan:
        """What training the models of these claims takes."""
        return plan_training(self.specs_of(claims).values(), self.models, n_jobs=self.n_jobs)

    def measure(self, claims: Sequence[Claim], costs: Mapping[str, float] | None = None) -> dict[str, str]:
        """Measure claims, storing each when finished; returns the tracebacks of those that raised, by id.

        Args:
            claims: The claims to measure.
            costs: Seconds that claims took before, by id, to estimate the remaining time.
        """
        costs = costs or {}
        errors: dict[str, str] = {}
        if not claims:
            return errors
        tasks = [(claim, self.evidence[claim.id], self.files[claim.id]) for claim in claims]
        typical = sum(costs.values()) / len(costs) if costs else 1.0
        work = {claim.id: costs.get(claim.id, typical) + 0.1 for claim in claims}
        with Count("measuring claims", len(claims), work=sum(work.values())) as count:
            for claim, error in measure_claims(tasks, n_jobs=self.n_jobs, scheduler=self.scheduler):
                if error is not None:
                    errors[claim.id] = error
                label = self.result(claim, dict(errors)).label if error is None else "could not be measured"
                count.advance(f"{claim.id}: {label}", work=work[claim.id])
        return errors

    def result(self, claim: Claim, errors: dict[str, str]) -> ClaimResult:
        """The result of a claim; adds a rule that raises to the errors."""
        if self.size not in claim.sizes:
            return ClaimResult(claim=claim, note=claim.sizes_reason)
        settings = {name: settings_of(specs) for name, specs in self.evidence[claim.id].groups.items()}
        stored = self._stored(claim)
        note = ""
        if claim.missing_input:
            note = claim.missing_input
        elif claim.id in errors:
            note = f"Could not be measured: {errors[claim.id].strip().splitlines()[-1]}"
        elif stored is None:
            note = "Not measured yet at this size, seed and code."
        if stored is None or note:
            return ClaimResult(claim=claim, note=note, settings=settings)
        try:
            measurement = claim.in_range(stored.measurement)
            verdict = claim.verdict(measurement)
        except Exception as error:
            errors[claim.id] = f"{type(error).__name__}: {error}"
            return self.result(claim, errors)
        return ClaimResult(
            claim=claim,
            verdict=verdict,
            measurement=measurement,
            note=measurement.note,
            settings=settings,
            cost=stored.cost,
            provenance=stored.provenance,
            code=stored.code,
        )

    def models_used(self) -> dict[str, Any]:
        """Number of models needed and trained, with their dates and package versions."""
        runs = self._runs()
        manifests = [run.read_manifest() for run in runs if run.finished]
        times = sorted(manifest["time"] for manifest in manifests)
        versions = environment()["versions"]
        return {
            "used": len(runs),
            "there": len(manifests),
            "oldest": times[0] if times else None,
            "newest": times[-1] if times else None,
            "other_versions": sum(manifest["versions"] != versions for manifest in manifests),
        }

    def training_seconds(self) -> float:
        """Total training time of the study's models, of all runs."""
        return training_seconds(self._runs())

    def _runs(self) -> list[RunFolder]:
        return [RunFolder(self.models / key) for key in self.specs_of(self.study.claims)]
