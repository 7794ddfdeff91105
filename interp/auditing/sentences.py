"""Verdicts in plain English: a sentence for each reason."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.interventions import ITS_OWN_READING, READINGS
from interp.auditing.records import HeadVerdict, InterventionCost, PartVerdict, RemovalRecord
from interp.auditing.significance import LITTLE
from interp.core.inputs import all_inputs_text
from interp.core.page_identity import quantity

REASONS = {
    "together": ", {but} shares its work with {partners}: accuracy falls by {mean} if it is removed alone, and by "
    "{beyond} if {others_removed} before ({mean_bar} counts)",
    "partner": ", {but} {partners} shares work with it, and tests of its label do not show that it acts through this "
    "pattern: accuracy falls by {mean} if it is removed alone, and by {beyond} if {others_removed} before",
    "together too close": "; without it alone accuracy falls by {mean}; whether it shares its work with {partners} is "
    "undecided: accuracy falls by {beyond} if {others_removed} before, and {mean_bar} counts",
    "together about": ", {but} accuracy falls by {mean} if it is removed alone, and by {beyond} if {others_removed} "
    "before: that is neither shown to be more than counts ({mean_bar}) nor next to nothing",
    "cancelled": ", but is cancelled by {partners}: without it alone accuracy falls by {mean}, without all of them by "
    "less than the loss that counts",
    "cancelling too close": " and is needed alone: without it accuracy falls by {mean}; whether it is cancelled by "
    "{partners} is undecided",
    "not needed": ", {but} is not needed: without it accuracy falls by {mean}, less than {mean_bar}",
    "needed in a stratum": ", {but} is needed in some sequences only (see the warnings): without it accuracy falls by "
    "{mean}, less than {mean_bar}",
    "less than counts": ", {but} does little: without it accuracy falls by {mean}, less than the {mean_bar} that "
    "counts, but more than {mean_little}",
    "about as much as counts": ", {but} is at the threshold: without it accuracy falls by {mean}, about the {mean_bar} "
    "that counts",
    "left out": "; without it accuracy falls by {mean}, less than {mean_bar}, but perhaps by more on an outcome that "
    "is left out for too few sequences",
    "too close": "; without it accuracy falls by {mean}; whether that is more than the {mean_bar} that counts is "
    "undecided",
    "nothing to lose": "; the model is too close to chance for removing it to cost anything",
    "needed": ", but is needed: without it accuracy falls by {mean}, more than {mean_bar}",
    "not through its pattern": ", but does not depend on this pattern: without it accuracy falls by {mean}, with a "
    "uniform pattern only by {uniform}, less than {uniform_bar}",
    "content unused": ", but the content of its output is not used: with its mean in its place accuracy falls by "
    "{mean}, with its output in another sequence only by {resample}, less than {resample_bar}",
    "which key is irrelevant": ", but any other key would do: without it accuracy falls by {mean}, with all attention "
    "on a wrong key only by {wrong_key}, less than {wrong_key_bar}",
    "any pattern would do": ", but the pattern of another sequence would do: without it accuracy falls by {mean}, with "
    "that pattern and its own values only by {resampled_pattern}, less than {resampled_pattern_bar}",
    "values unused": ", but the values at the keys that it attends to are not used: without it accuracy falls by "
    "{mean}, with values of other sequences only by {resampled_values}, less than {resampled_values_bar}",
    "through its pattern": " and acts through this pattern: accuracy falls by {mean} without it, by {uniform} with a "
    "uniform pattern,{other_pattern} and by {wrong_key} with all attention on a wrong key. {harmless_pattern}",
    "like a kind": ", but acts as {acts_like}, diffusely (most of its attention goes elsewhere): accuracy falls by "
    "{mean} without it, by {uniform} with a uniform pattern,{other_pattern} and by {wrong_key} with all attention on a "
    "wrong key. {harmless_pattern}",
    "like a kind too close": ", but is needed: without it accuracy falls by {mean}; whether it acts as {acts_like}, "
    "diffusely, is undecided",
    "through presence": " and acts through whether there is a key to attend to: accuracy falls by {mean} without it "
    "and by {resampled_pattern} with its pattern of another sequence. Any key would do: less than {uniform_bar} is "
    "lost with another one",
    "through something else": ", but acts through something else: accuracy falls by {mean} without it, by {ideal} with "
    "the ideal pattern, and by {label_only_pattern} if all attention to other keys is spread evenly",
    "reading about": " and is needed: without it accuracy falls by {mean}; it acts through this pattern in part: "
    "accuracy falls by {ideal} with the ideal pattern and by {label_only_pattern} if all attention to other keys is "
    "spread evenly, about the {ideal_bar} that counts",
    "reading too close": " and is needed: without it accuracy falls by {mean}; whether it acts through this pattern is "
    "undecided: accuracy falls by {ideal} with the ideal pattern and by {label_only_pattern} if all attention to other "
    "keys is spread evenly, and {ideal_bar} counts",
}
"""Text for each reason, after what the head looks like. Fields are costs by intervention, and the loss that counts."""
QUESTIONS = {
    "uniform": ("it depends on its pattern", "a uniform pattern"),
    "resample": ("the content of its output is used", "its output in another sequence"),
    "wrong_key": ("it matters which key it attends to", "all attention on a wrong key"),
    "resampled_pattern": ("its pattern fits this sequence only", "its pattern in another sequence"),
    "resampled_values": ("the values at the keys that it attends to are used", "values of other sequences"),
}
"""For each intervention that must cost accuracy: the question that it answers, and what takes the place of what."""


def reason_in_words(reason: str) -> str:
    """Text for a reason, after what the head looks like, with fields for costs and losses that count."""
    if reason in REASONS:
        return REASONS[reason]
    # A test of the label that is open, or a cost about as large as counts
    name, state = reason.split(" ", 1)
    question, replacement = QUESTIONS[name]
    cost = f"with {replacement} accuracy falls by {{{name}}}"
    if state == "about":
        answer = f"{question} in part: {cost}, about the {{{name}_bar}} that counts"
    else:
        answer = f"whether {question} is undecided: {cost}, and {{{name}_bar}} counts"
    return f" and is needed: without it accuracy falls by {{mean}}; {answer}"


HARMLESS_PATTERNS = {
    "ideal": "The ideal pattern would do: only {ideal} is lost with it, less than {ideal_bar}",
    "label_only_pattern": "Its attention to these keys would do: only {label_only_pattern} is lost if all other "
    "attention is spread evenly, less than {label_only_pattern_bar}",
}
"""The pattern that shows that a head acts through its label."""
REMOVED = {"zero": "with zeros", "mean": "with its mean", "resample": "with its output in another sequence"}
"""What takes the place of a head's output, by intervention."""
HEAD_INPUTS = {"q": "queries", "k": "keys", "v": "values"}
"""Inputs of a head, by their letters in the names of edges."""
SUMMARY = {
    "faithful": ("does what it looks like", "do what they look like"),
    "like a kind": ("acts like a kind that it does not look like", "act like a kind that they do not look like"),
    "misleading": ("looks meaningful but does not act as it looks", "look meaningful but do not act as they look"),
    "hidden": ("is needed but looks like no known kind", "are needed but look like no known kind"),
    "redundant": ("shares its work with others", "share their work with others"),
    "marginal": ("costs about as much as counts, or less", "cost about as much as counts, or less"),
    "idle": ("does nothing that counts", "do nothing that counts"),
    "undecided": ("is undecided", "are undecided"),
}
"""What a verdict means, of one head and of several; `like a kind` is the reason of a faithful head without a label."""
ATTENTION = {
    "association": "attention to the same token elsewhere",
    "manipulation": "attention within a clause",
    "local": "attention to the tokens around it",
    "clause_operations": "attention to operations",
    "operation_to_operations": "attention from operations to operations",
    "clause_operands": "attention to operands",
    "same_letter": "attention to the same letter elsewhere",
    "same_letter_or_self": "attention to the same letter",
    "broadcast": "attention to special tokens",
    "stack_top": "attention to the innermost open bracket",
    "unmatched_open": "attention to all open brackets",
    "matching_bracket": "attention to the partner of a bracket",
    "template_position": "attention to the same place of the template",
    "previous": "attention to the previous token",
    "current": "attention to the token itself",
    "first_token": "attention to the first token",
    "duplicate": "attention to earlier copies of the token",
    "induction": "attention to the token after an earlier copy",
}
"""What heads of a kind attend to; other kinds are called by their names."""
MOST_NAMED, MOST_CLAUSES = 4, 6
"""Heads of a group that are named one by one, and clauses of a description; of more, groups span layers, and then the
last ones are counted only."""


