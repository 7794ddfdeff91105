"""The result of `implements`: where each variable is, how sure that is, and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.core.results import Result, with_interval

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

BAR = 0.9
"""Lowest share of answers that counts as agreement with an algorithm, for answers and for interchanges."""
OWN, NOWHERE = "own", "-"
"""Place of a variable with a value at each position, which is that position; and of one that was not tested."""
Found = Literal["found", "not found", "undecided", "not tested"]
Verdict = Literal["implements", "implements a rival", "neither", "undecided"]


@dataclass(frozen=True, kw_only=True)
class VariableFinding:
    """One variable at the site where an interchange of it works best. Site and figures come from different pairs."""

    algorithm: str
    variable: str
    given: bool
    """Whether it is an input, which every model that answers rightly has."""
    site: str
    """Hook point: `resid 2` is the residual stream that layer 2 reads."""
    place: str
    """Place in the input, as `task.places` names it; `own` for a variable with a value at each position."""
    accuracy: float
    """Interchange intervention accuracy: share of the answers that the algorithm says must change which change so."""
    low: float
    high: float
    """Ends of its 95 % interval over pairs."""
    n: int
    """Pairs behind it."""
    kept: float
    """Share of the other answers that stay as the algorithm says."""
    kept_low: float
    kept_high: float
    forced: float
    """Accuracy that an interchange of the outputs at this place would have in any model that answers rightly."""
    shared: float
    """Highest accuracy that a model could have which implements another of the tested algorithms, at any of its
    variables; answers about which the other one says nothing count as possible."""
    at_input: float
    """Accuracy of an interchange at the same place before the first layer: of the input itself."""
    random: float
    """Accuracy at random sites: mean over all sites and places of the same kinds. Of a learned subspace, that of one
    learned from shuffled values and answers; of given coordinates, that of the same number of random ones."""
    untrained: float
    """Accuracy of the best site of an untrained model, selected in the same way."""
    uninformative: float
    """Share of pairs on which the algorithm says that nothing changes, or the model does not answer rightly."""
    found: Found

    @property
    def baseline(self) -> float:
        """Highest accuracy that needs no such variable: of the outputs, of the input, or of another algorithm."""
        return float(np.nanmax([self.forced, self.at_input, self.shared]))

    @property
    def internal(self) -> bool:
        """Whether success here says more than that the model answers rightly: it is no input, and no answer."""
        return not (self.given or self.forced >= BAR or self.at_input >= BAR)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How often a model answers as an algorithm says, with nothing interchanged."""

    algorithm: str
    accuracy: float
    low: float
    high: float
    n: int
    """Inputs behind it."""
    differ: float
    """Share of answers in which the algorithm differs from the one that is tested."""


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """A variable of one algorithm at its site, on answers about which another algorithm says something else."""

    algorithm: str
    variable: str
    rival: str
    accuracy: float
    """Share of these answers that are as the variable's algorithm says."""
    rival_accuracy: float
    """Share that are as the other one says."""
    rival_low: float
    rival_high: float
    n: int
    """Pairs behind it."""


