"""Verdicts in plain English: a sentence for each reason."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.interventions import TESTED
from interp.auditing.records import HeadVerdict
from interp.core.page_identity import quantity

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
    "content unused": ", but the content of its output is not used: with its mean in its place accuracy falls by "
    "{mean}, with its output in another sequence by less than {resample_bar} ({resample})",
    "which key is irrelevant": ", but any other key would do: without it accuracy falls by {mean}, with all attention "
    "on a wrong key by less than {wrong_key_bar} ({wrong_key})",
    "values unused": ", but the values at the keys that it attends to are not used: without it accuracy falls by "
    "{mean}, with values of other sequences by less than {resampled_values_bar} ({resampled_values})",
    "uniform too close": " and is needed: without it accuracy falls by {mean}; whether it depends on its pattern is "
    "undecided: with a uniform pattern accuracy falls by {uniform}, and {uniform_bar} counts",
    "resample too close": " and is needed: without it accuracy falls by {mean}; whether the content of its output is "
    "used is undecided: with its output in another sequence accuracy falls by {resample}, and {resample_bar} counts",
    "wrong_key too close": " and is needed: without it accuracy falls by {mean}; whether it matters which key it "
    "attends to is undecided: with all attention on a wrong key accuracy falls by {wrong_key}, and {wrong_key_bar} "
    "counts",
    "resampled_values too close": " and is needed: without it accuracy falls by {mean}; whether the values at the keys "
    "that it attends to are used is undecided: with values of other sequences accuracy falls by {resampled_values}, "
    "and {resampled_values_bar} counts",
    "through its pattern": " and acts through this pattern: accuracy falls by {mean} without it, by {uniform} with a "
    "uniform pattern, by {wrong_key} with all attention on a wrong key, and with {harmless_pattern}",
    "through something else": ", but acts through something else: without it accuracy falls by {mean}, with the ideal "
    "pattern by {ideal}, with all other attention spread evenly by {label_only_pattern}",
    "reading too close": " and is needed: without it accuracy falls by {mean}; whether it acts through this pattern is "
    "undecided: with the ideal pattern accuracy falls by {ideal}, with all other attention spread evenly by "
    "{label_only_pattern}, and {ideal_bar} counts",
}
"""Text for each reason, after what the head looks like. Fields are costs by intervention, and the loss that counts."""
HARMLESS_PATTERNS = {
    "ideal": "the ideal pattern by less than {ideal_bar} ({ideal})",
    "label_only_pattern": "all other attention spread evenly by less than {label_only_pattern_bar} "
    "({label_only_pattern})",
}
"""The pattern that shows that a head acts through its label."""
REMOVED = {"zero": "with zeros", "mean": "with its mean", "resample": "with its output in another sequence"}
"""What takes the place of a head's output, by intervention."""
SUMMARY = {
    "faithful": ("does what it looks like", "do what they look like"),
    "misleading": ("looks meaningful but does not act as it looks", "look meaningful but do not act as they look"),
    "hidden": ("is needed but looks like no known kind", "are needed but look like no known kind"),
    "redundant": ("is needed only if others are removed too", "are needed only if others are removed too"),
    "idle": ("does nothing that counts", "do nothing that counts"),
    "undecided": ("is undecided", "are undecided"),
}
"""What a verdict means, of one head and of several."""


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
    # Each cost in words, on the outcome that suffers most
    costs: dict[str, str] = {}
    for name in TESTED:
        if cost := head.costs.get(name):
            worst = cost.worst(threshold)
            costs[name] = cost_in_words(outcomes[worst], cost.drop[worst], cost.low[worst], cost.high[worst])
            costs[f"{name}_bar"] = f"{threshold[worst]:.2f}"
    # A faithful head: which of the two patterns of its label is harmless
    harmless_pattern = ""
    if head.reason == "through its pattern":
        name = "ideal" if head.is_harmless("ideal", alpha) else "label_only_pattern"
        harmless_pattern = HARMLESS_PATTERNS[name].format(**costs)
    effect = REASONS[head.reason].format(
        partners=list_of_heads(head.partners),
        but="but" if head.readable else "and",
        harmless_pattern=harmless_pattern,
        **costs,
    )
    appearance = look_in_words(head.label, head.kind, head.score)
    return f"{name_of(head.place)} {appearance}{effect}{_other_removals(head, costs)}{_sequences_to_decide(head)}."


def verdict_summary(verdicts: Sequence[str]) -> str:
    """All verdicts in one sentence."""
    phrases = []
    for verdict, (singular, plural) in SUMMARY.items():
        count = list(verdicts).count(verdict)
        if count:
            phrases.append(f"{count} {singular if count == 1 else plural}")
    return f"{quantity(len(verdicts), 'head')}: {', '.join(phrases)}."


def _other_removals(head: HeadVerdict, costs: dict[str, str]) -> str:
    """The replacements of a head's output under which it is needed although it is not under the mean, or reversed."""
    needed = head.needed.get("mean")
    different = [name for name, is_needed in head.needed.items() if is_needed is not None and is_needed != needed]
    if needed is None or not different or head.reason == "content unused":
        return ""
    replacements = " and ".join(f"{REMOVED[name]} in its place ({costs[name]})" for name in different)
    opposite = "not needed" if needed else "needed"
    return f"; it is {opposite} {replacements}"


def _sequences_to_decide(head: HeadVerdict) -> str:
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
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


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