def sentence(head: HeadVerdict, *, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"]) -> str:
    """What a head looks like, and what removing it or replacing its pattern costs.

    Args:
        head: The verdict on it.
        outcomes: Names of the outcomes that verdicts are based on.
        threshold: Loss of accuracy that counts on each.
    """
    outcome, costs = _costs_in_words(head, outcomes, threshold)
    # A faithful head: which of the two patterns of its label is harmless
    harmless_pattern = ""
    if head.reason in ("through its pattern", "like a kind"):
        readings = READINGS if head.readable else (ITS_OWN_READING,)
        name = min(readings, key=lambda name: head.costs[name].drop[outcome])
        harmless_pattern = HARMLESS_PATTERNS[name].format(**costs)
    # Not every kind allows the pattern of another sequence
    other_pattern = ""
    if "resampled_pattern" in costs:
        other_pattern = f" by {costs['resampled_pattern']} with its pattern of another sequence,"
    effect = reason_in_words(head.reason).format(
        partners=list_of_heads(head.partners),
        others_removed=_removed_in_words([name_of(removed) for removed in head.other_heads]),
        other_pattern=other_pattern,
        but="but" if head.readable else "and",
        harmless_pattern=harmless_pattern,
        acts_like=head.acts_like,
        **costs,
    )
    appearance = look_in_words(head.label, head.kind, head.score)
    exact = f" ({all_inputs_text(head.n)})" if head.costs["mean"].exact else ""
    addition = f"{_on_other_outcomes(head, outcome, outcomes, threshold)}{_other_removals(head, outcomes, threshold)}"
    addition = f"{addition}{_sequences_to_decide(head)}{exact}"
    return f"{name_of(head.place)} {appearance}{effect}{addition}.{_edges_in_words(head)}"


def _costs_in_words(
    record: RemovalRecord, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"]
) -> tuple[int, dict[str, str]]:
    """Index of the outcome that gave a verdict, and each cost on it in words, with the losses that count."""
    outcome = outcomes.index(record.outcome) if record.outcome else record.costs["mean"].worst(threshold)
    costs: dict[str, str] = {}
    for name, cost in {**record.costs, "beyond": record.beyond_others}.items():
        if cost is not None:
            costs[name] = cost_on_outcome(cost, outcome, outcomes)
            costs[f"{name}_bar"] = f"{threshold[outcome]:.2f}"
            costs[f"{name}_little"] = f"{LITTLE * threshold[outcome]:.2f}"
    return outcome, costs


def sentence_on_part(verdict: PartVerdict, *, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"]) -> str:
    """What removing a part costs; the arguments are those of `sentence`."""
    outcome, costs = _costs_in_words(verdict, outcomes, threshold)
    effect = reason_in_words(verdict.reason).format(
        partners=list_of_names(verdict.partners),
        others_removed=_removed_in_words(verdict.other_parts),
        but="",
        **costs,
    )
    # Without a look there is nothing that the effect could contradict
    words = effect.lstrip(", ").removeprefix("but ").removeprefix("and ")
    effect = f":{words[1:]}" if words.startswith(";") else f" {words}"
    exact = f" ({all_inputs_text(verdict.n)})" if verdict.costs["mean"].exact else ""
    addition = (
        f"{_on_other_outcomes(verdict, outcome, outcomes, threshold)}{_other_removals(verdict, outcomes, threshold)}"
    )
    return f"{verdict.name}{effect}{addition}{_sequences_to_decide(verdict)}{exact}."


def _edges_in_words(head: HeadVerdict) -> str:
    """The needed edges out of a head, through which its effect leaves, and into it; empty if none were measured."""
    if head.edges_in is None or head.edges_out is None:
        return ""
    # Receivers of what it writes; of what it reads, the parts by queries, keys and values
    receivers = [_input_in_words(edge.partition(" > ")[2]) for edge in head.edges_out]
    text = ""
    if receivers:
        edges = "edge" if len(receivers) == 1 else "edges"
        text = f" Its effect leaves through the {edges} to {list_of_names(receivers)}."
    elif head.verdict in ("faithful", "hidden"):
        text = " No edge out of it is needed alone."
    senders_by_input: dict[str, list[str]] = {}
    for edge in head.edges_in:
        sender, _, receiver = edge.partition(" > ")
        senders_by_input.setdefault(HEAD_INPUTS[receiver[-1]], []).append(sender)
    if senders_by_input:
        inputs = [f"{list_of_names(senders)} in its {name}" for name, senders in senders_by_input.items()]
        text += f" It needs {'; '.join(inputs)}."
    return text


def _input_in_words(receiver: str) -> str:
    """`1.0 q` as "the queries of 1.0", `1 MLP` as it is, `read-out` as "the read-out"."""
    head, _, letter = receiver.rpartition(" ")
    if letter in HEAD_INPUTS:
        return f"the {HEAD_INPUTS[letter]} of {head}"
    return "the read-out" if receiver == "read-out" else receiver


def sentence_on_idle_heads(
    heads: Sequence[HeadVerdict], *, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"]
) -> str:
    """What idle heads look like, and the largest cost of removing one; the arguments are those of `sentence`."""
    looks = {"attend evenly" if head.label == "uniform" else "look like no known kind" for head in heads}
    # the head whose worst outcome is nearest to the loss that counts
    shares = [np.max(head.costs["mean"].drop / np.asarray(threshold)) for head in heads]
    costliest = heads[int(np.argmax(shares))]
    cost = costliest.costs["mean"]
    outcome = cost.worst(threshold)
    loss = cost_on_outcome(cost, outcome, outcomes)
    return (
        f"{' or '.join(sorted(looks, reverse=True))} and are not needed; {name_of(costliest.place)} costs most: "
        f"without it accuracy falls by {loss}, less than {threshold[outcome]:.2f}."
    )


def verdict_summary(verdicts: Sequence[str]) -> str:
    """All verdicts in one sentence."""
    phrases = []
    for verdict, (singular, plural) in SUMMARY.items():
        count = list(verdicts).count(verdict)
        if count:
            phrases.append(f"{count} {singular if count == 1 else plural}")
    return f"{quantity(len(verdicts), 'head')}: {', '.join(phrases)}."


def what_heads_do(heads: Sequence[HeadVerdict]) -> str:
    """The whole model in a sentence: which heads do what, which share work, and which do nothing that counts.

    Faithful heads of one layer and label are one group, and hidden heads of any layer; if there are too many groups,
    all heads of one verdict and label are. It says what verdicts say and no more.
    """
    working = [head for head in heads if head.verdict in ("faithful", "hidden")]
    faithful = [head for head in working if head.verdict == "faithful"]
    hidden = [head for head in working if head.verdict == "hidden"]
    clauses = _clauses_of_groups([*_groups(faithful, by_layer=True), *_groups(hidden, by_layer=False)])
    clauses += [_sharing_clause(group) for group in _sharing_groups(heads)]
    if len(clauses) > MOST_CLAUSES:
        redundant = [head for head in heads if head.verdict == "redundant"]
        clauses = _clauses_of_groups(_groups([*working, *redundant], by_layer=False))
    # Then what looks like something and is not, what is at the threshold or open, and the rest, of any layer
    for verdict in ("misleading", "marginal", "undecided"):
        clauses += _clauses_of_groups(_groups([head for head in heads if head.verdict == verdict], by_layer=False))
    idle = [head for head in heads if head.verdict == "idle"]
    n_omitted = max(0, len(clauses) - MOST_CLAUSES)
    clauses = clauses[:MOST_CLAUSES]
    if idle:
        singular, plural = SUMMARY["idle"]
        clauses.append(f"{_heads_in_words(idle)} {singular if len(idle) == 1 else plural}")
    if n_omitted:
        clauses.append(f"{quantity(n_omitted, 'further group')} of heads can be found in the table")
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]}."


