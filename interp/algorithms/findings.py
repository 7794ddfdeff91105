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
    changed = accuracies[:, :, SELECTED, CHANGED]
    unchanged = accuracies[:, :, SELECTED, UNCHANGED]
    # The lower of both accuracies, without the second where no answer must stay.
    score = np.where(np.isnan(changed), -1, np.fmin(changed, unchanged))
    if (score < 0).all():
        return None
    # Sort by score, then by the forced accuracy of the place; the sort is stable.
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
    judged = hypothesis.judged
    rows = experiment.pairs.scoring
    forced = _forced(experiment, hypothesis)
    best = best_site(accuracies, forced)
    algorithm, variable = hypothesis.name
    fields: dict[str, Any] = {"algorithm": algorithm, "variable": variable, "is_input": judged.variable.is_input}
    fields |= {"untrained": untrained, "uninformative": judged.uninformative()}
    # Without a site nothing could be tested.
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
    pairs = experiment.pairs
    computations = experiment.setup.computations[hypothesis.name[0]]
    judged = hypothesis.judged
    # A variable with a value at each position has its answers at all of them together, as its only place.
    if hypothesis.per_position:
        by_position = [answers_of_outputs(pairs, computations, position) for position in experiment.positions]
        answers_by_place = [torch.stack(by_position)]
    else:
        answers_by_place = [answers_of_outputs(pairs, computations, place)[None] for place in experiment.places]
    accuracies = [agreement(answers, judged, pairs.scoring, judged.changed) for answers in answers_by_place]
    return np.array([float(accuracy) for accuracy in accuracies])


def _shared(experiment: Experiment, hypothesis: Hypothesis) -> float:
    """The largest share of its answers that another algorithm allows, with any of its variables; 0 without others.

    An answer about which the other one predicts nothing any more, after the interchange, is allowed.
    """
    judged = hypothesis.judged
    rows = experiment.pairs.scoring
    largest = 0.0
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
    base, _ = setup.computations[algorithm.name]
    tested_base, _ = setup.computations[setup.algorithms[0].name]
    answers = base.answers
    counted = (answers >= 0) & pairs.base.present & scored_targets(setup.task, pairs.base)
    differ = (answers != tested_base.answers) & counted
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
    pairs = experiment.pairs
    computations = experiment.setup.computations[rival.name]
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
    # The algorithms that are wrong about answers, about an interchange, or about a shared variable.
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
    words = list(names[:4])
    if len(names) > 4:
        words.append(f"{len(names) - 4} more")
    if len(words) == 1:
        return words[0]
    return ", ".join(words[:-1]) + " and " + words[-1]
