"""What an audit found, in plain words: one sentence per head."""

from collections.abc import Sequence

from hooks.interventions.ablation_engine import Head

BECAUSE = {
    "together": "; it can go alone (accuracy falls by {mean}), but not together with {partners}",
    "cancelled": ", but {partners} undoes what it does: it cannot go alone (accuracy falls by {mean}), but both can",
    "not needed": ", {but} nothing depends on it: without it accuracy falls by {mean}",
    "too close": "; whether anything depends on it is too close to call: without it accuracy falls by {mean}",
    "nothing to lose": "; the model knows nothing that could be lost without it",
    "needed": ", but is needed: without it accuracy falls by {mean}",
    "not through its pattern": ", but does not act through it: without it accuracy falls by {mean}, with a uniform "
    "pattern by {uniform}",
    "pattern too close": " and is needed: without it accuracy falls by {mean}; whether it acts through its pattern is "
    "too close to call: with a uniform one it falls by {uniform}",
    "through its pattern": " and acts as it looks: without it accuracy falls by {mean}, with a uniform pattern by "
    "{uniform}, with {reading}",
    "through something else": ", but acts through something else: without it accuracy falls by {mean}, with the ideal "
    "pattern by {ideal}, with all blurred but what was read by {read_part}",
    "reading too close": " and is needed: without it accuracy falls by {mean}; whether it acts as it looks is too "
    "close to call: with the ideal pattern it falls by {ideal}, with all blurred but what was read by {read_part}",
}
"""What each reason for a verdict says, after what the head looks like. Costs by intervention."""
READINGS = {"ideal": "the ideal one by {ideal}", "read_part": "all blurred but what was read by {read_part}"}


def name_of(head: Head) -> str:
    """How a head is called."""
    return f"{head[0]}.{head[1]}"


def named(heads: Sequence[Head]) -> str:
    """Heads in a sentence."""
    names = [name_of(head) for head in heads]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def look_in_words(label: str, kind: str, score: float) -> str:
    """What a head looks like."""
    if label == "uniform":
        return "looks uniform"
    if label == "unclassified":
        return f"looks like nothing (nearest {kind}, {score:.2f})"
    return f"looks like {label} ({score:.2f})"


def cost_in_words(outcome: str, drop: float, low: float, high: float) -> str:
    """The accuracy lost on the outcome that suffers most."""
    return f"{drop:.2f} [{low:.2f}, {high:.2f}] on {outcome}"
