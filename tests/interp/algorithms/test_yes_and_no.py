"""Algorithms of tasks with a single yes or no: what is there is found, and what cannot be there is not."""

import numpy as np
import pytest
import torch

import interp
from interp.algorithms import Algorithm, Site, Variable, chain_loop
from interp.algorithms.findings import finding_status
from interp.algorithms.predictions import pairs_of_all, share_of
from interp.core.intervals import Interval
from interp.known_answers.lego.loop import lego_loop
from interp.tasks import Lego
from tests.support.conjunctions import (
    NO,
    TASKS,
    Brackets,
    conjunction,
    depth_algorithm,
    flags_algorithm,
    hand_written,
    mirrored,
    nonsense_algorithm,
    running_algorithm,
    trained,
)
from tests.support.digit_and_mode import DigitAndMode, digit_and_mode_model, digit_plus_mode

PALINDROME = TASKS["palindrome"]
SLOW = ("sorted", "next is another")
NAMES = ["palindrome", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
NAMES += [pytest.param(name, marks=pytest.mark.long) for name in TASKS if name not in ("palindrome", *SLOW)]


def statuses(result):
    return {finding.status for finding in result.findings}


@pytest.mark.parametrize("name", NAMES)
def test_the_flags_of_a_conjunction_are_found(name):
    task = TASKS[name]
    result = interp.implements(hand_written(task), task, flags_algorithm(task))
    assert result.verdict == "implements", result.reason
    for index, finding in enumerate(result.findings):
        assert (finding.site, finding.place) == ("resid 1", str(task.pairs[index][0]))
        assert (finding.accuracy, finding.invariance) == (1, 1)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_there_is_not_found(name):
    """Running flags, which a loop would have, and parities without a meaning, which change answers both ways or one."""
    task = TASKS[name]
    model = hand_written(task)
    absent = [nonsense_algorithm(task, 0, both_ways=True), nonsense_algorithm(task, 1, both_ways=False)]
    if len(task.pairs) > 2:
        absent.append(running_algorithm(task))
    for algorithm in absent:
        result = interp.implements(model, task, algorithm)
        assert result.verdict == "neither"
        assert statuses(result) == {"not found"}
        assert all(finding.why for finding in result.findings)


def test_any_damage_is_a_no_and_shows_nothing():
    """The last state has the answer: swapped in, it makes a yes a no, as predicted, whatever the flag is."""
    result = interp.implements(hand_written(PALINDROME), PALINDROME, running_algorithm(PALINDROME), sites="resid")
    finding = result.finding("first 3")
    assert (finding.site, finding.place) == ("resid 2", "8")
    assert finding.accuracy > 0.85  # of a yes that becomes a no, and of a no that becomes a yes
    assert finding.invariance < 0.6
    assert "answers stay with a source that has the same value in 0.5" in finding.why


def test_a_constant_answer_is_no_success():
    task = PALINDROME
    model = hand_written(task)
    with torch.no_grad():
        model.unembed.weight.zero_()
        model.unembed.bias[NO] = 1
    result = interp.implements(model, task, flags_algorithm(task), n=256)
    assert result.verdict == "neither"
    assert result.answers[0].accuracy == 0.5  # right about every no, which has half of the weight
    assert all(finding.untrained < 0.7 for finding in result.findings if finding.status != "not tested")


def test_all_inputs_are_exact_and_the_same_for_every_seed():
    task = conjunction("palindrome of six", length=6, symbols=2, pairs=mirrored(6), bad=lambda a, b: a != b)
    results = [
        interp.implements(hand_written(task), task, flags_algorithm(task), n="all", seed=seed) for seed in (0, 1)
    ]
    for result in results:
        assert result.verdict == "implements"
        assert (result.exact, result.n_inputs) == (True, 64)
        assert "all in which an answer changes, of all 64 inputs; exact" in str(result)
        for finding in result.findings:
            assert finding.accuracy.exact
            assert finding.accuracy.low == finding.accuracy == finding.accuracy.high == 1
    first, second = (
        [(finding.site, finding.place, finding.accuracy) for finding in result.findings] for result in results
    )
    assert first == second
    np.testing.assert_array_equal(results[0].map, results[1].map)


def test_of_many_pairs_a_fixed_part_is_taken(monkeypatch):
    """It is not exact: there are intervals, and other pairs select sites than score them."""
    monkeypatch.setattr("interp.algorithms.predictions.MOST_PAIRS_OF_ALL", 600)
    pairs = pairs_of_all(PALINDROME, [flags_algorithm(PALINDROME)])
    again = pairs_of_all(PALINDROME, [flags_algorithm(PALINDROME)])
    assert (len(pairs), pairs.every_pair, pairs.scoring) == (600, False, slice(300, 600))
    result = interp.implements(hand_written(PALINDROME), PALINDROME, flags_algorithm(PALINDROME), n="all")
    assert not result.exact
    assert result.answers[0].on_inputs.exact
    assert "600 pairs, a fixed part of all in which an answer changes, of all 256 inputs, half to select" in str(result)
    assert torch.equal(pairs.rows.base, again.rows.base)
    assert torch.equal(pairs.rows.source, again.rows.source)


def test_every_pair_of_few_inputs():
    task = DigitAndMode()
    pairs = pairs_of_all(task, [digit_plus_mode()])
    assert pairs.every_pair
    assert len(pairs) == 15 * 14  # in each pair the digit or the mode differs
    result = interp.implements(digit_and_mode_model(), task, digit_plus_mode(), n="all")
    assert result.verdict == "implements"
    assert "210 pairs, all in which an answer changes, of all 15 inputs; exact" in str(result)


def test_two_variables_of_one_activation_are_found_at_finer_sites():
    """A whole interchange moves both. In the input each has a direction, which shows nothing; each has a head, too."""
    task, model = DigitAndMode(), digit_and_mode_model()
    result = interp.implements(model, task, digit_plus_mode())
    assert result.verdict == "implements"
    assert result.alignment == {"digit": ("z 0.0", "1"), "mode": ("z 0.1", "1")}
    whole = interp.implements(model, task, digit_plus_mode(), sites="resid", search="whole")
    assert whole.verdict == "neither"
    assert "digit and mode of digit plus mode are at no site that was searched" in whole.reason
    means = interp.implements(model, task, digit_plus_mode(), sites="resid")
    assert means.verdict == "undecided"
    assert {finding.search for finding in means.findings} == {"means"}
    assert "in the span of its means" in str(means)


def test_the_expected_time_is_said_before_a_search(monkeypatch):
    said = []
    monkeypatch.setattr("interp.algorithms.search.say", said.append)
    monkeypatch.setattr("interp.algorithms.search.WORTH_SAYING", 0)
    interp.implements(digit_and_mode_model(), DigitAndMode(), digit_plus_mode(), n=64)
    assert "interchanges: 2 variables at 4 sites and places, about" in said[0]
    assert "2 variables at spans of means of resid, as no site before has them, about" in said[1]


@pytest.mark.parametrize(
    ("low", "high", "status"), [(0.95, 1.0, "found"), (0.8, 1.0, "undecided"), (0.2, 0.4, "not found")]
)
def test_a_source_with_the_same_value_decides(low, high, status):
    right = Interval(value=np.array(1.0), low=np.array(0.95), high=np.array(1.0), n=90)
    missing = Interval(value=np.array(np.nan), low=np.array(np.nan), high=np.array(np.nan), n=0)
    invariance = Interval(value=np.array((low + high) / 2), low=np.array(low), high=np.array(high), n=90)
    decided, why = finding_status(right, missing, invariance)
    assert decided == status
    assert ("same value" in why) == (status != "found")


def test_one_direction_without_a_source_of_the_same_value_is_undecided():
    right = Interval(value=np.array(1.0), low=np.array(0.95), high=np.array(1.0), n=90)
    missing = Interval(value=np.array(np.nan), low=np.array(np.nan), high=np.array(np.nan), n=0)
    assert finding_status(right, missing, missing)[0] == "found"
    assert finding_status(right, missing, missing, one_way=True)[0] == "undecided"


def test_no_answer_has_more_than_half_of_the_weight():
    answers = torch.tensor([0] * 90 + [1] * 10)[None, :, None]
    counted = torch.ones_like(answers, dtype=torch.bool)
    always_no = share_of(answers == 0, counted, answers)
    assert always_no == pytest.approx(0.5)
    # Ten answers with half of the weight are worth less than a hundred equal ones: 1 / (0.25 / 90 + 0.25 / 10) = 36
    all_right = share_of(counted, counted, answers)
    assert all_right == 1
    assert all_right.low == pytest.approx(0.025 ** (1 / 36))
    assert all_right.n == 100


def gate_algorithm(task):
    """The first flag decides if all other pairs are good, and every other input is a yes: wrong in most inputs."""

    def answers(batch, first):
        others_are_good = ~task.flags(batch.tokens[:, :-1])[:, 1:].any(1)
        return torch.where(others_are_good, 1 - first, 1)[:, None]

    flag = Variable(name="flag 0", compute=lambda batch: task.flags(batch.tokens[:, :-1])[:, 0].long())
    return Algorithm(name="gate", variables=(flag,), answers=answers)


@pytest.mark.parametrize("n", [256, "all"])
def test_wrong_answers_where_no_variable_matters_refute(n):
    task = conjunction("palindrome of six", length=6, symbols=2, pairs=mirrored(6), bad=lambda a, b: a != b)
    result = interp.implements(hand_written(task), task, gate_algorithm(task), n=n)
    assert result.answers[0].accuracy == 1  # in pairs in which the flag changes an answer
    assert result.answers[0].on_inputs.high < 0.9
    assert result.verdict == "neither"
    assert "the model answers as gate predicts in" in result.reason


def test_a_variable_that_no_right_answer_tests_is_undecided():
    """In one string of 256 it turns the answer over, and there the model answers as if it did not."""
    task = PALINDROME
    plain = flags_algorithm(task)
    rare = Variable(name="rare", compute=lambda batch: (batch.tokens[:, :-1].sum(1) == 0).long())

    def answers(batch, *values):
        answer = plain.answers(batch, *values[:-1])
        return torch.where(values[-1].bool()[:, None], 1 - answer, answer)

    algorithm = Algorithm(name="with rare", variables=(*plain.variables, rare), answers=answers)
    result = interp.implements(hand_written(task), task, algorithm, sites="resid")
    assert result.finding("rare").status in ("not tested", "not found")
    assert result.verdict != "implements"
    assert "rare" in result.reason or "the model answers as with rare" in result.reason


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda batch: batch.tokens[:, 0] / 3, "variable 'value' of 'bad' gave torch.float32; it must give integers"),
        (lambda batch: batch.tokens, r"variable 'value' of 'bad' gave \(\d+, 9\); it must give \(batch,\)"),
        (lambda batch: None, "variable 'value' of 'bad' gave NoneType"),
    ],
)
def test_values_that_are_no_numbers_of_values(as_a_user, compute, text):
    bad = Algorithm(
        name="bad", variables=(Variable(name="value", compute=compute),), answers=lambda batch, value: batch.labels
    )
    with pytest.raises(ValueError, match=text):
        interp.implements(hand_written(PALINDROME), PALINDROME, bad, n=64)


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (lambda batch, value: None, "answers of 'bad' gave NoneType"),
        (lambda batch, value: batch.labels.float(), "answers of 'bad' gave torch.float32"),
        (lambda batch, value: batch.labels - 3, "answers of 'bad' has -3; give indices, and -1 for no answer"),
    ],
)
def test_answers_that_are_no_indices(as_a_user, answers, text):
    value = Variable(name="value", compute=lambda batch: batch.tokens[:, 0])
    with pytest.raises(ValueError, match=text):
        interp.implements(
            hand_written(PALINDROME), PALINDROME, Algorithm(name="bad", variables=(value,), answers=answers)
        )


