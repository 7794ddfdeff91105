"""Result of an audit: a record per head with its verdict, the evidence, and a sentence in plain English."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.verdicts import JUDGED, VERDICTS
from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

REASONS = {
    "together": "; removing it alone is harmless (accuracy falls by {mean}), but not together with {partners}",
    "cancelled": ", but is cancelled by {partners}: without it alone accuracy falls by {mean}, and removing both is "
    "harmless",
    "not needed": ", {but} is not needed: without it accuracy falls by {mean}",
    "too close": "; whether it is needed is undecided: without it accuracy falls by {mean}",
    "nothing to lose": "; the model is too close to chance for removing it to cost anything",
    "needed": ", but is needed: without it accuracy falls by {mean}",
    "not through its pattern": ", but does not depend on this pattern: without it accuracy falls by {mean}, with a "
    "uniform pattern by {uniform}",
    "pattern too close": " and is needed: without it accuracy falls by {mean}; whether it depends on its pattern is "
    "undecided: with a uniform pattern accuracy falls by {uniform}",
    "through its pattern": " and acts through this pattern: without it accuracy falls by {mean}, with a uniform "
    "pattern by {uniform}, with {reading}",
    "through something else": ", but acts through something else: without it accuracy falls by {mean}, with the ideal "
    "pattern by {ideal}, with all other attention spread evenly by {read_part}",
    "reading too close": " and is needed: without it accuracy falls by {mean}; whether it acts through this pattern is "
    "undecided: with the ideal pattern accuracy falls by {ideal}, with all other attention spread evenly by "
    "{read_part}",
}
"""Text for each reason, after what the head looks like. Fields are costs by intervention."""
READINGS = {"ideal": "the ideal pattern by {ideal}", "read_part": "all other attention spread evenly by {read_part}"}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Accuracy lost under one intervention, for each outcome that the audit judges by."""

    drop: tuple[float, ...]
    """Clean accuracy minus accuracy under the intervention, as a fraction."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Bounds of its 95 % interval; exact, so wider than zero where nothing was lost."""
    p_matters: float | None = None
    """p value (Holm) of "no outcome loses more than its threshold"; None if no verdict depends on the intervention."""
    p_harmless: float | None = None
    """p value (Holm) of "some outcome loses more than its threshold"."""

    def worst(self, threshold: Float[np.ndarray, " outcome"]) -> int:
        """Index of the outcome with the largest drop relative to its threshold."""
        return int((np.array(self.drop) / threshold).argmax())


@dataclass(frozen=True, kw_only=True)
class HeadVerdict:
    """Verdict on one head, with its evidence."""

    layer: int
    head: int
    verdict: str
    """faithful, misleading, hidden, idle, redundant or undecided."""
    reason: str
    """The rule that gave the verdict, a key of `REASONS`."""
    partners: tuple[Head, ...]
    """(layer, head) of heads that do the same work, or that cancel this one."""
    label: str
    """Label from `classify_heads`: a kind, uniform or unclassified."""
    kind: str
    """The label if it is a kind, else the kind with the highest score."""
    score: float
    """Attention on the keys of that kind: 0 at chance, 1 for all of it."""
    score_low: float
    score_high: float
    """Bounds of its 95 % interval."""
    p_label: float
    """p value of the score (Holm, over all heads and kinds)."""
    value_weighted: float
    """The score with each key weighted by the norm of what the head writes from it."""
    moved: float
    """Mean over queries of the sum of those norms, weighted by attention."""
    costs: Mapping[str, Cost]
    """By intervention: zero, mean, resample; uniform, random_rows, ideal, read_part. Heads without a label have no
    `ideal` and `read_part`; heads whose removal costs less than half a threshold have no `read_part`."""
    seeds_agree: float | None = None
    """Fraction of the models of other seeds with a head of this label and verdict in this layer."""

    @property
    def place(self) -> Head:
        """(layer, head)."""
        return self.layer, self.head

    @property
    def readable(self) -> bool:
        """Whether the label is a kind."""
        return self.label == self.kind

    def is_harmless(self, intervention: str, alpha: float) -> bool:
        """Whether the intervention was tested, and shown to be harmless at a level."""
        p = self.costs[intervention].p_harmless if intervention in self.costs else None
        return p is not None and p <= alpha


