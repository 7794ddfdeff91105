"""Findings about each variable at its best site, and contradictions between algorithms there."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from interp.algorithms.algorithm import Algorithm, scored_targets
from interp.algorithms.experiment import SPANS, Experiment, Hypothesis, Spot
from interp.algorithms.predictions import predict, predicted_at, share_of, share_value
from interp.algorithms.result import (
    BAR,
    MISSING,
    NOWHERE,
    AnswerAgreement,
    Contradiction,
    FindingStatus,
    VariableFinding,
)
from interp.algorithms.search import CHANGED, Located, Stage, forced_accuracies, input_accuracies
from interp.core.interchange import Site, sites_of
from interp.core.intervals import Interval


def finding_of(
    experiment: Experiment, hypothesis: Hypothesis, located: Located, untrained: float
) -> tuple[VariableFinding, Int[Tensor, "at pair target"] | None]:
    """The variable at its best site, with the model's answers there in the pairs that score."""
    judged, scoring = hypothesis.judged, experiment.pairs.scoring
    algorithm, variable = hypothesis.name
    fields: dict[str, Any] = {"algorithm": algorithm, "variable": variable, "is_input": judged.variable.is_input}
    fields |= {"untrained": untrained, "uninformative": judged.uninformative()}
    fields["changes_answers"] = bool(hypothesis.prediction.changed.any())
    # Without a site nothing could be tested, or no part of an activation that tells the value is used.
    spot, stage = located.spot, located.stage
    if spot is None or stage is None:
        fields |= dict.fromkeys(("forced", "shared", "at_input", "random"), np.nan)
        fields |= {"site": NOWHERE, "place": NOWHERE, "search": NOWHERE}
        fields |= {"accuracy": MISSING, "stability": MISSING, "invariance": MISSING}
        why = "no answer changes with it in any pair"
        if fields["changes_answers"]:
            why = "the model answers none of the pairs rightly in which an answer must change with it"
        if located.searched:
            why = "no answers change with what tells it at the sites that were searched"
        status: FindingStatus = "not found" if located.searched else "not tested"
        return VariableFinding(**fields, status=status, why=why), None
    # Answers that must change, that must stay, and that must stay with a source that has the same value.
    answers = experiment.answers(hypothesis, spot, scoring)
    accuracy = _agreement(experiment, hypothesis, answers, judged.changed)
    stability = _agreement(experiment, hypothesis, answers, judged.unchanged)
    placebo = experiment.placebo_answers(hypothesis, spot, scoring)
    stay = placebo.answers == placebo.expected
    invariance = share_of(stay, placebo.counted, placebo.expected, exact=experiment.pairs.every_pair)
    # The same with the input at this place.
    at_input = Spot(spot.search if spot.search in SPANS else "whole", Site("resid", 0), spot.place)
    input_answers = experiment.answers(hypothesis, at_input, scoring)
    directions = judged.answers[:, scoring][judged.changed[:, scoring]].unique()
    one_way = len(directions) == 1 and not (invariance.n or placebo.n_same)
    status, why = finding_status(accuracy, stability, invariance, one_way=one_way)
    finding = VariableFinding(
        **fields,
        site=str(spot.site),
        place=experiment.place_name(hypothesis, spot.place),
        search=spot.search,
        accuracy=accuracy,
        stability=stability,
        invariance=invariance,
        forced=float(forced_accuracies(experiment, hypothesis)[spot.place]),
        shared=_shared(experiment, hypothesis),
        at_input=float(_agreement(experiment, hypothesis, input_answers, judged.changed)),
        random=_random(experiment, hypothesis, located, spot, stage),
        status=status,
        why=why,
    )
    return finding, answers


def accuracy_of_best(experiment: Experiment, hypothesis: Hypothesis, located: Located) -> float:
    """Accuracy on the pairs that score, at the spot that the others select."""
    if located.spot is None:
        return np.nan
    answers = experiment.answers(hypothesis, located.spot, experiment.pairs.scoring)
    return float(_agreement(experiment, hypothesis, answers, hypothesis.judged.changed))


def _agreement(
    experiment: Experiment,
    hypothesis: Hypothesis,
    answers: Int[Tensor, "at pair target"],
    counted: Bool[Tensor, "at all_pair target"],
) -> Interval:
    """Share of the counted answers that are as predicted, in the pairs that score."""
    scoring = experiment.pairs.scoring
    predicted = hypothesis.judged.answers[:, scoring]
    return share_of(answers == predicted, counted[:, scoring], predicted, exact=experiment.pairs.every_pair)


def _random(experiment: Experiment, hypothesis: Hypothesis, located: Located, spot: Spot, stage: Stage) -> float:
    """Accuracy at random sites, of a subspace learned from shuffled values, or of random coordinates."""
    scoring, judged = experiment.pairs.scoring, hypothesis.judged
    if spot.search == "learned":
        (shuffled,) = experiment.learn(hypothesis, [replace(spot, search="whole", basis=None)], shuffled=True)
        answers = experiment.answers(hypothesis, shuffled, scoring)
        return float(_agreement(experiment, hypothesis, answers, judged.changed))
    # Over all sites that were searched, on the pairs that select.
    stated_site = experiment.setup.stated_sites.get(hypothesis.name[1])
    if stated_site is None:
        accuracies = dict(located.searched)[stage][:, :, CHANGED]
        return float(np.nanmean(accuracies))
    # At all sites of a stated site's kind, or at random coordinates there.
    sites = sites_of(experiment.net, [stated_site.kind])
    if stated_site.coordinates is not None:
        sites = [experiment.random_coordinates(hypothesis, stated_site)]
    predicted, changed = judged.answers[:, scoring], judged.changed[:, scoring]
    shares = []
    for site in sites:
        answers = experiment.answers(hypothesis, replace(spot, site=site), scoring)
        shares.append(share_value(answers == predicted, changed, predicted))
    return float(np.mean(shares))