def test_logits_that_are_not_finite_are_refused():
    model = hand_written(PALINDROME)
    with torch.no_grad():
        model.unembed.weight[NO] *= 1e38
    with pytest.raises(ValueError, match=r"logits .* not finite"):
        interp.implements(model, PALINDROME, flags_algorithm(PALINDROME), n=64)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rivals": flags_algorithm(PALINDROME)}, "rivals"),
        ({"sites": {}}, "sites is empty"),
        ({"sites": {"flag 9": Site("resid", 0)}}, "sites has 'flag 9', which is no variable; there are flag 0"),
        ({"sites": {"flag 0": Site("resid", 0, coordinates=())}}, r"coordinates is \(\); give some, each once"),
        ({"sites": {"flag 0": Site("resid", 0, coordinates=(3, 3))}}, r"coordinates is \(3, 3\); give some, each once"),
        ({"search": "learned", "n": "all"}, "search is 'learned', which needs other pairs"),
    ],
)
def test_arguments_that_say_nothing(as_a_user, options, text):
    with pytest.raises(ValueError, match=text):
        interp.implements(
            hand_written(PALINDROME),
            PALINDROME,
            running_algorithm(PALINDROME) if "rivals" in options else flags_algorithm(PALINDROME),
            **options,
        )


def test_parents_as_a_text_are_refused(as_a_user):
    values = Variable(name="ab", compute=lambda batch: batch.tokens[:, 0])
    child = Variable(name="child", compute=lambda batch, value: value, parents="ab")
    with pytest.raises(ValueError, match="parents of 'child' is 'ab'; give a tuple of names"):
        Algorithm(name="text", variables=(values, child), answers=lambda batch, *values: batch.labels)


