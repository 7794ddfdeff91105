"""A page about the development of one run: loss, what is readable, what heads look like and what they cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from hooks.typed import checks_types
from interp.comparison.over_training import OverTraining
from interp.comparison.training_charts import lines, step_axis
from interp.core.page_identity import page_identity
from interp.training.run import TrainingRun
from interp.view.charts import HEIGHT, WIDTH, chart_of, colour_by, numbers
from interp.view.page import Section, write_page


@checks_types
def development_page(run: TrainingRun, results: Sequence[OverTraining], path: str | Path) -> Path:
    """Write a page with the loss of a run and analyses of its snapshots below each other, over one axis of steps.

    Args:
        run: The run.
        results: Results of `interp.over_training` on it, in the order of the page.
        path: The HTML file. It needs no network.

    Raises:
        ValueError: no results, or one without this run.
    """
    seed = run.manifest["seed"]
    if not results:
        raise ValueError("results is empty; give results of interp.over_training, such as of interp.probe.")
    # The loss above one chart per result, over one axis of steps.
    charts: list[Any] = [_loss(run)]
    for result in results:
        rows = result.rows(seed=_seed_in(result, seed))
        charts.append(lines(rows, result.value, by=result.line_labels, title=f"{result.verb}: {result.value}"))
    sections = [
        Section(
            title="Over training",
            text="Loss on top, below it what each analysis finds at each snapshot; bands are 95 % intervals.",
            chart=alt.vconcat(*charts).resolve_scale(x="shared", color="independent"),
        )
    ]
    # Then the onsets of each result.
    sections += [_onset_section(result, run.manifest["chance"]) for result in results]
    lead = f"{len(run.snapshots)} snapshots. The run: {run}."
    identity = page_identity(run.model, run.task, seed=seed)
    return write_page(path, title="How this model developed", lead=lead, sections=sections, identity=identity)


def _seed_in(result: OverTraining, seed: int) -> int | str:
    """The seed as the result has it: alone, or among those of the models that a verb compares."""
    for label in result.seeds:
        if str(seed) in str(label).split(", "):
            return label
    raise ValueError(f"a result of {result.verb} is of seeds {', '.join(map(str, result.seeds))}, not of {seed}.")


def _loss(run: TrainingRun) -> alt.TopLevelMixin:
    names = {"step": "steps_done", "phase": "phase", "loss": "loss"}
    table: Any = pd.DataFrame({name: [record[key] for record in run.history] for name, key in names.items()})
    return (
        chart_of(table)
        .mark_line(point=alt.OverlayMarkDef(size=14))
        .encode(
            step_axis(int(table["step"].max())),
            alt.Y("loss:Q", scale=alt.Scale(type="log")),
            colour_by("phase", table["phase"]),
            tooltip=["phase:N", "step:Q", *numbers("loss")],
        )
        .properties(width=2 * WIDTH, height=HEIGHT // 2, title="training loss")
    )


def _onset_section(result: OverTraining, chance: float) -> Section:
    """Onsets of a result: above an untrained model, above chance, or above 0."""
    above_chance = result.value == "accuracy" and "untrained" not in result.columns
    onsets = result.onsets(null=chance if above_chance else None)
    # A row for each label that has an onset.
    rows: list[list[Any]] = [[*onsets.by, "onset", "after step", "at the latest"]]
    table: Any = onsets.to_dataframe()
    for row in table[np.isfinite(table["onset"])].itertuples(index=False):
        *labels, onset, low, high, _, _, _ = row
        steps = [f"{step:.0f}" for step in (onset, max(low, 0), high)]
        rows.append([*map(str, labels), *steps])
    n_without = len(table) + 1 - len(rows)
    text = f"First step from which {result.value} stays above {onsets.null}, with the lower end of its interval."
    if n_without:
        text += f" Not by the last step: {n_without} of {len(table)}, which are not listed."
    if result.skipped:
        text += f" {len(result.skipped)} snapshots were refused: {result.skipped[0][2]}"
    return Section(title=f"Onsets: {result.verb}", text=text, table=rows if len(rows) > 1 else [])
