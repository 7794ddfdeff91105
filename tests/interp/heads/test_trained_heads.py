"""Classification and ablation of heads in a LEGO model trained with mimicking."""

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp import TrainSettings
from interp.tasks import Lego
from interp.training.objectives import ASSOCIATION_HEAD, MANIPULATION_HEAD

pytestmark = pytest.mark.long  # trains for a minute
DRAWS = 20


@pytest.fixture(scope="module")
def task():
    return Lego(n_vars=3)


@pytest.fixture(scope="module")
def model(task):
    torch.set_num_threads(1)
    settings = TrainSettings(curriculum=((2, 80), (3, 420)), association="mimic")
    return interp.train(Transformer(interp.config_for(task)), task, settings).model


@pytest.fixture(scope="module")
def patterns(model, task):
    return interp.classify_heads(model, task)


def test_only_mimicking_heads_are_labelled(patterns):
    for label, taught in (("association", ASSOCIATION_HEAD), ("manipulation", MANIPULATION_HEAD)):
        found = patterns.heads(label)
        assert {head for _, head in found} == {taught}
        assert {0, 1, 2} <= {layer for layer, _ in found}  # training on the task may undo it in late layers


def test_ablating_them_costs_more_than_random_sets(model, task, patterns):
    sets = {name: patterns.heads(name) for name in ("association", "manipulation")}
    result = interp.ablate_heads(model, task, heads=sets, n_random=DRAWS)
    assert (result.clean > 0.99).all()
    mean, spread = result.random_drop.mean(1), result.random_drop.std(1, ddof=1)
    above = result.drop.low > mean + 5 * spread / DRAWS**0.5
    association, manipulation = range(2)
    # The first variable needs only its own clause; every other variable needs another clause. Whether the first one is
    # spared entirely depends on the trained weights: test_ablate.py requires it of hand-written ones.
    assert above[association, 1:].all()
    assert (result.drop.low[association, 1:] > result.random_drop[association, :, 1:].max(0)).all()
    assert result.drop.high[association, 0] < result.drop.low[association, 1:].min()
    # not every variable needs these: here the last one keeps its accuracy
    assert above[manipulation, :2].all()
    assert np.mean(result.drop[manipulation]) > np.mean(mean[manipulation])
