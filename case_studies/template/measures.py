"""Scores on unseen symbols, loss ratios, sample thresholds, and the paper's curves."""

import csv
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from case_studies.frame.evidence import Evidence
from case_studies.recipes.intervals import (
    clipped,
    geometric_interval,
    interval_columns,
    proportion,
    t_interval,
)
from case_studies.recipes.judges import Mean
from case_studies.recipes.template_models import SCALES
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.evaluation.evaluate import score_batch
from interp.sweeps.spec import ModelSpec
from interp.tasks import Template
from interp.training.run import best_record
from interp.view.charts import scaling_curves

N_TEST = {"quick": 1000, "standard": 2000, "paper": 2000}
"""Test strings over unseen symbols per model."""
SOLVED, BARELY = 0.95, 0.6
"""Accuracy on unseen symbols from which a task is solved, and below which a model fails; chance is one half."""
N_LABEL = "training strings = symbols"
Key = TypeVar("Key", int, float, str)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Scores of one model on unseen test symbols."""

    n: int
    """Training strings; also the size of the training alphabet."""
    seed: int
    rate: float
    config: Any
    task: Template
    loss: float
    """Mean squared error, or cross entropy in nats."""
    right: int
    total: int
    validation: float
    """Loss on validation symbols of the weights that were kept."""
    model: Any

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.right / self.total

    @property
    def length(self) -> int:
        """Symbols after the first one: the length of a majority."""
        return self.task.n_ctx - 2


def template_task(spec: ModelSpec) -> Template:
    """The task of a model."""
    return Template.require(spec.task, "the study measures template tasks.")


def n_train(spec: ModelSpec) -> int:
    """Training strings of a model."""
    n = spec.settings.n_train
    assert n is not None
    return n


def scores(evidence: Evidence, group: str, *, each_symbol: bool = False) -> list[Scored]:
    """The scores of all models of a group.

    Args:
        evidence: Evidence that has the group.
        group: Name of the group.
        each_symbol: Test every test symbol once, on templates with one wildcard, instead of random strings.
    """
    rows = []
    for spec in evidence.specs(group):
        run = evidence.run(spec)
        task = template_task(spec)
        if each_symbol:
            symbols = torch.tensor([task.vocab.ids[name] for name in task.alphabet("test")])
            strings = task.fill(torch.zeros_like(symbols), symbols[:, None])
        else:
            generator = derived_generator(evidence.seed, "test strings")
            strings = task.sample(N_TEST[evidence.size], generator=generator, split="test")
        score = score_batch(run.model, task, strings)
        rows.append(
            Scored(
                n=n_train(spec),
                seed=spec.seed,
                rate=spec.settings.learning_rate,
                config=spec.config,
                task=task,
                loss=float(score.loss.mean()),
                right=int(score.right.sum()),
                total=len(strings),
                validation=float(np.mean(best_record(run.history)["validation_loss"])),
                model=run.model,
            )
        )
    return rows


def by(rows: Iterable[Scored], key: Callable[[Scored], Key]) -> dict[Key, list[Scored]]:
    """Group models by a key, in ascending order; each group is in the order of seeds."""
    groups: dict[Key, list[Scored]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: sorted(groups[name], key=lambda row: row.seed) for name in sorted(groups)}


def by_n(rows: Iterable[Scored]) -> dict[int, list[Scored]]:
    """Group models by the number of training strings."""
    return by(rows, lambda row: row.n)


def mean_accuracy(rows: Sequence[Scored]) -> Interval:
    """Mean accuracy over models of one kind with its t interval, cut at 0 and 1."""
    shares = np.array([row.accuracy for row in rows])
    interval = t_interval(shares, resolution=1 / min(row.total for row in rows))
    return clipped(interval, 0.0, 1.0)


def scored_frame(groups: Mapping[str, Iterable[Scored]], *, of: str = "model") -> pd.DataFrame:
    """One row a model, by group, n and seed: accuracy with its exact interval over strings, and losses.

    Args:
        groups: Scores of the models of each group.
        of: Name of the column of the groups.
    """
    rows = []
    for name, models in groups.items():
        for scored in (scored for seeds in by_n(models).values() for scored in seeds):
            rows.append(
                {
                    of: name,
                    "n": scored.n,
                    "seed": scored.seed,
                    **interval_columns(proportion(scored.right, scored.total), "accuracy"),
                    "strings": scored.total,
                    "loss": losses([scored])[0],
                    "validation loss": scored.validation,
                }
            )
    return pd.DataFrame(rows)


def accuracy_judge(**where: Any) -> Mean:
    """Mean accuracy with its t interval over the models of `scored_frame` with these values."""
    return Mean("accuracy", unit="models", where=where, share_of="strings")


def best_rate(rows: Iterable[Scored], key: Callable[[Scored], Key]) -> list[Scored]:
    """For each key and seed, the model whose learning rate has the lowest loss on validation symbols."""
    best: dict[Any, Scored] = {}
    for row in rows:
        key_and_seed = (key(row), row.seed)
        if key_and_seed not in best or row.validation < best[key_and_seed].validation:
            best[key_and_seed] = row
    return list(best.values())


def losses(rows: Iterable[Scored]) -> Float[np.ndarray, " model"]:
    """Test losses, at least 1e-9 so that their logarithms are finite."""
    return np.array([max(row.loss, 1e-9) for row in rows])


def geometric_mean(rows: Iterable[Scored]) -> float:
    """Geometric mean of test losses."""
    return float(np.exp(np.log(losses(rows)).mean()))


def ratio(modified: Sequence[Scored], plain: Sequence[Scored], *, comparisons: int = 1) -> Interval:
    """Loss of the modified models divided by that of the plain models of the same seeds, as a geometric mean.

    Args:
        modified: One model per seed.
        plain: Models of the same seeds, in the same order.
        comparisons: Number of ratios in the family; the interval has Bonferroni's correction for it.
    """
    return geometric_interval(np.log(losses(modified) / losses(plain)), confidence=1 - 0.05 / comparisons)


def threshold(rows: Iterable[Scored], level: float, value: Callable[[Scored], float]) -> tuple[int, bool]:
    """The smallest n from which a value stays below a level, and True; twice the largest n, and False, if none."""
    ordered = sorted(rows, key=lambda row: row.n)
    needed, reached = 2 * ordered[-1].n, False
    for row in reversed(ordered):
        if value(row) >= level:
            break
        needed, reached = row.n, True
    return needed, reached


def thresholds(rows: Iterable[Scored], level: float, value: Callable[[Scored], float]) -> list[tuple[int, bool]]:
    """The `threshold` of each seed."""
    return [threshold(seed_rows, level, value) for seed_rows in by(rows, lambda row: row.seed).values()]


def loss_over_seeds(groups: Mapping[Key, Sequence[Scored]], *, x: str, series: str) -> list[dict[str, Any]]:
    """Geometric mean loss of each group with its t interval, as rows of a chart or table."""
    rows = []
    for x_value, seeds in groups.items():
        loss, low, high = geometric_interval(np.log(losses(seeds))).floats()
        rows.append({x: x_value, "loss": loss, "low": low, "high": high, "series": series, "seeds": len(seeds)})
    return rows


def paper_curves(figure: str, *, x: str, y: str, series: Collection[str] = ()) -> pd.DataFrame:
    """The paper's curves of a figure, read from its vector graphics (exact to about three digits).

    Args:
        figure: Name of the figure in `paper_curves.csv`.
        x: Column name for the sizes.
        y: Column name for the values.
        series: Curves to return; default: all.
    """
    rows = [row for row in _paper_rows() if row["figure"] == figure and (not series or row["series"] in series)]
    return pd.DataFrame(
        [{x: float(row["x"]), y: float(row["value"]), "series": row["series"]} for row in rows],
        columns=pd.Index([x, y, "series"]),
    )


@lru_cache
def _paper_rows() -> list[dict[str, str]]:
    with (Path(__file__).parent / "paper_curves.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def loss_chart(groups: dict[str, list[Scored]], *, figure: str, title: str) -> Any:
    """Test loss against n, one line per group of models, with the paper's curves dashed in the background."""
    rows = [row for name, models in groups.items() for row in loss_over_seeds(by_n(models), x=N_LABEL, series=name)]
    return scaling_curves(
        pd.DataFrame(rows).rename(columns={"loss": "test loss"}),
        x=N_LABEL,
        y="test loss",
        series="series",
        behind=paper_curves(figure, x=N_LABEL, y="test loss", series=list(groups)),
        rule=1.0,
        log_y=True,
        title=[f"{title}: {min(row['seeds'] for row in rows)} seeds, geometric means, 95 %", "dashed: the paper's"],
    )


def same_budget(evidence: Evidence) -> str:
    """The training budget in words; empty at size paper, where it grows with n."""
    scale = SCALES[evidence.size]
    return f"Every model has {scale.steps} steps of {scale.batch_size} strings." if evidence.size != "paper" else ""
