"""Search for the site and place of each variable, from whole activations to finer parts of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float

from interp.algorithms.experiment import SPANS, Experiment, Hypothesis, Interchanged, Spot
from interp.algorithms.predictions import answers_of_outputs, share_value
from interp.algorithms.result import BAR
from interp.core.interchange import Site
from interp.core.progress import Count, say

Accuracies = Float[np.ndarray, "site place measure"]
"""Shares of answers as predicted on the pairs that select, at every site and place; NaN where nothing was measured."""
CHANGED, UNCHANGED = 0, 1
"""Indices of `Accuracies`: answers that must change, and other answers."""
LEARNED_AT = 3
"""Spots, those at which a whole interchange works best, at which a subspace is learned for each variable."""
ACTIVE = 0.1
"""Share of a variable's answers that a whole interchange must change for a part of the activation to be tried there."""
WORTH_SAYING = 10
"""Seconds from which the expected time of a search is shown."""


@dataclass(frozen=True)
class Stage:
    """Sites that are searched together, and what is interchanged there."""

    search: Interchanged
    sites: tuple[Site, ...]


@dataclass(frozen=True)
class Located:
    """Where a variable is best, by the pairs that select."""

    spot: Spot | None = None
    """None if nothing could be tested."""
    stage: Stage | None = None
    score: float = -1.0
    """The lowest of three shares there: answers that must change, that must stay, and that stay with a placebo."""
    at_input: float = 0.0
    """Accuracy of an interchange of the input at this place; 0 if no site could tell more than the input."""
    searched: tuple[tuple[Stage, Float[np.ndarray, "_ _ _"]], ...] = ()
    """Accuracies of each stage that was searched for it."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing finer has to be searched: it is found, and not only in the input."""
        return self.score >= BAR and self.at_input < BAR


def locate(
    experiment: Experiment, stages: Sequence[Stage], *, name: str, is_open: Callable[[Hypothesis], bool], times: int = 1
) -> list[Located]:
    """The best spot of every variable; a stage is searched for those that no earlier one has found.

    Args:
        experiment: The model.
        stages: What to search, in this order.
        name: What the progress is called.
        is_open: Whether it matters where a variable is.
        times: How often the first stage is going to be searched, to estimate its time.
    """
    hypotheses = experiment.hypotheses
    located = [Located() for _ in hypotheses]
    for number, stage in enumerate(stages):
        # The first stage is searched for all variables, so that every one has a map.
        indices = [
            index
            for index, hypothesis in enumerate(hypotheses)
            if _is_testable(experiment, hypothesis)
            and (number == 0 or (not located[index].is_settled and is_open(hypothesis)))
        ]
        if not indices:
            continue
        spots = [_spots(experiment, hypotheses[index], stage, located[index]) for index in indices]
        expected = _expected_seconds(experiment, [hypotheses[index] for index in indices], stage, spots)
        expected *= times if number == 0 else 1
        if expected >= WORTH_SAYING:
            n_spots = max(int(tried.sum()) for tried in spots)
            where = f"{n_spots} sites and places" if number == 0 else f"{stage_name(stage)}, as no site before has them"
            say(f"{name}: {len(indices)} variables at {where}, about {expected:.0f} s")
        with Count(name, len(indices)) as count:
            for index, tried in zip(indices, spots, strict=True):
                located[index] = _with_stage(experiment, hypotheses[index], located[index], stage, tried)
                count.advance()
    return located


def stage_name(stage: Stage) -> str:
    """A stage in words."""
    kinds = " and ".join(dict.fromkeys(site.kind for site in stage.sites))
    searches = {
        "whole": "whole activations",
        "means": "spans of means",
        "oblique": "oblique spans of means",
        "learned": "learned subspaces",
    }
    return f"{searches.get(stage.search, stage.search)} of {kinds}"


def search_again(experiment: Experiment, located: Sequence[Located], *, name: str) -> list[Located]:
    """The best spot of every variable in another model, searched only as the spots of `located` were found."""
    again = []
    with Count(name, len(located)) as count:
        for hypothesis, before in zip(experiment.hypotheses, located, strict=True):
            new = Located()
            if before.stage is not None and _is_testable(experiment, hypothesis):
                stage = replace(before.stage, search="whole") if before.stage.search == "learned" else before.stage
                tried = _spots(experiment, hypothesis, stage, new)
                if stage.search in SPANS:
                    tried = np.isfinite(dict(before.searched)[before.stage][:, :, CHANGED])
                new = _with_stage(experiment, hypothesis, new, stage, tried)
            again.append(new)
            count.advance()
    return again


def _is_testable(experiment: Experiment, hypothesis: Hypothesis) -> bool:
    """Whether an answer changes in some pair that selects."""
    return bool(hypothesis.judged.changed[:, experiment.pairs.selecting].any())


