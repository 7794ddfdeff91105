"""Any verb over the snapshots of training runs: when does a head begin to look like something, or to matter?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hooks.checks import check_class, check_number
from hooks.state import restores_state
from hooks.typed import checks_types
from interp.core.consistency import check_known
from interp.core.results import count_range
from interp.sweeps.tables import Verb, VerbInput, VerbTable, compares_models, tabulate, verb_name
from interp.training.folder import RunFolder
from interp.training.run import TrainingRun

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from interp.comparison.onsets import Onsets

VALUES = ("accuracy", "score", "drop", "performs", "cosine", "variation", "share", "value")
"""Columns that charts show if none is named; the first that a table has."""
INTERVAL_ENDS = ("low", "high")
UNTRAINED = "untrained"
FINDINGS = ("label", "verdict", "reason", "partners")
"""Columns of text that a verb finds at each step; they do not label a line."""


@dataclass(frozen=True, kw_only=True)
class OverTraining(VerbTable):
    """The table of a verb at every snapshot of one or several runs; its first columns are `seed` and `step`."""

    seeds: tuple[int | str, ...]
    """Seed of each run; of a verb that compares models, the seeds of all runs as one text."""
    steps: tuple[int, ...]
    """Steps measured in any of the runs, with those of mimicking; 0 is before training."""
    skipped: tuple[tuple[int | str, int, str], ...] = ()
    """Seed, step and reason of snapshots at which the verb refused the model, such as an audit of one at chance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("seed", self.seeds), ("step", self.steps)):
            self.check_column(name)
            check_known(f"columns.{name}", dict.fromkeys(self.columns[name]), known, f"{name}s")

    @property
    def _has_chart(self) -> bool:
        return any(name in self.columns for name in VALUES)

    @property
    def value(self) -> str:
        """The column that charts show by default.

        Raises:
            ValueError: no column of the table is known to be one.
        """
        for name in VALUES:
            if name in self.columns:
                return name
        raise ValueError(f"name the column to use: value= one of {', '.join(self.columns)}.")

    def rows(self, **filters: Any) -> "pd.DataFrame":
        """The rows in which columns have these values: `rows(kind="association", head=0)`.

        Raises:
            ValueError: an unknown column, or no such row.
        """
        table: Any = self.to_dataframe()
        for name, value in filters.items():
            self.check_column(name)
            table = table[table[name] == value]
            if table.empty:
                has = ", ".join(map(str, dict.fromkeys(self.columns[name])))
                raise ValueError(f"no row of {self.verb} has {name} {value!r}; it has {has}.")
        return table

    def onsets(
        self,
        value: str | None = None,
        *,
        by: Sequence[str] | None = None,
        null: float | str | None = None,
        filters: Mapping[str, Any] | None = None,
    ) -> "Onsets":
        """The first step from which a quantity stays above its null.

        Args:
            value: Column of the quantity; default: `value`. It is above its null where `low`, the lower end of its 95 %
                interval, is; without such a column, where it is itself.
            by: Columns that together name what has an onset; default: heads, with kinds or matrices, or sets of heads,
                if the table has them, else all labels. Of several rows at one step, such as one for each variable, one
                that is above its null is enough.
            null: Value under the null hypothesis: a number, or a column; default: the column `untrained` if there is
                one, else 0. Of accuracies that is chance.
            filters: Values of columns: only rows that have them are used.

        Raises:
            ValueError: an unknown column, or no such row.
        """
        from interp.comparison.onsets import find_onsets

        # Defaults: the column that charts show, the labels of heads, untrained models as the null.
        value = value or self.value
        by = self._heads() if by is None else by
        if null is None:
            null = UNTRAINED if UNTRAINED in self.columns else 0.0
        for name in (value, *by):
            self.check_column(name)
        if isinstance(null, str):
            self.check_column(null)
        table = self.rows(**dict(filters or {}))
        return find_onsets(table, value, by=tuple(by), null=null, verb=self.verb, seeds=self.seeds)

    def plot(self) -> "alt.TopLevelMixin":
        """Lines of `value` over steps, with intervals: one panel per seed, one line per combination of labels."""
        return self.lines()

    def lines(
        self, value: str | None = None, *, by: Sequence[str] = (), filters: Mapping[str, Any] | None = None
    ) -> "alt.TopLevelMixin":
        """Lines over steps, with intervals: one panel per seed.

        Args:
            value: Column to show; default: `value`.
            by: Columns that together name a line; default: all labels.
            filters: Values of columns: only rows that have them are used.
        """
        from interp.comparison.training_charts import lines
        from interp.view.offline import offline

        value = value or self.value
        for name in (value, *by):
            self.check_column(name)
        table = self.rows(**dict(filters or {}))
        return offline(lines(table, value, by=by or self.line_labels, title=self._title(value)))

    def filmstrip(
        self, value: str | None = None, *, x: str = "head", y: str = "layer", filters: Mapping[str, Any] | None = None
    ) -> "alt.TopLevelMixin":
        """A map with a slider for the step; saved as HTML it needs no network. In a notebook it shows the last step.

        Args:
            value: Column to show; default: `value`. The mean over the rows of a cell, such as seeds.
            x: Column of the map's columns.
            y: Column of the map's rows.
            filters: Values of columns: only rows that have them are used.
        """
        from interp.comparison.training_charts import filmstrip
        from interp.view.offline import offline

        value = value or self.value
        for name in (value, x, y):
            self.check_column(name)
        return offline(filmstrip(self.rows(**dict(filters or {})), value, x=x, y=y, title=self._title(value)))

    def __str__(self) -> str:
        rows = len(next(iter(self.columns.values()), []))
        seeds = ", ".join(map(str, self.seeds))
        steps = f"{len(self.steps)} steps from {self.steps[0]} to {self.steps[-1]}"
        lines = [f"{self.verb} at {steps}, seeds {seeds}: {rows} rows of {', '.join(self.columns)}"]
        if self.skipped:
            seed, step, reason = self.skipped[0]
            lines.append(f"not at {len(self.skipped)} snapshots, such as step {step} of seed {seed}: {reason}")
        return "\n".join(lines)

    @property
    def line_labels(self) -> tuple[str, ...]:
        """Columns that name rows: those before the value that charts show."""
        names = [name for name in self.columns if name not in ("seed", "step", *FINDINGS)]
        n_labels = names.index(self.value) if self.value in names else 1
        return tuple(names[:n_labels])

    def _heads(self) -> tuple[str, ...]:
        """Columns that name heads, with the kind of pattern or matrix, or sets of heads; else all labels."""
        names = tuple(name for name in ("layer", "head", "kind", "matrix", "set") if name in self.line_labels)
        return names if set(names) & {"head", "set"} else self.line_labels

    def _title(self, value: str) -> str:
        title = f"{self.verb}: {value} over training"
        if set(INTERVAL_ENDS) <= set(self.columns):
            title += ", 95 % interval"
        sizes = [size for size in self.columns.get("n", []) if size is not None]
        if sizes:
            title += f", n = {count_range(np.array(sizes))}"
        return title


