"""Verdicts in plain English: a sentence for each reason."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.records import HeadVerdict
from interp.auditing.verdicts import JUDGED

REASONS = {
    "together": ", {but} is needed only together with {partners}: without it alone accuracy falls by less than "
    "{mean_bar} ({mean})",
    "together too close": "; without it alone accuracy falls by less than {mean_bar} ({mean}); whether it is needed "
    "together with {partners} is undecided",
    "cancelled": ", but is cancelled by {partners}: without it alone accuracy falls by {mean}, without all of them by "
    "less than the loss that counts",
    "cancelling too close": " and is needed alone: without it accuracy falls by {mean}; whether it is cancelled by "
    "{partners} is undecided",
    "not needed": ", {but} is not needed: without it accuracy falls by less than {mean_bar} ({mean})",
    "left out": "; without it accuracy falls by less than {mean_bar} ({mean}), but perhaps by more on an outcome that "
    "is left out for too few sequences",
    "too close": "; whether it is needed is undecided: without it accuracy falls by {mean}, and {mean_bar} counts",
    "nothing to lose": "; the model is too close to chance for removing it to cost anything",
    "needed": ", but is needed: without it accuracy falls by more than {mean_bar} ({mean})",
    "not through its pattern": ", but does not depend on this pattern: without it accuracy falls by {mean}, with a "
    "uniform pattern by less than {uniform_bar} ({uniform})",
    "only its range": ", but what it brings is not read: with its mean in its place accuracy falls by {mean}, with its "
    "output in another sequence by less than {resample_bar} ({resample})",
    "any key": ", but any other key would do: without it accuracy falls by {mean}, with all attention on a wrong key "
    "by less than {wrong_key_bar} ({wrong_key})",
    "nothing read": ", but what it reads there is not used: without it accuracy falls by {mean}, if it reads keys of "
    "other sequences instead by less than {other_read_bar} ({other_read})",
    "uniform too close": " and is needed: without it accuracy falls by {mean}; whether it depends on its pattern is "
    "undecided: with a uniform pattern accuracy falls by {uniform}, and {uniform_bar} counts",
    "resample too close": " and is needed: without it accuracy falls by {mean}; whether what it brings is read is "
    "undecided: with its output in another sequence accuracy falls by {resample}, and {resample_bar} counts",
    "wrong_key too close": " and is needed: without it accuracy falls by {mean}; whether it matters which key it "
    "attends to is undecided: with all attention on a wrong key accuracy falls by {wrong_key}, and {wrong_key_bar} "
    "counts",
    "other_read too close": " and is needed: without it accuracy falls by {mean}; whether what it reads there is used "
    "is undecided: if it reads keys of other sequences instead accuracy falls by {other_read}, and {other_read_bar} "
    "counts",
    "through its pattern": " and acts through this pattern: accuracy falls by {mean} without it, by {uniform} with a "
    "uniform pattern, by {wrong_key} with all attention on a wrong key, and with {reading}",
    "through something else": ", but acts through something else: without it accuracy falls by {mean}, with the ideal "
    "pattern by {ideal}, with all other attention spread evenly by {read_part}",
    "reading too close": " and is needed: without it accuracy falls by {mean}; whether it acts through this pattern is "
    "undecided: with the ideal pattern accuracy falls by {ideal}, with all other attention spread evenly by "
    "{read_part}, and {ideal_bar} counts",
}
"""Text for each reason, after what the head looks like. Fields are costs by intervention, and the loss that counts."""
READINGS = {
    "ideal": "the ideal pattern by less than {ideal_bar} ({ideal})",
    "read_part": "all other attention spread evenly by less than {read_part_bar} ({read_part})",
}
REMOVED = {"zero": "with zeros", "mean": "with its mean", "resample": "with its output in another sequence"}
"""What takes the place of a head's output, by intervention."""


def sentence(
    head: HeadVerdict, *, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"], alpha: float
) -> str:
    """What a head looks like, and what removing it or replacing its pattern costs.

    Args:
        head: The verdict on it.
        outcomes: Names of the outcomes that verdicts are based on.
        threshold: Loss of accuracy that counts on each.
        alpha: Level of the verdicts.
    """
    costs: dict[str, str] = {}
    for name in JUDGED:
        if cost := head.costs.get(name):
            worst = cost.worst(threshold)
            costs[name] = cost_in_words(outcomes[worst], cost.drop[worst], cost.low[worst], cost.high[worst])
            costs[f"{name}_bar"] = f"{threshold[worst]:.2f}"
    reading = ""
    if head.reason == "through its pattern":
        reading = READINGS["ideal" if head.is_harmless("ideal", alpha) else "read_part"].format(**costs)
    rest = REASONS[head.reason].format(
        partners=list_of_heads(head.partners), but="but" if head.readable else "and", reading=reading, **costs
    )
    look = look_in_words(head.label, head.kind, head.score)
    return f"{name_of(head.place)} {look}{rest}{_otherwise(head, costs)}{_more(head)}."


SUMMARY = {
    "faithful": ("does what it looks like", "do what they look like"),
    "misleading": ("looks meaningful but does not act as it looks", "look meaningful but do not act as they look"),
    "hidden": ("is needed but looks like no known kind", "are needed but look like no known kind"),
    "redundant": ("is needed only if others are removed too", "are needed only if others are removed too"),
    "idle": ("does nothing that counts", "do nothing that counts"),
    "undecided": ("is undecided", "are undecided"),
}
"""What a verdict means, of one head and of several."""


def summary(verdicts: Sequence[str]) -> str:
    """All verdicts in one sentence."""
    counts = [(name, list(verdicts).count(name)) for name in SUMMARY]
    parts = [f"{count} {SUMMARY[name][count > 1]}" for name, count in counts if count]
    return f"{len(verdicts)} head{'s' * (len(verdicts) != 1)}: {', '.join(parts)}."


def _otherwise(head: HeadVerdict, costs: dict[str, str]) -> str:
    """The replacements of a head's output under which it is needed although it is not under the mean, or reversed."""
    mean = head.needed.get("mean")
    others = [name for name, needed in head.needed.items() if needed is not None and needed != mean]
    if mean is None or not others or head.reason == "only its range":
        return ""
    how = " and ".join(f"{REMOVED[name]} in its place ({costs[name]})" for name in others)
    return f"; it is {'not ' * mean}needed {how}"


def _more(head: HeadVerdict) -> str:
    """How many sequences would decide an undecided head."""
    if head.verdict != "undecided" or head.reason in ("nothing to lose", "left out"):
        return ""
    if head.n_to_decide is None:
        return "; many more sequences would not decide it"
    return f"; about {head.n_to_decide:,} sequences would decide it"


def name_of(head: Head) -> str:
    """A head as layer.head."""
    return f"{head[0]}.{head[1]}"


def list_of_heads(heads: Sequence[Head]) -> str:
    """Heads in a sentence: "0.1, 2.3 and 4.5"."""
    names = [name_of(head) for head in heads]
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def look_in_words(label: str, kind: str, score: float) -> str:
    """A head's label and score in a sentence."""
    if label == "uniform":
        return "looks uniform"
    if label == "unclassified":
        return f"looks like no known kind (nearest: {kind}, {score:.2f})"
    return f"looks like {label} ({score:.2f})"


def cost_in_words(outcome: str, drop: float, low: float, high: float) -> str:
    """Accuracy lost on an outcome, with its interval."""
    return f"{drop:.2f} [{low:.2f}, {high:.2f}] on {outcome}"
