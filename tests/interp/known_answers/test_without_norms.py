"""A known answer with its norms removed: the same function, and every analysis finds the same truth."""

from dataclasses import replace
from functools import cache

import pytest
import torch

import interp
from hooks import Transformer, load_checkpoint, save_checkpoint
from interp.known_answers.craft.transforms import randomise
from interp.known_answers.lego.variants import loop
from interp.tasks import Lego

N = 96


@cache
def with_norms():
    return loop(Lego(n_vars=2), torch.Generator().manual_seed(0), untie=True)


@cache
def without_norms():
    """The same weights in layers without norms: those of the known answer are the identity."""
    answer = with_norms()
    model = Transformer(replace(answer.model.cfg, block="no_norm", layer_norm_eps=1e-5)).double().eval()
    weights = answer.model.state_dict()
    model.load_state_dict({name: weight for name, weight in weights.items() if "norm" not in name})
    return replace(answer, model=model)


def test_logits_are_those_with_identity_norms():
    task = with_norms().task
    tokens = task.sample(N, generator=torch.Generator().manual_seed(0)).tokens
    expected = with_norms().model(tokens)
    torch.testing.assert_close(without_norms().model(tokens), expected, atol=1e-8, rtol=1e-8)


def test_a_rotated_stream_computes_the_same(tmp_path):
    answer = without_norms()
    rotated = randomise(answer, torch.Generator().manual_seed(3), rotate=True)
    assert not torch.allclose(rotated.model.W_E, answer.model.W_E, atol=0.01)
    tokens = answer.task.sample(N, generator=torch.Generator().manual_seed(0)).tokens
    torch.testing.assert_close(rotated.model(tokens), answer.model(tokens), atol=1e-7, rtol=1e-7)
    save_checkpoint(rotated.model, tmp_path / "model")
    assert torch.equal(load_checkpoint(tmp_path / "model")(tokens), rotated.model(tokens))


@pytest.mark.slow
def test_audit_finds_the_truth_about_every_head():
    answer = without_norms()
    # The 96 sequences of the other tests are 85 distinct ones, a few less than the corrected level needs
    result = interp.audit(answer.model, answer.task, n=2 * N)
    assert {head.place: head.verdict for head in result.heads} == {
        head_place: truth.truth for head_place, truth in answer.heads.items()
    }
    assert (result.clean == 1).all()


def test_heads_are_those_of_the_model_with_norms():
    answers = without_norms(), with_norms()
    kinds = [interp.classify_heads(answer.model, answer.task, n=N) for answer in answers]
    torch.testing.assert_close(*(torch.as_tensor(kind.score.value) for kind in kinds), atol=1e-6, rtol=0)
    drops = [interp.ablate_heads(answer.model, answer.task, n=N).drop for answer in answers]
    assert drops[0] == pytest.approx(drops[1], abs=1e-9)
    assert (drops[0] > 0.1).any()


def test_a_run_is_saved_and_loaded(tmp_path):
    task = Lego(n_vars=2, sentence_format="compact")
    cfg = interp.config_for(task, n_layers=1, d_model=16, n_heads=2, block="no_norm", mlp_bias=False, attn_bias=False)
    model = Transformer(cfg)
    before = model.state_dict()["weights.0.mlp.w_in.weight"].clone()
    interp.train(model, task, interp.TrainSettings(steps=2, batch_size=8, eval_every=1, n_eval=8), folder=tmp_path)
    loaded = interp.training.TrainingRun.load(tmp_path).model
    assert loaded.cfg == cfg
    assert all(torch.equal(weight, loaded.state_dict()[name]) for name, weight in model.state_dict().items())
    assert not torch.equal(before, loaded.weights[0].mlp.w_in.weight)
