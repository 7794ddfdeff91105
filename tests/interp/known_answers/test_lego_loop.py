"""The hand-written loop: accuracy, layers of resolution, labels of heads, and invariance."""

import pytest
import torch
from scoring import correct

import interp
from interp.known_answers import lego_loop
from interp.known_answers.craft.weights import mean_preserving_rotation, rotate
from interp.known_answers.lego.loop import ASSOCIATION, MANIPULATION
from interp.tasks import Lego
from interp.tasks.lego.groups import S3


@pytest.fixture(scope="module")
def task():
    return Lego(n_vars=3)


@pytest.fixture(scope="module")
def model(task):
    torch.set_num_threads(1)
    return lego_loop(task)


def batch_of(task, n=40):
    return task.sample(n, generator=torch.Generator().manual_seed(0), split="test")


@pytest.mark.parametrize("task", [Lego(n_vars=1), Lego(n_vars=5), Lego(n_vars=3, group=S3)], ids=["one", "five", "S3"])
def test_chains_of_any_length_and_group_are_solved(task):
    model, batch = lego_loop(task), batch_of(task)
    logits = model(batch.tokens)
    assert correct(task, logits, batch).all()
    confident = logits.softmax(-1).amax(-1).gather(1, batch.target_positions)
    assert confident.min() > 0.9999
    assert model.cfg.n_layers == 2 * task.n_vars - 1
    assert correct(task, lego_loop(task, n_layers=2 * task.n_vars + 3)(batch.tokens), batch).all()  # nothing runs over


def test_variable_i_is_resolved_by_layer_two_i_and_not_before(task, model):
    batch = batch_of(task)
    for depth in range(1, 6):
        target_logits = model.at_depth(depth)(batch.tokens).gather(
            1, batch.target_positions[..., None].expand(-1, -1, task.d_vocab_out)
        )
        known = (target_logits.amax(-1) - target_logits.amin(-1)) > 1
        assert known.all(0).tolist() == [2 * i < depth for i in range(3)]
        assert (~known).all(0).tolist() == [2 * i >= depth for i in range(3)]


def test_heads_have_the_labels_association_and_manipulation(task, model):
    result = interp.classify_heads(model, task, n=32)
    assert [list(row) for row in result.label] == [["association", "manipulation"]] * 5


def test_each_head_is_needed_in_every_second_layer(task, model):
    """Nothing new has come to be carried, or gathered, in the layers between: such a head looks as before."""
    drop = interp.ablate_heads(model, task, n=64).drop.value.mean(1).reshape(5, 2)
    matters = [[layer % 2 == (head == ASSOCIATION) for head in (ASSOCIATION, MANIPULATION)] for layer in range(5)]
    assert ((drop > 0.1) == torch.tensor(matters).numpy()).all()
    assert (abs(drop[drop < 0.1]) == 0).all()


def test_a_rotated_stream_computes_the_same(task):
    model, batch = lego_loop(task), batch_of(task)
    logits, cache = model.run_with_cache(batch.tokens)
    rotation = mean_preserving_rotation(model.cfg.d_model, torch.Generator().manual_seed(1))
    eye = torch.eye(len(rotation), dtype=torch.float64)
    torch.testing.assert_close(rotation @ rotation.T, eye, atol=1e-12, rtol=0)
    torch.testing.assert_close(rotation.sum(0), torch.ones(len(rotation), dtype=torch.float64), atol=1e-12, rtol=0)
    assert (rotation - eye).abs().max() > 0.3
    rotate(model, rotation)
    again, turned = model.run_with_cache(batch.tokens)
    torch.testing.assert_close(again, logits, atol=1e-6, rtol=0)
    for layer in range(5):
        name = f"blocks.{layer}.attn.hook_pattern"
        torch.testing.assert_close(turned[name], cache[name], atol=1e-6, rtol=0)
        name = f"blocks.{layer}.hook_resid_post"
        torch.testing.assert_close(turned[name], cache[name] @ rotation, atol=1e-6, rtol=0)


def test_norms_are_the_identity(task, model):
    _, cache = model.run_with_cache(batch_of(task).tokens)
    for layer in range(5):
        stream = cache[f"blocks.{layer}.hook_resid_pre"]
        torch.testing.assert_close(cache[f"blocks.{layer}.ln1.hook_normalized"], stream, atol=1e-8, rtol=0)
        assert stream.mean(-1).abs().max() < 1e-12


def test_the_compact_format_raises():
    with pytest.raises(ValueError, match="sentence_format='compact'; the loop needs 'paper'"):
        lego_loop(Lego(n_vars=2, sentence_format="compact"))
