"""The verdict about an algorithm and its rivals, from the findings about their variables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from interp.algorithms.result import (
    BAR,
    AlgorithmVerdict,
    AnswerAgreement,
    Contradiction,
    FindingStatus,
    VariableFinding,
)
from interp.core.intervals import Interval


@dataclass(frozen=True)
class AlgorithmEvidence:
    """Everything that the verdict is about."""

    findings: Sequence[VariableFinding]
    answers: Sequence[AnswerAgreement]
    contradictions: Sequence[Contradiction]

    def answers_as(self, algorithm: str) -> Interval:
        """Share of the model's answers that are as an algorithm predicts."""
        (accuracy,) = (agreement.accuracy for agreement in self.answers if agreement.algorithm == algorithm)
        return accuracy

    def lowest_answers_as(self, algorithm: str) -> Interval:
        """The same where it is lower: in the pairs, or in inputs as they come."""
        (agreement,) = (agreement for agreement in self.answers if agreement.algorithm == algorithm)
        if not agreement.on_inputs.n or agreement.accuracy <= agreement.on_inputs:
            return agreement.accuracy
        return agreement.on_inputs

    def findings_of(self, algorithm: str) -> list[VariableFinding]:
        """Findings about the variables of an algorithm."""
        return [finding for finding in self.findings if finding.algorithm == algorithm]


class Judgement(NamedTuple):
    """The verdict, its reason, and the rival that the model implements, if any."""

    verdict: AlgorithmVerdict
    reason: str
    rival: str | None = None


def judge_algorithms(algorithm: str, rivals: Sequence[str], evidence: AlgorithmEvidence) -> Judgement:
    """Decide whether the model implements an algorithm, a rival, or neither.

    A rival that predicts nothing about the answers that are scored is no rival.
    """
    names = [algorithm] + [name for name in rivals if evidence.answers_as(name).n]
    # Which algorithms pass their own tests, and which of these have support.
    states = {name: state_of(name, evidence) for name in names}
    passing = [name for name, (status, _) in states.items() if status == "found"]
    proven = [name for name in passing if has_support(name, names, evidence)]
    status, reason = states[algorithm]
    # A verdict, if exactly one algorithm passes and is supported, or if none passes.
    if proven == passing == [algorithm]:
        return Judgement("implements", f"{reason[0].upper()}{reason[1:]}")
    if status == "not found" and len(proven) == 1 and passing == proven:
        (rival,) = proven
        return Judgement("implements a rival", f"{rival}: {states[rival][1]}; {reason}", rival)
    if all(status == "not found" for status, _ in states.values()):
        return Judgement("neither", "; ".join(reason for _, reason in states.values()))
    # Undecided, with the reasons.
    if len(passing) > 1:
        return Judgement("undecided", f"every variable of {_names(passing)} is found: nothing distinguishes them")
    reasons = [reason for name, (status, reason) in states.items() if name == algorithm or status == "undecided"]
    if passing and not proven:
        reasons.append(f"any model that answers rightly has the variables of {passing[0]}")
    return Judgement("undecided", "; ".join(dict.fromkeys(reasons)))


def state_of(name: str, evidence: AlgorithmEvidence) -> tuple[FindingStatus, str]:
    """Whether an algorithm passes its own tests, and the sentence that explains why.

    It is found if the model answers as it predicts, each of its variables is found, and no variable of another
    algorithm that is found shows that it is wrong. It is not found if one of these fails, and undecided otherwise.
    """
    accuracy, findings = evidence.lowest_answers_as(name), evidence.findings_of(name)
    # What refutes it: wrong answers, a missing variable, or a variable of another algorithm.
    reasons = []
    if accuracy.high < BAR:
        reasons.append(f"the model answers as {name} predicts in {float(accuracy):.1%} of the cases")
    if missing := [finding.variable for finding in findings if finding.status == "not found"]:
        reasons.append(f"{_names(missing)} of {name} {_are(missing)} at no site that was searched")
    if reasons:
        return "not found", ", and ".join(reasons)
    for contradiction in evidence.contradictions:
        if contradiction.rival == name and contradiction.rival_accuracy.high < BAR:
            variable = f"{contradiction.variable} of {contradiction.algorithm}"
            return "not found", f"{variable} is found, and answers then follow {contradiction.algorithm}, not {name}"
    # What leaves it undecided.
    if accuracy.low < BAR:
        return "undecided", f"the share of answers that are as {name} predicts is not certain enough"
    if undecided := [finding.variable for finding in findings if finding.status == "undecided"]:
        return "undecided", f"it is not certain whether {_names(undecided)} of {name} {_are(undecided)} found"
    untested = [finding for finding in findings if finding.status == "not tested"]
    if wrong := [finding.variable for finding in untested if finding.changes_answers]:
        return "undecided", f"{_names(wrong)} of {name} {_are(wrong)} not tested by any pair that is answered rightly"
    if all(finding.status == "not tested" for finding in findings):
        return "undecided", f"no pair of inputs is informative about {name}"
    if untested:
        names = _names([finding.variable for finding in untested])
        return "found", f"every variable of {name} that changes an answer is found (none changes with {names})"
    return "found", f"every variable of {name} is found"


def has_support(name: str, names: Sequence[str], evidence: AlgorithmEvidence) -> bool:
    """Whether there is evidence for an algorithm that not every model with right answers would give.

    Either a variable is found that is neither an input nor an answer; or each other algorithm is wrong where this one
    is right: about the model's answers, about an interchange of a variable that is found, or about a variable that both
    have and that is found only as this one predicts.
    """
    findings = evidence.findings_of(name)
    if any(finding.internal and finding.status == "found" for finding in findings):
        return True
    # The algorithms that are wrong about answers, about an interchange, or about a shared variable.
    wrong = {agreement.algorithm for agreement in evidence.answers if agreement.is_refuted}
    for contradiction in evidence.contradictions:
        if contradiction.algorithm == name and contradiction.rival_accuracy.high < BAR:
            wrong.add(contradiction.rival)
    decisive = {finding.variable for finding in findings if finding.status == "found" and finding.forced < BAR}
    for finding in evidence.findings:
        if finding.variable in decisive and finding.status == "not found":
            wrong.add(finding.algorithm)
    return len(names) > 1 and set(names) - {name} <= wrong


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _names(names: Sequence[str]) -> str:
    """Names in words, at most four of them."""
    words = list(names[:4])
    if len(names) > 4:
        words.append(f"{len(names) - 4} more")
    if len(words) == 1:
        return words[0]
    return ", ".join(words[:-1]) + " and " + words[-1]
