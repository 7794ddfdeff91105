"""Which heads suffice? Accuracy, and agreement with the whole model, of a model with only k of its heads."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float

from hooks.checks import check_choice, check_number, shown
from hooks.interventions.ablation_engine import Head, every_head
from hooks.interventions.clean_pass import Net
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, Axes, checks_types
from interp.core.consistency import check_heads_of_shape, check_same_numbers, check_that, grid
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.intervals import Interval
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.sample import Sample
from interp.core.statistics import pooled_interval
from interp.core.verbs import HEAD_INPUTS, HEAD_OUTPUTS, AnyModel, Needs, prepare_model
from interp.heads.experiment import Edit, Experiment
from interp.heads.interventions import HeadIntervention, check_method, intervention_of, needs_patterns
from interp.tasks.base import Task
from interp.tasks.splits import EveryInput

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Order = Literal["ablation", "greedy", "exact"]
MOST_EXACT = 10
"""Largest number of heads of which all sets are tried."""
MANY_SETS = 10_000
"""Number of sets of heads beyond which a warning says how long they take."""
TOLERATED_LOSS = 0.05
"""Share of the accuracy above chance that sufficient heads may lose."""
HeadSet = tuple[Head, ...]


@dataclass(frozen=True, kw_only=True)
class KeepResult(Result):
    """Accuracy of a model with only k of its heads, the others replaced, for each k and each way to choose them.

    Heads are chosen on one half of the sequences; all figures are from the other half. The independent units of every
    interval are its distinct inputs. With every input of the task (`n="all"`) heads are chosen and measured on all of
    them, and the intervals are exact.
    """

    method: str
    """The replacement of the heads that are not kept."""
    orders: Annotated[tuple[str, ...], Axes("order"), DISTINCT]
    """Ways to choose: `ablation`, `greedy`, `exact`, and `random 0`, `random 1`, ..."""
    kept: Annotated[tuple[tuple[tuple[tuple[int, int], ...], ...], ...], Axes("order k ..."), COUNT]
    """For each order and each k from 0 on, the (layer, head) of the heads that are kept."""
    outcomes: Annotated[tuple[str, ...], Axes("outcome"), DISTINCT]
    performs: Annotated[Interval, Axes("order k outcome"), SHARE, MAY_BE_MISSING]
    """Per order, k and outcome: accuracy, as a fraction, with its 95 % interval over sequences."""
    replicates: Annotated[Interval, Axes("order k"), SHARE, MAY_BE_MISSING]
    """Per order and k: share of answers that are the whole model's, right or wrong."""
    area: Annotated[Float[np.ndarray, " order"], SHARE, MAY_BE_MISSING]
    """Area under the curve of `performs` over k / (number of heads), mean over outcomes: 1 if no head is needed."""
    chances: Annotated[tuple[float, ...], Axes("outcome"), SHARE]
    """Accuracy of uniform guessing for each outcome."""
    sufficient: Annotated[tuple[tuple[int, int], ...], COUNT]
    """The fewest heads of any order that keep 95 % of the accuracy above chance, on each audited outcome that is above
    chance, on the sequences on which they are chosen. All heads if no fewer do."""
    sufficient_performs: Annotated[Float[np.ndarray, " outcome"], SHARE, MAY_BE_MISSING]
    """Their accuracy on the other sequences, or on every input."""
    n: Annotated[int, COUNT]
    """Sequences, of which half choose heads; or the number of all inputs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # The whole model, of which all sets are: every head of each layer
        heads = self.kept[0][-1]
        n_heads = len(heads)
        shape = (1 + max((layer for layer, _ in heads), default=0), 1 + max((head for _, head in heads), default=0))
        is_model = sorted(heads) == grid(shape)
        check_that(is_model, f"kept ends with {shown(heads)}, which are not all heads of a model's layers.")
        for order, sets in zip(self.orders, self.kept, strict=True):
            for k, members in enumerate(sets):
                name = f"kept of {shown(order)}, {k} heads"
                check_heads_of_shape(name, members, shape)
                check_that(len(members) == k, f"{name}, has {len(members)} of them.")
                is_nested = order == "exact" or k == 0 or set(sets[k - 1]) <= set(members)
                check_that(is_nested, f"{name}, lacks some of the {k - 1} before; sets of an order grow by one head.")
            check_that(len(sets) == n_heads + 1, f"kept of {shown(order)} has {len(sets)} sets of {n_heads} heads.")
        # Without a head, and with all of them, orders do not differ
        for name, shares in (("performs", self.performs.value), ("replicates", self.replicates.value)):
            for k in (0, n_heads):
                check_same_numbers(f"{name} with {k} heads", shares[:, k], shares[:1, k], "the first order")
        # Of sufficient heads, and the mean over some of the outcomes
        every_set = [members for sets in self.kept for members in sets]
        check_that(self.sufficient in every_set, f"sufficient is {shown(self.sufficient)}, which is no set of kept.")
        cell = _cell_of(self.sufficient, self.kept)
        performs = self.performs.value[cell]
        check_same_numbers("sufficient_performs", self.sufficient_performs, performs, "performs of these heads")
        areas = np.trapezoid(self.performs.value, dx=1 / n_heads, axis=1)
        of_some = np.clip(self.area, np.nanmin(areas, 1), np.nanmax(areas, 1))
        check_same_numbers("area", self.area, of_some, "the nearest mean of areas under performs")

    @property
    def n_measured(self) -> int:
        """Sequences behind each figure."""
        return self.n if self.performs.exact else self.n // 2

    @property
    def clean(self) -> Float[np.ndarray, " outcome"]:
        """Accuracy of the whole model."""
        return self.performs.value[0, -1]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per order, number of heads and outcome."""
        axes = {"order": self.orders, "k": range(self.performs.shape[1]), "outcome": self.outcomes}
        columns = self.performs.columns("performs") | {"replicates": self.replicates.value, "area": self.area}
        return self._table(axes, **columns, n=self.n_measured)

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy, mean over outcomes, and agreement with the whole model over the number of heads kept."""
        import pandas as pd

        from interp.view.charts import curves

        # Lines of the chosen orders, one line with a band for all random orders.
        random = [index for index, order in enumerate(self.orders) if order.startswith("random")]
        performs = self._performs_over_outcomes()
        rows: list[tuple[str, int, str, float, float, float]] = []
        for k in range(self.performs.shape[1]):
            for panel, share in (("performs", performs[:, k]), ("replicates", self.replicates[:, k])):
                for index, order in enumerate(self.orders):
                    if index not in random:
                        rows.append((order, k, panel, share.value[index], share.low[index], share.high[index]))
                if random:
                    values = share.value[random]
                    rows.append((f"{len(random)} random orders", k, panel, values.mean(), values.min(), values.max()))
        table = pd.DataFrame(rows, columns=["order", "heads kept", "panel", "share", "low", "high"])
        title = (
            f"only k heads, the others set to {self.method}, n = {self.n_measured}; band of random orders: least to "
            "most"
        )
        return curves(table, x="heads kept", y="share", series="order", panel="panel", title=title)

    def _performs_over_outcomes(self) -> Interval:
        """`performs`, mean over outcomes."""
        value, low, high = (ends.mean(-1) for ends in (self.performs.value, self.performs.low, self.performs.high))
        return Interval(value=value, low=low, high=high, n=self.performs.n, exact=self.performs.exact)

    def __str__(self) -> str:
        width = max(map(len, self.orders))
        performs = self.performs.value.mean(-1)
        n_heads = self.performs.shape[1] - 1
        # One line per order, at seven sizes.
        lines = [
            f"{'order':<{width}}  area   heads kept: accuracy, mean over outcomes (agreement with the whole model)"
        ]
        sizes = sorted(set(np.linspace(0, n_heads, 7).round().astype(int).tolist()))
        for index, order in enumerate(self.orders):
            replicates = self.replicates.value[index]
            cells = (f"{k}: {performs[index, k]:.3f} ({replicates[k]:.3f})" for k in sizes)
            lines.append(f"{order:<{width}}  {self.area[index]:.3f}  " + "  ".join(cells))
        # The sufficient heads, and their accuracy on each outcome.
        names = ", ".join(f"{layer}.{head}" for layer, head in self.sufficient) or "none"
        lines.append(f"sufficient, {len(self.sufficient)} of {n_heads} heads: {names}")
        cell = _cell_of(self.sufficient, self.kept)
        for index, outcome in enumerate(self.outcomes):
            lines.append(f"  {outcome}: {self.performs[(*cell, index)].text()} of {self.clean[index]:.3f}")
        half = self.n // 2
        sequences = f"chosen on {half} sequences, measured on {half}{repeats_text(half, self.performs.n)}"
        if self.performs.exact:
            sequences = f"chosen and measured on {all_inputs_text(self.n)}"
        lines.append(f"other heads set to {self.method}; {sequences}")
        return "\n".join(lines)


NEEDS = Needs("keep_heads", edits=HEAD_OUTPUTS, reads=["attn.W_O"], answers=True)
NEEDS_FOR_PATTERNS = Needs("keep_heads with another pattern", edits=HEAD_OUTPUTS, reads=HEAD_INPUTS, answers=True)


@checks_types
@restores_state
def keep_heads(
    model: AnyModel,
    task: Task,
    *,
    orders: Sequence[str] = ("ablation", "greedy"),
    method: str | HeadIntervention = "mean",
    n: int | EveryInput = 512,
    n_random: int = 8,
    seed: int = 0,
) -> KeepResult:
    """Measure how a model performs with only k of its heads, for every k.

    A head that is needed need not suffice, and heads that are not needed alone may suffice together. *Performs* is
    accuracy; *replicates* is agreement with the whole model, mistakes included.

    Args:
        model: Model to intervene on. It is not changed.
        task: Source of the sequences and their labels.
        orders: How the k heads are chosen. `ablation`: those whose removal alone costs most. `greedy`: from all heads,
            again and again the one whose removal costs least is removed. `exact`: the best of all sets of k heads, for
            models of at most 10 heads. The cost is the loss, mean over audited outcomes.
        method: What replaces the heads that are not kept, as in `ablate_heads`.
        n: Number of held-out sequences. Half of them choose heads, the other half measure. "all": every input of the
            test split once, on which heads are both chosen and measured, without sampling error; replacements are
            those of `ablate_heads`.
        n_random: Number of random orders, the baseline.
        seed: Determines sequences, references and random orders.

    Warns:
        UserWarning: more than 10,000 sets of heads, with how long they take.

    Raises:
        ValueError: an unknown order or method, `exact` with more than 10 heads, or fewer than 16 sequences.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> interp.keep_heads(lego_loop(task), task, orders=["greedy"], n=64, n_random=0).sufficient
        ((0, 1), (1, 0), (2, 1))

    Source: pruning of heads in the order of their importance, Michel et al. 2019 (arXiv:1905.10650), Section 4.
    Differs: heads are chosen and measured on different sequences; agreement with the whole model is measured too.
    """
    net = prepare_model(model, NEEDS_FOR_PATTERNS if needs_patterns(method) else NEEDS, task)
    check_method(method, task)
    check_number("n_random", n_random, integer=True, low=0)
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
    sample = Sample.of(task, n, seed=seed, name="keep heads", low=16)
    intervention = intervention_of(method, task, sample.batch)
    # Choose sets of heads on one half of the sequences, or on every input.
    choosing, measuring = sample.halves()
    chooser = _HeadSets(net, choosing, intervention)
    _warn_of_many(chooser, orders, len(heads))
    sets: dict[str, list[HeadSet]] = {}
    for order in orders:
        if order == "exact":
            sets[order] = _exact(chooser, heads)
        else:
            sets[order] = _nested(heads, list(_worst_first(chooser, heads, order)))
    sufficient = _sufficient(chooser, [members for order in orders for members in sets[order]])
    for index in range(n_random):
        order = torch.randperm(len(heads), generator=derived_generator(seed, "random order", index)).tolist()
        sets[f"random {index}"] = _nested(heads, [heads[position] for position in order])
    # Measure them on the other half, or on every input again.
    measurer = chooser if sample.exact else _HeadSets(net, measuring, intervention)
    measurer.measure({members for of_order in sets.values() for members in of_order}, "measuring sets of heads")
    return _result(measurer, sets, sufficient, n=len(sample))


class _HeadSets:
    """Scores of a model with only some of its heads, on some sequences."""

    def __init__(self, net: Net, sample: Sample, intervention: HeadIntervention):
        self.net, self.sample, self.intervention = net, sample, intervention
        self.audited = [sample.task.outcomes.index(name) for name in sample.task.audited_outcomes]
        self.experiment = Experiment(
            net, sample, options={"patterns": intervention.reads_patterns}, compares_answers=True, keeps_runs=True
        )
        self.scores: dict[HeadSet, tuple[Float[np.ndarray, "sequence measure outcome"], np.ndarray]] = {}
        """For each set of heads: right answers, loss and number of answers of each sequence and outcome; and for each
        sequence the answers that equal the whole model's, and all answers."""

    def measure(self, sets: Iterable[HeadSet], name: str | None = None) -> None:
        """Score sets of heads, the others replaced, unless they are scored already; with progress under a name."""
        heads = every_head(self.net)
        new_sets = [members for members in dict.fromkeys(sets) if members not in self.scores]
        if not new_sets:
            return
        edits = []
        for members in new_sets:
            removed = tuple(head for head in heads if head not in members)
            edits.append(Edit(removed, self.intervention))
        effects = self.experiment.run(edits, name=name)
        for index, members in enumerate(new_sets):
            scores = np.concatenate([effects.after[:, index], effects.total[:, None]], 1)
            self.scores[members] = scores, np.stack([effects.agree[:, index], effects.answers], 1)

    def loss(self, members: HeadSet) -> float:
        """Loss with only these heads, mean over audited outcomes."""
        _, loss, total = self.scores[members][0].sum(0)[:, self.audited]
        return float((loss / np.maximum(total, 1)).mean())

    def accuracy(self, members: HeadSet) -> Float[np.ndarray, " outcome"]:
        """Accuracy with only these heads on each audited outcome."""
        right, _, total = self.scores[members][0].sum(0)[:, self.audited]
        return right / np.maximum(total, 1)


