"""Which heads suffice? The model with only k of its heads: how well it performs, and how well it replicates itself."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float

from hooks.checks import check_choice, check_number, checks_types
from hooks.interventions.ablation_engine import AblationEngine, Head, Net, every_head
from interp.core.activations import chunks
from interp.core.evaluation_mode import in_evaluation_mode
from interp.core.inputs import distinct_inputs, repeats_text, sum_by_input
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.results import Result, with_interval
from interp.core.statistics import pooled_interval
from interp.core.verbs import AnyModel, prepare_model
from interp.heads.ablate import TOKENS_PER_CHUNK
from interp.heads.methods import check_method, replacements
from interp.tasks.base import Batch, Task

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Order = Literal["ablation", "greedy", "exact"]
MOST_EXACT = 10
"""Largest number of heads of which all sets are tried."""
ENOUGH = 0.05
"""Share of the accuracy above chance that sufficient heads may lose."""
ALL = "all heads"


@dataclass(frozen=True, kw_only=True)
class KeepResult(Result):
    """Accuracy of a model with only k of its heads, the others replaced, for each k and each way to choose them.

    Heads are chosen on one half of the sequences; all figures are from the other half.
    """

    method: str
    """The replacement of the heads that are not kept."""
    orders: tuple[str, ...]
    """Ways to choose: `ablation`, `greedy`, `exact`, and `random 0`, `random 1`, ..."""
    kept: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]
    """For each order and each k from 0 on, the (layer, head) of the heads that are kept."""
    outcomes: tuple[str, ...]
    performs: Float[np.ndarray, "order k outcome"]
    """Accuracy, as a fraction."""
    low: Float[np.ndarray, "order k outcome"]
    high: Float[np.ndarray, "order k outcome"]
    """Ends of its 95 % interval over sequences."""
    replicates: Float[np.ndarray, "order k"]
    """Share of answers that are the whole model's, right or wrong."""
    replicates_low: Float[np.ndarray, "order k"]
    replicates_high: Float[np.ndarray, "order k"]
    area: Float[np.ndarray, " order"]
    """Area under the curve of `performs` over k / (number of heads), mean over outcomes: 1 if no head is needed."""
    chances: tuple[float, ...]
    """Accuracy of uniform guessing for each outcome."""
    sufficient: tuple[tuple[int, int], ...]
    """The fewest heads of any order that keep 95 % of the accuracy above chance, on each audited outcome that is above
    chance, on the sequences on which they are chosen. All heads if no fewer do."""
    sufficient_performs: Float[np.ndarray, " outcome"]
    """Their accuracy on the other sequences."""
    n: int
    """Sequences, of which half choose heads."""
    n_distinct: int
    """Distinct inputs among those of the figures, the independent units of every interval."""

    @property
    def clean(self) -> Float[np.ndarray, " outcome"]:
        """Accuracy of the whole model."""
        return self.performs[0, -1]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per order, number of heads and outcome."""
        axes = {"order": self.orders, "k": range(self.performs.shape[1]), "outcome": self.outcomes}
        more = {"replicates": self.replicates, "area": self.area}
        return self._table(axes, "performs", "low", "high", **more, n=self.n // 2)

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy, mean over outcomes, and agreement with the whole model over the number of heads kept."""
        import pandas as pd

        from interp.view.charts import curves

        random = [at for at, order in enumerate(self.orders) if order.startswith("random")]
        rows: list[tuple[str, int, str, float, float, float]] = []
        for k in range(self.performs.shape[1]):
            performs = [part[:, k].mean(-1) for part in (self.performs, self.low, self.high)]
            same = [part[:, k] for part in (self.replicates, self.replicates_low, self.replicates_high)]
            for panel, (value, low, high) in (("performs", performs), ("replicates", same)):
                own = [at for at in range(len(self.orders)) if at not in random]
                rows += [(self.orders[at], k, panel, value[at], low[at], high[at]) for at in own]
                if random:
                    drawn = value[random]
                    rows.append((f"{len(random)} random orders", k, panel, drawn.mean(), drawn.min(), drawn.max()))
        table = pd.DataFrame(rows, columns=["order", "heads kept", "panel", "share", "low", "high"])
        title = (
            f"only k heads, the others set to {self.method}, n = {self.n // 2}; band of random orders: least to most"
        )
        return curves(table, x="heads kept", y="share", series="order", panel="panel", title=title)

    def __str__(self) -> str:
        wide = max(map(len, self.orders))
        lines = [f"{'order':<{wide}}  area   heads kept: accuracy, mean over outcomes (agreement with the whole model)"]
        steps = sorted({*np.linspace(0, self.performs.shape[1] - 1, 7).round().astype(int).tolist()})
        for at, order in enumerate(self.orders):
            cells = (f"{k}: {self.performs[at, k].mean():.3f} ({self.replicates[at, k]:.3f})" for k in steps)
            lines.append(f"{order:<{wide}}  {self.area[at]:.3f}  " + "  ".join(cells))
        names = ", ".join(f"{layer}.{head}" for layer, head in self.sufficient) or "none"
        lines.append(f"sufficient, {len(self.sufficient)} of {self.performs.shape[1] - 1} heads: {names}")
        at = [
            (order, k) for order, sets in enumerate(self.kept) for k, one in enumerate(sets) if one == self.sufficient
        ]
        for index, outcome in enumerate(self.outcomes):
            ends = [part[(*at[0], index)] for part in (self.performs, self.low, self.high)]
            lines.append(f"  {outcome}: {with_interval(*ends)} of {self.clean[index]:.3f}")
        repeats = repeats_text(self.n // 2, self.n_distinct)
        half = self.n // 2
        lines.append(f"other heads set to {self.method}; chosen on {half} sequences, measured on {half}{repeats}")
        return "\n".join(lines)

    @classmethod
    def _restore(cls, name: str, value):
        return tuple(tuple(tuple(map(tuple, one)) for one in sets) for sets in value) if name == "kept" else value


@checks_types
@in_evaluation_mode
def keep_heads(
    model: AnyModel,
    task: Task,
    *,
    orders: Sequence[str] = ("ablation", "greedy"),
    method: str = "mean",
    n: int = 512,
    n_random: int = 8,
    seed: int = 0,
) -> KeepResult:
    """Measure what a model still knows with only k of its heads, for every k.

    A head that is needed need not suffice, and heads that are not needed alone may suffice together. *Performs* is
    accuracy; *replicates* is agreement with the whole model, mistakes included.

    Args:
        model: Model to intervene on. It is not changed.
        task: Source of the sequences and their labels.
        orders: How the k heads are chosen. `ablation`: those whose removal alone costs most. `greedy`: from all heads,
            again and again the one whose removal costs least is removed. `exact`: the best of all sets of k heads, for
            models of at most 10 heads. The cost is the loss, mean over audited outcomes.
        method: What replaces the heads that are not kept, as in `ablate_heads`.
        n: Number of held-out sequences. Half of them choose heads, the other half measure.
        n_random: Number of random orders, the baseline.
        seed: Determines sequences, references and random orders.

    Raises:
        ValueError: an unknown order or method, `exact` with more than 10 heads, or fewer than 16 sequences.

    Source: pruning of heads in the order of their importance, Michel et al. 2019 (arXiv:1905.10650), Section 4.
    Differs: heads are chosen and measured on different sequences; agreement with the whole model is measured too.
    """
    net = prepare_model(model, "keep_heads", task)
    check_method(method)
    check_number("n", n, whole=True, low=16)
    check_number("n_random", n_random, whole=True, low=0)
    heads = every_head(net)
    if not orders:
        raise ValueError("orders is empty; give one or several of ablation, greedy, exact.")
    for order in orders:
        check_choice("orders", order, Order)
    if "exact" in orders and len(heads) > MOST_EXACT:
        raise ValueError(
            f"orders has 'exact', but the model has {len(heads)} heads, of which all {2 ** len(heads):,} sets would be "
            f"tried; it is for at most {MOST_EXACT}. Use 'greedy'."
        )
    batch = task.sample(n, generator=derived_generator(seed, "keep heads"), split="test")
    choosing, measuring = (batch.select(part) for part in (slice(0, n // 2), slice(n // 2, None)))
    first = _Kept(net, task, choosing, method, seed, first=0)
    found: dict[str, list[tuple[Head, ...]]] = {}
    for order in orders:
        found[order] = (
            _exact(first, heads) if order == "exact" else _nested(heads, list(_worst_first(first, heads, order)))
        )
    for index in range(n_random):
        drawn = torch.randperm(len(heads), generator=derived_generator(seed, "random order", index)).tolist()
        found[f"random {index}"] = _nested(heads, [heads[at] for at in drawn])
    sufficient = _sufficient(first, [one for order in orders for one in found[order]])
    second = _Kept(net, task, measuring, method, seed, first=len(choosing))
    second.measure({one for sets in found.values() for one in sets}, "measuring sets of heads")
    return _result(second, found, sufficient, method=method, n=n)


class _Kept:
    """Scores of a model with only some of its heads, on some sequences."""

    def __init__(self, net: Net, task: Task, batch: Batch, method: str, seed: int, *, first: int):
        self.net, self.task, self.batch = net, task, batch
        self.replacement = replacements(method, net, task, batch, seed=seed, first=first)
        self.audited = [task.outcomes.index(name) for name in task.audited_outcomes]
        self.size = max(1, TOKENS_PER_CHUNK // batch.tokens.shape[1])
        self.engines = [
            AblationEngine(net, part.tokens, read_at=part.target_positions, **part.model_inputs())
            for part in chunks(batch, self.size)
        ]
        self.scores: dict[tuple[Head, ...], tuple[Float[np.ndarray, "sequence part outcome"], np.ndarray]] = {}
        """By set: right answers, loss and number of answers; and answers like the whole model's, and their number."""

    def measure(self, sets: Iterable[tuple[Head, ...]], name: str = "") -> None:
        """Score sets that are kept, where it was not done before."""
        every = every_head(self.net)
        wanted = {tuple(head for head in every if head not in one): one for one in sets if one not in self.scores}
        if not wanted:
            return
        parts: dict[tuple[Head, ...], list] = {one: [] for one in wanted.values()}
        with Count(name, len(self.engines)) if name else _Silent() as count:
            for index, (engine, part) in enumerate(zip(self.engines, chunks(self.batch, self.size), strict=True)):
                replace = self.replacement(slice(index * self.size, (index + 1) * self.size))
                own = self.task.answers(engine.logits)
                for removed, logits in engine.each_set(wanted, replace):
                    score = self.task.score(logits, part)
                    same = ((self.task.answers(logits) == own) & part.present).sum(1)
                    values = torch.stack([score.right, score.loss, score.total], 1).double().cpu().numpy()
                    agree = torch.stack([same, part.present.sum(1)], 1).double().cpu().numpy()
                    parts[wanted[removed]].append((values, agree))
                count.one()
        for one, found in parts.items():
            self.scores[one] = np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])

    def loss(self, kept: tuple[Head, ...]) -> float:
        """Loss, mean over audited outcomes."""
        total = self.scores[kept][0].sum(0)[:, self.audited]
        return float((total[1] / np.maximum(total[2], 1)).mean())

    def accuracy(self, kept: tuple[Head, ...]) -> Float[np.ndarray, " outcome"]:
        """Accuracy on each audited outcome."""
        total = self.scores[kept][0].sum(0)[:, self.audited]
        return total[0] / np.maximum(total[2], 1)


class _Silent:
    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def one(self) -> None:
        pass


def _nested(heads: Sequence[Head], order: Sequence[Head]) -> list[tuple[Head, ...]]:
    """The first k heads of an order for each k, each set in the order of the model."""
    return [tuple(head for head in heads if head in order[:k]) for k in range(len(heads) + 1)]


def _worst_first(kept: _Kept, heads: Sequence[Head], order: str) -> Iterator[Head]:
    """Heads by the loss that their removal costs, the most first."""
    if order == "ablation":
        without = {head: tuple(one for one in heads if one != head) for head in heads}
        kept.measure(without.values(), "removing heads")
        yield from sorted(heads, key=lambda head: -kept.loss(without[head]))
        return
    left, removed = tuple(heads), []
    with Count("greedy removal", len(heads)) as count:
        while left:
            smaller = {head: tuple(one for one in left if one != head) for head in left}
            kept.measure(smaller.values())
            least = min(left, key=lambda head: kept.loss(smaller[head]))
            left = smaller[least]
            removed.append(least)
            count.one()
    yield from reversed(removed)


def _exact(kept: _Kept, heads: Sequence[Head]) -> list[tuple[Head, ...]]:
    """The set of k heads with the least loss, for each k."""
    sets = [list(combinations(heads, k)) for k in range(len(heads) + 1)]
    kept.measure((one for some in sets for one in some), "all sets of heads")
    return [min(some, key=kept.loss) for some in sets]


def _sufficient(kept: _Kept, sets: Sequence[tuple[Head, ...]]) -> tuple[Head, ...]:
    """The smallest set that keeps enough of the accuracy above chance, on each audited outcome that is above it."""
    kept.measure(sets)
    whole = max(sets, key=len)
    values = kept.scores[whole][0][..., kept.audited]
    clean, low, _ = pooled_interval(values[:, 0], values[:, 2])
    chances = np.array(kept.task.chances)[kept.audited]
    learned, least = low > chances, clean - ENOUGH * (clean - chances)
    enough = [one for one in sets if (kept.accuracy(one) >= least)[learned].all()]
    return min(enough, key=lambda one: (len(one), kept.loss(one)))


def _result(
    kept: _Kept, found: dict[str, list[tuple[Head, ...]]], sufficient: tuple[Head, ...], *, method: str, n: int
) -> KeepResult:
    inputs = distinct_inputs(kept.batch)
    scores = [[kept.scores[one] for one in sets] for sets in found.values()]
    # (input, order, k, part, outcome) and (input, order, k, part)
    values = np.stack([np.stack([sum_by_input(one, inputs) for one, _ in row], 1) for row in scores], 1)
    agree = np.stack([np.stack([sum_by_input(one, inputs) for _, one in row], 1) for row in scores], 1)
    performs, low, high = pooled_interval(values[..., 0, :], values[..., 2, :])
    same, same_low, same_high = pooled_interval(agree[..., 0], agree[..., 1])
    of_audited = performs[..., kept.audited].mean(-1)
    at = next((order, sets.index(sufficient)) for order, sets in enumerate(found.values()) if sufficient in sets)
    return KeepResult(
        method=method, orders=tuple(found), kept=tuple(map(tuple, found.values())), outcomes=tuple(kept.task.outcomes),
        performs=performs, low=low, high=high,
        replicates=same, replicates_low=same_low, replicates_high=same_high,
        area=np.trapezoid(of_audited, dx=1 / (of_audited.shape[1] - 1), axis=1),
        chances=tuple(kept.task.chances), sufficient=sufficient, sufficient_performs=performs[at],
        n=n, n_distinct=len(values),
    )  # fmt: skip