@dataclass(frozen=True, kw_only=True)
class SetCost:
    """Heads that were removed together, and what that costs."""

    heads: tuple[Head, ...]
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class AuditResult(Result):
    """Verdicts on all heads of a model, layer by layer."""

    heads: tuple[HeadVerdict, ...]
    kinds: tuple[str, ...]
    """Kinds of attention that heads were scored on."""
    interventions: tuple[str, ...]
    outcomes: tuple[str, ...]
    """Outcomes that the verdicts are based on."""
    clean: Float[np.ndarray, " outcome"]
    """Accuracy of the whole model."""
    threshold: Float[np.ndarray, " outcome"]
    """A head is needed if removing it costs more than this."""
    sets: tuple[SetCost, ...]
    """Sets of heads removed together: sets that the search found to be needed together, and pairs with opposite
    writes."""
    warnings: tuple[str, ...]
    """Limitations of the verdicts."""
    alpha: float
    """Level of all verdicts together."""
    n: int
    """Number of sequences."""
    n_seeds: int = 0
    """Number of models of other seeds behind `seeds_agree`."""

    @classmethod
    def _restore(cls, name: str, value: Any) -> Any:
        if name == "heads":
            costs = [{key: Cost(**cost) for key, cost in one["costs"].items()} for one in value]
            return tuple(HeadVerdict(**{**one, "costs": cost}) for one, cost in zip(value, costs, strict=True))
        if name == "sets":
            return tuple(SetCost(heads=one["heads"], cost=Cost(**one["cost"])) for one in value)
        return value

    def of(self, verdict: str) -> tuple[Head, ...]:
        """(layer, head) of the heads with a verdict.

        Raises:
            ValueError: an unknown verdict (lists the known ones).
        """
        if verdict not in VERDICTS:
            raise ValueError(f"verdict is {verdict!r}; choose one of {', '.join(VERDICTS)}.")
        return tuple(head.place for head in self.heads if head.verdict == verdict)

    def cost(self, intervention: str) -> tuple[Float[np.ndarray, "head 3"], tuple[str, ...]]:
        """Cost of an intervention on each head's worst outcome, relative to its threshold.

        Returns:
            Drop with the bounds of its interval for each head, NaN where the intervention was not tried; and the
            outcome.

        Raises:
            ValueError: an unknown intervention (lists the known ones).
        """
        if intervention not in self.interventions:
            raise ValueError(f"intervention is {intervention!r}; choose one of {', '.join(self.interventions)}.")
        values, outcomes = np.full((len(self.heads), 3), np.nan), [self.outcomes[0]] * len(self.heads)
        for index, head in enumerate(self.heads):
            if cost := head.costs.get(intervention):
                worst = cost.worst(self.threshold)
                values[index], outcomes[index] = (
                    (cost.drop[worst], cost.low[worst], cost.high[worst]),
                    self.outcomes[worst],
                )
        return values, tuple(outcomes)

    def sentences(self) -> tuple[str, ...]:
        """One sentence per head: what it looks like, and what removing it or replacing its pattern costs."""
        return tuple(self._sentence(head) for head in self.heads)

    def _sentence(self, head: HeadVerdict) -> str:
        costs = {}
        for name in JUDGED:
            if cost := head.costs.get(name):
                worst = cost.worst(self.threshold)
                costs[name] = cost_in_words(self.outcomes[worst], cost.drop[worst], cost.low[worst], cost.high[worst])
        reading = (
            ""
            if head.reason != "through its pattern"
            else READINGS["ideal" if head.is_harmless("ideal", self.alpha) else "read_part"].format(**costs)
        )
        rest = REASONS[head.reason].format(
            partners=list_of_heads(head.partners), but="but" if head.readable else "and", reading=reading, **costs
        )
        return f"{name_of(head.place)} {look_in_words(head.label, head.kind, head.score)}{rest}."

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per head: verdict, label, scores, and the cost of every intervention on its worst outcome."""
        import pandas as pd

        names = ("layer", "head", "verdict", "reason", "partners", "label", "kind")
        names += ("score", "score_low", "score_high", "p_label", "value_weighted", "moved")
        columns: dict[str, Any] = {name: [getattr(head, name) for head in self.heads] for name in names}
        columns["partners"] = [" ".join(map(name_of, partners)) for partners in columns["partners"]]
        for name in self.interventions:
            values, outcomes = self.cost(name)
            columns |= {name: values[:, 0], f"{name}_low": values[:, 1], f"{name}_high": values[:, 2]}
            if name == "mean":
                columns["outcome"] = outcomes
        for name in JUDGED:
            for p in ("p_matters", "p_harmless"):
                tests = [getattr(head.costs.get(name), p, np.nan) for head in self.heads]
                columns[f"{name}_{p}"] = np.array(tests, dtype=float)
        if self.n_seeds:
            columns["seeds_agree"] = [head.seeds_agree for head in self.heads]
        return pd.DataFrame(columns | {"n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """Score against the cost of removing the head, and the verdict of each head by layer."""
        from interp.view.verdicts import verdict_chart

        return verdict_chart(self.to_dataframe(), sentences=self.sentences(), n=self.n)

    def __str__(self) -> str:
        counts, rows = Counter(head.verdict for head in self.heads), []
        for head, sentence in zip(self.heads, self.sentences(), strict=True):
            agree = (
                "" if head.seeds_agree is None else f"  [{head.seeds_agree:.0%} of {self.n_seeds} other seeds agree]"
            )
            rows.append(f"{head.verdict:<11} {sentence}{agree}")
        counted = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
        judged = ", ".join(f"{name} {clean:.2f}" for name, clean in zip(self.outcomes, self.clean, strict=True))
        foot = [
            f"{counted}; {self.n} sequences, level {self.alpha:g} (Holm)",
            f"judged by accuracy on {judged}; needed means a loss of more than "
            f"{', '.join(dict.fromkeys(f'{value:.2f}' for value in self.threshold))}",
        ]
        return "\n".join([*rows, *foot, *self.warnings])


def name_of(head: Head) -> str:
    """A head as layer.head."""
    return f"{head[0]}.{head[1]}"


def list_of_heads(heads: Sequence[Head]) -> str:
    """Heads in a sentence: "0.1, 2.3 and 4.5"."""
    names = [name_of(head) for head in heads]
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def look_in_words(label: str, kind: str, score: float) -> str:
    """A head's label and score in a sentence."""
    if label == "uniform":
        return "looks uniform"
    if label == "unclassified":
        return f"looks like no known kind (nearest: {kind}, {score:.2f})"
    return f"looks like {label} ({score:.2f})"


def cost_in_words(outcome: str, drop: float, low: float, high: float) -> str:
    """Accuracy lost on an outcome, with its interval."""
    return f"{drop:.2f} [{low:.2f}, {high:.2f}] on {outcome}"
