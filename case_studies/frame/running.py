"""One run of a study at one size: which models and claims are missing, training, measuring, judging."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from case_studies.frame.claims import Claim
from case_studies.frame.evidence import Evidence, Size, settings_of
from case_studies.frame.measuring import MeasureCache, measure_claims
from case_studies.frame.plan import Plan, make_plan
from case_studies.frame.results import ClaimResult
from interp.core.environment import environment
from interp.core.progress import Count, say
from interp.sweeps.parallel import train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.training.folder import RunFolder

MODELS = "models"
"""Name of the folder of trained models, next to those of the studies."""


class Planned(Protocol):
    """What a run needs of a study."""

    @property
    def name(self) -> str: ...
    @property
    def claims(self) -> Sequence[Claim]: ...
    @property
    def groups(self) -> Callable[[Size], Mapping[str, Sequence[ModelSpec]]]: ...


class Run:
    """One run of a study at one size."""

    def __init__(
        self,
        study: Planned,
        *,
        size: Size,
        folder: Path,
        n_jobs: int,
        seed: int,
        checks: bool = False,
        scheduler: Any = None,
    ):
        self.study, self.size, self.n_jobs, self.seed, self.scheduler = study, size, n_jobs, seed, scheduler
        if scheduler is not None:
            folder = folder.resolve()  # workers start elsewhere
        self.models = folder / MODELS
        self.folder = folder / study.name / size / ("check" if checks else "")
        self.cache = MeasureCache(self.folder / "measured", study.name)
        groups = {name: tuple(specs) for name, specs in study.groups(size).items()}
        for claim in study.claims:
            missing = [name for name in claim.needs if name not in groups]
            if missing and size in claim.sizes:
                raise ValueError(
                    f"claim {claim.id} needs the group {missing[0]!r}, which the study {study.name} does not have at "
                    f"size {size}; it has {', '.join(groups) or 'none'}."
                )
        self.evidence = {
            claim.id: Evidence(
                size=size,
                seed=seed,
                groups={name: groups[name] for name in claim.needs} if size in claim.sizes else {},
                folder=self.models,
            )
            for claim in study.claims
        }
        self.keys = {
            claim.id: self.cache.key(claim, self.evidence[claim.id]) for claim in study.claims if size in claim.sizes
        }

    def to_measure(self, chosen: Sequence[Claim], fresh: bool) -> list[Claim]:
        """The chosen claims that are measured at this size and have no measurement yet."""
        value_range = [claim for claim in chosen if self.size in claim.sizes and not claim.missing_input]
        if fresh:
            for claim in value_range:
                self.cache.forget(claim)
        return [claim for claim in value_range if self.cache.find(claim, self.keys[claim.id]) is None]

    def specs_of(self, claims: Sequence[Claim]) -> dict[str, ModelSpec]:
        """The models that claims need, each once, by key, with their pretrained models."""
        groups = [specs for claim in claims for specs in self.evidence[claim.id].groups.values()]
        return {one.key: one for specs in groups for spec in specs for one in (*spec.sources, spec)}

    def train(self, claims: Sequence[Claim], fresh: bool, device: str | None) -> int:
        """Train the missing models of these claims, stage by stage, and return their number."""
        stages = self._missing(claims, fresh)
        total = sum(map(len, stages))
        if total:
            say(str(self.plan(claims)))
            work = {self.models / spec.key: spec.work for stage in stages for spec in stage}
            with Count("training models", total, work=sum(work.values())) as count:
                for stage in stages:
                    train_to_disk(
                        {self.models / spec.key: spec for spec in stage},
                        n_jobs=self.n_jobs,
                        device=device,
                        fresh=fresh,
                        on_finished=lambda folder: count.one(work=work[folder]),
                        scheduler=self.scheduler,
                    )
        return total

    def plan(self, claims: Sequence[Claim]) -> Plan:
        """What training the models of these claims takes."""
        return make_plan(self.specs_of(claims).values(), self.models, n_jobs=self.n_jobs)

    def _missing(self, claims: Sequence[Claim], fresh: bool) -> list[list[ModelSpec]]:
        """Models to train in stages: pretrained models before those that start from them, longest trainings first.

        A pretrained model is needed only if some model that starts from it is missing.
        """
        missing: dict[str, ModelSpec] = {}
        groups = [specs for claim in claims for specs in self.evidence[claim.id].groups.values()]
        for spec in (spec for specs in groups for spec in specs):
            for one in (spec, *reversed(spec.sources)):
                if not fresh and RunFolder(self.models / one.key).finished:
                    break  # so its pretrained model is not needed
                missing[one.key] = one
        by_stage: dict[int, list[ModelSpec]] = {}
        for spec in sorted(missing.values(), key=lambda spec: -spec.work):
            by_stage.setdefault(len(spec.sources), []).append(spec)
        return [by_stage[stage] for stage in sorted(by_stage)]

    def measure(self, claims: Sequence[Claim], costs: Mapping[str, float] | None = None) -> dict[str, str]:
        """Measure claims, storing each when finished; returns the tracebacks of those that raised, by id.

        Args:
            claims: The claims to measure.
            costs: Seconds that claims took before, by id, to estimate the remaining time.
        """
        errors: dict[str, str] = {}
        if not claims:
            return errors
        tasks = [(claim, self.evidence[claim.id], self.keys[claim.id]) for claim in claims]
        typical = sum(costs.values()) / len(costs) if costs else 1.0
        work = {claim.id: (costs or {}).get(claim.id, typical) + 0.1 for claim in claims}
        with Count("measuring claims", len(claims), work=sum(work.values())) as count:
            for claim, error in measure_claims(tasks, self.cache, n_jobs=self.n_jobs, scheduler=self.scheduler):
                if error is not None:
                    errors[claim.id] = error
                result = self.result(claim, dict(errors))
                count.one(
                    f"{claim.id}: {result.label if error is None else 'could not be measured'}", work=work[claim.id]
                )
        return errors

    def result(self, claim: Claim, errors: dict[str, str]) -> ClaimResult:
        """The result of a claim; adds a judge that raises to the errors."""
        settings = {name: settings_of(specs) for name, specs in self.evidence[claim.id].groups.items()}
        if self.size not in claim.sizes:
            return ClaimResult(claim=claim, note=claim.sizes_reason)
        if claim.missing_input:
            return ClaimResult(claim=claim, note=claim.missing_input, settings=settings)
        if claim.id in errors:
            last = errors[claim.id].strip().splitlines()[-1]
            return ClaimResult(claim=claim, note=f"Could not be measured: {last}", settings=settings)
        measured = self.cache.find(claim, self.keys[claim.id])
        if measured is None:
            return ClaimResult(claim=claim, note="Not measured yet at this size, seed and code.", settings=settings)
        try:
            measurement = claim.in_range(measured.measurement)
            verdict = claim.verdict(measurement)
        except Exception as error:
            errors[claim.id] = f"{type(error).__name__}: {error}"
            return self.result(claim, errors)
        return ClaimResult(
            claim=claim,
            verdict=verdict,
            measurement=measurement,
            note=measured.measurement.note,
            settings=settings,
            cost=measured.cost,
            made=measured.made,
            measure=measured.measure,
        )

    def models_used(self) -> dict[str, Any]:
        """Number of models needed and trained, with their dates and package versions."""
        keys = self.specs_of(self.study.claims)
        files = [RunFolder(self.models / key) for key in keys]
        made = [run.read_manifest() for run in files if run.finished]
        times = sorted(one["time"] for one in made)
        versions = environment()["versions"]
        return {
            "used": len(keys),
            "there": len(made),
            "oldest": times[0] if times else None,
            "newest": times[-1] if times else None,
            "other_versions": sum(one["versions"] != versions for one in made),
        }

    def training_seconds(self) -> float:
        """Total training time of the study's models, of all runs."""
        histories = [RunFolder(self.models / key).read_metrics() for key in self.specs_of(self.study.claims)]
        return sum(records[-1]["seconds"] for records in histories if records)