def _spots(
    experiment: Experiment, hypothesis: Hypothesis, stage: Stage, located: Located
) -> Bool[np.ndarray, "site place"]:
    """Where to try a variable: at its stated site, and for parts of activations where the whole ones do something."""
    n_places = experiment.n_places(hypothesis)
    tried = np.ones((len(stage.sites), n_places), dtype=bool)
    stated_site = experiment.setup.stated_sites.get(hypothesis.name[1])
    if stated_site is not None:
        tried &= np.array([site == stated_site for site in stage.sites])[:, None]
    # The same sites may have been searched whole.
    for earlier, _ in located.searched:
        if earlier.sites == stage.sites and earlier.search == "whole" and stage.search in SPANS:
            tried &= _is_active(experiment, hypothesis, stage, "whole")
    # What an oblique interchange reads must do something where it is read: a copy that nothing uses tells the value as
    # well, and whatever is written with it would change the answers.
    if stage.search == "oblique":
        tried &= _is_active(experiment, hypothesis, stage, "read")
    return tried


def _is_active(
    experiment: Experiment, hypothesis: Hypothesis, stage: Stage, search: Interchanged
) -> Bool[np.ndarray, "site place"]:
    """Where an interchange of whole activations, or of what is read, changes some answers that the variable must."""
    n_places = experiment.n_places(hypothesis)
    active = np.zeros((len(stage.sites), n_places), dtype=bool)
    selecting = experiment.pairs.selecting
    changed = hypothesis.judged.changed[:, selecting]
    clean = experiment.clean[selecting]
    for index, site in enumerate(stage.sites):
        for place in range(n_places):
            answers = experiment.answers(hypothesis, Spot(search, site, place), selecting)
            moved = ((answers != clean) & changed).sum() / changed.sum()
            active[index, place] = bool(moved >= ACTIVE)
    return active


def _with_stage(
    experiment: Experiment,
    hypothesis: Hypothesis,
    located: Located,
    stage: Stage,
    tried: Bool[np.ndarray, "site place"],
) -> Located:
    """What is known of a variable after one more stage."""
    accuracies = np.full((*tried.shape, 2), np.nan)
    for index, place in np.argwhere(tried).tolist():
        spot = Spot("whole" if stage.search == "learned" else stage.search, stage.sites[index], place)
        accuracies[index, place] = _accuracy(experiment, hypothesis, spot)
    new = replace(
        _best_spot(experiment, hypothesis, stage, accuracies), searched=(*located.searched, (stage, accuracies))
    )
    is_better = new.score > located.score
    if min(new.score, located.score) >= BAR:
        is_better = new.at_input < located.at_input
    return new if is_better else replace(located, searched=new.searched)


def _accuracy(experiment: Experiment, hypothesis: Hypothesis, spot: Spot) -> tuple[float, float]:
    """Shares of changed and of unchanged answers that are as predicted, on the pairs that select; NaN for none."""
    selecting, judged = experiment.pairs.selecting, hypothesis.judged
    predicted = judged.answers[:, selecting]
    same = experiment.answers(hypothesis, spot, selecting) == predicted
    changed, unchanged = judged.changed[:, selecting], judged.unchanged[:, selecting]
    return share_value(same, changed, predicted), share_value(same, unchanged, predicted)


def _best_spot(experiment: Experiment, hypothesis: Hypothesis, stage: Stage, accuracies: Accuracies) -> Located:
    """The spot that works best on the pairs that select.

    Of equal ones it is where outputs and inputs explain least, then the earliest. Placebo sources are only tried where
    answers change and stay as they must.
    """
    changed, unchanged = accuracies[:, :, CHANGED], accuracies[:, :, UNCHANGED]
    bounds = np.where(np.isnan(changed), -1, np.fmin(changed, unchanged))
    # Sort by the bound of the score, then by what is explained at a place without the variable; the sort is stable.
    at_input = _accuracy_at_input(experiment, hypothesis, stage, accuracies)
    explained = np.fmax(np.nan_to_num(forced_accuracies(experiment, hypothesis)), at_input)
    order = np.lexsort([np.broadcast_to(explained, bounds.shape).ravel(), -bounds.round(6).ravel()])
    spots = []
    for index in order.tolist():
        site, place = divmod(index, bounds.shape[1])
        if bounds[site, place] >= 0:
            spots.append((Spot(stage.search, stage.sites[site], place), float(bounds[site, place])))
    if stage.search == "learned" and spots:
        learned = experiment.learn(hypothesis, [spot for spot, _ in spots[:LEARNED_AT]])
        spots = [(spot, float(np.fmin(*_accuracy(experiment, hypothesis, spot)))) for spot in learned]
        spots.sort(key=lambda pair: -pair[1])
    best = Located()
    for spot, bound in spots:
        if bound <= best.score:
            break
        # Below the bar the first one has the highest bound; no placebo is needed to refuse it.
        score = bound
        if bound >= BAR:
            score = float(np.fmin(bound, _placebo_share(experiment, hypothesis, spot)))
        if score > best.score:
            best = Located(spot, stage, score, float(at_input[spot.place]))
    return best


