"""Bridges under `torch.inference_mode`: the results, refusals and test results outside it."""

import pytest
import torch
from bridges import bridge_of

import interp
from hooks import from_bridge
from interp.tasks import Lego

TOKENS = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
POINT = "blocks.0.hook_resid_post"


def in_place(activation, hook):
    activation[:, 0] = 0


@pytest.fixture(params=["gpt2", "native"])
def bridge(request):
    return bridge_of(request.param)


def both(run):
    with torch.no_grad():
        outside = run()
    with torch.inference_mode():
        return outside, run()


def test_logits_caches_and_edits(bridge):
    model = from_bridge(bridge)
    edits = [(POINT, lambda activation, hook: 2 * activation), (POINT, in_place)]
    for run in (
        lambda: model(TOKENS),
        lambda: model.run_with_cache(TOKENS)[1][POINT],
        *(lambda edit=edit: model.run_with_hooks(TOKENS, fwd_hooks=[edit]) for edit in edits),
    ):
        assert torch.equal(*both(run))
    with torch.inference_mode():
        clean = model(TOKENS)
        for edit in edits:
            assert not torch.equal(model.run_with_hooks(TOKENS, fwd_hooks=[edit]), clean)


def test_an_edit_that_would_be_ignored_is_refused():
    model = from_bridge(bridge_of("bert"))
    name = next(name for name in model.hook_dict if not model.capabilities.cell(name, "edit").ok)
    with torch.inference_mode(), pytest.raises(ValueError, match=f"an edit of {name}"):
        model.run_with_hooks(TOKENS, fwd_hooks=[(name, in_place)])


def test_capabilities_are_the_same(bridge):
    assert str(from_bridge(bridge).capabilities) == str(both(lambda: from_bridge(bridge).capabilities)[1])


def test_verbs():
    task = Lego(n_vars=3)
    model = bridge_of("native", d_vocab=task.d_vocab, n_ctx=task.n_ctx)
    for verb in (
        lambda: interp.probe(model, task, n_train=64, n_test=64).accuracy,
        lambda: interp.classify_heads(model, task, n=16, untrained=1).value_weighted,
    ):
        one, two = both(verb)
        assert (one == two).all()
