"""Studies: train the models that claims need, measure, judge, and write the page.

Every model and measurement is stored when it is finished, so an interrupted study resumes:

    <folder>/models/<key>/                      trained models, shared by studies and sizes
    <folder>/<study>/<size>/measured/<claim>.json
    <folder>/<study>/<size>/claims.json         every claim with its verdict
    <folder>/<study>/<size>/details.json.xz     charts, tables and settings, as data
    <folder>/<study>/<size>/report.html         the same as a page
    <folder>/<study>/<size>/claims/<claim>.html a page for each claim
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from case_studies.frame.claims import NAME, Claim
from case_studies.frame.evidence import Size
from case_studies.frame.finding import Finding
from case_studies.frame.page import write_study_page
from case_studies.frame.results import ClaimResult, StudyResult
from case_studies.frame.running import MODELS, Run
from case_studies.frame.stored import CLAIMS, PAGE, StoredResults, costs_of, read_results, write_results
from case_studies.frame.training import Plan
from case_studies.review.again import drawn_claims
from case_studies.review.bundle import Bundle, open_bundle, write_bundle
from case_studies.review.check import CheckResult, check_claims
from case_studies.review.rounded import allows_rounding
from hooks.checks import check_choice, chosen_by_prefix
from hooks.files import user_path
from interp.core.devices import check_device
from interp.core.environment import environment
from interp.core.progress import say
from interp.sweeps.spec import ModelSpec


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
    """What the study is about, a few sentences."""
    findings: Sequence[Finding] = ()
    """What was found, the most important sentences first; those that are true of the results are shown."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Words of the study with their meanings."""
    claims: Sequence[Claim]
    groups: Callable[[Size], Mapping[str, Sequence[ModelSpec]]] = lambda size: {}
    """The models to train at a size, by group; `Claim.needs` names groups. A model may be in several groups."""
    shipped: Path | None = None
    """Folder of the results that are shipped with it: `claims.json` and `details.json.xz`."""
    of_packs: Callable[[Path], "Study"] | None = None
    """The same study on the packs of a folder, if it reads packs; without one, claims about packs are not measured."""
    of_weights: Callable[[Path], "Study"] | None = None
    """The same study on the weights in a folder, such as the clone of a repository, if it reads weights of others."""

    def __post_init__(self):
        object.__setattr__(self, "claims", tuple(self.claims))
        if not NAME.fullmatch(self.name) or self.name == MODELS:
            raise ValueError(f"a study cannot be called {self.name!r}; use lower-case letters, digits, hyphens, dots.")
        if not self.claims:
            raise ValueError(f"the study {self.name} has no claims.")
        ids = [claim.id for claim in self.claims]
        duplicates = [name for name in ids if ids.count(name) > 1]
        if duplicates:
            raise ValueError(f"two claims of the study {self.name} are called {duplicates[0]!r}; rename one.")
        for finding in self.findings:
            unknown = [name for name in finding.claims if name not in ids]
            if unknown:
                raise ValueError(
                    f"a finding of the study {self.name} is about the claim {unknown[0]!r}, which it lacks."
                )

    def choose(self, only: Sequence[str]) -> tuple[Claim, ...]:
        """The claims with these ids or prefixes of ids; all if `only` is empty.

        Raises:
            ValueError: a name that matches no claim.
        """
        ids = [claim.id for claim in self.claims]
        chosen = chosen_by_prefix(ids, only, kind="claim", owner=f"the study {self.name}")
        return tuple(claim for claim in self.claims if claim.id in chosen)

    def listing(self) -> dict[str, Any]:
        """Every claim with its shipped verdict, as in `claims.json`; not measured if the study ships no results."""
        stored = read_results(self.shipped, self.name) if self.shipped else None
        if stored:
            return stored.result(self, Path()).to_dict()
        claims = [ClaimResult(claim=claim).to_dict() for claim in self.claims]
        return {"study": self.name, "title": self.title, "size": None, "claims": claims}

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
        scheduler: Any = None,
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
            scheduler: Address of a Dask scheduler (`tcp://host:8786`) or a `distributed.Client`, whose workers train
                and measure in place of processes here; they see the same folder. Needs the extra `cluster`.

        Returns:
            Every claim of the study, in its order, with its measurement and verdict.

        Raises:
            ValueError: an unknown size or claim, a group that the study does not have, an unavailable device, a
                training that fails, or a folder with another model than its key says (`ForeignRun`).
            MissingExtra: no chosen claim can be measured without a package of an extra, which is not installed.
            RuntimeError: a measure or a judge raised. All other claims have been measured and written by then.
        """
        chosen = self._choose_for_run(size, only, n_jobs, device)
        started = time.perf_counter()
        omitted = [claim for claim in chosen if size in claim.sizes and claim.missing_input]
        if omitted:
            if len(omitted) == len(chosen) and omitted[0].packs is not None:
                omitted[0].packs.check_extra()
            say(f"{len(omitted)} of {len(chosen)} claims are left out: {omitted[0].missing_input}")
        # Train what is missing, then measure, then judge; each model and measurement is stored when it is finished
        run = Run(self, size=size, folder=user_path(folder), n_jobs=n_jobs, seed=seed, scheduler=scheduler)
        if not fresh:
            run.check_models(chosen)
        to_measure = run.to_measure(chosen, fresh=fresh)
        trained = run.train(to_measure, fresh=fresh, device=device)
        errors = run.measure(to_measure)
        claims = tuple(run.result(claim, errors) for claim in self.claims)
        # Write the results and the page, also if some claims could not be measured
        measuring_seconds = sum(result.cost["seconds"] for result in claims if result.cost)
        manifest = environment() | {
            "seed": seed,
            "models": run.models_used() | {"trained_now": trained},
            "measured_now": len(to_measure) - len(errors),
            "seconds": round(run.training_seconds() + measuring_seconds, 1),
            "wall_seconds": round(time.perf_counter() - started, 1),
        }
        page = run.folder / PAGE
        ids = tuple(claim.id for claim in chosen) if only else ()
        result = StudyResult(
            study=self.name, title=self.title, size=size, claims=claims, manifest=manifest, only=ids, page=page
        )
        write_results(result, run.folder)
        self._write_page(result)
        if errors:
            claim_id, error = next(iter(errors.items()))
            raise RuntimeError(
                f"{len(errors)} of {len(to_measure)} claims could not be measured ({', '.join(errors)}); the rest is "
                f"in {page}. {claim_id}:\n{error}"
            )
        return result

    def plan(
        self, *, size: Size = "quick", only: Sequence[str] = (), folder: str | Path = "runs/reproduce", n_jobs: int = 2
    ) -> Plan:
        """What `run` with the same arguments has to train and to measure, and how long that takes.

        Training takes as long as the models in the folder took; if none is trained, a few steps are timed. Measuring
        takes as long as in the results in the folder, or in those that are shipped, of the same size.

        Raises:
            ValueError: as `run`.
        """
        chosen = self._choose_for_run(size, only, n_jobs, None)
        run = Run(self, size=size, folder=user_path(folder), n_jobs=n_jobs, seed=0)
        run.check_models(chosen)
        to_measure = run.to_measure(chosen, fresh=False)
        # What measuring took earlier, of the claims of which that is known
        costs = self._shipped_costs(size) | costs_of(read_results(run.folder, self.name))
        known_costs = [costs[claim.id] for claim in to_measure if claim.id in costs]
        return replace(
            run.plan(chosen, timed=True),
            claims=len(to_measure),
            timed_claims=len(known_costs),
            measuring_seconds=sum(known_costs),
        )

    def _shipped_costs(self, size: str) -> dict[str, float]:
        """Seconds that the claims of the shipped results took, by id, if these are of this size."""
        shipped = read_results(self.shipped, self.name) if self.shipped else None
        return costs_of(shipped) if shipped is not None and shipped.size == size else {}

    def draw(
        self, *, size: Size | None = None, only: Sequence[str] = (), folder: str | Path = "runs/reproduce"
    ) -> StudyResult:
        """Draw the page from stored results, without training or measuring.

        Args:
            size: Size of the study; default: that of the shipped results.
            only: Claim ids or prefixes of ids, whose claims alone are on the page; default: all.
            folder: Folder of studies and models. Its results of this size are drawn; else the shipped ones.

        Raises:
            ValueError: an unknown size, a name that matches no claim, results that cannot be read, or none of this
                size.
        """
        chosen_ids = {claim.id for claim in self.choose(only)}
        stored, size_folder = self.stored(size=size, folder=folder)
        result = stored.result(self, size_folder)
        claims = tuple(claim for claim in result.claims if claim.claim.id in chosen_ids)
        result = replace(result, claims=claims)
        self._write_page(result)
        return result

    def _write_page(self, result: StudyResult) -> None:
        # A finding is about claims of which each is on the page
        findings = [finding for finding in self.findings if set(finding.claims) <= set(result.verdicts)]
        write_study_page(result, lead=self.lead, findings=findings, words=self.words)

    def _choose_for_run(self, size: str, only: Sequence[str], n_jobs: int, device: str | None) -> tuple[Claim, ...]:
        """The chosen claims, after a check of the options of a run."""
        check_choice("size", size, Size)
        chosen = self.choose(only)
        if n_jobs < 1:
            raise ValueError(f"n_jobs is {n_jobs}; give at least one process.")
        if device is not None:
            check_device(device)
        return chosen

    def check(
        self,
        *,
        size: Size | None = None,
        only: Sequence[str] = (),
        folder: str | Path = "runs/reproduce",
        n_jobs: int = 2,
        fresh: bool = False,
        seed: int | None = None,
        device: str | None = None,
        against: str | Path | None = None,
    ) -> CheckResult:
        """Measure claims again, also those with a measurement, and compare them with stored results.

        Args:
            size: Size of the study; default: that of the stored results.
            only: As in `run`.
            folder: Folder of studies and models; models that it has are not trained again.
            n_jobs: As in `run`.
            fresh: Whether to train its models again too.
            seed: Seed of the measurements; default: that of the stored results.
            device: As in `run`.
            against: What to compare with: a bundle, whose hashes are checked first and whose models are used unless
                `fresh`, or a folder with `claims.json`; default: the shipped results.

        Returns:
            Each chosen claim with its stored and its new number.

        Raises:
            ValueError: as `run`; there are no such results, or they are of another study or damaged; a model of a
                bundle is another one than its key says (`ForeignRun`).
            FileNotFoundError: there is no such archive.
        """
        stored, bundle = self._against(against)
        size = size or stored.size
        chosen = self._choose_for_run(size, only, n_jobs, device)
        # Compare at the seed of the stored results
        if seed is None:
            seed = int(stored.content["manifest"]["seed"])
        # Models of a bundle are kept apart from those of other runs
        models = bundle if bundle and bundle.has_models and not fresh else None
        run_folder = user_path(folder) / f"bundle-{models.digest}" if models else user_path(folder)
        run = Run(self, size=size, folder=run_folder, n_jobs=n_jobs, seed=seed, checks=True)
        bundled = models.unpack_models(run.models, run.specs_of(chosen)) - models.rounded if models else frozenset()
        return check_claims(run, chosen, stored, fresh=fresh, device=device, bundled=bundled)

    def again(
        self,
        n: int,
        *,
        only: Sequence[str] = (),
        folder: str | Path = "runs/reproduce",
        n_jobs: int = 2,
        seed: int = 0,
        at_most: float | None = None,
    ) -> CheckResult:
        """Measure claims that are drawn at random again, at the shipped size, and compare them with shipped numbers.

        Args:
            n: Number of claims.
            only: Ids of the claims to draw from, or prefixes of ids; default: all.
            folder: As in `run`: models that it has are not trained again.
            n_jobs: As in `run`.
            seed: Determines which claims are drawn.
            at_most: Most seconds that measuring a claim and training its models took before.

        Returns:
            Each drawn claim with its shipped and its new number.

        Raises:
            ValueError: as `check`; n is below 1, or no claim can be drawn.
        """
        stored, _ = self._against(None)
        groups = self.groups(stored.size)
        drawn = drawn_claims(self.choose(only), n, stored=stored, groups=groups, at_most=at_most, seed=seed)
        seed_of_numbers = int(stored.content["manifest"]["seed"])
        run = Run(self, size=stored.size, folder=user_path(folder), n_jobs=n_jobs, seed=seed_of_numbers, checks=True)
        return check_claims(run, drawn, stored, fresh=False, device=None)

    def bundle(
        self,
        path: str | Path,
        *,
        size: Size | None = None,
        folder: str | Path = "runs/reproduce",
        with_models: bool = False,
        half: bool = False,
    ) -> Path:
        """Write the results, their hashes, environment, cost and models to one archive.

        Args:
            path: The zip file; an existing one is replaced.
            size: Size of the study; default: that of the shipped results.
            folder: Folder of studies and models. Its results of this size are bundled; else the shipped ones.
            with_models: Whether it has the trained models that its measured claims need, or only keys and hashes.
            half: Whether weights are rounded to half precision, where every claim that reads them has an interval.

        Raises:
            ValueError: as `draw`; with_models, and a model has not been trained.
        """
        stored, _ = self.stored(size=size, folder=folder)
        run = Run(self, size=stored.size, folder=user_path(folder), n_jobs=1, seed=0)
        # The models that the measured claims need, and those of them whose claims allow rounding
        result = stored.result(self, Path())
        measured = [claim.claim for claim in result.claims if claim.measurement is not None]
        specs = run.specs_of(measured)
        in_full = run.specs_of([claim for claim in measured if not allows_rounding(stored.entry(claim) or {})])
        return write_bundle(
            user_path(path),
            stored,
            specs=specs,
            models=run.models,
            with_models=with_models,
            half=specs.keys() - in_full.keys() if half else (),
        )

    def _against(self, against: str | Path | None) -> tuple[StoredResults, Bundle | None]:
        """The results to check against, and the bundle that they are in, if any."""
        if against is not None and not user_path(against).is_dir():
            bundle = open_bundle(against)
            return bundle.results(self.name), bundle
        folder = self.shipped if against is None else user_path(against)
        stored = read_results(folder, self.name) if folder else None
        if stored is None:
            reason = f"{against} has no {CLAIMS}" if against else f"the study {self.name} has no shipped results"
            raise ValueError(f"{reason} to check against.")
        return stored, None

    def stored(self, *, size: Size | None = None, folder: str | Path) -> tuple[StoredResults, Path]:
        """The results of a size in a folder, else the shipped ones; and the folder of the size.

        Raises:
            ValueError: as `draw`.
        """
        if size is not None:
            check_choice("size", size, Size)
        # The size of the shipped results is the default
        shipped = read_results(self.shipped, self.name) if self.shipped else None
        if size is None:
            size = shipped.size if shipped else "quick"
        # Results of a run come first
        size_folder = user_path(folder) / self.name / size
        stored = read_results(size_folder, self.name)
        if stored is None and shipped and shipped.size == size:
            stored = shipped
        if stored is None:
            command = f"interp reproduce {self.name} --size {size}"
            of_shipped = f"; those shipped are of size {shipped.size}" if shipped else " and none is shipped"
            raise ValueError(
                f"there are no results of size {size} in {size_folder} ({CLAIMS}){of_shipped}. Next: {command}"
            )
        return stored, size_folder