@dataclass(frozen=True, kw_only=True)
class ImplementsResult(Result):
    """Whether a model computes an algorithm: its variables, where they are, its rivals, and the verdict."""

    algorithm: str
    rivals: tuple[str, ...]
    verdict: Verdict
    reason: str
    """The verdict in a sentence."""
    rival: str | None
    """The rival that it implements, if it does."""
    bar: float
    """Lowest share of answers that counts as agreement."""
    search: str
    """What was interchanged: the `whole` activation, the subspace of class `means`, or a `learned` one."""
    findings: tuple[VariableFinding, ...]
    """Every variable of the algorithm and its rivals."""
    answers: tuple[Answers, ...]
    contradictions: tuple[Contradiction, ...]
    sites: tuple[str, ...]
    places: tuple[str, ...]
    map: Float[np.ndarray, "finding site place"]
    """Accuracy of each finding's variable at every site and place, on the pairs that select; NaN where not tested."""
    n: int
    """Pairs of inputs; half of them select sites."""

    def finding(self, variable: str, algorithm: str | None = None) -> VariableFinding:
        """What was found about a variable, by default of the algorithm itself.

        Raises:
            ValueError: an unknown variable or algorithm.
        """
        name = self.algorithm if algorithm is None else algorithm
        found = {one.variable: one for one in self.findings if one.algorithm == name}
        if variable not in found:
            raise ValueError(f"variable is {variable!r} of {name!r}; known are {', '.join(found) or 'none'}.")
        return found[variable]

    @property
    def alignment(self) -> Mapping[str, tuple[str, str]]:
        """Site and place of every variable of the algorithm that was found."""
        found = [one for one in self.findings if one.algorithm == self.algorithm and one.found == "found"]
        return {one.variable: (one.site, one.place) for one in found}

    @property
    def failing(self) -> tuple[str, ...]:
        """Variables of the algorithm that are nowhere."""
        found = [one for one in self.findings if one.algorithm == self.algorithm]
        return tuple(one.variable for one in found if one.found == "not found")

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per variable of each algorithm."""
        import pandas as pd

        return pd.DataFrame([vars(one) for one in self.findings])

    def plot(self) -> "alt.TopLevelMixin":
        """Sites x places of every variable of the algorithm that must be computed."""
        from interp.view.charts import heatmaps

        chosen = {
            one.variable: found
            for one, found in zip(self.findings, self.map, strict=True)
            if one.algorithm == self.algorithm and np.isfinite(found).any() and not one.given
        }
        own = all(one.place in (OWN, NOWHERE) for one in self.findings if one.variable in chosen)
        return heatmaps(
            {name: found[:, :1] for name, found in chosen.items()} if own else chosen,
            x=[OWN] if own else self.places,
            y=self.sites,
            x_title="place",
            y_title="site",
            title=f"{self.algorithm}: {self.verdict}; share of answers that change as it says, n = {self.n // 2} pairs",
            value="accuracy",
        )

    def __str__(self) -> str:
        lines = [f"{self.algorithm}: {self.verdict}. {self.reason}", ""]
        wide = max(len(one.variable) for one in self.findings)
        lines.append(
            f"{'variable':<{wide}}  {'site':<10} {'place':<14} {'accuracy':<22} kept   forced input  random untrained"
        )
        for name in (self.algorithm, *self.rivals):
            if name != self.algorithm:
                lines.append(f"rival: {name}")
            for one in (one for one in self.findings if one.algorithm == name):
                cells = "  ".join(
                    _cell(value) for value in (one.kept, one.forced, one.at_input, one.random, one.untrained)
                )
                shown = "not tested" if one.found == "not tested" else with_interval(one.accuracy, one.low, one.high)
                given = " (given)" if one.given else ""
                lines.append(
                    f"{one.variable:<{wide}}  {one.site:<10} {one.place:<14} {shown:<22} {cells}  {one.found}{given}"
                )
        for one in self.answers:
            shown = with_interval(one.accuracy, one.low, one.high)
            lines.append(f"answers as {one.algorithm}: {shown}, n = {one.n}")
        for one in self.contradictions:
            shown = with_interval(one.rival_accuracy, one.rival_low, one.rival_high)
            where = f"{one.variable} of {one.algorithm}, where {one.rival} says otherwise"
            lines.append(f"{where}: {one.accuracy:.3f} against {shown}")
        return "\n".join([*lines, f"{self.n} pairs, half to select sites; 95 % intervals over the other half"])

    @classmethod
    def _restore(cls, name: str, value: Any) -> Any:
        kinds = {"findings": VariableFinding, "answers": Answers, "contradictions": Contradiction}
        if name not in kinds:
            return value
        return tuple(kinds[name](**{key: np.nan if one[key] is None else one[key] for key in one}) for one in value)


def _cell(value: float) -> str:
    return "  -  " if np.isnan(value) else f"{value:.3f}"