def _accuracy_at_input(
    experiment: Experiment, hypothesis: Hypothesis, stage: Stage, accuracies: Accuracies
) -> Float[np.ndarray, " place"]:
    """Accuracy of an interchange of the input at each place, on the pairs that select.

    It is 0 for an input, and for a variable of which a single place of the input is enough: no site tells more.
    """
    n_places = accuracies.shape[1]
    of_input = input_accuracies(experiment, hypothesis, experiment.pairs.selecting)
    if hypothesis.judged.variable.is_input or of_input.max() >= BAR:
        return np.zeros(n_places)
    embedding = Site("resid", 0)
    if embedding in stage.sites:
        return np.nan_to_num(accuracies[stage.sites.index(embedding), :, CHANGED])
    return of_input


def input_accuracies(experiment: Experiment, hypothesis: Hypothesis, pairs: slice) -> Float[np.ndarray, " place"]:
    """Accuracy of a whole interchange of the input at each place."""
    n_places = experiment.n_places(hypothesis)
    predicted, changed = hypothesis.judged.answers[:, pairs], hypothesis.judged.changed[:, pairs]
    accuracies = []
    for place in range(n_places):
        answers = experiment.answers(hypothesis, Spot("whole", Site("resid", 0), place), pairs)
        accuracies.append(share_value(answers == predicted, changed, predicted))
    return np.nan_to_num(accuracies)


def _placebo_share(experiment: Experiment, hypothesis: Hypothesis, spot: Spot) -> float:
    """Share of answers that stay with placebo sources, on the pairs that select; NaN without any."""
    selecting = experiment.pairs.selecting
    placebo = experiment.placebo_answers(hypothesis, spot, selecting)
    return share_value(placebo.answers == placebo.expected, placebo.counted, placebo.expected)


def _expected_seconds(
    experiment: Experiment, hypotheses: Sequence[Hypothesis], stage: Stage, spots: Sequence[Bool[np.ndarray, "_ _"]]
) -> float:
    """Expected time of a stage: that of an interchange at the first and at the last site, times their number."""
    # Seconds of an interchange at each site; later sites have fewer layers to compute.
    selecting = experiment.pairs.selecting
    rows = experiment.pairs.rows.select(selecting)
    place = experiment.positions[0]
    seconds = []
    for site in (stage.sites[0], stage.sites[-1]):
        engine = experiment.engine(site.kind)  # records activations if it is the first
        engine.answers(site, place, rows.select(slice(0, 1)), experiment.setup.read_answers)  # warms up
        started = time.perf_counter()
        engine.answers(site, place, rows, experiment.setup.read_answers)
        seconds.append(time.perf_counter() - started)
    by_site = np.interp([site.layer for site in stage.sites], [stage.sites[0].layer, stage.sites[-1].layer], seconds)
    # A whole interchange is made once for all variables; a part of an activation for each.
    n_by_site = np.zeros(len(stage.sites))
    shared_places: set[tuple[int, int]] = set()
    for hypothesis, tried in zip(hypotheses, spots, strict=True):
        changed = hypothesis.judged.changed[:, selecting].any(-1)
        for index, n_places in enumerate(tried.sum(1).tolist()):
            if stage.search in SPANS:
                n_by_site[index] += n_places * float(changed.double().mean(1).sum())
            elif hypothesis.per_position and n_places:
                shared_places |= {(index, position) for position in changed.any(1).nonzero()[:, 0].tolist()}
            else:
                shared_places |= {(index, -1 - place) for place in np.flatnonzero(tried[index]).tolist()}
    for index, _ in shared_places:
        n_by_site[index] += 1
    return float((by_site * n_by_site).sum())


def forced_accuracies(experiment: Experiment, hypothesis: Hypothesis) -> Float[np.ndarray, " place"]:
    """For each place, the accuracy that an interchange of the outputs there would have."""
    pairs, judged = experiment.pairs, hypothesis.judged
    computations = experiment.setup.computations[hypothesis.name[0]]
    # A variable with a value at each position has its answers at all of them together, as its only place.
    if hypothesis.per_position:
        by_position = [answers_of_outputs(pairs, computations, position) for position in experiment.positions]
        answers_by_place = [torch.stack(by_position)]
    else:
        answers_by_place = [answers_of_outputs(pairs, computations, place)[None] for place in experiment.places]
    scoring = pairs.scoring
    expected, counted = judged.answers[:, scoring], judged.changed[:, scoring]
    return np.array([share_value(answers[:, scoring] == expected, counted, expected) for answers in answers_by_place])
