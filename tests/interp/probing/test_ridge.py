"""Ridge classifiers against scikit-learn, for each cell and relabelling."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge, RidgeClassifier

from interp.probing.ridge import RIDGE, fit

CELLS, SAMPLES, WIDTH, CLASSES, DRAWS = 3, 300, 12, 4, 2


@pytest.fixture
def data(generator):
    """Inputs with a large mean and unequal scales, and labels that they partly encode."""
    inputs = torch.randn(CELLS, SAMPLES, WIDTH, generator=generator)
    labels = torch.randint(CLASSES, (CELLS, DRAWS, SAMPLES), generator=generator)
    direction = torch.randn(CELLS, CLASSES, WIDTH, generator=generator)
    inputs = inputs + 0.7 * torch.stack([direction[cell][labels[cell, 0]] for cell in range(CELLS)])
    return inputs * torch.linspace(0.5, 2, WIDTH) + 10.0, labels


def penalty(inputs):
    """The equivalent alpha of scikit-learn: our penalty is relative to the mean variance."""
    return RIDGE * len(inputs) * float(inputs.var(0, unbiased=False).mean())


def test_weights_and_biases_equal_scikit_learn(data):
    inputs, labels = data
    ours = fit(inputs, labels, CLASSES)
    for cell in range(CELLS):
        for draw in range(DRAWS):
            onehot = np.eye(CLASSES)[labels[cell, draw]]
            theirs = Ridge(alpha=penalty(inputs[cell])).fit(inputs[cell].double().numpy(), onehot)
            # single precision against double: relative to weights of order 0.1 and inputs of order 10
            assert np.allclose(ours.weight[cell, draw].T, theirs.coef_, atol=1e-5)
            assert np.allclose(ours.bias[cell, draw], theirs.intercept_, atol=1e-3)


def test_ridge_accuracies_equal_scikit_learn(data, generator):
    inputs, labels = data
    fresh = torch.roll(inputs, 1, dims=1) + 0.5 * torch.randn(inputs.shape, generator=generator)
    fresh_labels = torch.roll(labels, 1, dims=2)
    ours = fit(inputs, labels, CLASSES).accuracy(fresh, fresh_labels)
    assert ours.shape == (CELLS, DRAWS)
    for cell in range(CELLS):
        for draw in range(DRAWS):
            theirs = RidgeClassifier(alpha=penalty(inputs[cell])).fit(inputs[cell], labels[cell, draw])
            # one example in 300 may be on the boundary up to rounding
            assert float(ours[cell, draw]) == pytest.approx(
                theirs.score(fresh[cell], fresh_labels[cell, draw]), abs=1.5 / SAMPLES
            )
    assert ours[:, 0].min() > 0.7
    assert ours[:, 1].max() < 0.5


def test_relabellings_share_a_factorisation(data):
    inputs, labels = data
    together = fit(inputs, labels, CLASSES)
    for draw in range(DRAWS):
        alone = fit(inputs, labels[:, draw : draw + 1], CLASSES)
        assert torch.allclose(together.weight[:, draw], alone.weight[:, 0], atol=1e-6)
        assert torch.allclose(together.bias[:, draw], alone.bias[:, 0], atol=1e-5)


def test_a_larger_penalty_makes_smaller_weights(data):
    inputs, labels = data
    norms = [fit(inputs, labels, CLASSES, ridge=ridge).weight.norm() for ridge in (1e-4, 1.0, 1e3)]
    assert norms[0] > norms[1] > norms[2]


def test_invariance_to_the_scale_of_inputs(data):
    inputs, labels = data
    one = fit(inputs, labels, CLASSES).accuracy(inputs, labels)
    other = fit(1000 * inputs, labels, CLASSES).accuracy(1000 * inputs, labels)
    assert torch.allclose(one, other, atol=1.5 / SAMPLES)


def test_constant_inputs_predict_the_most_frequent_class():
    labels = torch.tensor([[[0] * 10 + [1] * 20]])
    accuracy = fit(torch.ones(1, 30, 5), labels, 2).accuracy(torch.ones(1, 30, 5), labels)
    assert float(accuracy) == pytest.approx(2 / 3)
