"""The packaged weights of a real encoder; the extra `pretrained` has them."""

from importlib.util import find_spec

import pytest
import torch

import hooks
import interp
from case_studies.lego.real_models import CONFIG, TASK
from interp.tasks import Lego
from interp.training.packaged import PACKAGED

pytestmark = pytest.mark.skipif(find_spec(PACKAGED["minilm"].package) is None, reason="needs the extra pretrained")


@pytest.fixture(scope="module")
def minilm():
    return interp.load("minilm")


def test_activations_are_those_of_transformers(minilm):
    assert max(minilm.parity.logits, *minilm.parity.hidden) < 1e-5
    verified = hooks.verify(minilm)
    assert verified.ok
    assert len(verified.fires) == 107


def test_two_heads_look_for_equal_tokens_of_chains_that_were_never_trained():
    task = Lego(n_vars=6)
    model = interp.pretrained(task, "minilm")
    patterns = interp.classify_heads(model, task, n=64)
    assert set(patterns.heads("association")) == {(1, 1), (2, 9)}
    untrained = interp.classify_heads(hooks.make_model(model.cfg, seed=0), task, n=64)
    assert not untrained.heads("association")


def test_the_models_of_the_study_have_the_shape_of_these_weights():
    assert interp.pretrained(TASK, "minilm").cfg == CONFIG


def test_fine_tuning_starts_from_the_weights():
    task = Lego(n_vars=2)
    model = interp.pretrained(task, "minilm", fresh_heads=[(1, 1)])
    before = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    run = interp.train(model, task, interp.TrainSettings(steps=2, batch_size=8, n_eval=8, learning_rate=1e-4))
    after = torch.cat([parameter.detach().flatten() for parameter in run.model.parameters()])
    assert 0 < float((after - before).abs().max()) < 1e-3
