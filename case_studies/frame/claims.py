"""A claim of a paper: its statement, how it is measured, the rule that judges it, and when that rule was fixed.

Measures compute their intervals with `case_studies/recipes/intervals.py`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import pandas as pd

from case_studies.frame.evidence import SIZES, Evidence, Size
from case_studies.frame.judge import Judge, Readings
from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import OutsideFiles
from case_studies.frame.paper_statements import paper_statements
from case_studies.frame.rules import ClaimVerdict, Rule
from hooks.checks import check_choice
from interp.sweeps.spec import ModelSpec

NOT_MEASURED = "not measured"
"""The label of a claim without a measurement: it is not measured at this size, or has not been run yet."""
BY_CONSTRUCTION = "by construction"
"""The label of a claim whose rule is met and cannot fail."""

OURS = "ours"
"""First word of the source of a claim that no paper makes."""

NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
"""Valid names of claims and studies; files are named after them."""
When = Literal["before any model", "after first models", "after a result"]


@dataclass(frozen=True)
class Preregistration:
    """When a claim's rule was fixed, and what was known by then.

    Raises:
        ValueError: `prior_knowledge` is empty although models or results were known, or the reverse.
    """

    when: When
    """`before any model` of the claim was trained or measured; `after first models`, none of which is judged or all of
    which are named in `prior_knowledge`; `after a result` of this claim, by this or another rule."""
    prior_knowledge: str = ""
    """What was known, in a few words."""
    looks: int = 0
    """How often models, seeds or inputs were added after somebody had seen the claim's number."""

    def __post_init__(self):
        if self.looks < 0:
            raise ValueError(f"looks is {self.looks}; give the number of looks before the last one, at least 0.")
        if self.looks and self.when == "before any model":
            raise ValueError(f"a rule fixed {self.when} has looks={self.looks}; nothing had been seen by then.")
        if bool(self.prior_knowledge) == (self.when == "before any model"):
            raise ValueError(
                f"a rule fixed {self.when} has prior_knowledge={self.prior_knowledge!r}; say what had been seen, if "
                "anything."
            )

    @property
    def text(self) -> str:
        """As text."""
        text = f"{self.when}: {self.prior_knowledge}" if self.prior_knowledge else self.when
        return f"{text}; looks before the last measurement: {self.looks}" if self.looks else text