def test_all_inputs_of_tasks_that_cannot_list_or_pair_them(as_a_user):
    task = Lego(n_vars=2)
    with pytest.raises(ValueError, match=r"Lego.counterparts has rules of its own for pairs. Give a number"):
        interp.implements(lego_loop(task), task, chain_loop(task), n="all")
    with pytest.raises(ValueError, match="n is 'every'"):
        interp.implements(lego_loop(task), task, chain_loop(task), n="every")


@pytest.mark.slow
def test_a_depth_that_forgets_what_was_wrong_is_not_found_in_a_trained_model():
    """() and )( have the same depth, but only one can go on to a yes."""
    task = Brackets(length=6)
    model = trained(task, 0, steps=500)
    batch = task.every_input()
    assert (model(batch.tokens)[:, -1].argmax(-1) == batch.labels[:, 0]).all()
    result = interp.implements(model, task, depth_algorithm(task, 2), n=1024)
    assert result.finding("depth after 2").status == "not found"
    exact = [interp.implements(model, task, depth_algorithm(task, 2), n="all", seed=seed) for seed in range(2)]
    assert [result.finding("depth after 2").status for result in exact] == ["not found"] * 2


def test_a_variable_of_which_every_value_is_one_input_needs_both_directions():
    """No other input has the same value, so that only answers that change to a yes and to a no show anything."""
    task = PALINDROME
    powers = 2 ** torch.arange(task.length)
    number = Variable(name="number", compute=lambda batch: batch.tokens[:, :-1] @ powers)
    only_no = Algorithm(
        name="any change is a no",
        variables=(number,),
        answers=lambda batch, value: (batch.labels[:, 0] * (value == batch.tokens[:, :-1] @ powers).long())[:, None],
    )
    result = interp.implements(hand_written(task), task, only_no, n=256)
    assert result.finding("number").status != "found"
    assert result.verdict != "implements"