def _shared(experiment: Experiment, hypothesis: Hypothesis) -> float:
    """The largest share of its answers that another algorithm allows, with any of its variables; 0 without others.

    An answer about which the other one predicts nothing any more, after the interchange, is allowed.
    """
    judged, scoring = hypothesis.judged, experiment.pairs.scoring
    expected, changed = judged.answers[:, scoring], judged.changed[:, scoring]
    largest = 0.0
    for rival in experiment.hypotheses:
        if rival.name[0] == hypothesis.name[0] or rival.per_position != hypothesis.per_position:
            continue
        base, _ = experiment.setup.computations[rival.name[0]]
        answers = rival.prediction.answers[:, scoring]
        allowed = (answers == expected) | ((answers < 0) & (base.answers[scoring] >= 0))
        largest = max(largest, share_value(allowed, changed, expected))
    return largest


def finding_status(
    accuracy: Interval, stability: Interval, invariance: Interval, *, one_way: bool = False
) -> tuple[FindingStatus, str]:
    """Whether a variable is at a site, and why it is not certain that it is.

    Args:
        accuracy: Share of the answers that must change which change as predicted.
        stability: Share of the other answers of the same pairs that stay; NaN if there are none.
        invariance: Share of the answers that stay with a source that has the same value; NaN if there is none.
        one_way: Whether all answers that must change become the same one, and no source has the same value.
    """
    if np.isnan(accuracy):
        return "not tested", "no answer changes with it in the pairs that score"
    shares = {
        "answers change as they must": accuracy,
        "other answers stay": stability,
        "answers stay with a source that has the same value": invariance,
    }
    shares = {text: share for text, share in shares.items() if not np.isnan(share)}
    # One share below the bar is enough to refuse it.
    if failing := [f"{text} in {share.text()}" for text, share in shares.items() if share.high < BAR]:
        return "not found", ", ".join(failing)
    if unclear := [f"{text} in {share.text()}" for text, share in shares.items() if share.low < BAR]:
        return "undecided", ", ".join(unclear)
    # Any damage can change answers in one direction.
    if one_way:
        return "undecided", "all answers change to the same one, and no other input has the same value"
    return "found", ""


def answers_as(experiment: Experiment, algorithm: Algorithm) -> AnswerAgreement:
    """How often the model answers as an algorithm predicts, with nothing interchanged: in the pairs, and in any inputs.

    Pairs are those in which some variable changes an answer, and in which algorithms differ.
    """
    setup, pairs = experiment.setup, experiment.pairs
    base, _ = setup.computations[algorithm.name]
    tested_base, _ = setup.computations[setup.algorithms[0].name]
    answers = base.answers
    counted = (answers >= 0) & pairs.base.present & scored_targets(setup.task, pairs.base)
    differ = (answers != tested_base.answers) & counted
    inputs = setup.inputs
    expected = algorithm.run(inputs).answers
    counted_inputs = (expected >= 0) & inputs.present & scored_targets(setup.task, inputs)
    right = experiment.answers_to_inputs == expected
    return AnswerAgreement(
        algorithm=algorithm.name,
        accuracy=share_of((experiment.clean == answers)[None], counted[None], answers[None], exact=pairs.every_pair),
        on_inputs=share_of(right[None], counted_inputs[None], expected[None], exact=pairs.of_all_inputs),
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
    of_input = input_accuracies(experiment, hypothesis, experiment.pairs.scoring).max()
    is_internal = finding.internal and of_input < BAR
    if not is_internal and not (has_variable and finding.forced < BAR):
        return None  # an input or an answer, under another name
    # The rival's prediction; without the variable it predicts that nothing changes.
    pairs = experiment.pairs
    computations = experiment.setup.computations[rival.name]
    predicted = computations[0].answers.expand_as(hypothesis.judged.answers)
    if has_variable:
        predicted = predict(rival, rival[variable], experiment.setup.task, pairs, computations).answers
    # Answers about which the two differ, without those at the place itself.
    expected = hypothesis.judged.answers
    counted = hypothesis.judged.changed & (predicted >= 0) & (predicted != expected)
    for place in experiment.places:
        if place.name == finding.place:
            counted = counted & ~predicted_at(pairs, place)
    scoring = pairs.scoring
    counted, expected, predicted = counted[:, scoring], expected[:, scoring], predicted[:, scoring]
    rival_accuracy = share_of(answers == predicted, counted, expected, exact=pairs.every_pair)
    if not rival_accuracy.n:
        return None
    accuracy = share_of(answers == expected, counted, expected)
    return Contradiction(
        algorithm=algorithm,
        variable=variable,
        rival=rival.name,
        accuracy=float(accuracy),
        rival_accuracy=rival_accuracy,
    )