def _groups(heads: Sequence[HeadVerdict], *, by_layer: bool) -> list[list[HeadVerdict]]:
    """Heads of one verdict, and of one label where they act or seem to act by it; of one layer with `by_layer`."""
    groups: dict[tuple[Any, ...], list[HeadVerdict]] = {}
    for head in heads:
        label = (head.acts_like or head.label) if head.verdict in ("faithful", "misleading") else ""
        groups.setdefault((head.layer if by_layer else None, head.verdict, label), []).append(head)
    return list(groups.values())


def _clauses_of_groups(groups: Sequence[Sequence[HeadVerdict]]) -> list[str]:
    return [_clause(group) for group in groups]


def _clause(group: Sequence[HeadVerdict]) -> str:
    """What heads of one verdict and label do."""
    first, is_single = group[0], len(group) == 1
    names = _heads_in_words(group)
    if first.verdict == "faithful":
        kind = first.kind
        pattern = ATTENTION.get(kind, f"its pattern {kind}" if is_single else f"patterns {kind}")
        if kind in ATTENTION:
            pattern = f"{pattern} ({kind})"
        return f"{names} {'works' if is_single else 'work'} through {pattern}"
    if first.verdict == "misleading":
        looks, acts = ("looks", "does not act as it looks") if is_single else ("look", "do not act as they look")
        return f"{names} {looks} like {first.label} but {acts}"
    singular, plural = SUMMARY[first.verdict]
    return f"{names} {singular if is_single else plural}"


