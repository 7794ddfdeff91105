"""The result of `implements`: where each variable is, how certain that is, and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from jaxtyping import Float

from hooks.checks import shown
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, Axes
from interp.core.consistency import check_known, check_that
from interp.core.intervals import Interval
from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

BAR = 0.9
"""Lowest share of answers that counts as agreement with an algorithm, for answers and for interchanges."""
OWN, NOWHERE = "own", "-"
"""Place of a variable with a value at each position, which is that position; and of one that was not tested."""
MISSING = Interval(value=np.array(np.nan), low=np.array(np.nan), high=np.array(np.nan), n=0)
FindingStatus = Literal["found", "not found", "undecided", "not tested"]
AlgorithmVerdict = Literal["implements", "implements a rival", "neither", "undecided"]


@dataclass(frozen=True, kw_only=True)
class VariableFinding:
    """One variable at the site where an interchange of it works best. Site and figures come from different pairs."""

    algorithm: str
    variable: str
    is_input: bool
    """Whether it is an input, which every model that answers rightly has."""
    site: str
    """Hook point: `resid 2` is the residual stream that layer 2 reads."""
    place: str
    """Place in the input, as `task.places` names it; `own` for a variable with a value at each position."""
    accuracy: Annotated[Interval, Axes(""), SHARE, MAY_BE_MISSING]
    """Interchange intervention accuracy: share of the answers that must change, by the algorithm, which change so; with
    its 95 % interval over pairs. In this and in all other shares no answer has more than half of the weight."""
    stability: Annotated[Interval, Axes(""), SHARE, MAY_BE_MISSING]
    """Share of the other answers of the same pairs that stay as the algorithm predicts."""
    invariance: Annotated[Interval, Axes(""), SHARE, MAY_BE_MISSING] = field(default_factory=lambda: MISSING)
    """Share of the answers that must change which stay, as they must, with a placebo source: another input in which the
    variable has the same value, and, if there is one, whose own answer is another one. Inputs whose activations at the
    site are the base's do not count."""
    search: str = ""
    """What was interchanged: `whole` activations, the span of the `means` of the values, the same by an `oblique`
    projection, or a `learned` subspace."""
    why: str = ""
    """What is against it, or not certain; empty if it is found."""
    changes_answers: bool = False
    """Whether an answer changes with it in some pair, by the algorithm."""
    forced: Annotated[float, SHARE, MAY_BE_MISSING]
    """Accuracy that an interchange of the outputs at this place would have in any model that answers rightly."""
    shared: Annotated[float, SHARE, MAY_BE_MISSING]
    """Highest accuracy that a model could have which implements another of the tested algorithms, at any of its
    variables; answers about which the other one predicts nothing count as possible."""
    at_input: Annotated[float, SHARE, MAY_BE_MISSING]
    """Accuracy of an interchange at the same place before the first layer: of the input itself."""
    random: Annotated[float, SHARE, MAY_BE_MISSING]
    """Accuracy at random sites: mean over all sites and places of the same kinds. Of a learned subspace, that of one
    learned from shuffled values and answers; of given coordinates, that of the same number of random ones."""
    untrained: Annotated[float, SHARE, MAY_BE_MISSING]
    """Accuracy of the best site of an untrained model, selected in the same way."""
    uninformative: Annotated[float, SHARE, MAY_BE_MISSING]
    """Share of pairs on which the algorithm predicts no change, or the model does not answer rightly."""
    status: FindingStatus

    @property
    def baseline(self) -> float:
        """Highest accuracy that needs no such variable: of the outputs, of the input, or of another algorithm."""
        return float(np.nanmax([self.forced, self.at_input, self.shared]))

    @property
    def internal(self) -> bool:
        """Whether success here shows more than right answers: the variable is no input, and no answer."""
        return not (self.is_input or self.forced >= BAR or self.at_input >= BAR)


@dataclass(frozen=True, kw_only=True)
class AnswerAgreement:
    """How often a model answers as an algorithm predicts, with nothing interchanged."""

    algorithm: str
    accuracy: Annotated[Interval, Axes(""), SHARE, MAY_BE_MISSING]
    """Share of the answers, with its interval over pairs: inputs in which a variable changes an answer, or algorithms
    differ."""
    differ: Annotated[float, SHARE, MAY_BE_MISSING]
    """Share of answers in which the algorithm differs from the one that is tested."""
    on_inputs: Annotated[Interval, Axes(""), SHARE, MAY_BE_MISSING] = field(default_factory=lambda: MISSING)
    """Share of the answers to inputs of the test split as they come, or to all inputs."""

    @property
    def is_refuted(self) -> bool:
        """Whether the answers are certainly not the algorithm's."""
        return bool(self.accuracy.high < BAR or self.on_inputs.high < BAR)


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """A variable of one algorithm at its site, on answers about which another algorithm predicts something else."""

    algorithm: str
    variable: str
    rival: str
    accuracy: Annotated[float, SHARE, MAY_BE_MISSING]
    """Share of these answers that are as the variable's algorithm predicts."""
    rival_accuracy: Annotated[Interval, Axes(""), SHARE, MAY_BE_MISSING]
    """Share that are as the other one predicts."""


