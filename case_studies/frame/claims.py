"""A claim of a paper, what its measure found, the rules that judge it, and the intervals that measures share."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast, get_args

import numpy as np
from jaxtyping import Float
from scipy import stats

from case_studies.frame.evidence import SIZES, Evidence, Size, check_size
from interp.core.statistics import bootstrap_mean, proportion_interval, t_half_width

ClaimVerdict = Literal["reproduced", "not reproduced", "inconclusive"]
VERDICTS: tuple[ClaimVerdict, ...] = get_args(ClaimVerdict)
NOT_MEASURED = "not measured"
"""The label of a claim without a measurement: it is not measured at this size, or has not been run yet."""

NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
"""Valid names of claims and studies; files are named after them."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of a claim's measure, converted to plain values that can be stored as JSON.

    Raises:
        ValueError: a number that is not finite, an interval whose ends are swapped, n below 1, or an entry of
            `numbers` that is not a plain value.
    """

    value: float
    """The number that the rule judges."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    """Upper end."""
    n: int
    """Number of independent units."""
    unit: str
    """The unit that `n` counts: seeds, sequences ..."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Further figures by name: numbers, strings, lists, None. The rule may judge these too."""
    tables: Sequence[tuple[str, Sequence[Sequence[Any]]]] = ()
    """Title and rows of each table; the first row is the header."""
    charts: Sequence[Any] = ()
    """Altair charts, or Vega-Lite as dicts; stored as dicts."""
    note: str = ""
    """Caveats of this measurement, and differences from the paper."""

    def __post_init__(self):
        for name in ("value", "low", "high"):
            number = float(getattr(self, name))
            if not math.isfinite(number):
                raise ValueError(f"{name} is {number}; a measurement needs finite numbers.")
            object.__setattr__(self, name, number)
        if self.low > self.high:
            raise ValueError(f"the interval goes from low {self.low} to high {self.high}; swap them.")
        if int(self.n) != self.n or self.n < 1:
            raise ValueError(f"n is {self.n}; give the number of independent {self.unit}, at least 1.")
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "numbers", {name: _plain(value, name) for name, value in self.numbers.items()})
        tables = [(title, [[_cell(cell) for cell in row] for row in rows]) for title, rows in self.tables]
        object.__setattr__(self, "tables", tuple(tables))
        charts = [c if isinstance(c, Mapping) else json.loads(c.to_json()) for c in self.charts]
        object.__setattr__(self, "charts", tuple(charts))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Measurement":
        """The inverse of `to_dict`, also after a round trip through JSON."""
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A paper's statement, how to measure it, and when it counts as reproduced.

    Raises:
        ValueError: an id that cannot name a file, an unknown size, or fewer than all sizes without `why_not`.
    """

    id: str
    """Short name in lower case, with hyphens and dots: `corollary-1.uniform`."""
    source: str
    """The paper, and its figure, table or theorem."""
    statement: str
    """What the paper says, in a sentence."""
    rule: str
    """When it counts as reproduced, in words, written before the run."""
    measure: Callable[[Evidence], Measurement]
    """Measures it; a function of the trained models, the size and the seed only."""
    judge: Callable[[Measurement], ClaimVerdict]
    """The rule in code."""
    quantity: str = ""
    """The name of the measured number, in a few words."""
    paper: str | None = None
    """The number that the paper printed, if any."""
    needs: Sequence[str] = ()
    """Groups of trained models that `measure` reads."""
    sizes: Sequence[Size] = SIZES
    """Sizes at which it is measured; at others its label is `not measured`."""
    why_not: str = ""
    """Why it is not measured at the other sizes."""

    def __post_init__(self):
        if not NAME.fullmatch(self.id):
            raise ValueError(f"the claim id is {self.id!r}; use lower-case letters, digits, hyphens and dots.")
        if isinstance(self.needs, str):
            raise ValueError(f"needs of claim {self.id} is the text {self.needs!r}; give a tuple of names.")
        object.__setattr__(self, "needs", tuple(self.needs))
        object.__setattr__(self, "sizes", tuple(self.sizes))
        for size in self.sizes:
            check_size(size)
        if set(self.sizes) != set(SIZES) and not self.why_not:
            raise ValueError(
                f"claim {self.id} is measured at {', '.join(self.sizes) or 'no size'}; give why_not for the others."
            )

    def verdict(self, measurement: Measurement) -> ClaimVerdict:
        """The rule applied to a measurement.

        Raises:
            ValueError: `judge` returned something other than a verdict.
        """
        verdict = self.judge(measurement)
        if verdict not in VERDICTS:
            raise ValueError(
                f"the judge of claim {self.id} returned {verdict!r}; it must be one of {', '.join(VERDICTS)}."
            )
        return verdict


def above(m: Measurement, bar: float) -> ClaimVerdict:
    """Reproduced if the whole interval is above the bar, not reproduced if it is below."""
    return "reproduced" if m.low > bar else "not reproduced" if m.high < bar else "inconclusive"


def at_least(m: Measurement, bar: float) -> ClaimVerdict:
    """Reproduced if the whole interval is at or above the bar, not reproduced if it is below."""
    return "reproduced" if m.low >= bar else "not reproduced" if m.high < bar else "inconclusive"


def below(m: Measurement, bar: float) -> ClaimVerdict:
    """Reproduced if the whole interval is below the bar, not reproduced if it is above."""
    return "reproduced" if m.high < bar else "not reproduced" if m.low > bar else "inconclusive"


def more_than_half(m: Measurement) -> ClaimVerdict:
    """Reproduced if the whole interval is above one half."""
    return above(m, 0.5)


def within(m: Measurement, margin: float) -> ClaimVerdict:
    """Reproduced if the whole interval is closer to 0 than the margin (equivalence)."""
    if -margin < m.low and m.high < margin:
        return "reproduced"
    return "not reproduced" if m.low >= margin or m.high <= -margin else "inconclusive"


def rule_text(side: str, bar: object = 0, *, interval: str = "t interval over seeds") -> str:
    """The rule of `above` and `below` in words, to follow the name of the quantity and a colon."""
    other = {"above": "below", "below": "above", "at or above": "below"}[side]
    return f"reproduced if the {interval} is {side} {bar}, not reproduced if {other}, else inconclusive."


def t_interval(values: Float[np.ndarray, " seed"], *, confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean over seeds with its t interval."""
    mean = float(values.mean())
    half = float(t_half_width(values, confidence=confidence)) if len(values) > 1 else 0.0
    return mean, mean - half, mean + half


