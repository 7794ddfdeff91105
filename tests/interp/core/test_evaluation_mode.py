"""Verbs run models in evaluation mode and leave them as they were."""

import numpy as np
import pytest
from torch import nn

import interp
from hooks import Transformer
from interp.core.evaluation_mode import evaluation_mode
from interp.tasks import Lego
from interp.theory.signs import sign_counting

TASK = Lego(n_vars=3)
OTHER = Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2), seed=1)
VERBS = {
    "evaluate": lambda model: interp.evaluate(model, TASK, n=64),
    "probe": lambda model: interp.probe(model, TASK, n_train=96, n_test=64),
    "classify_heads": lambda model: interp.classify_heads(model, TASK, n=32),
    "ablate_heads": lambda model: interp.ablate_heads(model, TASK, n=32, method="resample"),
    "audit": lambda model: interp.audit(model, TASK, n=32, at_chance=True),
    "audit_probe": lambda model: interp.audit_probe(model, TASK, n_train=64, n_test=64),
    "extrapolate": lambda model: interp.extrapolate(model, Lego(n_vars=3, n_supervised=2), n=32),
    "attention_variation": lambda model: interp.attention_variation([model, OTHER], TASK, n_sampled=4),
    "sign_counting": lambda model: sign_counting(model, TASK, n=64),
}


class Counted(nn.Dropout):
    """Dropout that counts the passes in training mode."""

    noisy = 0

    def forward(self, input):
        self.noisy += self.training
        return super().forward(input)


def state_of(model):
    return [module.training for module in model.modules()] + [one.requires_grad for one in model.parameters()]


@pytest.fixture
def model():
    net = Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2))
    net.dropout = Counted(0.5)
    net.embed.register_forward_hook(lambda module, inputs, output: net.dropout(output))
    net.train()
    net.weights[1].eval()
    net.unembed.weight.requires_grad_(False)
    return net


@pytest.mark.parametrize("verb", VERBS)
def test_modes_and_gradients_are_restored(model, verb):
    before = [module.training for module in model.modules()], [one.requires_grad for one in model.parameters()]
    assert len(set(before[0])) == 2
    VERBS[verb](model)
    assert (
        [module.training for module in model.modules()],
        [one.requires_grad for one in model.parameters()],
    ) == before
    assert model.dropout.noisy == 0


def test_two_calls_with_dropout_on_agree(model):
    first, second = (VERBS["ablate_heads"](model) for _ in range(2))
    np.testing.assert_array_equal(first.loss_rise, second.loss_rise)


def fail(model):
    with evaluation_mode(model, None):
        model.unembed.weight.requires_grad_(True)
        assert not any(module.training for module in model.modules())
        raise RuntimeError("on purpose")


def test_an_error_restores_too(model):
    with pytest.raises(RuntimeError, match="on purpose"):
        fail(model)
    assert model.training
    assert not model.unembed.weight.requires_grad
