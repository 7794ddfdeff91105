"""Result of an audit of parts without patterns: a record for each part, a table, a chart and text."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float

from hooks.checks import shown
from hooks.typed import COUNT, DISTINCT, SHARE, Axes
from interp.auditing.records import PART_VERDICTS, InterventionCost, PartVerdict, check_costs
from interp.auditing.sentences import list_of_names, sentence_on_part
from interp.core.consistency import check_known, check_that
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.page_identity import quantity
from interp.core.results import Result, count_range
from interp.heads.interventions import REMOVALS

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class PartSet:
    """Parts that were removed together, and what that costs."""

    parts: Annotated[tuple[str, ...], DISTINCT]
    cost: InterventionCost


@dataclass(frozen=True, kw_only=True)
class PartAuditResult(Result):
    """Whether a model needs each of some parts, alone or with others."""

    parts: tuple[PartVerdict, ...]
    outcomes: Annotated[tuple[str, ...], Axes("outcome"), DISTINCT]
    """Outcomes that the verdicts are based on."""
    clean: Annotated[Float[np.ndarray, " outcome"], SHARE]
    """Accuracy of the whole model on all sequences."""
    threshold: Annotated[Float[np.ndarray, " outcome"], SHARE]
    """A part is needed if removing it costs more than this."""
    sets: tuple[PartSet, ...]
    """Sets of parts that were tested, after a search for them on other sequences."""
    exact: bool
    """Whether the search tried every set of parts."""
    largest_harmless: PartSet | None
    """A largest set of parts that can be removed together, with its cost on the sequences of the first look."""
    warnings: tuple[str, ...]
    """Limitations of the verdicts."""
    alpha: Annotated[float, SHARE]
    """Level of all verdicts together."""
    n: Annotated[int, COUNT]
    """Largest number of sequences behind any verdict; with `n="all"`, all inputs."""
    n_distinct: Annotated[int, COUNT]
    """Number of distinct inputs among them."""
    n_looks: Annotated[int, COUNT] = 1
    """Planned number of looks at growing numbers of sequences."""
    every_input: bool = False
    """Whether the sequences are every input of the task: costs are then exact."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [verdict.name for verdict in self.parts]
        DISTINCT.check(names, "parts")
        costs = []
        for index, verdict in enumerate(self.parts):
            check_that(
                set(verdict.costs) == set(REMOVALS), f"parts[{index}] has costs of {shown(list(verdict.costs))}."
            )
            check_known(f"parts[{index}].partners", [*verdict.partners, *verdict.other_parts], names, "parts")
            check_known(f"parts[{index}].outcome", [verdict.outcome], self.outcomes, "outcomes")
            is_needed = verdict.needed.get("mean")
            text = f"parts[{index}] is needed, but needed is {is_needed} for the mean."
            check_that(verdict.verdict != "needed" or is_needed is True, text)
            costs += [(f"parts[{index}]", cost) for cost in verdict.costs.values()]
        for index, members in enumerate([*self.sets, *filter(None, [self.largest_harmless])]):
            check_known(f"sets[{index}].parts", members.parts, names, "parts")
            costs.append((f"sets[{index}]", members.cost))
        check_costs(costs, clean=self.clean, n=self.n)
        check_that(self.n_distinct <= self.n, f"n_distinct is {self.n_distinct}; n is {self.n}.")

    def of(self, verdict: str) -> tuple[str, ...]:
        """Names of the parts with a verdict.

        Raises:
            ValueError: an unknown verdict (lists the known ones).
        """
        if verdict not in PART_VERDICTS:
            raise ValueError(f"verdict is {shown(verdict)}; choose one of {', '.join(PART_VERDICTS)}.")
        return tuple(record.name for record in self.parts if record.verdict == verdict)

    def sentences(self) -> tuple[str, ...]:
        """One sentence per part: what removing it costs."""
        return tuple(
            sentence_on_part(verdict, outcomes=self.outcomes, threshold=self.threshold) for verdict in self.parts
        )

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per part: verdict, and the cost of every removal on the outcome where it is largest."""
        import pandas as pd

        rows = []
        for verdict in self.parts:
            row: dict[str, Any] = {"part": verdict.name, "verdict": verdict.verdict, "reason": verdict.reason}
            row["partners"] = "; ".join(verdict.partners)
            for name in REMOVALS:
                cost = verdict.costs[name]
                worst = cost.worst(self.threshold)
                row |= {name: cost.drop[worst], f"{name}_low": cost.low[worst], f"{name}_high": cost.high[worst]}
                row |= {f"{name}_p_matters": cost.p_matters, f"{name}_p_harmless": cost.p_harmless}
                row[f"needed_{name}"] = verdict.needed[name]
                if name == "mean":
                    row["outcome"] = self.outcomes[worst]
            rows.append(row | {"n_to_decide": verdict.n_to_decide, "verdict_outcome": verdict.outcome, "n": verdict.n})
        return pd.DataFrame(rows)

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy lost without each part, with its verdict."""
        from interp.view.charts import dots

        table = self.to_dataframe().rename(columns={"mean": "accuracy lost", "mean_low": "low", "mean_high": "high"})
        lowest = min(0.0, *table["low"].tolist())
        return dots(
            table,
            x="part",
            y="accuracy lost",
            series="verdict",
            title=f"accuracy lost without each part, on its worst outcome, n = {self._counted()}",
            rule=float(self.threshold.max()),
            domain=(lowest, 1.0),
        )

    def _counted(self) -> str:
        if self.every_input:
            return all_inputs_text(self.n)
        counts = count_range(np.array([verdict.n for verdict in self.parts]))
        return counts + repeats_text(self.n, self.n_distinct, counted=False)

    def __str__(self) -> str:
        lines = []
        for verdict, text in zip(self.parts, self.sentences(), strict=True):
            lines.append(f"{verdict.verdict:<10} {text}")
        counts = Counter(verdict.verdict for verdict in self.parts)
        verdicts = ", ".join(f"{counts[name]} {name}" for name in PART_VERDICTS if counts[name])
        looks = f", {self.n_looks} looks" if self.n_looks > 1 else ""
        basis = f"{self._counted()} sequences, level {self.alpha:g} (Bonferroni{looks})"
        if self.every_input:
            basis = self._counted()
        lines.append(f"{verdicts}; {basis}")
        if self.largest_harmless is not None:
            search = "every set of parts was tried: at most" if self.exact else "sets of parts were searched:"
            removable = quantity(len(self.largest_harmless.parts), "part")
            lines.append(f"{search} {removable} can be removed together ({list_of_names(self.largest_harmless.parts)})")
        return "\n".join([*lines, *self.warnings])
