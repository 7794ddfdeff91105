"""Findings about each variable at its best site, contradictions between algorithms, and the verdict that follows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.algorithms.algorithm import Algorithm, scored_targets
from interp.algorithms.experiment import CHANGED, SCORED, SELECTED, UNCHANGED, Accuracies, Experiment, Hypothesis
from interp.algorithms.predictions import agreement, answers_of_outputs, predict, predicted_at, share_of
from interp.algorithms.result import (
    BAR,
    NOWHERE,
    AlgorithmVerdict,
    AnswerAgreement,
    Contradiction,
    FindingStatus,
    VariableFinding,
)
from interp.core.interchange import Site
from interp.core.intervals import Interval

MISSING = Interval(value=np.array(np.nan), low=np.array(np.nan), high=np.array(np.nan), n=0)


def best_site(accuracies: Accuracies, forced: Float[np.ndarray, " place"] | None = None) -> tuple[int, int] | None:
    """Site and place that work best on the pairs that select; of equal ones where least is forced, then the earliest.

    None if nothing could be tested.
    """
    changed, unchanged = accuracies[:, :, SELECTED, CHANGED], accuracies[:, :, SELECTED, UNCHANGED]
    score = np.where(np.isnan(changed), -1, np.fmin(changed, unchanged))
    if (score < 0).all():
        return None
    tie_break = np.zeros(score.shape[1]) if forced is None else np.nan_to_num(forced)
    order = np.lexsort([np.broadcast_to(tie_break, score.shape).ravel(), -score.round(6).ravel()])
    site, place = divmod(int(order[0]), score.shape[1])
    return site, place


def accuracy_of_best(accuracies: Accuracies) -> float:
    """Accuracy on the pairs that score, at the site that the others select."""
    best = best_site(accuracies)
    return np.nan if best is None else float(accuracies[(*best, SCORED, CHANGED)])


def finding_of(
    experiment: Experiment, hypothesis: Hypothesis, accuracies: Accuracies, untrained: float
) -> tuple[VariableFinding, Int[Tensor, "at pair target"] | None]:
    """The variable at its best site, with the model's answers there."""
    judged, rows = hypothesis.judged, experiment.pairs.scoring
    forced = _forced(experiment, hypothesis)
    best = best_site(accuracies, forced)
    algorithm, variable = hypothesis.name
    fields: dict[str, Any] = {"algorithm": algorithm, "variable": variable, "is_input": judged.variable.is_input}
    fields |= {"untrained": untrained, "uninformative": judged.uninformative()}
    if best is None:
        fields |= dict.fromkeys(("forced", "shared", "at_input", "random"), np.nan)
        fields |= {"site": NOWHERE, "place": NOWHERE, "accuracy": MISSING, "stability": MISSING}
        return VariableFinding(**fields, status="not tested"), None
    # Answers at the best site, or at the site where learning works best; and the accuracy at random ones.
    site, place = best
    scored = accuracies[:, :, SCORED, CHANGED]
    random = float(np.nanmean(scored)) if np.isfinite(scored).any() else np.nan
    if experiment.setup.stated_sites:
        random = experiment.elsewhere(hypothesis, place)
    if experiment.setup.search == "learned":
        site, place, answers = experiment.learn(hypothesis, accuracies)
        *_, shuffled_answers = experiment.learn(hypothesis, accuracies, shuffled=True)
        random = float(agreement(shuffled_answers, judged, rows, judged.changed))
    else:
        answers = experiment.answers(hypothesis, experiment.sites[site], place)
    # Scores of these answers, and of an interchange of the input at the same place.
    accuracy = agreement(answers, judged, rows, judged.changed)
    stability = agreement(answers, judged, rows, judged.unchanged)
    input_answers = experiment.answers(hypothesis, Site("resid", 0), place)
    finding = VariableFinding(
        **fields,
        site=str(experiment.sites[site]),
        place=experiment.place_name(hypothesis, place),
        accuracy=accuracy,
        stability=stability,
        forced=float(forced[place]),
        shared=_shared(experiment, hypothesis),
        at_input=float(agreement(input_answers, judged, rows, judged.changed)),
        random=random,
        status=finding_status(accuracy, stability),
    )
    return finding, answers


def _forced(experiment: Experiment, hypothesis: Hypothesis) -> Float[np.ndarray, " place"]:
    """For each place, the accuracy that an interchange of the outputs there would have."""
    pairs, rows = experiment.pairs, experiment.pairs.scoring
    computations = experiment.setup.computations[hypothesis.name[0]]
    judged = hypothesis.judged
    places = experiment.positions if hypothesis.per_position else experiment.places
    answers = torch.stack([answers_of_outputs(pairs, computations, place) for place in places])
    if hypothesis.per_position:
        return np.array([float(agreement(answers, judged, rows, judged.changed))])
    return np.array([float(agreement(at_place[None], judged, rows, judged.changed)) for at_place in answers])


