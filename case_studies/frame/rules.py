"""Rules that judge a measurement: values that give both their text and their verdict, so that the two cannot differ.

A rule for a number with an interval compares the whole interval with a bar; if the bar is inside, the claim is
inconclusive. `Value` and `Number` are for numbers without sampling error, `Conditional`, `AllOf` and `Split` combine
rules.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, get_args

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
        """What prevents `reproduced`, where the measured number does not show it: each condition and what was found.

        Of a rule with several conditions: if it is refuted those that are, if it is inconclusive those that are open.
        """
        return ()

    def found(self, m: Measurement) -> str:
        """The condition for reproduced, and what it was compared with."""
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


@dataclass(frozen=True)
class Above(Rule):
    """Reproduced if the whole interval is above the bar, not reproduced if it is below."""

    bar: float

    def passes(self, subject: str = INTERVAL) -> str:
        return f"{subject} is above {_text(self.bar)}"

    def fails(self, subject: str = INTERVAL) -> str:
        return f"{subject} is below {_text(self.bar)}"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(m.low > self.bar, m.high < self.bar)

    @property
    def bars(self) -> tuple[float, ...]:
        return (self.bar,)


@dataclass(frozen=True)
class AtLeast(Rule):
    """Reproduced if the whole interval is at or above the bar, not reproduced if it is below."""

    bar: float

    def passes(self, subject: str = INTERVAL) -> str:
        return f"{subject} is at or above {_text(self.bar)}"

    def fails(self, subject: str = INTERVAL) -> str:
        return f"{subject} is below {_text(self.bar)}"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(m.low >= self.bar, m.high < self.bar)

    @property
    def bars(self) -> tuple[float, ...]:
        return (self.bar,)


@dataclass(frozen=True)
class Below(Rule):
    """Reproduced if the whole interval is below the bar, not reproduced if it is above."""

    bar: float

    def passes(self, subject: str = INTERVAL) -> str:
        return f"{subject} is below {_text(self.bar)}"

    def fails(self, subject: str = INTERVAL) -> str:
        return f"{subject} is above {_text(self.bar)}"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(m.high < self.bar, m.low > self.bar)

    @property
    def bars(self) -> tuple[float, ...]:
        return (self.bar,)


@dataclass(frozen=True)
class AtMost(Rule):
    """Reproduced if the whole interval is at or below the bar, not reproduced if it is above."""

    bar: float

    def passes(self, subject: str = INTERVAL) -> str:
        return f"{subject} is at or below {_text(self.bar)}"

    def fails(self, subject: str = INTERVAL) -> str:
        return f"{subject} is above {_text(self.bar)}"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(m.high <= self.bar, m.low > self.bar)

    @property
    def bars(self) -> tuple[float, ...]:
        return (self.bar,)


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

    to: Any

    def passes(self, subject: str = INTERVAL) -> str:
        return f"{subject} is {_text(self.to)}"

    def fails(self, subject: str = INTERVAL) -> str:
        return f"{subject} is not {_text(self.to)}"

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(m.low == self.to == m.high, not m.low <= self.to <= m.high)


@dataclass(frozen=True)
class Value(Rule):
    """A rule about the measured value, without its interval: reproduced if met, else not reproduced."""

    rule: Rule

    def passes(self, subject: str = "the value") -> str:
        return self.rule.passes("the value")

    def found(self, m: Measurement) -> str:
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

    def found(self, m: Measurement) -> str:
        return f"{self.passes()} (it is {_text(m.numbers[self.name])})"

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        return () if self.verdict(m) == "reproduced" else (self.found(m),)

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
        found = [rule.verdict(m) for rule in self.rules]
        return _decide(all(one == "reproduced" for one in found), "not reproduced" in found)

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        verdict = self.verdict(m)
        if verdict == "reproduced":
            return ()
        rules = [rule for rule in self.rules if rule.verdict(m) == verdict]
        return tuple(text for rule in rules for text in rule.unmet(m) or (rule.found(m),))

    @property
    def chance(self) -> float:
        return min(rule.chance for rule in self.rules)

    @property
    def bars(self) -> tuple[float, ...]:
        return tuple(bar for rule in self.rules for bar in rule.bars)


@dataclass(frozen=True)
class Split(Rule):
    """Reproduced if one rule is met, not reproduced if another is, else inconclusive."""

    holds: Rule
    refuted: Rule

    def passes(self, subject: str = INTERVAL) -> str:
        return self.holds.passes()

    def fails(self, subject: str = INTERVAL) -> str:
        return self.refuted.passes()

    def verdict(self, m: Measurement) -> ClaimVerdict:
        return _decide(self.holds.verdict(m) == "reproduced", self.refuted.verdict(m) == "reproduced")

    def unmet(self, m: Measurement) -> tuple[str, ...]:
        return () if self.verdict(m) == "reproduced" else self.holds.unmet(m)

    @property
    def chance(self) -> float:
        return self.holds.chance

    @property
    def bars(self) -> tuple[float, ...]:
        return (*self.holds.bars, *self.refuted.bars)


def _decide(passes: bool, fails: bool) -> ClaimVerdict:
    return "reproduced" if passes else "not reproduced" if fails else "inconclusive"


def _exact(rule: Rule, value: Any) -> ClaimVerdict:
    point = Measurement(value=value, low=value, high=value, n=1, unit="", exact=True)
    return "reproduced" if rule.verdict(point) == "reproduced" else "not reproduced"


def _text(bar: Any) -> str:
    if isinstance(bar, bool):
        return str(bar).lower()
    return f"{bar:.6g}" if isinstance(bar, float | int) else str(bar)