def _sharing_groups(heads: Sequence[HeadVerdict]) -> list[list[HeadVerdict]]:
    """Redundant heads that share work with each other, each in one group; their partners with other verdicts are
    counted there."""
    by_place = {head.place: head for head in heads if head.verdict == "redundant"}
    groups: list[set[Head]] = []
    for head in by_place.values():
        members = {head.place, *head.partners} & set(by_place)
        joined = [group for group in groups if group & members]
        groups = [group for group in groups if not group & members]
        groups.append(members.union(*joined))
    return [[by_place[place] for place in sorted(group)] for group in sorted(groups, key=min)]


def _sharing_clause(group: Sequence[HeadVerdict]) -> str:
    """Which heads share work, and what they look like if all look alike."""
    names = _heads_in_words(group)
    labels = {head.label for head in group}
    look = ""
    if len(labels) == 1 and group[0].readable:
        look = f", which {'looks' if len(group) == 1 else 'look'} like {group[0].label},"
    if len(group) == 1:
        return f"{names}{look} shares its work with {list_of_heads(group[0].partners) or 'others'}"
    return f"{names}{look} share work"


def _heads_in_words(heads: Sequence[HeadVerdict]) -> str:
    """Heads by name, or their number: "0.1 and 0.2", "5 heads of layer 3", "12 heads"."""
    if len(heads) <= MOST_NAMED:
        return list_of_heads([head.place for head in heads])
    layers = {head.layer for head in heads}
    where = f" of layer {heads[0].layer}" if len(layers) == 1 else ""
    return f"{len(heads)} heads{where}"