def _warn_of_many(chooser: _HeadSets, orders: Sequence[str], n_heads: int) -> None:
    """Say how long many sets of heads take, from the time of one of them, the model without any head."""
    sets_by_order = {"ablation": n_heads, "greedy": n_heads * (n_heads + 1) // 2, "exact": 2**n_heads}
    n_sets = sum(sets_by_order[order] for order in orders)
    if n_sets <= MANY_SETS:
        return
    start = perf_counter()
    chooser.measure([()])
    minutes = n_sets * (perf_counter() - start) / 60
    advice = "Give orders=['ablation'], which takes one set a head." if "greedy" in orders else "Give a smaller n."
    warnings.warn(
        f"{n_heads} heads in the orders {', '.join(orders)} are {n_sets:,} sets of heads, at most "
        f"{minutes:,.0f} minutes here. {advice}",
        stacklevel=5,
    )


def _nested(heads: Sequence[Head], order: Sequence[Head]) -> list[HeadSet]:
    """The first k heads of an order for each k, each set in the order of the model."""
    return [tuple(head for head in heads if head in order[:k]) for k in range(len(heads) + 1)]


def _sets_without_one(heads: Sequence[Head]) -> dict[Head, HeadSet]:
    """For each head, the set of all other heads."""
    return {removed: tuple(head for head in heads if head != removed) for removed in heads}


def _worst_first(chooser: _HeadSets, heads: Sequence[Head], order: str) -> Iterator[Head]:
    """Heads by the loss that their removal costs, the most first."""
    # From the whole model, each head alone.
    if order == "ablation":
        set_without = _sets_without_one(heads)
        chooser.measure(set_without.values(), "removing heads")
        yield from sorted(heads, key=lambda head: -chooser.loss(set_without[head]))
        return
    # Greedily: again and again the head that costs least; the last one to go costs most.
    remaining, removed = tuple(heads), []
    with Count("greedy removal", len(heads)) as count:
        while remaining:
            set_without = _sets_without_one(remaining)
            chooser.measure(set_without.values())
            cheapest = min(remaining, key=lambda head: chooser.loss(set_without[head]))
            remaining = set_without[cheapest]
            removed.append(cheapest)
            count.advance()
    yield from reversed(removed)


def _exact(chooser: _HeadSets, heads: Sequence[Head]) -> list[HeadSet]:
    """The set of k heads with the least loss, for each k."""
    by_size = [list(combinations(heads, k)) for k in range(len(heads) + 1)]
    chooser.measure((members for sets in by_size for members in sets), "all sets of heads")
    return [min(sets, key=chooser.loss) for sets in by_size]


def _sufficient(chooser: _HeadSets, sets: Sequence[HeadSet]) -> HeadSet:
    """The smallest set that keeps enough of the accuracy above chance, on each audited outcome that is above it."""
    chooser.measure(sets)
    # Accuracy of the whole model, and the least that counts.
    whole_model = max(sets, key=len)
    scores, _ = chooser.scores[whole_model]
    right, total = scores[:, 0, chooser.audited], scores[:, 2, chooser.audited]
    clean, low, _ = pooled_interval(right, total)
    chances = np.array(chooser.sample.task.chances)[chooser.audited]
    above_chance = low > chances
    least = clean - TOLERATED_LOSS * (clean - chances)
    sufficient = [members for members in sets if (chooser.accuracy(members) >= least)[above_chance].all()]
    return min(sufficient, key=lambda members: (len(members), chooser.loss(members)))


def _result(measurer: _HeadSets, sets: Mapping[str, list[HeadSet]], sufficient: HeadSet, *, n: int) -> KeepResult:
    """The result for these sets, from their scores summed over the sequences of each distinct input."""
    sample = measurer.sample

    def scores_of(score: int) -> Float[np.ndarray, "sequence order k *cells"]:
        """One of the two scores of every set."""
        orders = []
        for of_order in sets.values():
            orders.append(np.stack([measurer.scores[members][score] for members in of_order], 1))
        return np.stack(orders, 1)

    values, agree = scores_of(0), scores_of(1)
    performs = sample.estimate(values[..., 0, :], values[..., 2, :], pooled_interval)
    # The area under the curve of the audited outcomes.
    of_audited = performs.value[..., measurer.audited].mean(-1)
    cell = _cell_of(sufficient, list(sets.values()))
    return KeepResult(
        method=measurer.intervention.name,
        orders=tuple(sets),
        kept=tuple(map(tuple, sets.values())),
        outcomes=tuple(sample.task.outcomes),
        performs=performs,
        replicates=sample.estimate(agree[..., 0], agree[..., 1], pooled_interval),
        area=np.trapezoid(of_audited, dx=1 / (of_audited.shape[1] - 1), axis=1),
        chances=tuple(sample.task.chances),
        sufficient=sufficient,
        sufficient_performs=performs.value[cell],
        n=n,
    )


def _cell_of(members: HeadSet, sets: Sequence[Sequence[HeadSet]]) -> tuple[int, int]:
    """Index of the first order that has a set of heads, and the position of the set in it."""
    return next((order, of_order.index(members)) for order, of_order in enumerate(sets) if members in of_order)