@checks_types
@restores_state
def over_training(
    run: TrainingRun | Sequence[TrainingRun],
    verb: Verb,
    *,
    steps: Sequence[int] | None = None,
    n_jobs: int = 1,
    fresh: bool = False,
    **options: Any,
) -> OverTraining:
    """Apply a verb to the snapshots of a training run, or of several runs with different seeds.

    Tables are stored in the run's folder under a key of everything that determines them, so that an interrupted call
    resumes and a repeated one only reads. Those of a closure, or with options that have no lasting description, are
    not stored; write a function of a module in their place.

    Args:
        run: Runs with snapshots (`TrainSettings.snapshots`).
        verb: `interp.evaluate`, `interp.probe`, `interp.classify_heads`, `interp.ablate_heads`, `interp.audit`,
            `interp.diagonals`, ... or a function of model and task that returns a result or a dict of numbers. A verb
            whose first argument is called `models`, such as `interp.attention_variation`, compares the runs step by
            step.
        steps: Steps to use; default: all that have a snapshot, in every run if the verb compares them.
        n_jobs: Number of processes, each with one torch thread.
        fresh: Measure again what is stored.
        options: Further arguments of the verb, such as `n=500`.

    Returns:
        One table with the columns `seed`, `step` and those of the verb.

    Example:
        >>> import tempfile, interp
        >>> from hooks import make_model
        >>> task = interp.tasks.Lego(n_vars=1)
        >>> model = make_model(interp.config_for(task, n_layers=1, n_heads=2, d_model=8), seed=0)
        >>> settings = interp.TrainSettings(steps=2, batch_size=4, n_eval=8, snapshots=[0, 2])
        >>> run = interp.train(model, task, settings, folder=tempfile.mkdtemp())
        >>> interp.over_training(run, interp.evaluate, n=8).steps
        (0, 2)

    Raises:
        ValueError: a run without a folder or snapshots, a step without one, two runs with one seed, runs without a
            common step or of different tasks for a verb that compares them, a snapshot that is not the one which the
            run wrote (`ForeignRun`), or a verb that refuses every snapshot.
    """
    runs = [run] if isinstance(run, TrainingRun) else list(run)
    check_number("n_jobs", n_jobs, integer=True, above=0)
    if not runs:
        raise ValueError("run is empty; give at least one.")
    # The snapshots of all runs, each with its seed and step; those of one step together if the verb compares models.
    inputs = [verb_input for single_run in runs for verb_input in _snapshots(single_run, steps)]
    run_seeds = [single_run.manifest["seed"] for single_run in runs]
    if len(set(run_seeds)) < len(run_seeds):
        double = next(seed for seed in run_seeds if run_seeds.count(seed) > 1)
        raise ValueError(f"two runs have the seed {double}; give runs of one kind, each with its own seed.")
    name = verb_name(verb)
    if compares_models(verb):
        inputs = _joined_by_step(inputs, len(runs), name)
    # The table of the verb, from stored tables where there are any.
    columns, refused = tabulate(inputs, verb, options, n_jobs=n_jobs, fresh=fresh, unit="snapshot")
    return OverTraining(
        verb=name,
        seeds=tuple(dict.fromkeys(verb_input.labels["seed"] for verb_input in inputs)),
        steps=tuple(sorted({verb_input.labels["step"] for verb_input in inputs})),
        columns=columns,
        skipped=tuple((verb_input.labels["seed"], verb_input.labels["step"], reason) for verb_input, reason in refused),
    )