def _on_other_outcomes(
    head: HeadVerdict | PartVerdict,
    outcome: int,
    outcomes: Sequence[str],
    threshold: Float[np.ndarray, " outcome"],
) -> str:
    """The largest cost of removing a head, if it is on another outcome than that of the verdict, and other verdicts on
    outcomes where removing it costs more than counts."""
    removal = head.costs["mean"]
    text = ""
    if (worst := removal.worst(threshold)) != outcome:
        text = f"; removing it costs most on another outcome: {cost_on_outcome(removal, worst, outcomes)}"
    names_by_verdict: dict[str, list[str]] = {}
    for index, name in enumerate(outcomes):
        verdict = head.verdicts.get(name, head.verdict)
        if verdict != head.verdict and removal.drop[index] > threshold[index]:
            names_by_verdict.setdefault(verdict, []).append(name)
    for verdict, names in names_by_verdict.items():
        text += f"; it is {verdict} on {list_of_names(names)}"
    return text


def _other_removals(record: RemovalRecord, outcomes: Sequence[str], threshold: Float[np.ndarray, " outcome"]) -> str:
    """The replacements of an output under which it is needed although it is not under the mean, or reversed; each with
    its largest cost."""
    needed = record.needed.get("mean")
    different = [name for name, is_needed in record.needed.items() if is_needed is not None and is_needed != needed]
    if needed is None or not different or record.reason == "content unused":
        return ""
    replacements = []
    for name in different:
        cost = record.costs[name]
        largest = cost_on_outcome(cost, cost.worst(threshold), outcomes)
        replacements.append(f"{REMOVED[name]} in its place ({largest})")
    opposite = "not needed" if needed else "needed"
    return f"; it is {opposite} {' and '.join(replacements)}"


