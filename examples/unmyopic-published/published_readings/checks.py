"""How a published statement is tested on the weights: by hand-written checks, else by removing what it is about."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from case_studies.frame.claims import BEFORE_ANY_MODEL, Preregistration
from case_studies.frame.judge import Judge, Readings
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, Below, Conditional, Equal, Number, Rule
from case_studies.recipes.judges import Row
from published_readings.measures import VALUE, estimate, guess_loss, loss_added, losses_of, mean_of
from published_readings.packs import Pack, Reading
from published_readings.runs import Edit, Runs, losses, runs
from published_readings.task import TokenRelation

NEEDED = 0.02
"""A part is needed if its removal costs more than this share of what the model knows: the loss of guessing by the
frequency of the answers, less the model's loss."""
AFTER_FIRST_LOOK = Preregistration(
    "after first models", "the first look at each statement, by simple means, that the packs have."
)

OF_EXAMPLES = Row(VALUE, unit="examples")


@dataclass(frozen=True, kw_only=True)
class Check:
    """How one statement is tested."""

    statement: str
    """What the authors say, in a sentence."""
    method: str
    """What is measured, in words that the rule continues after a colon."""
    rule: Rule
    measure: Callable[[Pack], Readings]
    judged: Judge = OF_EXAMPLES
    """Which row is judged, and the unit of its n."""
    quantity: str = ""
    """Name of the measured number."""
    value_range: tuple[float, float] | None = None
    """Values that it can have."""
    reported: str | None = None
    """The authors' number."""
    limits: Rule | None = None
    """When a true statement is not the whole truth: a rule on the measurement's `numbers`."""
    preregistration: Preregistration = AFTER_FIRST_LOOK

    def measurement(self, readings: Readings) -> Measurement:
        """The judged number of what it measured."""
        return self.judged.measurement(readings, seed=0)

    def found(self, pack: Pack) -> Measurement:
        """The judged number of a model."""
        return self.measurement(self.measure(pack))


@dataclass(frozen=True, kw_only=True)
class Known:
    """The checks of one published model."""

    digest: str
    """Digest of the readings that they are about; others of the same name are tested by removal alone."""
    checks: Mapping[str, Check]
    """By the reading's id."""
    kinds: Mapping[str, TokenRelation] = field(default_factory=dict)
    """Kinds of head that the readings name."""


def check_by_removal(reading: Reading) -> Check:
    """The check of a statement for which none was written.

    Statements that a head, MLP or neuron is needed, or not needed, are judged; on all others the measurement is shown,
    and nothing is concluded.
    """
    judged = reading.kind in ("needs", "not_needed") and _removes(reading)
    fits: Rule = Below(NEEDED) if reading.kind == "not_needed" else Above(NEEDED)
    return Check(
        statement=reading.statement,
        method="Rise of the loss when the part is removed at every position (heads and MLPs by their mean at each "
        "position, neurons by zero), as a share of the loss of guessing less the model's",
        rule=fits if judged else Conditional(Number("a rule was written", Equal(True)), fits),
        measure=lambda pack: measure_removal(pack, reading, judged=bool(judged)),
        quantity="share of what the model knows that is lost",
        preregistration=BEFORE_ANY_MODEL,
    )


def measure_removal(pack: Pack, reading: Reading, *, judged: bool = True) -> Readings:
    """Share of what the model knows that is lost with the part that a reading is about; with none, 0."""
    seen = runs(pack)
    edits = edits_of(reading, seen)
    assert seen.targets is not None
    known = guess_loss(pack) - float(losses(seen.logits(), seen.targets).mean())
    numbers = {"a rule was written": judged, **losses_of(seen, edits)}
    return estimate(mean_of(loss_added(seen, edits) / known), numbers=numbers, tables=_looks(seen, reading))


def edits_of(reading: Reading, seen: Runs) -> dict[str, Edit]:
    """Edits that remove the part that a reading is about; none for parts that are no head, MLP or neuron."""
    one, part = reading.component, reading.component.get("part")
    layers = one.get("layers", [one.get("layer")])
    if reading.heads:
        return seen.without_head(*reading.heads)
    if part in ("mlp", "mlps") and None not in layers:
        return seen.without_mlp(*layers)
    if part in ("neuron", "neurons") and "layer" in one and "neurons" in one:
        return seen.without_neurons(one["layer"], one["neurons"])
    return {}


def _removes(reading: Reading) -> bool:
    return reading.component.get("part") in ("head", "heads", "mlp", "mlps", "neuron", "neurons")


def _looks(seen: Runs, reading: Reading) -> list[tuple[str, pd.DataFrame]]:
    """Where the heads of a reading look: for each position at which an answer is read, the keys with most attention."""
    found = []
    for layer, head in reading.heads:
        mean = seen.mean_of(seen.pattern(layer, head))
        keys = {}
        for query in seen.pack.task.positions.tolist():
            weight, key = mean[query].topk(min(5, mean.shape[1]))
            pairs = zip(key.tolist(), weight.tolist(), strict=True)
            keys[query] = ", ".join(f"{at} ({share:.2f})" for at, share in pairs)
        table = pd.DataFrame({"query": keys.keys(), "keys with most attention on average": keys.values()})
        found.append((f"Attention of head {layer}.{head}", table))
    return found
