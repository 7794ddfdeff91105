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
    if own.high < BAR:
        return "not found", f"the model answers as {name} says in {own.accuracy:.1%} of the cases"
    variables = [one for one in findings if one.algorithm == name]
    lost = [one.variable for one in variables if one.found == "not found"]
    if lost:
        return "not found", f"{_names(lost)} of {name} {'is' if len(lost) == 1 else 'are'} at no site"
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
        return "undecided", f"no pair of inputs tells anything about {name}"
    return "found", f"every variable of {name} is found"


def judge(
    algorithm: str,
    rivals: Sequence[str],
    findings: Sequence[VariableFinding],
    answers: Sequence[Answers],
    against: Sequence[Contradiction],
) -> tuple[Verdict, str, str | None]:
    """The verdict, its reason, and the rival that the model implements, if any."""
    own, why = standing(algorithm, findings, answers, against)
    others = {name: standing(name, findings, answers, against) for name in rivals}
    holding = [name for name, (state, _) in others.items() if state == "found"]
    if own == "found":
        if holding:
            return "undecided", f"{why}, and so is every variable of {_names(holding)}: nothing tells them apart", None
        inside = any(one.internal and one.found == "found" for one in findings if one.algorithm == algorithm)
        if not inside and not (others and all(state == "not found" for state, _ in others.values())):
            return "undecided", f"{why}, but any model that answers rightly would pass: only rivals could tell", None
        return "implements", f"{why[0].upper()}{why[1:]}", None
    if own == "not found" and len(holding) == 1:
        return "implements a rival", f"{holding[0]}: {others[holding[0]][1]}; {why}", holding[0]
    if own == "not found" and all(state == "not found" for state, _ in others.values()):
        return "neither", "; ".join([why, *(reason for _, reason in others.values())]), None
    reasons = [why] + [reason for state, reason in others.values() if state != "not found"]
    return "undecided", "; ".join(reasons), None


def _names(names: Sequence[str]) -> str:
    shown = list(names[:4]) + ([f"{len(names) - 4} more"] if len(names) > 4 else [])
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]
