"""What several claims measure: scores on unseen symbols, ratios of losses, samples needed, and the paper's curves."""

import csv
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from case_studies.frame.claims import ClaimVerdict, Measurement, at_least, below, t_interval
from case_studies.frame.evidence import Evidence, ModelSpec
from case_studies.frame.template_models import SCALES
from interp.core.randomness import derived_generator
from interp.evaluation.evaluate import score_batch
from interp.tasks import Template
from interp.training.run import best_record
from interp.view.charts import scaling_curves

N_TEST = {"quick": 1000, "standard": 2000, "paper": 2000}
"""Strings over unseen symbols that each model is tested on."""
SOLVED, BARELY = 0.95, 0.6
"""Accuracy on unseen symbols of what is solved; and accuracy that what fails stays below, chance being one half."""
N_LABEL = "training strings = symbols"
Key = TypeVar("Key", int, float, str)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """How one model does on unseen test symbols."""

    n: int
    """Training strings, which is also the size of the training alphabet."""
    seed: int
    rate: float
    config: Any
    task: Template
    loss: float
    """Mean squared error, or cross entropy in nats."""
    right: int
    total: int
    validation: float
    """Loss on validation symbols, at the weights that were kept."""
    model: Any

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.right / self.total

    @property
    def length(self) -> int:
        """Symbols after the first one: the length of a majority."""
        return self.task.n_ctx - 2


def judge_solved(m: Measurement) -> ClaimVerdict:
    """At least 0.95."""
    return at_least(m, SOLVED)


def judge_fails(m: Measurement) -> ClaimVerdict:
    """Hardly above chance."""
    return below(m, BARELY)


def template_task(spec: ModelSpec) -> Template:
    """The task of a model."""
    assert isinstance(spec.task, Template)
    return spec.task


def n_train(spec: ModelSpec) -> int:
    """Training strings of a model."""
    n = spec.settings.n_train
    assert n is not None
    return n


def scores(evidence: Evidence, group: str, *, each_symbol: bool = False) -> list[Scored]:
    """The scores of all models of a group.

    Args:
        evidence: Where they are.
        group: Which.
        each_symbol: Ask for every test symbol once, of templates with one wildcard, instead of random strings.
    """
    found = []
    for spec in evidence.specs(group):
        run, task = evidence.run(spec), template_task(spec)
        if each_symbol:
            symbols = torch.tensor([task.vocab.ids[name] for name in task.alphabet("test")])
            strings = task.fill(torch.zeros_like(symbols), symbols[:, None])
        else:
            generator = derived_generator(evidence.seed, "test strings")
            strings = task.sample(N_TEST[evidence.size], generator=generator, split="test")
        score = score_batch(run.model, task, strings)
        found.append(
            Scored(
                n=n_train(spec), seed=spec.seed, rate=spec.settings.learning_rate, config=spec.config, task=task,
                loss=float(score.loss.mean()), right=int(score.right.sum()), total=len(strings),
                validation=float(np.mean(best_record(run.history)["validation_loss"])), model=run.model,
            )
        )  # fmt: skip
    return found


def by(rows: Iterable[Scored], key: Callable[[Scored], Key]) -> dict[Key, list[Scored]]:
    """Models by what was varied, in order, each list in the order of seeds."""
    found: dict[Key, list[Scored]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return {name: sorted(found[name], key=lambda row: row.seed) for name in sorted(found)}


def by_n(rows: Iterable[Scored]) -> dict[int, list[Scored]]:
    """Models by the number of training strings."""
    return by(rows, lambda row: row.n)


def best_rate(rows: Iterable[Scored], key: Callable[[Scored], Key]) -> list[Scored]:
    """For each value of what was varied and each seed the model whose rate did best on validation symbols."""
    found: dict[Any, Scored] = {}
    for row in rows:
        at = (key(row), row.seed)
        if at not in found or row.validation < found[at].validation:
            found[at] = row
    return list(found.values())


def losses(rows: Iterable[Scored]) -> Float[np.ndarray, " model"]:
    """The losses of models; what is zero to float32 counts as 1e-9, so that it has a logarithm."""
    return np.array([max(row.loss, 1e-9) for row in rows])


def geometric_mean(rows: Iterable[Scored]) -> float:
    """Of losses."""
    return float(np.exp(np.log(losses(rows)).mean()))


def ratio(modified: Sequence[Scored], plain: Sequence[Scored], *, looks: int = 1) -> tuple[float, float, float]:
    """Loss of the modified over that of the plain models, seed by seed: geometric mean, t interval of the logarithm.

    Args:
        modified: One model per seed.
        plain: The same seeds, in the same order.
        looks: How many such ratios are looked at; the interval is Bonferroni's for all of them.
    """
    logs = np.log(losses(modified) / losses(plain))
    mean, low, high = (float(np.exp(end)) for end in t_interval(logs, confidence=1 - 0.05 / looks))
    return mean, low, high


def threshold(rows: Iterable[Scored], level: float, value: Callable[[Scored], float]) -> tuple[int, bool]:
    """The smallest n from which on a value stays below a level, and whether there is one; else twice the largest n."""
    ordered = sorted(rows, key=lambda row: row.n)
    needed, reached = 2 * ordered[-1].n, False
    for row in reversed(ordered):
        if value(row) >= level:
            break
        needed, reached = row.n, True
    return needed, reached


def over_seeds(groups: dict[Key, list[Scored]], *, x: str, series: str) -> list[dict[str, Any]]:
    """Geometric mean of the losses of each group, with its t interval: rows for a chart or a table."""
    rows = []
    for at, part in groups.items():
        loss, low, high = (float(np.exp(end)) for end in t_interval(np.log(losses(part))))
        rows.append({x: at, "loss": loss, "low": low, "high": high, "series": series, "seeds": len(part)})
    return rows


def paper_curves(figure: str, *, x: str, y: str, series: Collection[str] = ()) -> pd.DataFrame:
    """The paper's curves of a figure, read off its vector graphics (exact to about three digits).

    Args:
        figure: Which.
        x: What to call the column of sizes.
        y: What to call that of values.
        series: The curves wanted; all when left out.
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
    """Test loss against n, one line per group of models, the paper's curves dashed behind."""
    rows = [row for name, part in groups.items() for row in over_seeds(by_n(part), x=N_LABEL, series=name)]
    seeds = min(row["seeds"] for row in rows)
    return scaling_curves(
        pd.DataFrame(rows).rename(columns={"loss": "test loss"}),
        x=N_LABEL,
        y="test loss",
        series="series",
        behind=paper_curves(figure, x=N_LABEL, y="test loss", series=list(groups)),
        rule=1.0,
        log_y=True,
        title=[f"{title}: {seeds} seeds, geometric means, 95 %", "dashed: the paper's"],
    )


def same_budget(evidence: Evidence) -> str:
    """The budget of steps, in words."""
    scale = SCALES[evidence.size]
    return f"Every model has {scale.steps} steps of {scale.batch_size} strings." if evidence.size != "paper" else ""