BEFORE_ANY_MODEL = Preregistration("before any model")
SHARE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)
"""Ranges of a share, an accuracy or a squared correlation, and of a difference of two or a correlation."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A paper's statement, how to measure it, and when it counts as reproduced.

    Raises:
        ValueError: an id that cannot name a file, no statement or source, an unknown size, fewer than all sizes without
            `sizes_reason`, or a `method` that ends a sentence.
    """

    id: str
    """Short name in lower case, with hyphens and dots: `corollary-1.uniform`."""
    source: str = ""
    """The paper, and its figure, table or theorem. A claim of a paper whose list (`case_studies/papers`) has its
    statement gives neither statement nor source nor the paper's number: they are read from there, by its id."""
    statement: str = ""
    """What the paper says, in a sentence."""
    method: str
    """What is measured and how its interval is made, in words that the rule's text continues after a colon."""
    rule: Rule
    """When it counts as reproduced, and when as not reproduced."""
    preregistration: Preregistration
    """When the rule was fixed, and what was known by then."""
    measure: Callable[[Evidence], pd.DataFrame | Readings]
    """Measures it; a function of the trained models, the size and the seed only. It returns a frame, one row a model,
    seed or setting, alone or with what else the page shows."""
    judged: Judge
    """Which column of the frame is judged, and how: one of `case_studies/recipes/judges.py`."""
    quantity: str = ""
    """The name of the measured number, in a few words."""
    value_range: tuple[float, float] | None = None
    """The values that the number can have, such as `SHARE`; its interval is cut there. None: no limits."""
    paper: str | None = None
    """The number that the paper printed, if any."""
    needs: Sequence[str] = ()
    """Groups of trained models that `measure` reads."""
    before_training: Sequence[Size] = ()
    """Sizes at which it reads these models as they are before training, published weights, so that none is trained."""
    sizes: Sequence[Size] = SIZES
    """Sizes at which it is measured; at others its label is `not measured`."""
    sizes_reason: str = ""
    """Why it is not measured at the other sizes."""
    remedy: str = ""
    """What would decide it besides more units, such as longer training; shown while it is undecided."""
    packs: OutsideFiles | None = None
    """Data that `measure` reads besides trained models: packs or weights from outside, or models with known answers.
    Without them the claim is not measured, and a stored number is shown for the same data only."""
    by_construction: bool = False
    """Whether it cannot fail unless the code is wrong: a construction or arithmetic. Counted separately."""
    repeatable: bool = True
    """Whether the same code, seed, models and machine give the same number bit for bit; timings do not."""

    def __post_init__(self):
        if not NAME.fullmatch(self.id):
            raise ValueError(f"the claim id is {self.id!r}; use lower-case letters, digits, hyphens and dots.")
        self._read_statement()
        if isinstance(self.needs, str):
            raise ValueError(f"needs of claim {self.id} is the text {self.needs!r}; give a tuple of names.")
        object.__setattr__(self, "needs", tuple(self.needs))
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "before_training", tuple(self.before_training))
        for size in (*self.sizes, *self.before_training):
            check_choice("size", size, Size)
        if set(self.sizes) != set(SIZES) and not self.sizes_reason:
            raise ValueError(
                f"claim {self.id} is measured at {', '.join(self.sizes) or 'no size'}; give sizes_reason for others."
            )
        if self.method.endswith((".", ":")):
            raise ValueError(
                f"method of claim {self.id} ends with {self.method[-1]!r}; the rule's text follows a colon."
            )

    def _read_statement(self) -> None:
        """Fill statement, source and the paper's number from the list of the paper, unless they are given.

        Raises:
            ValueError: neither here nor there, or in both.
        """
        listed = paper_statements().get(self.id)
        if self.statement and self.source:
            if listed and (self.statement, self.source, self.paper) != (listed.statement, listed.source, listed.paper):
                raise ValueError(
                    f"claim {self.id} has a statement here and in the list of a paper; keep that of the list."
                )
            return
        if listed is None or self.statement or self.source or self.paper:
            raise ValueError(
                f"claim {self.id} has no statement or no source; give both, or, for a claim of a paper, neither and "
                "add [[items.statements]] with this id to its item in case_studies/papers."
            )
        for name in ("statement", "source", "paper"):
            object.__setattr__(self, name, getattr(listed, name))

    @property
    def is_ours(self) -> bool:
        """Whether it is a statement of ours; else its source names the paper that makes it."""
        return self.source.startswith(OURS)

    @property
    def chance(self) -> float:
        """An upper limit of the probability that it is reproduced with a true value at the bar of its rule.

        Each look before the last one is another chance (Bonferroni's inequality).
        """
        return min(1.0, self.rule.chance * (1 + self.preregistration.looks))

    @property
    def packs_digest(self) -> str:
        """Digest of these data; empty if it reads none, or they are not there."""
        return self.packs.digest if self.packs else ""

    @property
    def missing_input(self) -> str:
        """What is missing for measuring it, with a remedy; empty if nothing is."""
        return "" if self.packs is None else self.packs.missing_input

    @property
    def rule_text(self) -> str:
        """What is measured, and when it counts as reproduced."""
        return f"{self.method}: {self.rule.text}."

    def in_range(self, measurement: Measurement) -> Measurement:
        """The measurement with its interval cut at the ends of `value_range`.

        Raises:
            ValueError: the value is outside.
        """
        if self.value_range is None:
            return measurement
        least, most = self.value_range
        value = measurement.value
        if not least <= value <= most:
            raise ValueError(f"claim {self.id} has the value {value}; it must be from {least:g} to {most:g}.")
        return replace(measurement, low=max(measurement.low, least), high=min(measurement.high, most))

    def measurement(self, evidence: Evidence) -> Measurement:
        """Measure it: the frame of its measure, judged, with the interval cut at the ends of `value_range`.

        Args:
            evidence: The models, size and seed.

        Raises:
            TypeError: the measure returned neither a frame nor readings.
            ValueError: the frame lacks what is judged.
        """
        outcome = self.measure(evidence)
        readings = Readings(frame=outcome) if isinstance(outcome, pd.DataFrame) else outcome
        if not isinstance(readings, Readings):
            raise TypeError(
                f"measure of claim {self.id} returned a {type(outcome).__name__}; return a frame or Readings."
            )
        measurement = self.judged.measurement(
            readings,
            seed=evidence.seed,
            quantity=self.quantity,
            value_range=self.value_range,
            bars=self.rule.bars,
        )
        return self.in_range(measurement)

    def verdict(self, measurement: Measurement) -> ClaimVerdict:
        """The rule applied to a measurement."""
        return self.rule.verdict(measurement)


class StudyClaims(Protocol):
    """What runs and stored results need of a `case_studies.study.Study`."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def claims(self) -> Sequence[Claim]: ...
    @property
    def groups(self) -> Callable[[Size], Mapping[str, Sequence[ModelSpec]]]: ...
    @property
    def shipped(self) -> Path | None: ...
