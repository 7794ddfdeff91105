"""Rules that judge a measurement: values that give both their text and their verdict, so that the two cannot differ.

A rule for a number with an interval compares the whole interval with a bar; if the bar is inside, the claim is
inconclusive. `Value` and `Number` are for numbers without sampling error, `Conditional`, `AllOf` and `TwoSided`
combine rules.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from case_studies.frame.measurement import Measurement

ClaimVerdict = Literal["reproduced", "not reproduced", "inconclusive"]
CLAIM_VERDICTS: tuple[ClaimVerdict, ...] = get_args(ClaimVerdict)
INTERVAL = "the interval"
TAIL = 0.025
"""Chance that a 95 % interval is wholly on one side of the true value."""


class Rule(ABC):
    """When a measurement reproduces a statement, and when it refutes it."""

    @abstractmethod
    def passes(self, subject: str = INTERVAL) -> str:
        """The condition for reproduced, as a clause about the subject."""

    @abstractmethod
    def fails(self, subject: str = INTERVAL) -> str:
        """The condition for not reproduced, as a clause about the subject."""

    @abstractmethod
    def verdict(self, m: Measurement) -> ClaimVerdict:
        """The rule applied to a measurement."""

    @property
    def text(self) -> str:
        """The rule in words, to follow the name of what is measured and a colon."""
        return f"reproduced if {self.passes()}, not reproduced if {self.fails('it')}, else inconclusive"

    def comparison(self, m: Measurement) -> str:
        """The condition for reproduced, and the number that was compared with it."""
        return f"{self.passes()} (it is {_text(m.low)} to {_text(m.high)})"

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        """What prevents `reproduced`, where the measured number does not show it: each condition and its number.

        Of a rule with several conditions: if it is refuted those that are, if it is inconclusive those that are open.
        """
        return ()

    @property
    def combined(self) -> "tuple[Rule, ...]":
        """The rules about intervals that this rule combines."""
        return ()

    @property
    def chance(self) -> float:
        """Largest probability of reproduced if the true value is at the bar; 0 for rules without an interval."""
        return min((rule.chance for rule in self.combined), default=TAIL)

    @property
    def bars(self) -> tuple[float, ...]:
        """The bars that the interval is compared with; none for rules about exact numbers."""
        return tuple(bar for rule in self.combined for bar in rule.bars)

    @property
    def passing_range(self) -> tuple[float, float]:
        """Least and largest measured value that the rule accepts; infinite where it has no threshold."""
        ranges = [rule.passing_range for rule in self.combined]
        least = max((least for least, _ in ranges), default=-math.inf)
        most = min((most for _, most in ranges), default=math.inf)
        return least, most


COMPARISONS: Mapping[str, Callable[[Measurement, float], bool]] = {
    "above": lambda m, bar: m.low > bar,
    "at or above": lambda m, bar: m.low >= bar,
    "below": lambda m, bar: m.high < bar,
    "at or below": lambda m, bar: m.high <= bar,
}
"""When a whole interval is on one side of a bar."""


@dataclass(frozen=True)
class _OneBar(Rule):
    """A rule that compares the whole interval with one bar."""

    bar: float
    reproduced_if: ClassVar[str]
    """One of `COMPARISONS`."""
    refuted_if: ClassVar[str]

    def passes(self, subject: str = INTERVAL) -> str:
        return f"{subject} is {self.reproduced_if} {_text(self.bar)}"

    def fails(self, subject: str = INTERVAL) -> str:
        return f"{subject} is {self.refuted_if} {_text(self.bar)}"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(COMPARISONS[self.reproduced_if](m, self.bar), COMPARISONS[self.refuted_if](m, self.bar))

    @property
    def bars(self) -> tuple[float, ...]:
        return (self.bar,)

    @property
    def passing_range(self) -> tuple[float, float]:
        return (self.bar, math.inf) if "above" in self.reproduced_if else (-math.inf, self.bar)


class Above(_OneBar):
    """Reproduced if the whole interval is above the bar, not reproduced if it is below."""

    reproduced_if, refuted_if = "above", "below"


class AtLeast(_OneBar):
    """Reproduced if the whole interval is at or above the bar, not reproduced if it is below."""

    reproduced_if, refuted_if = "at or above", "below"


class Below(_OneBar):
    """Reproduced if the whole interval is below the bar, not reproduced if it is above."""

    reproduced_if, refuted_if = "below", "above"


class AtMost(_OneBar):
    """Reproduced if the whole interval is at or below the bar, not reproduced if it is above."""

    reproduced_if, refuted_if = "at or below", "above"


@dataclass(frozen=True)
class Between(Rule):
    """Reproduced if the whole interval is between two bars (equivalence), not reproduced if it is outside."""

    least: float
    most: float

    def passes(self, subject: str = INTERVAL) -> str:
        return f"{subject} is between {_text(self.least)} and {_text(self.most)}"

    def fails(self, subject: str = INTERVAL) -> str:
        return f"{subject} is outside"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(self.least < m.low and m.high < self.most, m.high <= self.least or m.low >= self.most)

    @property
    def bars(self) -> tuple[float, ...]:
        return (self.least, self.most)

    @property
    def passing_range(self) -> tuple[float, float]:
        return self.least, self.most


class Within(Between):
    """`Between` minus and plus a margin."""

    def __init__(self, margin: float):
        super().__init__(-margin, margin)


@dataclass(frozen=True)
class Equal(Rule):
    """Reproduced if the number is this one, for `Value` and `Number`."""

    expected: Any

    def passes(self, subject: str = INTERVAL) -> str:
        return f"{subject} is {_text(self.expected)}"

    def fails(self, subject: str = INTERVAL) -> str:
        return f"{subject} is not {_text(self.expected)}"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(m.low == self.expected == m.high, not m.low <= self.expected <= m.high)

    @property
    def passing_range(self) -> tuple[float, float]:
        return float(self.expected), float(self.expected)


class _WithoutInterval(Rule):
    """A rule about a number without sampling error: reproduced if met, else not reproduced."""

    rule: Rule

    @property
    @abstractmethod
    def subject(self) -> str:
        """What the rule is about, in words."""

    @abstractmethod
    def number(self, m: Measurement) -> Any:
        """The number of a measurement that the rule is about."""

    def passes(self, subject: str = "") -> str:
        return self.rule.passes(self.subject)

    def fails(self, subject: str = "") -> str:
        return "it is not"

    @property
    def text(self) -> str:
        return f"reproduced if {self.passes()}, else not reproduced"

    def comparison(self, m: Measurement) -> str:
        return f"{self.passes()} (it is {_text(self.number(m))})"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        number = self.number(m)
        point = Measurement(value=number, low=number, high=number, n=1, unit="", exact=True)
        return "reproduced" if self.rule.verdict(point) == "reproduced" else "not reproduced"

    @property
    def chance(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Value(_WithoutInterval):
    """A rule about the measured value, without its interval: reproduced if met, else not reproduced."""

    rule: Rule

    @property
    def subject(self) -> str:
        return "the value"

    def number(self, m: Measurement) -> float:
        return m.value

    @property
    def passing_range(self) -> tuple[float, float]:
        return self.rule.passing_range


@dataclass(frozen=True)
class Number(_WithoutInterval):
    """A rule about one of the measurement's `numbers`: reproduced if met, else not reproduced."""

    name: str
    rule: Rule

    @property
    def subject(self) -> str:
        return f"“{self.name}”"

    def number(self, m: Measurement) -> Any:
        return m.numbers[self.name]

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        return () if self.verdict(m) == "reproduced" else (self.comparison(m),)


