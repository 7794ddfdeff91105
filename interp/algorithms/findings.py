"""What was found about each variable at its best site, about answers, and where algorithms contradict each other."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.algorithms.algorithm import Algorithm, Outcome, scored_targets
from interp.algorithms.experiment import Experiment, Hypothesis
from interp.algorithms.predictions import Pairs, agreement, output_only, predict, read_at, share_of
from interp.algorithms.result import BAR, NOWHERE, Answers, Contradiction, VariableFinding
from interp.algorithms.verdict import found
from interp.core.interchange import Site
from interp.tasks.base import Task

Accuracies = Float[np.ndarray, "site place half measure"]
SELECTED, SCORED, CHANGED, KEPT = 0, 1, 0, 1
"""Indices of `Accuracies`: pairs that select and that score, answers that change and that stay."""


def best_site(accuracy: Accuracies, forced: Float[np.ndarray, " place"] | None = None) -> tuple[int, int] | None:
    """Site and place that work best on the pairs that select; of equal ones where least is forced, then the earliest.

    None if nothing could be tested.
    """
    changed, kept = accuracy[:, :, SELECTED, CHANGED], accuracy[:, :, SELECTED, KEPT]
    score = np.where(np.isnan(changed), -1, np.fmin(changed, kept))
    if (score < 0).all():
        return None
    least = np.zeros(score.shape[1]) if forced is None else np.nan_to_num(forced)
    order = np.lexsort([np.broadcast_to(least, score.shape).ravel(), -score.round(6).ravel()])
    site, place = divmod(int(order[0]), score.shape[1])
    return site, place


def accuracy_of_best(accuracy: Accuracies) -> float:
    """Accuracy on the pairs that score, at the site that the others select."""
    at = best_site(accuracy)
    return np.nan if at is None else float(accuracy[(*at, SCORED, CHANGED)])


def finding_of(
    experiment: Experiment, one: Hypothesis, accuracy: Accuracies, untrained: float
) -> tuple[VariableFinding, Int[Tensor, "at pair target"] | None]:
    """The variable at its best site, with the model's answers there."""
    said, rows = one.judged, experiment.pairs.scoring
    forced = _forced(experiment, one)
    at = best_site(accuracy, forced)
    algorithm, variable = one.name
    about = {
        "algorithm": algorithm, "variable": variable, "given": said.variable.given, "untrained": untrained,
        "uninformative": said.uninformative(),
    }  # fmt: skip
    if at is None:
        shares = ("accuracy", "low", "high", "kept", "kept_low", "kept_high", "forced", "shared", "at_input", "random")
        nothing = dict.fromkeys(shares, np.nan)
        return VariableFinding(**about, **nothing, site=NOWHERE, place=NOWHERE, n=0, found="not tested"), None
    scored = accuracy[:, :, SCORED, CHANGED]
    random = float(np.nanmean(scored)) if np.isfinite(scored).any() else np.nan
    if experiment.given:
        random = experiment.elsewhere(one, at[1])
    if experiment.search == "learned":
        *at, answers = experiment.learn(one, accuracy)
        *_, by_chance = experiment.learn(one, accuracy, shuffled=True)
        random = agreement(by_chance, said, rows, said.changed).value
    else:
        answers = experiment.answers(one, experiment.sites[at[0]], at[1])
    changed, kept = (agreement(answers, said, rows, counted) for counted in (said.changed, said.kept))
    of_input = agreement(experiment.answers(one, Site("resid", 0), at[1]), said, rows, said.changed)
    found_there = found((changed.low, changed.high), (kept.low, kept.high))
    return VariableFinding(
        **about, site=str(experiment.sites[at[0]]), place=experiment.place_name(one, at[1]),
        accuracy=changed.value, low=changed.low, high=changed.high, n=changed.n,
        kept=kept.value, kept_low=kept.low, kept_high=kept.high,
        forced=float(forced[at[1]]), shared=_shared(experiment, one), at_input=of_input.value,
        random=random, found=found_there,
    ), answers  # fmt: skip


def _forced(experiment: Experiment, one: Hypothesis) -> Float[np.ndarray, " place"]:
    """For each place, the accuracy that an interchange of the outputs there would have."""
    pairs, rows = experiment.pairs, experiment.pairs.scoring
    base, source = experiment.outcomes[one.name[0]]

    def accuracy(swapped: Tensor) -> float:
        return share_of(swapped[:, rows], one.judged.changed[:, rows]).value

    places = experiment.positions if one.per_position else experiment.places
    swapped = [output_only(one.judged, pairs, base, source, place) for place in places]
    if one.per_position:
        return np.array([accuracy(torch.stack([part[at] for at, part in enumerate(swapped)]))])
    return np.array([accuracy(part) for part in swapped])


def _shared(experiment: Experiment, one: Hypothesis) -> float:
    """The largest share of its answers that another algorithm allows, with any of its variables; 0 without others.

    An answer about which the other one says nothing any more, after the interchange, is allowed.
    """
    said, rows, best = one.judged, experiment.pairs.scoring, 0.0
    for other in experiment.hypotheses:
        if other.name[0] != one.name[0] and (other.per_position == one.per_position):
            clean, theirs = experiment.outcomes[other.name[0]][0].answers, other.prediction.answers
            same = (theirs == said.answers) | ((theirs < 0) & (clean >= 0))
            best = max(best, share_of(same[:, rows], said.changed[:, rows]).value)
    return best


def answers_of(
    one: Algorithm,
    first: Algorithm,
    task: Task,
    pairs: Pairs,
    outcomes: Mapping[str, tuple[Outcome, Outcome]],
    clean: Tensor,
) -> Answers:
    """How often the model answers as an algorithm says, with nothing interchanged."""
    said = outcomes[one.name][0].answers
    counted = (said >= 0) & pairs.base.present & scored_targets(task, pairs.base)
    share = share_of((clean == said)[None], counted[None])
    differ = (said != outcomes[first.name][0].answers) & counted
    return Answers(
        algorithm=one.name, accuracy=share.value, low=share.low, high=share.high, n=share.n,
        differ=float(differ.sum() / counted.sum().clamp_min(1)),
    )  # fmt: skip


def contradiction_of(
    experiment: Experiment, one: Hypothesis, finding: VariableFinding, answers: Tensor | None, other: Algorithm
) -> Contradiction | None:
    """What another algorithm says about an interchange of a variable that is found, where the two differ."""
    algorithm, variable = one.name
    if other.name == algorithm or answers is None or finding.found != "found":
        return None
    shared = variable in {own.name for own in other.variables}
    if not finding.internal and not (shared and finding.forced < BAR):
        return None  # an input or an answer, under another name
    base, source = experiment.outcomes[other.name]
    if shared:
        said = predict(other, other[variable], experiment.task, experiment.pairs, base=base, source=source).answers
    else:
        said = base.answers[None].expand_as(one.judged.answers)
    place = [at for at in experiment.places if at.name == finding.place]
    here = read_at(experiment.pairs, place[0]) if place else torch.zeros_like(base.answers, dtype=torch.bool)
    counted = one.judged.changed & (said >= 0) & (said != one.judged.answers) & ~here
    rows = experiment.pairs.scoring
    own = share_of((answers == one.judged.answers)[:, rows], counted[:, rows])
    rival = share_of((answers == said)[:, rows], counted[:, rows])
    if not rival.n:
        return None
    return Contradiction(
        algorithm=algorithm, variable=variable, rival=other.name, accuracy=own.value, rival_accuracy=rival.value,
        rival_low=rival.low, rival_high=rival.high, n=rival.n,
    )  # fmt: skip