def _sequences_to_decide(head: HeadVerdict | PartVerdict) -> str:
    """How many sequences would decide an undecided head."""
    if not head.is_open:
        return ""
    if head.costs["mean"].exact:
        return ""
    if head.n_to_decide is None:
        return "; more sequences would hardly decide it"
    return f"; about {head.n_to_decide:,} sequences would decide it"


def name_of(head: Head) -> str:
    """A head as layer.head."""
    return f"{head[0]}.{head[1]}"


def list_of_heads(heads: Sequence[Head]) -> str:
    """Heads in a sentence: "0.1, 2.3 and 4.5"."""
    return list_of_names([name_of(head) for head in heads])


def list_of_names(names: Sequence[str]) -> str:
    """Names in a sentence."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _removed_in_words(names: Sequence[str]) -> str:
    """That some heads or parts are removed."""
    return f"{list_of_names(names)} {'is' if len(names) == 1 else 'are'} removed"


def look_in_words(label: str, kind: str, score: float) -> str:
    """A head's label and score in a sentence."""
    if label == "uniform":
        return "looks uniform"
    if label == "unclassified":
        return f"looks like no known kind (nearest: {kind}, {score:.2f})"
    return f"looks like {label} ({score:.2f})"


def cost_on_outcome(cost: InterventionCost, outcome: int, outcomes: Sequence[str]) -> str:
    """A cost on one of the outcomes, with the ends of its interval unless it is exact."""
    ends = None if cost.exact else (cost.low[outcome], cost.high[outcome])
    return cost_in_words(outcomes[outcome], cost.drop[outcome], ends)


def cost_in_words(outcome: str, drop: float, ends: tuple[float, float] | None) -> str:
    """Accuracy lost on an outcome, with the ends of its interval; None of every input."""
    interval = "" if ends is None else f" [{ends[0]:.2f}, {ends[1]:.2f}]"
    return f"{drop:.2f}{interval} on {outcome}"