def bootstrap_interval(values: Float[np.ndarray, " seed"], *, seed: int) -> tuple[float, float, float]:
    """Mean over seeds with its 95 % percentile bootstrap interval."""
    mean, low, high = (float(end) for end in bootstrap_mean(values, seed=seed))
    return mean, low, high


def proportion(hits: int, n: int) -> tuple[float, float, float]:
    """A share with its exact (Clopper-Pearson) 95 % interval."""
    low, high = proportion_interval(np.array(hits), n)
    return hits / n, float(low), float(high)


def difference_interval(
    a: Float[np.ndarray, " seed"], b: Float[np.ndarray, " other"], *, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Mean of `a` minus mean of `b` with Welch's t interval, for two groups of seeds that are not paired."""
    mean = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2 or (np.ptp(a) == 0 and np.ptp(b) == 0):
        return mean, mean, mean
    found = cast(Any, stats.ttest_ind(a, b, equal_var=False)).confidence_interval(confidence)
    return mean, float(found.low), float(found.high)


def correlation(
    x: Float[np.ndarray, " model"], y: Float[np.ndarray, " model"], *, seed: int
) -> tuple[float, float, float]:
    """Spearman's rank correlation with its 95 % percentile bootstrap interval over models; 0 [-1, 1] if under 3."""
    if len(x) < 3:
        return 0.0, -1.0, 1.0

    def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1]) if np.ptp(a) and np.ptp(b) else 0.0

    interval = stats.bootstrap(
        (x, y),
        rank_correlation,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return rank_correlation(x, y), float(interval.low), float(interval.high)


def shown(value: float, low: float, high: float) -> tuple[str, str, str]:
    """A number and its interval as text, rounded to two significant digits of the interval's width."""
    width = high - low
    if width <= 0:
        return f"{value:.4g}", f"{low:.4g}", f"{high:.4g}"
    decimals = min(max(1 - math.floor(math.log10(width)), 0), 8)
    return f"{value:,.{decimals}f}", f"{low:,.{decimals}f}", f"{high:,.{decimals}f}"


def _plain(value: Any, name: str) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
    raise ValueError(f"numbers[{name!r}] is a {type(value).__name__}; give numbers, strings, lists or None.")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
