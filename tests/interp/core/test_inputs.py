"""Intervals on a finite task: an input counts once, however often it was drawn."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.core.inputs import distinct_inputs, repeats_text, sum_by_input
from interp.core.intervals import Interval
from interp.core.statistics import pooled_interval, proportion_interval
from interp.tasks import Lego
from interp.tasks.base import Batch

FEW = Lego(n_vars=2, sentence_format="compact", alphabet="abc")
MANY = Lego(n_vars=4)


def batch_of(tokens, **more):
    tokens = torch.tensor(tokens)
    zeros = torch.zeros(len(tokens), 1, dtype=torch.long)
    return Batch(tokens=tokens, target_positions=zeros, labels=zeros, supervised=torch.tensor([True]), **more)


def test_inputs_are_told_apart_by_tokens_positions_and_padding():
    rows = [[1, 2], [2, 1], [1, 2], [1, 2]]
    first = distinct_inputs(batch_of(rows))
    assert first[0] == first[2] == first[3] != first[1]
    positions = torch.tensor([[0, 1], [0, 1], [1, 2], [0, 1]])
    mask = torch.tensor([[True, True]] * 3 + [[True, False]])
    assert len(set(distinct_inputs(batch_of(rows, position_ids=positions)))) == 3
    assert len(set(batch_of(rows, position_ids=positions).input_keys())) == 3
    assert len(set(distinct_inputs(batch_of(rows, position_ids=positions, attention_mask=mask)))) == 4


def test_inputs_are_counted_over_batches_of_different_lengths():
    mask = torch.tensor([[True, True, False], [True, True, True]])
    positions = torch.tensor([[0, 1, 0], [0, 1, 2]])
    short = set(batch_of([[1, 2], [2, 1], [1, 2]]).input_keys())
    assert len(short) == 2
    long = set(batch_of([[1, 2, 0], [1, 2, 0]], attention_mask=mask).input_keys())
    assert (len(long), len(short & long), len(short | long)) == (2, 1, 3)
    placed = set(batch_of([[1, 2, 0], [1, 2, 0]], attention_mask=mask, position_ids=positions).input_keys())
    assert len(short | placed) == 4


def test_sums_keep_the_accuracy_and_the_order_of_distinct_rows():
    values = np.array([[1.0], [0.0], [1.0]])
    assert sum_by_input(values, np.array([0, 1, 0])).tolist() == [[2.0], [0.0]]
    assert sum_by_input(values, np.array([2, 0, 1])) is values


def test_25_copies_of_80_answers_have_the_interval_of_80():
    right = np.repeat([1.0, 0.0], [60, 20])[:, None]
    inputs = np.repeat(np.arange(80), 25)
    copies = np.repeat(right, 25, axis=0)
    found = pooled_interval(sum_by_input(copies, inputs), sum_by_input(np.ones_like(copies), inputs))
    np.testing.assert_allclose(np.ravel(found), np.ravel([0.75, *proportion_interval(np.array(60), 80)]), atol=1e-12)
    assert found[2] - found[1] > 3 * np.subtract(*pooled_interval(copies, np.ones_like(copies))[:0:-1])


def model_of(task):
    return Transformer(interp.config_for(task, n_layers=2, n_heads=2, d_model=16), seed=0)


VERBS = {
    "evaluate": lambda task, n: interp.evaluate(model_of(task), task, n=n),
    "probe": lambda task, n: interp.probe(model_of(task), task, n_train=200, n_test=n),
    "ablate": lambda task, n: interp.ablate(model_of(task), task, n=n),
    "ablate_heads": lambda task, n: interp.ablate_heads(model_of(task), task, n=n),
    "extrapolate": lambda task, n: interp.extrapolate(
        model_of(task), replace(task, n_supervised=None, supervised=(0,)), n=n
    ),
}


def interval_of(result):
    """The first estimates of a result with their interval."""
    return next((value for value in vars(result).values() if isinstance(value, Interval)), result)


def n_distinct(result):
    interval = interval_of(result)
    return int(np.max(interval.n if isinstance(interval, Interval) else result.n_distinct))


@pytest.mark.parametrize("verb", VERBS)
def test_more_draws_of_the_same_inputs_do_not_narrow_an_interval(verb):
    some, more = VERBS[verb](FEW, 500), VERBS[verb](FEW, 2000)
    distinct = n_distinct(some)
    assert distinct == n_distinct(more) < 400
    assert f"({distinct} distinct, which intervals count)" in str(some)
    wide, narrow = (np.nanmax(interval_of(result).high - interval_of(result).low) for result in (some, more))
    assert narrow == pytest.approx(wide, rel=0.25)  # half of it, if every draw counted


@pytest.mark.parametrize("verb", VERBS)
def test_distinct_samples_are_not_mentioned(verb):
    result = VERBS[verb](MANY, 300)
    assert n_distinct(result) == 300
    assert "distinct" not in str(result)
    assert repeats_text(5, 5) == ""


def test_a_pruning_curve_counts_inputs():
    some, more = (interp.pruning_curve(model_of(FEW), FEW, by="magnitude", fractions=[1.0], n=n) for n in (500, 2000))
    wide, narrow = (float((one.accuracy.high - one.accuracy.low)[0, 0]) for one in (some, more))
    assert narrow == pytest.approx(wide, rel=0.25)


@pytest.mark.parametrize("n", [400, "enough"])
def test_audits_say_of_how_many_inputs_they_are(n):
    few = interp.audit(model_of(FEW), FEW, n=n, at_chance=True)
    drawn, test_set = few.n, FEW.sample(2000, generator=torch.Generator(), split="test")
    assert few.n_distinct == len(set(test_set.input_keys())) < 50 < drawn
    assert few.counted() == f"{drawn} ({few.n_distinct} distinct)"
    assert f"{drawn} ({few.n_distinct} distinct) sequences" in str(few)
    many = interp.audit(model_of(MANY), MANY, n=100, at_chance=True)
    assert (many.n_distinct, many.counted()) == (100, "100")


def test_an_audit_of_probes_says_of_how_many_inputs_it_is():
    found = interp.audit_probe(model_of(FEW), FEW, n_train=200, n_test=400)
    assert int(np.max(found.accuracy.n)) < 250
    assert f"400 ({int(np.max(found.accuracy.n))} distinct) examples" in str(found)
