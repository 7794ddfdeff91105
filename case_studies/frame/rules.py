"""Rules that judge a measurement: values that give both their text and their verdict, so that the two cannot differ.

A rule for a number with an interval compares the whole interval with a bar; if the bar is inside, the claim is
inconclusive. `Value` and `Number` are for numbers without sampling error, `Conditional`, `AllOf` and `Split` combine
rules.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from case_studies.frame.measurement import Measurement

ClaimVerdict = Literal["reproduced", "not reproduced", "inconclusive"]
VERDICTS: tuple[ClaimVerdict, ...] = get_args(ClaimVerdict)
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

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        """What prevents `reproduced`, where the measured number does not show it: each condition and its number.

        Of a rule with several conditions: if it is refuted those that are, if it is inconclusive those that are open.
        """
        return ()

    def comparison(self, m: Measurement) -> str:
        """The condition for reproduced, and the number that was compared with it."""
        return f"{self.passes()} (it is {_text(m.low)} to {_text(m.high)})"

    @property
    def chance(self) -> float:
        """Largest probability of reproduced if the true value is at the bar; 0 for rules without an interval."""
        return TAIL

    @property
    def bars(self) -> tuple[float, ...]:
        """The bars that the interval is compared with; none for rules about exact numbers."""
        return ()

    @property
    def text(self) -> str:
        """The rule in words, to follow the name of what is measured and a colon."""
        return f"reproduced if {self.passes()}, not reproduced if {self.fails('it')}, else inconclusive"


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


@dataclass(frozen=True)
class Value(Rule):
    """A rule about the measured value, without its interval: reproduced if met, else not reproduced."""

    rule: Rule

    def passes(self, subject: str = "the value") -> str:
        return self.rule.passes("the value")

    def comparison(self, m: Measurement) -> str:
        return f"{self.passes()} (it is {_text(m.value)})"

    def fails(self, subject: str = "the value") -> str:
        return "it is not"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _exact(self.rule, m.value)

    @property
    def chance(self) -> float:
        return 0.0

    @property
    def text(self) -> str:
        return f"reproduced if {self.passes()}, else not reproduced"


@dataclass(frozen=True)
class Number(Value):
    """A rule about one of the measurement's `numbers`: reproduced if met, else not reproduced."""

    name: str

    def __init__(self, name: str, rule: Rule):
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "rule", rule)

    def passes(self, subject: str = "") -> str:
        return self.rule.passes(f"“{self.name}”")

    def comparison(self, m: Measurement) -> str:
        return f"{self.passes()} (it is {_text(m.numbers[self.name])})"

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        return () if self.verdict(m) == "reproduced" else (self.comparison(m),)

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _exact(self.rule, m.numbers[self.name])


@dataclass(frozen=True)
class Conditional(Rule):
    """A rule that applies only where `condition` is met; elsewhere the claim is inconclusive."""

    condition: Number
    rule: Rule

    def passes(self, subject: str = INTERVAL) -> str:
        return self.rule.passes(subject)

    def fails(self, subject: str = INTERVAL) -> str:
        return self.rule.fails(subject)

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return self.rule.verdict(m) if self.condition.verdict(m) == "reproduced" else "inconclusive"

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        return self.condition.unmet(m) or self.rule.unmet(m)

    @property
    def chance(self) -> float:
        return self.rule.chance

    @property
    def text(self) -> str:
        return f"{self.rule.text}; inconclusive unless {self.condition.passes()}"

    @property
    def bars(self) -> tuple[float, ...]:
        return self.rule.bars


@dataclass(frozen=True)
class AllOf(Rule):
    """Reproduced if every rule is, not reproduced if one is not, else inconclusive."""

    rules: tuple[Rule, ...]

    def __init__(self, *rules: Rule):
        object.__setattr__(self, "rules", rules)

    def passes(self, subject: str = INTERVAL) -> str:
        return " and ".join(rule.passes() for rule in self.rules)

    def fails(self, subject: str = INTERVAL) -> str:
        return "one of these is refuted"

    @property
    def text(self) -> str:
        exact = all(isinstance(rule, Value) for rule in self.rules)
        return f"reproduced if {self.passes()}, else not reproduced" if exact else super().text

    def verdict(self, m: Measurement) -> ClaimVerdict:
        verdicts = {rule.verdict(m) for rule in self.rules}
        return _decide(verdicts == {"reproduced"}, "not reproduced" in verdicts)

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        verdict = self.verdict(m)
        if verdict == "reproduced":
            return ()
        rules = [rule for rule in self.rules if rule.verdict(m) == verdict]
        return tuple(text for rule in rules for text in rule.unmet(m) or [rule.comparison(m)])

    @property
    def chance(self) -> float:
        return min(rule.chance for rule in self.rules)

    @property
    def bars(self) -> tuple[float, ...]:
        return tuple(bar for rule in self.rules for bar in rule.bars)


@dataclass(frozen=True)
class Split(Rule):
    """Reproduced if one rule is met, not reproduced if another is, else inconclusive."""

    confirmation: Rule
    refutation: Rule

    def passes(self, subject: str = INTERVAL) -> str:
        return self.confirmation.passes()

    def fails(self, subject: str = INTERVAL) -> str:
        return self.refutation.passes()

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(self.confirmation.verdict(m) == "reproduced", self.refutation.verdict(m) == "reproduced")

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        return () if self.verdict(m) == "reproduced" else self.confirmation.unmet(m)

    @property
    def chance(self) -> float:
        return self.confirmation.chance

    @property
    def bars(self) -> tuple[float, ...]:
        return (*self.confirmation.bars, *self.refutation.bars)


def _decide(passes: bool, fails: bool) -> ClaimVerdict:
    if passes:
        return "reproduced"
    return "not reproduced" if fails else "inconclusive"


def _exact(rule: Rule, value: Any) -> ClaimVerdict:
    point = Measurement(value=value, low=value, high=value, n=1, unit="", exact=True)
    return "reproduced" if rule.verdict(point) == "reproduced" else "not reproduced"


def _text(bar: Any) -> str:
    if isinstance(bar, bool):
        return str(bar).lower()
    return f"{bar:.6g}" if isinstance(bar, float | int) else str(bar)
