"""From findings to a verdict: does a model implement an algorithm, a rival, neither, or is it undecided?"""

from collections.abc import Sequence

import numpy as np

from interp.algorithms.result import BAR, Answers, Contradiction, Found, VariableFinding, Verdict


def found(accuracy: tuple[float, float], kept: tuple[float, float]) -> Found:
    """Whether a variable is at a site, from the intervals (low, high) of the answers that change and that stay.

    Without answers that stay, those that change decide.
    """
    ends = [accuracy] + ([] if np.isnan(kept[0]) else [kept])
    if np.isnan(accuracy[0]):
        return "not tested"
    if min(low for low, _ in ends) >= BAR:
        return "found"
    return "not found" if min(high for _, high in ends) < BAR else "undecided"


def standing(
    name: str, findings: Sequence[VariableFinding], answers: Sequence[Answers], against: Sequence[Contradiction]
) -> tuple[Found, str]:
    """Whether an algorithm holds on its own, and the sentence that says why.

    It is found if the model answers as it says, each of its variables is found, and no variable of another algorithm
    that is found shows that it is wrong. It is not found if one of these fails, and undecided otherwise.
    """
    (own,) = (one for one in answers if one.algorithm == name)
    variables = [one for one in findings if one.algorithm == name]
    lost = [one.variable for one in variables if one.found == "not found"]
    nowhere = f"{_names(lost)} of {name} {'is' if len(lost) == 1 else 'are'} at no site" if lost else ""
    if own.high < BAR:
        wrong = f"the model answers as {name} says in {own.accuracy:.1%} of the cases"
        return "not found", ", and ".join(part for part in (wrong, nowhere) if part)
    if lost:
        return "not found", nowhere
    for one in against:
        if one.rival == name and one.rival_high < BAR:
            where = f"{one.variable} of {one.algorithm}"
            return "not found", f"{where} is found, and answers then follow {one.algorithm}, not {name}"
    open_ones = [one.variable for one in variables if one.found == "undecided"]
    if own.low < BAR:
        return "undecided", f"the share of answers that are as {name} says is not sure enough"
    if open_ones:
        return (
            "undecided",
            f"it is not sure whether {_names(open_ones)} of {name} {'is' if len(open_ones) == 1 else 'are'} found",
        )
    if all(one.found == "not tested" for one in variables):
        return "undecided", f"no pair of inputs is informative about {name}"
    return "found", f"every variable of {name} is found"


def shown(
    name: str,
    others: Sequence[str],
    findings: Sequence[VariableFinding],
    answers: Sequence[Answers],
    against: Sequence[Contradiction],
) -> bool:
    """Whether something speaks for an algorithm that would not speak for any model with right answers.

    Either a variable is found that is neither an input nor an answer; or each other algorithm is wrong where this one
    is right: about the model's answers, about an interchange of a variable that is found, or about a variable that both
    have and that is found only as this one says.
    """
    if any(one.algorithm == name and one.internal and one.found == "found" for one in findings):
        return True
    wrong = {one.algorithm for one in answers if one.high < BAR}
    wrong |= {one.rival for one in against if one.algorithm == name and one.rival_high < BAR}
    by_name = {one.variable: one for one in findings if one.algorithm == name}
    for one in findings:
        own = by_name.get(one.variable)
        if own is not None and own.found == "found" and own.forced < BAR and one.found == "not found":
            wrong.add(one.algorithm)
    return bool(others) and set(others) <= wrong


def judge(
    algorithm: str,
    rivals: Sequence[str],
    findings: Sequence[VariableFinding],
    answers: Sequence[Answers],
    against: Sequence[Contradiction],
) -> tuple[Verdict, str, str | None]:
    """The verdict, its reason, and the rival that the model implements, if any.

    A rival that says nothing about the answers that are scored is no rival.
    """
    rivals = [one.algorithm for one in answers if one.algorithm in rivals and one.n]
    names, evidence = (algorithm, *rivals), (findings, answers, against)
    states = {name: standing(name, *evidence) for name in names}
    holding = [name for name in names if states[name][0] == "found"]
    proven = [name for name in holding if shown(name, [one for one in names if one != name], *evidence)]
    own, why = states[algorithm]
    if proven == [algorithm] and holding == [algorithm]:
        return "implements", f"{why[0].upper()}{why[1:]}", None
    if own == "not found" and len(proven) == 1 and holding == proven:
        return "implements a rival", f"{proven[0]}: {states[proven[0]][1]}; {why}", proven[0]
    if all(state == "not found" for state, _ in states.values()):
        return "neither", "; ".join(reason for _, reason in states.values()), None
    if len(holding) > 1:
        return "undecided", f"every variable of {_names(holding)} is found: nothing distinguishes them", None
    reasons = [reason for name, (state, reason) in states.items() if name == algorithm or state == "undecided"]
    if holding and not proven:
        reasons.append(f"any model that answers rightly has the variables of {holding[0]}")
    return "undecided", "; ".join(dict.fromkeys(reasons)), None


def _names(names: Sequence[str]) -> str:
    shown = list(names[:4]) + ([f"{len(names) - 4} more"] if len(names) > 4 else [])
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]