@dataclass(frozen=True, kw_only=True)
class ImplementsResult(Result):
    """Whether a model computes an algorithm: its variables, where they are, its rivals, and the verdict."""

    algorithm: str
    rivals: Annotated[tuple[str, ...], DISTINCT]
    verdict: AlgorithmVerdict
    """`implements`, `implements a rival`, `neither`, or `undecided`."""
    reason: str
    """What decides it."""
    rival: str | None
    """The rival that the model implements."""
    bar: Annotated[float, SHARE]
    """Lowest share of answers that counts as agreement: a 95 % interval must be on one side of it."""
    search: str
    """What was interchanged: `whole` activations, the span of the `means` of the values (`oblique`: by an oblique
    projection), or a `learned` one; with
    `auto` the first of these that finds the variable, which its finding names."""
    findings: Annotated[tuple[VariableFinding, ...], Axes("finding ...")]
    """Every variable of the algorithm and its rivals."""
    answers: tuple[AnswerAgreement, ...]
    contradictions: tuple[Contradiction, ...]
    sites: Annotated[tuple[str, ...], Axes("site")]
    """Names of the sites; two that are other coordinates of one stream have one name."""
    places: Annotated[tuple[str, ...], Axes("place"), DISTINCT]
    map: Annotated[Float[np.ndarray, "finding site place"], SHARE, MAY_BE_MISSING]
    """Accuracy of each finding's variable at every site and place, on the pairs that select; NaN where not tested."""
    n: Annotated[int, COUNT]
    """Pairs of inputs; half of them select sites."""
    exact: bool = False
    """Whether these are all pairs of all inputs in which a variable changes an answer: no sampling error, and all pairs
    both select and score."""
    n_inputs: Annotated[int, COUNT] = 0
    """With `n="all"`: inputs that there are; else 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        algorithms = (self.algorithm, *self.rivals)
        for name in ("findings", "answers", "contradictions"):
            named = [record.algorithm for record in getattr(self, name)]
            check_known(f"{name}.algorithm", named, algorithms, "the result")
        DISTINCT.check([(finding.algorithm, finding.variable) for finding in self.findings], "findings")
        is_rival = self.verdict == "implements a rival"
        verdict = f"verdict is {self.verdict!r}, but"
        check_that(is_rival == (self.rival is not None), f"{verdict} rival is {shown(self.rival)}.")
        if self.rival is not None:
            check_known("rival", [self.rival], self.rivals, "rivals")
        for index, finding in enumerate(self.findings):
            name = f"findings[{index}]"
            check_known(f"{name}.site", [finding.site], (*self.sites, NOWHERE), "sites")
            check_known(f"{name}.place", [finding.place], (*self.places, OWN, NOWHERE), "places")
            is_tested = not np.isnan(finding.accuracy.value)
            text = f"{name}.status is {finding.status!r}, but its accuracy is {finding.accuracy.text()}."
            check_that(is_tested or finding.status != "found", text)
        # Who is implemented has no variable that is not found
        winner = self.rival if is_rival else self.algorithm
        failing = [finding.variable for finding in self._findings_of(winner or "") if finding.status == "not found"]
        implemented = self.verdict in ("implements", "implements a rival")
        check_that(not (implemented and failing), f"{verdict} variables of {winner} are not found: {failing}.")

    def finding(self, variable: str, algorithm: str | None = None) -> VariableFinding:
        """The finding about a variable, by default of the algorithm itself.

        Raises:
            ValueError: an unknown variable or algorithm.
        """
        name = self.algorithm if algorithm is None else algorithm
        by_variable = {finding.variable: finding for finding in self._findings_of(name)}
        if variable not in by_variable:
            raise ValueError(f"variable is {variable!r} of {name!r}; known are {', '.join(by_variable) or 'none'}.")
        return by_variable[variable]

    def _findings_of(self, algorithm: str) -> list[VariableFinding]:
        return [finding for finding in self.findings if finding.algorithm == algorithm]

    @property
    def alignment(self) -> Mapping[str, tuple[str, str]]:
        """Site and place of every variable of the algorithm that was found."""
        findings = [finding for finding in self._findings_of(self.algorithm) if finding.status == "found"]
        return {finding.variable: (finding.site, finding.place) for finding in findings}

    @property
    def failing(self) -> tuple[str, ...]:
        """Variables of the algorithm that are at no site."""
        return tuple(finding.variable for finding in self._findings_of(self.algorithm) if finding.status == "not found")

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per variable of each algorithm."""
        import pandas as pd

        return pd.DataFrame([_row(finding) for finding in self.findings])

    def plot(self) -> "alt.TopLevelMixin":
        """Sites x places of every variable of the algorithm that must be computed."""
        from interp.view.charts import heatmaps

        # A panel for each variable that must be computed and could be tested.
        panels = {}
        at_own_position = True
        for finding, accuracies in zip(self.findings, self.map, strict=True):
            if finding.algorithm == self.algorithm and not finding.is_input and np.isfinite(accuracies).any():
                panels[finding.variable] = accuracies
                at_own_position &= finding.place in (OWN, NOWHERE)
        places = self.places
        # Variables with a value at each position have a single column.
        if at_own_position:
            panels = {name: accuracies[:, :1] for name, accuracies in panels.items()}
            places = [OWN]
        title = f"{self.algorithm}: {self.verdict}; share of answers that change as predicted"
        return heatmaps(
            panels,
            x=places,
            y=self.sites,
            x_title="place",
            y_title="site",
            title=f"{title}, n = {self.n if self.exact else self.n // 2} pairs",
            value="accuracy",
        )

    def __str__(self) -> str:
        width = max(len(finding.variable) for finding in self.findings)
        lines = [f"{self.algorithm}: {self.verdict}. {self.reason}", ""]
        lines.append(
            f"{'variable':<{width}}  {'site':<10} {'place':<14} {'accuracy':<22} stable same   forced input  random "
            "untrained"
        )
        # The variables of the algorithm, then of its rivals.
        for name in (self.algorithm, *self.rivals):
            if name != self.algorithm:
                lines.append(f"rival: {name}")
            lines += [_line(finding, width) for finding in self._findings_of(name)]
        # Answers without an interchange, and where algorithms contradict each other.
        for agreement in self.answers:
            accuracy = agreement.accuracy
            line = f"answers as {agreement.algorithm}: {accuracy.text()} in {accuracy.n} pairs"
            if agreement.on_inputs.n:
                line += f", {agreement.on_inputs.text()} in {agreement.on_inputs.n} inputs"
            lines.append(line)
        for contradiction in self.contradictions:
            question = f"{contradiction.variable} of {contradiction.algorithm}, where {contradiction.rival} differs"
            shares = f"{contradiction.accuracy:.3f} against {contradiction.rival_accuracy.text()}"
            lines.append(f"{question}: {shares}")
        return "\n".join([*lines, self._sample()])

    def _sample(self) -> str:
        """The pairs, in words."""
        if self.exact:
            return f"{self.n} pairs, all in which an answer changes, of all {self.n_inputs} inputs; exact"
        if self.n_inputs and all(finding.status == "not tested" for finding in self.findings):
            return f"no answer changes in any pair that was looked at, of all {self.n_inputs} inputs"
        which = (
            f", a fixed part of all in which an answer changes, of all {self.n_inputs} inputs" if self.n_inputs else ""
        )
        return f"{self.n} pairs{which}, half to select sites; 95 % intervals over the other half"


