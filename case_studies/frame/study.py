"""Studies: train the models that claims need, measure, judge, and write the page.

Every model and measurement is stored when it is finished, so an interrupted study resumes:

    <folder>/models/<key>/                      trained models, shared by studies and sizes
    <folder>/<study>/<size>/measured/<claim>.json
    <folder>/<study>/<size>/claims.json         every claim with its verdict
    <folder>/<study>/<size>/report.html         the same as a page
"""

import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from case_studies.frame.claims import NAME, Claim
from case_studies.frame.evidence import SIZES, Evidence, ModelSpec, Size, check_size, settings_of
from case_studies.frame.measuring import MeasureCache, measure_claims
from case_studies.frame.page import write_study_page
from case_studies.frame.results import ClaimResult, StudyResult
from hooks.atomic import write_json
from interp.core.devices import check_device
from interp.core.manifest import environment
from interp.core.progress import Count
from interp.training.run import RunFolder
from interp.training.sweeps import train_to_disk

MODELS = "models"
"""Name of the folder of trained models, next to those of the studies."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A paper's claims, and the models to measure them on.

    Raises:
        ValueError: an invalid name, no claims, or two claims with the same id.
    """

    name: str
    """Its name in `interp reproduce`."""
    title: str
    lead: str
    """Introduction of the page, a few sentences."""
    claims: Sequence[Claim]
    groups: Callable[[Size], Mapping[str, Sequence[ModelSpec]]] = lambda size: {}
    """The models to train at a size, by group; `Claim.needs` names groups. A model may be in several groups."""

    def __post_init__(self):
        object.__setattr__(self, "claims", tuple(self.claims))
        if not NAME.fullmatch(self.name) or self.name == MODELS:
            raise ValueError(f"a study cannot be called {self.name!r}; use lower-case letters, digits, hyphens, dots.")
        if not self.claims:
            raise ValueError(f"the study {self.name} has no claims.")
        ids = [claim.id for claim in self.claims]
        double = [name for name in ids if ids.count(name) > 1]
        if double:
            raise ValueError(f"two claims of the study {self.name} are called {double[0]!r}; rename one.")

    def choose(self, only: Sequence[str]) -> tuple[Claim, ...]:
        """The claims with these ids or prefixes of ids; all if `only` is empty.

        Raises:
            ValueError: a name that matches no claim.
        """
        ids = [claim.id for claim in self.claims]
        chosen: set[str] = set()
        for name in only:
            fits = [name] if name in ids else [known for known in ids if known.startswith(name)]
            if not fits:
                near = get_close_matches(name, ids, n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise ValueError(f"the study {self.name} has no claim {name!r}.{hint} It has {', '.join(ids)}.")
            chosen.update(fits)
        return tuple(claim for claim in self.claims if claim.id in chosen or not only)

    def listing(self, only: Sequence[str] = ()) -> str:
        """Every claim as text: id, source, statement, the paper's number, rule.

        Raises:
            ValueError: a name that matches no claim.
        """
        lines = [f"{self.name}: {self.title}"]
        for claim in self.choose(only):
            lines += ["", f"{claim.id}  ({claim.source})", textwrap.indent(textwrap.fill(claim.statement, 96), "    ")]
            if claim.paper is not None:
                lines.append(f"    paper: {claim.paper}")
            lines.append(textwrap.fill(claim.rule, 100, initial_indent="    rule: ", subsequent_indent="          "))
            if set(claim.sizes) != set(SIZES):
                where = f"sizes: {', '.join(claim.sizes) or 'none'} ({claim.why_not})"
                lines.append(textwrap.fill(where, 100, initial_indent="    ", subsequent_indent="           "))
        return "\n".join(lines)

    def run(
        self,
        *,
        size: Size = "quick",
        only: Sequence[str] = (),
        folder: str | Path = "runs/reproduce",
        n_jobs: int = 2,
        fresh: bool = False,
        seed: int = 0,
        device: str | None = None,
    ) -> StudyResult:
        """Train, measure, judge and write the page, reusing models and measurements that are still valid.

        Args:
            size: Size of the study.
            only: Ids of the claims to run, or prefixes of ids; default: all. Other claims keep their stored
                measurements.
            folder: Folder of studies and models.
            n_jobs: Number of processes, each with one torch thread; on a GPU, models are trained sequentially.
            fresh: Whether to train and measure the chosen claims again.
            seed: Determines the measurements; each model has its own training seed.
            device: Device for training, such as `cuda`; default: CPU. Measuring always uses the CPU.

        Returns:
            Every claim of the study, in its order, with its measurement and verdict.

        Raises:
            ValueError: an unknown size or claim, a group that the study does not have, an unavailable device, or a
                training that fails.
            RuntimeError: a measure or a judge raised. All other claims have been measured and written by then.
        """
        check_size(size)
        chosen = self.choose(only)
        if n_jobs < 1:
            raise ValueError(f"n_jobs is {n_jobs}; give at least one process.")
        if device is not None:
            check_device(device)
        started = time.perf_counter()
        run = _Run(self, size, Path(folder), n_jobs, seed)
        to_measure = run.to_measure(chosen, fresh)
        trained = run.train(to_measure, fresh, device)
        errors = run.measure(to_measure)
        claims = tuple(run.result(claim, errors) for claim in self.claims)
        manifest = environment() | {
            "seed": seed,
            "models": run.models_used() | {"trained_now": trained},
            "measured_now": len(to_measure) - len(errors),
            "seconds": round(run.training_seconds() + sum(one.seconds or 0.0 for one in claims), 1),
            "wall_seconds": round(time.perf_counter() - started, 1),
        }
        page = run.folder / "report.html"
        result = StudyResult(study=self.name, size=size, claims=claims, manifest=manifest, page=page)
        write_json(run.folder / "claims.json", result.to_dict())
        write_study_page(result, title=self.title, lead=self.lead)
        if errors:
            claim_id, error = next(iter(errors.items()))
            raise RuntimeError(
                f"{len(errors)} of {len(to_measure)} claims could not be measured ({', '.join(errors)}); the rest is "
                f"in {page}. {claim_id}:\n{error}"
            )
        return result


class _Run:
    """One run of a study at one size."""

    def __init__(self, study: Study, size: Size, folder: Path, n_jobs: int, seed: int):
        self.study, self.size, self.n_jobs = study, size, n_jobs
        self.models = folder / MODELS
        self.folder = folder / study.name / size
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
        within = [claim for claim in chosen if self.size in claim.sizes]
        if fresh:
            for claim in within:
                self.cache.forget(claim)
        return [claim for claim in within if self.cache.find(claim, self.keys[claim.id]) is None]

    def specs_of(self, claims: Sequence[Claim]) -> dict[str, ModelSpec]:
        """The models that claims need, each once, by key, with their pretrained models."""
        groups = [specs for claim in claims for specs in self.evidence[claim.id].groups.values()]
        return {one.key: one for specs in groups for spec in specs for one in (*spec.sources, spec)}

    def train(self, claims: Sequence[Claim], fresh: bool, device: str | None) -> int:
        """Train the missing models of these claims, stage by stage, and return their number."""
        stages = self._missing(claims, fresh)
        total = sum(map(len, stages))
        if total:
            with Count("training models", total) as count:
                for stage in stages:
                    jobs = {
                        f"model {spec.key} (seed {spec.seed})": replace(spec.job(self.models), device=device)
                        for spec in stage
                    }
                    train_to_disk(jobs, n_jobs=self.n_jobs, fresh=fresh, on_finished=lambda name: count.one())
        return total

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

    def measure(self, claims: Sequence[Claim]) -> dict[str, str]:
        """Measure claims, storing each when finished; returns the tracebacks of those that raised, by id."""
        errors: dict[str, str] = {}
        if not claims:
            return errors
        tasks = [(claim, self.evidence[claim.id], self.keys[claim.id]) for claim in claims]
        with Count("measuring claims", len(claims)) as count:
            for claim, error in measure_claims(tasks, self.cache, n_jobs=self.n_jobs):
                if error is not None:
                    errors[claim.id] = error
                result = self.result(claim, dict(errors))
                count.one(f"{claim.id}: {result.label if error is None else 'could not be measured'}")
        return errors

    def result(self, claim: Claim, errors: dict[str, str]) -> ClaimResult:
        """The result of a claim; adds a judge that raises to the errors."""
        settings = {name: settings_of(specs) for name, specs in self.evidence[claim.id].groups.items()}
        if self.size not in claim.sizes:
            return ClaimResult(claim=claim, note=claim.why_not)
        if claim.id in errors:
            last = errors[claim.id].strip().splitlines()[-1]
            return ClaimResult(claim=claim, note=f"Could not be measured: {last}", settings=settings)
        measured = self.cache.find(claim, self.keys[claim.id])
        if measured is None:
            return ClaimResult(claim=claim, note="Not measured yet at this size, seed and code.", settings=settings)
        try:
            verdict = claim.verdict(measured.measurement)
        except Exception as error:
            errors[claim.id] = f"{type(error).__name__}: {error}"
            return self.result(claim, errors)
        return ClaimResult(
            claim=claim,
            verdict=verdict,
            measurement=measured.measurement,
            note=measured.measurement.note,
            settings=settings,
            seconds=measured.seconds,
            made=measured.made,
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