@dataclass(frozen=True)
class Conditional(Rule):
    """A rule that applies only where `condition` is met; elsewhere the claim is inconclusive."""

    condition: Number
    rule: Rule

    @property
    def combined(self) -> tuple[Rule, ...]:
        return (self.rule,)

    def passes(self, subject: str = INTERVAL) -> str:
        return self.rule.passes(subject)

    def fails(self, subject: str = INTERVAL) -> str:
        return self.rule.fails(subject)

    @property
    def text(self) -> str:
        return f"{self.rule.text}; inconclusive unless {self.condition.passes()}"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return self.rule.verdict(m) if self.condition.verdict(m) == "reproduced" else "inconclusive"

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        return self.condition.unmet(m) or self.rule.unmet(m)


@dataclass(frozen=True)
class AllOf(Rule):
    """Reproduced if every rule is, not reproduced if one is not, else inconclusive."""

    rules: tuple[Rule, ...]

    def __init__(self, *rules: Rule):
        object.__setattr__(self, "rules", rules)

    @property
    def combined(self) -> tuple[Rule, ...]:
        return self.rules

    def passes(self, subject: str = INTERVAL) -> str:
        return " and ".join(rule.passes() for rule in self.rules)

    def fails(self, subject: str = INTERVAL) -> str:
        return "one of these is refuted"

    @property
    def text(self) -> str:
        if all(isinstance(rule, _WithoutInterval) for rule in self.rules):  # it cannot be inconclusive
            return f"reproduced if {self.passes()}, else not reproduced"
        return super().text

    def verdict(self, m: Measurement) -> ClaimVerdict:
        verdicts = {rule.verdict(m) for rule in self.rules}
        return _decide(verdicts == {"reproduced"}, "not reproduced" in verdicts)

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        verdict = self.verdict(m)
        if verdict == "reproduced":
            return ()
        # The rules that have the verdict decided it; those that do not name their conditions are compared whole
        texts: list[str] = []
        for rule in self.rules:
            if rule.verdict(m) == verdict:
                texts += rule.unmet(m) or [rule.comparison(m)]
        return tuple(texts)


@dataclass(frozen=True)
class TwoSided(Rule):
    """Reproduced if one rule is met, not reproduced if another is, else inconclusive."""

    confirmation: Rule
    refutation: Rule

    @property
    def combined(self) -> tuple[Rule, ...]:
        return (self.confirmation, self.refutation)

    @property
    def chance(self) -> float:
        return self.confirmation.chance

    @property
    def passing_range(self) -> tuple[float, float]:
        return self.confirmation.passing_range

    def passes(self, subject: str = INTERVAL) -> str:
        return self.confirmation.passes()

    def fails(self, subject: str = INTERVAL) -> str:
        return self.refutation.passes()

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(self.confirmation.verdict(m) == "reproduced", self.refutation.verdict(m) == "reproduced")

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        return () if self.verdict(m) == "reproduced" else self.confirmation.unmet(m)


def _decide(passes: bool, fails: bool) -> ClaimVerdict:
    if passes:
        return "reproduced"
    return "not reproduced" if fails else "inconclusive"


def _text(number: Any) -> str:
    if isinstance(number, bool):
        return str(number).lower()
    return f"{number:.6g}" if isinstance(number, float | int) else str(number)