def _snapshots(run: TrainingRun, steps: Sequence[int] | None) -> list[VerbInput]:
    """The snapshots of a run at these steps, or all."""
    check_class("run", run, TrainingRun)
    seed = run.manifest["seed"]
    stored_steps = run.snapshots
    if run.folder is None or not stored_steps:
        raise ValueError(
            f"the run of seed {seed} has no snapshots; train with folder= and TrainSettings(snapshots=20)."
        )
    if missing := [step for step in steps or () if step not in stored_steps]:
        listed = ", ".join(map(str, stored_steps))
        raise ValueError(f"steps has {missing[0]}; the run of seed {seed} has snapshots of {listed}.")
    snapshot_file = RunFolder(run.folder).snapshots.file
    used_steps = stored_steps if steps is None else sorted(set(steps))
    for step in used_steps:
        run.check_snapshot(step)
    return [
        VerbInput({"seed": seed, "step": step}, (snapshot_file(step),), run.folder, run.task) for step in used_steps
    ]


def _joined_by_step(inputs: Sequence[VerbInput], n_runs: int, verb: str) -> list[VerbInput]:
    """The snapshots of each step as one input, for the steps that all runs have."""
    if n_runs < 2:
        raise ValueError(f"{verb} compares models; give several runs, each with its own seed.")
    # Check that all models are of one task.
    first = inputs[0]
    for verb_input in inputs:
        if verb_input.task != first.task:
            raise ValueError(
                f"{verb} compares models of one task; the run of seed {verb_input.labels['seed']} is of "
                f"{verb_input.task.describe()}, that of seed {first.labels['seed']} of {first.task.describe()}."
            )
    # Group by step, and use the steps that all runs have.
    by_step: dict[int, list[VerbInput]] = {}
    for verb_input in sorted(inputs, key=lambda verb_input: verb_input.labels["step"]):
        by_step.setdefault(verb_input.labels["step"], []).append(verb_input)
    shared = {step: snapshots for step, snapshots in by_step.items() if len(snapshots) == n_runs}
    if not shared:
        raise ValueError(f"the runs have no step in common, so {verb} cannot compare them; train with the same steps.")
    joined = []
    for step, snapshots in shared.items():
        seeds = ", ".join(str(snapshot.labels["seed"]) for snapshot in snapshots)
        weights = tuple(snapshot.weights[0] for snapshot in snapshots)
        joined.append(VerbInput({"seed": seeds, "step": step}, weights, snapshots[0].folder, first.task))
    return joined
