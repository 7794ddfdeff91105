"""What is a claim, and what does measuring one give? Its rule is written before the run and never bends to it."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from case_studies.frame.evidence import Evidence

Size = Literal["quick", "standard", "paper"]
ClaimVerdict = Literal["reproduced", "not reproduced", "inconclusive"]

SIZES: tuple[Size, ...] = get_args(Size)
VERDICTS: tuple[ClaimVerdict, ...] = get_args(ClaimVerdict)
NOT_RUN = "not run"
"""What stands in the place of a verdict where nothing was measured yet."""

NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
"""What a claim or a study may be called, since files are named after them."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a claim's measure found. Everything is made plain, so that it can be kept as JSON.

    Raises:
        ValueError: a number that is not finite, an interval whose ends are swapped, no unit behind it, or a figure
            that is not a plain value.
    """

    value: float
    """The one number that the rule judges."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    """Upper end."""
    n: int
    """Independent units behind it."""
    unit: str
    """What is counted by `n`: seeds, sequences ..."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Further figures by name: numbers, strings, lists, None. The rule may judge these too."""
    tables: Sequence[tuple[str, Sequence[Sequence[Any]]]] = ()
    """Title and rows of each table, the first row being the head."""
    charts: Sequence[Any] = ()
    """Altair charts, or Vega-Lite as dicts; kept as dicts."""
    note: str = ""
    """What a reader must know about this run: what is odd, what differs from the paper."""

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
        """A measurement from `to_dict`, also after a way through JSON."""
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A paper's statement, how to measure it, and when it counts as reproduced.

    Raises:
        ValueError: an id that cannot name a file, an unknown size, or a size left out without saying why.
    """

    id: str
    """Short name in lower case, with hyphens and dots: `corollary-1.uniform`."""
    source: str
    """The paper, and its figure, table or theorem."""
    statement: str
    """What the paper says, in a sentence."""
    rule: str
    """When it counts as reproduced, in words, written before the run."""
    measure: Callable[["Evidence"], Measurement]
    """Measures it; a function of what was trained, the size and the seed, and of nothing else."""
    judge: Callable[[Measurement], ClaimVerdict]
    """The rule in code."""
    quantity: str = ""
    """What the measured number is, in a few words."""
    paper: str | None = None
    """The number that the paper printed, if it did."""
    needs: Sequence[str] = ()
    """Groups of trained models that `measure` looks at."""
    sizes: Sequence[Size] = SIZES
    """Where it can be measured; at other sizes it is inconclusive."""
    why_not: str = ""
    """Why it is inconclusive at other sizes."""

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
                f"claim {self.id} is measured at {', '.join(self.sizes) or 'no size'}; say why_not others."
            )

    def verdict(self, measurement: Measurement) -> ClaimVerdict:
        """The rule applied to a measurement.

        Raises:
            ValueError: `judge` gave something else than a verdict.
        """
        verdict = self.judge(measurement)
        if verdict not in VERDICTS:
            raise ValueError(f"the judge of claim {self.id} said {verdict!r}; it must be one of {', '.join(VERDICTS)}.")
        return verdict


def check_size(size: str) -> None:
    """Refuse a size that does not exist.

    Raises:
        ValueError: with the ones that do.
    """
    if size not in SIZES:
        raise ValueError(f"size is {size!r}; choose one of {', '.join(SIZES)}.")


def shown(value: float, low: float, high: float) -> tuple[str, str, str]:
    """A number and its interval as text, to as many decimals as the interval's width warrants: two of its digits."""
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