def _row(finding: VariableFinding) -> dict[str, Any]:
    """A row of the table, with intervals as columns."""
    row: dict[str, Any] = {}
    for name, value in vars(finding).items():
        if not isinstance(value, Interval):
            row[name] = value
            continue
        prefix = "" if name == "accuracy" else f"{name}_"
        columns = value.columns(name, f"{prefix}low", f"{prefix}high")
        row |= {column: float(ends) for column, ends in columns.items()}
        if name == "accuracy":
            row["n"] = value.n
    return row


PARTS = {
    "means": ", in the span of its means",
    "oblique": ", in the span of its means along all else",
    "learned": ", in a learned subspace",
}
"""What was interchanged where it was not the whole activation, in words."""


def _line(finding: VariableFinding, width: int) -> str:
    """A line of the printed result."""
    accuracy = "not tested" if np.isnan(finding.accuracy) else finding.accuracy.text()
    shares = (
        float(finding.stability),
        float(finding.invariance),
        finding.forced,
        finding.at_input,
        finding.random,
        finding.untrained,
    )
    cells = "  ".join("  -  " if np.isnan(share) else f"{share:.3f}" for share in shares)
    suffix = " (input)" if finding.is_input else ""
    suffix += PARTS.get(finding.search, "")
    return (
        f"{finding.variable:<{width}}  {finding.site:<10} {finding.place:<14} {accuracy:<22} {cells}  "
        f"{finding.status}{suffix}"
    )
