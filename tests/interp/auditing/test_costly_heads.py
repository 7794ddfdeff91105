"""Interventions that test a label are tried only on labelled heads whose removal costs something."""

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.auditing.experiments import READINGS, HeadExperiments
from interp.heads.methods import REMOVALS
from interp.tasks import Lego

COSTS = np.array([[0.5, 0.0], [0.05, 0.05], [0.0, 0.25], [0.5, 0.5]])
"""Accuracy lost without each head, on two outcomes."""


@pytest.fixture
def calls(monkeypatch):
    """Interventions and labels of every pass over the heads; its costs are planted."""
    found = []

    def each_head(self, names, labels, chosen):
        found.append((set(names), dict(labels), chosen))
        drop = {name: np.broadcast_to(2 * COSTS, (6, *COSTS.shape)).copy() for name in names}
        return drop, np.full((6, 2), 2.0)

    monkeypatch.setattr(HeadExperiments, "_each_head", each_head)
    return found


@pytest.mark.parametrize(
    ("negligible", "tried"),
    [(0.1, [0, 2, 3]), (0.3, [0, 3]), (0.5, [0, 3]), (0.6, []), (np.array([1.0, 0.25]), [2, 3])],
)
def test_readings_are_tried_on_labelled_heads_that_cost_enough_on_some_outcome(calls, negligible, tried):
    task = Lego(n_vars=2)
    model = Transformer(interp.config_for(task, n_layers=2, d_model=8, n_heads=2))
    batch = task.sample(6, generator=torch.Generator().manual_seed(0))
    experiments = HeadExperiments(model, task, batch, 0)
    labels = dict.fromkeys(experiments.heads, "association")
    found = experiments.effects(labels, negligible=negligible)
    assert set(REMOVALS) <= calls[0][0]
    assert not calls[0][0] & set(READINGS)
    expected = {experiments.heads[at]: "association" for at in tried}
    assert [(names, given) for names, given, _ in calls[1:]] == ([(set(READINGS), expected)] if tried else [])
    np.testing.assert_allclose(found.mean("mean"), COSTS)
    del labels[experiments.heads[3]]
    experiments.effects(labels, negligible=negligible)
    assert experiments.heads[3] not in calls[-1][1]
    assert all(np.isnan(found.drop[name]).all() for name in READINGS if not tried)
