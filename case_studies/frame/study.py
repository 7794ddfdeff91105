"""What is a study, and how does it run? Train what its claims need, measure them, judge them, write it down.

Everything is kept as it comes, so a study that was stopped goes on where it stopped:

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

from case_studies.frame.claims import NAME, SIZES, Claim, ClaimVerdict, Measurement, Size, check_size
from case_studies.frame.evidence import Evidence, ModelSpec, settings_of
from case_studies.frame.measuring import MeasureCache, measure_claims
from case_studies.frame.outcomes import ClaimResult, StudyResult
from case_studies.frame.page import write_study_page
from hooks.atomic import write_json
from interp.core.devices import check_device
from interp.core.manifest import environment
from interp.core.progress import Count
from interp.training.run import RunFolder
from interp.training.sweeps import train_to_disk

MODELS = "models"
"""The folder of trained models, beside those of the studies."""

__all__ = [
    "Claim",
    "ClaimResult",
    "ClaimVerdict",
    "Evidence",
    "Measurement",
    "ModelSpec",
    "Size",
    "Study",
    "StudyResult",
]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A paper's claims, and the models to measure them on.

    Raises:
        ValueError: a name that cannot be a folder's, no claims, or two of one name.
    """

    name: str
    """What `interp reproduce` calls it."""
    title: str
    lead: str
    """What the page says first, in a few sentences."""
    claims: Sequence[Claim]
    groups: Callable[[Size], Mapping[str, Sequence[ModelSpec]]] = lambda size: {}
    """The models to train at a size, by the names of groups that claims need. A model may be in several."""

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
        """The claims of these names, each a whole id or the beginning of several; all when there are none.

        Raises:
            ValueError: a name that fits no claim.
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
            ValueError: a name that fits no claim.
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

    def run(self, **options: Any) -> StudyResult:
        """`run_study` with this study."""
        return run_study(self, **options)


def run_study(
    study: Study,
    *,
    size: Size = "quick",
    only: Sequence[str] = (),
    folder: str | Path = "runs/reproduce",
    n_jobs: int = 2,
    fresh: bool = False,
    seed: int = 0,
    device: str | None = None,
) -> StudyResult:
    """Train, measure, judge and write down. What an earlier run left is used as far as it still holds.

    Args:
        study: What to run.
        size: `quick`, `standard` or `paper`.
        only: Ids of the claims to run, or beginnings of them; all when left out. Others keep what was measured before.
        folder: Where studies and models lie.
        n_jobs: Processes, of one torch thread each; models are trained one after the other on a GPU.
        fresh: Train and measure the chosen claims again.
        seed: Decides the measurements; the models have seeds of their own.
        device: Where models are trained: `cuda`, or the CPU when left out. Measuring is done on the CPU.

    Returns:
        Every claim of the study, in its order, with what was measured and the verdict.

    Raises:
        ValueError: an unknown size or claim, a group that the study does not have, a device that is not there, or
            training that fails.
        RuntimeError: a measure or a judge raised. All other claims are measured and written down before.
    """
    check_size(size)
    chosen = study.choose(only)
    if n_jobs < 1:
        raise ValueError(f"n_jobs is {n_jobs}; give at least one process.")
    if device is not None:
        check_device(device)
    started = time.perf_counter()
    run = _Run(study, size, Path(folder), n_jobs, seed)
    to_measure = run.to_measure(chosen, fresh)
    trained = run.train(to_measure, fresh, device)
    errors = run.measure(to_measure)
    outcomes = run.outcomes(errors)
    manifest = environment() | {
        "seed": seed,
        "models": run.models_behind() | {"trained_now": trained},
        "measured_now": len(to_measure) - len(errors),
        "seconds": round(run.training_seconds() + sum(outcome.seconds or 0.0 for outcome in outcomes), 1),
        "wall_seconds": round(time.perf_counter() - started, 1),
    }
    result = StudyResult(
        study=study.name, size=size, outcomes=outcomes, manifest=manifest, page=run.folder / "report.html"
    )
    write_json(run.folder / "claims.json", result.to_dict())
    write_study_page(result, title=study.title, lead=study.lead)
    if errors:
        claim_id, error = next(iter(errors.items()))
        raise RuntimeError(
            f"{len(errors)} of {len(to_measure)} claims could not be measured ({', '.join(errors)}); the others are in "
            f"{result.page}. {claim_id}:\n{error}"
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
        """The chosen claims within reach that have no measurement yet."""
        within = [claim for claim in chosen if self.size in claim.sizes]
        if fresh:
            for claim in within:
                self.cache.forget(claim)
        return [claim for claim in within if self.cache.find(claim, self.keys[claim.id]) is None]

    def specs_of(self, claims: Sequence[Claim]) -> dict[str, ModelSpec]:
        """The models behind claims, each once, by key: those that they need, and those that these start from."""
        groups = [specs for claim in claims for specs in self.evidence[claim.id].groups.values()]
        return {one.key: one for specs in groups for spec in specs for one in (*spec.sources, spec)}

    def train(self, claims: Sequence[Claim], fresh: bool, device: str | None) -> int:
        """Train what the claims need and is not there, stage by stage; returns how many models that were."""
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
        """Models to train: first those that start from none, then those that start from these, longest ones first.

        A model that only others start from is not missing where all of those are there.
        """
        missing: dict[str, ModelSpec] = {}
        groups = [specs for claim in claims for specs in self.evidence[claim.id].groups.values()]
        for spec in (spec for specs in groups for spec in specs):
            for one in (spec, *reversed(spec.sources)):
                if not fresh and RunFolder(self.models / one.key).finished:
                    break  # what it starts from has done its part
                missing[one.key] = one
        by_stage: dict[int, list[ModelSpec]] = {}
        for spec in sorted(missing.values(), key=lambda spec: -spec.work):
            by_stage.setdefault(len(spec.sources), []).append(spec)
        return [by_stage[stage] for stage in sorted(by_stage)]

    def measure(self, claims: Sequence[Claim]) -> dict[str, str]:
        """Measure claims, each kept as it comes; returns the tracebacks of those that raised."""
        errors: dict[str, str] = {}
        if not claims:
            return errors
        tasks = [(claim, self.evidence[claim.id], self.keys[claim.id]) for claim in claims]
        with Count("measuring claims", len(claims)) as count:
            for claim, error in measure_claims(tasks, self.cache, n_jobs=self.n_jobs):
                if error is not None:
                    errors[claim.id] = error
                outcome = self._outcome(claim, dict(errors))
                count.one(f"{claim.id}: {outcome.label if error is None else 'could not be measured'}")
        return errors

    def outcomes(self, errors: dict[str, str]) -> tuple[ClaimResult, ...]:
        """Every claim of the study with what is known of it; a judge that raises joins the errors."""
        return tuple(self._outcome(claim, errors) for claim in self.study.claims)

    def _outcome(self, claim: Claim, errors: dict[str, str]) -> ClaimResult:
        settings = {name: settings_of(specs) for name, specs in self.evidence[claim.id].groups.items()}
        if self.size not in claim.sizes:
            return ClaimResult(claim=claim, verdict="inconclusive", note=claim.why_not)
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
            return self._outcome(claim, errors)
        return ClaimResult(
            claim=claim,
            verdict=verdict,
            measurement=measured.measurement,
            note=measured.measurement.note,
            settings=settings,
            seconds=measured.seconds,
            made=measured.made,
        )

    def models_behind(self) -> dict[str, Any]:
        """How many models the claims need, how many are there, and when and with what those were trained."""
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
        """Time that the models took to train, whenever that was."""
        histories = [RunFolder(self.models / key).read_metrics() for key in self.specs_of(self.study.claims)]
        return sum(records[-1]["seconds"] for records in histories if records)