def _shared(experiment: Experiment, hypothesis: Hypothesis) -> float:
    """The largest share of its answers that another algorithm allows, with any of its variables; 0 without others.

    An answer about which the other one predicts nothing any more, after the interchange, is allowed.
    """
    judged, rows, largest = hypothesis.judged, experiment.pairs.scoring, 0.0
    for rival in experiment.hypotheses:
        if rival.name[0] == hypothesis.name[0] or rival.per_position != hypothesis.per_position:
            continue
        base, _ = experiment.setup.computations[rival.name[0]]
        answers = rival.prediction.answers
        allowed = (answers == judged.answers) | ((answers < 0) & (base.answers >= 0))
        largest = max(largest, float(share_of(allowed[:, rows], judged.changed[:, rows])))
    return largest


def finding_status(accuracy: Interval, stability: Interval) -> FindingStatus:
    """Whether a variable is at a site, from the shares of answers that change and that stay as predicted.

    Without answers that stay, those that change decide.
    """
    if np.isnan(accuracy):
        return "not tested"
    low, high = np.fmin(accuracy.low, stability.low), np.fmin(accuracy.high, stability.high)
    if low >= BAR:
        return "found"
    return "not found" if high < BAR else "undecided"


def answers_as(experiment: Experiment, algorithm: Algorithm) -> AnswerAgreement:
    """How often the model answers as an algorithm predicts, with nothing interchanged."""
    setup, pairs = experiment.setup, experiment.pairs
    answers, tested = (setup.computations[name][0].answers for name in (algorithm.name, setup.algorithms[0].name))
    counted = (answers >= 0) & pairs.base.present & scored_targets(setup.task, pairs.base)
    differ = (answers != tested) & counted
    return AnswerAgreement(
        algorithm=algorithm.name,
        accuracy=share_of((experiment.clean[0] == answers)[None], counted[None]),
        differ=float(differ.sum() / counted.sum().clamp_min(1)),
    )


def contradiction_of(
    experiment: Experiment,
    hypothesis: Hypothesis,
    finding: VariableFinding,
    answers: Int[Tensor, "at pair target"] | None,
    rival: Algorithm,
) -> Contradiction | None:
    """What another algorithm predicts for an interchange of a variable that is found, where the two differ."""
    algorithm, variable = hypothesis.name
    if rival.name == algorithm or answers is None or finding.status != "found":
        return None
    has_variable = variable in {shared.name for shared in rival.variables}
    if not finding.internal and not (has_variable and finding.forced < BAR):
        return None  # an input or an answer, under another name
    # The rival's prediction; without the variable it predicts that nothing changes.
    computations, pairs = experiment.setup.computations[rival.name], experiment.pairs
    predicted = computations[0].answers.expand_as(answers)
    if has_variable:
        predicted = predict(rival, rival[variable], experiment.setup.task, pairs, computations).answers
    # Answers about which the two differ, without those at the place itself.
    counted = hypothesis.judged.changed & (predicted >= 0) & (predicted != hypothesis.judged.answers)
    for place in experiment.places:
        if place.name == finding.place:
            counted = counted & ~predicted_at(pairs, place)
    rows = pairs.scoring
    rival_accuracy = share_of((answers == predicted)[:, rows], counted[:, rows])
    if not rival_accuracy.n:
        return None
    accuracy = share_of((answers == hypothesis.judged.answers)[:, rows], counted[:, rows])
    return Contradiction(
        algorithm=algorithm,
        variable=variable,
        rival=rival.name,
        accuracy=float(accuracy),
        rival_accuracy=rival_accuracy,
    )


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
    names = [algorithm, *(name for name in rivals if evidence.answers_as(name).n)]
    states = {name: state_of(name, evidence) for name in names}
    passing = [name for name, (status, _) in states.items() if status == "found"]
    proven = [name for name in passing if has_support(name, names, evidence)]
    status, reason = states[algorithm]
    if proven == passing == [algorithm]:
        return Judgement("implements", f"{reason[0].upper()}{reason[1:]}")
    if status == "not found" and len(proven) == 1 and passing == proven:
        (rival,) = proven
        return Judgement("implements a rival", f"{rival}: {states[rival][1]}; {reason}", rival)
    if all(status == "not found" for status, _ in states.values()):
        return Judgement("neither", "; ".join(reason for _, reason in states.values()))
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
    accuracy, findings = evidence.answers_as(name), evidence.findings_of(name)
    # What refutes it: wrong answers, a missing variable, or a variable of another algorithm.
    reasons = []
    if accuracy.high < BAR:
        reasons.append(f"the model answers as {name} predicts in {float(accuracy):.1%} of the cases")
    if missing := [finding.variable for finding in findings if finding.status == "not found"]:
        reasons.append(f"{_names(missing)} of {name} {_are(missing)} at no site")
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
    if all(finding.status == "not tested" for finding in findings):
        return "undecided", f"no pair of inputs is informative about {name}"
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
    wrong = {agreement.algorithm for agreement in evidence.answers if agreement.accuracy.high < BAR}
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
    items = list(names[:4])
    if len(names) > 4:
        items.append(f"{len(names) - 4} more")
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
