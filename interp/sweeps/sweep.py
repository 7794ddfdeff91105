"""Train the models of a grid, in processes, on a cluster or stacked on an accelerator; apply verbs to all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hooks.checks import check_number
from hooks.files import user_path
from hooks.state import restores_state
from hooks.typed import checks_types
from interp.core.devices import check_device, is_accelerator
from interp.core.progress import Count
from interp.core.results import plots_offline
from interp.sweeps.cost import training_operations
from interp.sweeps.grid import SEED, Sweep
from interp.sweeps.parallel import Specs, train_each, train_to_disk
from interp.sweeps.stacked import in_stacks, train_stacked
from interp.sweeps.status import failure_of, mismatch_of, run_status, save_failure
from interp.sweeps.sweep_table import SweepTable, in_words, over_seeds
from interp.sweeps.tables import Verb, VerbInput, compares_models, tabulate, verb_name
from interp.training.folder import FolderInUse, RunFolder
from interp.training.identity import ForeignRun
from interp.training.run import TrainingRun

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

PRINTED_ROWS = 12
"""Rows that are printed."""


@checks_types
@restores_state
def sweep(
    grid: Sweep,
    folder: str | Path,
    *,
    n_jobs: int = 2,
    scheduler: Any = None,
    shared_folder: bool = True,
    device: str | None = None,
    stacked: bool | None = None,
    fresh: bool = False,
) -> "SweepRuns":
    """Train every model of a grid, each once: those that are in the folder are not trained again.

    A model is in `folder/<key>`, under the key of everything that determines its weights. A trained model is used if
    its manifest has this key and its files have the hashes that the manifest gives; another one is an error, and
    nothing is deleted. A sweep that is interrupted resumes, and several may share a folder. One that fails does not
    stop the others. A pretrained model that is a specification is trained first.

    Args:
        grid: The models.
        folder: Folder of all models.
        n_jobs: Number of processes on this machine, each with one torch thread; on an accelerator, 1.
        scheduler: Address of a Dask scheduler (`tcp://host:8786`) or a `distributed.Client`: its workers train in place
            of processes here. Needs the extra `cluster`.
        shared_folder: Whether those workers see this folder; if not, each sends its run back as one file.
        device: Where to train: `cuda`, `cuda:1` or `cpu`; default: the CPU.
        stacked: Whether to train models of one config as one, see `interp.sweeps.stacked`. Default: on an
            accelerator, where the config allows it; not on a CPU, where processes are faster.
        fresh: Train again what is there.

    Returns:
        The models, with tables, curves, and `apply` for any verb.

    Raises:
        ValueError: an unavailable device; `stacked` for models that cannot be, or on a cluster; a pretrained model that
            cannot be trained, or that workers cannot read.
        ForeignRun: a folder has another model than its key says.
        FolderInUse: a process that trains a model is stopped, or has written nothing for ten minutes (the environment
            variable INTERP_WAIT, in seconds).
        NoLocks: the file system of the folder has no locks.
        LostWorkers: processes are killed again and again, or the scheduler is gone; the same call resumes.

    Example:
        >>> import interp
        >>> task, settings = interp.tasks.Lego(n_vars=2), interp.TrainSettings(steps=2, n_eval=20)
        >>> config = interp.config_for(task, n_layers=1, d_model=16)
        >>> base = interp.sweeps.ModelSpec(task=task, config=config, settings=settings, seed=0)
        >>> interp.sweep(interp.sweeps.Sweep(base, {"seed": [0, 1]}), "runs", n_jobs=1).status
        ['trained', 'trained']
    """
    check_number("n_jobs", n_jobs, integer=True, above=0)
    if device is not None:
        check_device(device)
    if stacked and scheduler is not None:
        raise ValueError("stacked models are trained in this process; leave out scheduler, or stacked.")
    runs = SweepRuns(grid=grid, folder=user_path(folder))
    missing = {}  # index of each model to train, by the folder of its run
    for index, (key, status) in enumerate(zip(grid.keys, runs.status, strict=True)):
        if fresh or status != "trained":
            missing[runs.folder / key] = index
            continue
        RunFolder(runs.folder / key).tidy()  # what a killed process left
    if not fresh:
        runs.check_models(missing.values())
    if not missing:
        return runs

    # Pretrained models first
    _train_sources(grid, runs.folder, device, shared_folder=scheduler is None or shared_folder)

    # On an accelerator, models of one config are stacked if they can be
    specs = {path: grid[index] for path, index in missing.items()}
    accelerated = scheduler is None and is_accelerator(device)
    stacks: list[Specs] = []
    separate = dict(specs)
    if stacked or (stacked is None and accelerated):
        stacks, separate = in_stacks(specs, required=bool(stacked))

    # Train the stacks in this process, then the others in processes or on a cluster
    operations = {path: training_operations(spec) for path, spec in specs.items()}
    with Count("training models", len(specs), work=sum(operations.values())) as count:

        def report(path: Path, error: Exception | None) -> None:
            failure = "" if error is None else f"{runs.name(missing[path])} failed: {error}"
            count.advance(failure, work=operations[path])

        def report_stacked(path: Path, error: Exception | None) -> None:
            if isinstance(error, FolderInUse):
                separate[path] = specs[path]  # `train_each` waits for the other process
                return
            if error is not None:
                save_failure(path, error)
            report(path, error)

        for stack in stacks:
            train_stacked(stack, device=device, fresh=fresh, on_outcome=report_stacked)
        longest_first = {path: separate[path] for path in sorted(separate, key=lambda path: -operations[path])}
        placement = {"device": device, "scheduler": scheduler, "shared_folder": shared_folder}
        for path, error in train_each(longest_first, n_jobs=n_jobs, fresh=fresh, **placement):
            report(path, error)
    return runs


def _train_sources(grid: Sweep, folder: Path, device: str | None, *, shared_folder: bool) -> None:
    """Train the pretrained models from which those of the grid start, if there are any."""
    if grid.base.sources and not shared_folder:
        raise ValueError(
            "models of the sweep start from a pretrained one, which workers cannot read; share the folder."
        )
    for spec in grid.base.sources:
        train_to_disk({folder / spec.key: spec}, n_jobs=1, device=device)


@dataclass(frozen=True, kw_only=True)
class SweepRuns:
    """The models of a sweep in a folder, trained or not. Nothing is loaded before it is needed."""

    grid: Sweep
    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", user_path(self.folder))

    @property
    def status(self) -> list[str]:
        """How far each model is: trained, running, failed, interrupted or missing; `mismatch`: it is another one."""
        run_folders = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        return [
            run_status(self.folder / key, self.grid[index].description) if key in run_folders else "missing"
            for index, key in enumerate(self.grid.keys)
        ]

    def name(self, index: int) -> str:
        """What a model is, in words."""
        return in_words(self.grid.labels(index))

    def tally(self, status: Sequence[str]) -> str:
        """Number of models by how far they are, in words."""
        counts = ", ".join(f"{status.count(name)} {name}" for name in dict.fromkeys(status))
        models = "1 model" if len(status) == 1 else f"{len(status)} models"
        return f"{models} in {self.folder}: {counts}"

    def table(self) -> "pd.DataFrame":
        """One row per model: what varies, how far it is, its error if it failed or is another model, and its key."""
        import pandas as pd

        rows = []
        for index, (status, key) in enumerate(zip(self.status, self.grid.keys, strict=True)):
            rows.append({**self.grid.labels(index), "status": status, "error": self._error(index, status), "key": key})
        return pd.DataFrame(rows)

    def _error(self, index: int, status: str) -> str:
        """Why a model failed, or in what it is another one; empty for others."""
        folder = self._files(index).path
        if status == "mismatch":
            return mismatch_of(folder, self.grid[index].description)
        return failure_of(folder) if status == "failed" else ""

    def check_models(self, indices: Iterable[int]) -> None:
        """Check that trained models are those of their folders.

        Raises:
            ForeignRun: some are not; names the first.
        """
        errors = []
        for index in indices:
            if error := mismatch_of(self._files(index).path, self.grid[index].description):
                errors.append(f"{self.name(index)}: {error}")
        if errors:
            raise ForeignRun(f"{len(errors)} trained models are not those of their folders. {errors[0]}")

    def __len__(self) -> int:
        return len(self.grid)

    def select(self, **labels: Any) -> list[TrainingRun]:
        """The trained runs in which columns have given values: `select(learning_rate=1e-3)`; all without arguments.

        Raises:
            ValueError: an unknown column, no trained model, or (`ForeignRun`) one that is not that of its folder.
        """
        return [self._run(index) for index in self._trained(labels)]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per trained model and outcome: what varies, validation accuracy with its interval, steps, seconds."""
        return self._frame(last=True)

    def curves(self) -> "pd.DataFrame":
        """One row per combination, step and outcome: mean validation accuracy over seeds with its interval.

        The interval is that of the mean over seeds (t); none for a single seed.
        """
        table: Any = self._frame(last=False)
        by = [*self.grid.combined, "step", "target"]
        return over_seeds(table, by, "accuracy", within=(0.0, 1.0)).rename(columns={"mean": "accuracy"})

    @plots_offline
    def plot(self) -> "alt.TopLevelMixin":
        """Mean validation accuracy over training with a band over seeds: one panel per combination of what varies."""
        from interp.view.charts import curves

        table: Any = self.curves()
        by = self.grid.combined
        names = [in_words(row) for row in table[by].to_dict("records")]
        n = sorted(set(table["n"]))
        seeds = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
        chance = self._files(self._trained({})[0]).read_manifest()["chance"]
        return curves(
            table.assign(models=names),
            x="step",
            y="accuracy",
            series="target",
            panel="models" if by else None,
            rule=chance,
            title=f"mean over n = {seeds} seeds, 95 % interval",
        )

    def apply(self, verb: Verb, *, n_jobs: int = 1, fresh: bool = False, **options: Any) -> "SweepTable":
        """Apply a verb to every trained model; each table is stored in the folder of its run and made once.

        Args:
            verb: `interp.evaluate`, `interp.audit`, ... or a function of model and task that returns a result or a dict
                of numbers. One whose first argument is called `models`, such as `interp.attention_variation`, compares
                the seeds of each combination.
            n_jobs: Number of processes, each with one torch thread.
            fresh: Measure again what is stored.
            options: Further arguments of the verb, such as `n=500`.

        Raises:
            ValueError: no trained model, one that is not that of its folder (`ForeignRun`), or a verb that refuses
                every model.
        """
        check_number("n_jobs", n_jobs, integer=True, above=0)
        inputs = self._verb_inputs(verb)
        columns, refused = tabulate(inputs, verb, options, n_jobs=n_jobs, fresh=fresh, unit="model")
        return SweepTable(
            verb=verb_name(verb),
            varies=self.grid.columns,
            columns=columns,
            skipped=tuple((in_words(verb_input.labels), reason) for verb_input, reason in refused),
        )

    def _verb_inputs(self, verb: Verb) -> list[VerbInput]:
        """Every trained model; for a verb that compares models, the seeds of every combination."""
        # Each trained model is a group; of a verb that compares models, all seeds of a combination
        groups: dict[tuple[Any, ...], list[int]] = {}
        for index in self._trained({}):
            labels = self.grid.labels(index)
            if compares_models(verb):
                labels.pop(SEED)
            groups.setdefault(tuple(labels.values()), []).append(index)
        inputs = []
        for indices in groups.values():
            labels = self.grid.labels(indices[0])
            if compares_models(verb):
                labels[SEED] = ", ".join(str(self.grid.labels(index)[SEED]) for index in indices)
            files = [self._files(index) for index in indices]
            weights = tuple(run.model_path for run in files)
            task = self.grid[indices[0]].task
            inputs.append(VerbInput(labels, weights, files[0].path, task))
        return inputs

    def _files(self, index: int) -> RunFolder:
        return RunFolder(self.folder / self.grid.keys[index])

    def _run(self, index: int) -> TrainingRun:
        spec = self.grid[index]
        run = TrainingRun.load(self._files(index).path, expected=spec.description)
        run = TrainingRun.with_task(
            spec.task, model=run.model, history=run.history, manifest=run.manifest, folder=run.folder
        )
        run.model.tokenizer = spec.task.vocab
        return run

    def _trained(self, labels: Mapping[str, Any]) -> list[int]:
        """Indices of the trained models that have these labels."""
        for name in labels:
            if name not in self.grid.columns:
                raise ValueError(f"the sweep has no column {name!r}; it has {', '.join(self.grid.columns)}.")
        statuses = {
            index: status
            for index, status in enumerate(self.status)
            if labels.items() <= self.grid.labels(index).items()
        }
        self.check_models(index for index, status in statuses.items() if status == "mismatch")
        indices = [index for index, status in statuses.items() if status == "trained"]
        if not indices:
            described = f" with {in_words(labels)}" if labels else ""
            errors = [self._error(index, status) for index, status in statuses.items() if status == "failed"]
            reason = f" The first failed: {errors[0]}" if errors else ""
            raise ValueError(
                f"no model{described} is trained in {self.folder}; see table() for how far they are.{reason}"
            )
        return indices

    def _frame(self, *, last: bool) -> "pd.DataFrame":
        """Metrics of every trained model: of the last evaluation, or of all."""
        import pandas as pd

        frames: list[Any] = []
        for index in self._trained({}):
            # The metrics as those of a run without its model, which is not needed
            files = self._files(index)
            history = files.read_metrics()
            if last:
                history = history[-1:]
            run = TrainingRun(model=None, history=tuple(history), manifest=files.read_manifest())
            # What varies comes first
            labels = self.grid.labels(index)
            frame: Any = run.to_dataframe().assign(seconds=run.seconds).assign(**labels)
            metrics = [name for name in frame if name not in labels]
            frames.append(frame[[*labels, *metrics]])
        return pd.concat(frames, ignore_index=True)

    def __str__(self) -> str:
        status = self.status
        lines = [self.tally(status)]
        if "trained" in status and "mismatch" not in status:
            by = [*self.grid.combined, "target"]
            table = over_seeds(self.to_dataframe(), by, "accuracy", within=(0.0, 1.0))
            lines += _printed(table, by)
        for index, model_status in enumerate(status):
            if model_status in ("failed", "mismatch"):
                lines.append(f"{model_status}: {self.name(index)}: {self._error(index, model_status)}")
        return "\n".join(lines)


def _printed(table: Any, by: Sequence[str]) -> Iterator[str]:
    """Lines of the first rows, and the number of further ones."""
    for row in table.head(PRINTED_ROWS).to_dict("records"):
        is_interval = np.isfinite(row["low"])  # not of a single seed
        ends = f" [{row['low']:.3f}, {row['high']:.3f}]" if is_interval else ""
        yield f"{in_words({name: row[name] for name in by})}: accuracy {row['mean']:.3f}{ends}, n = {row['n']}"
    if len(table) > PRINTED_ROWS:
        yield f"and {len(table) - PRINTED_ROWS} more; see to_dataframe()"
