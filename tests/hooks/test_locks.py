"""A model that several threads use: passes, edits and verbs do not see each other's hooks or modes."""

import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from bridges import bridge_of
from edits_in_threads import EDITS, PASSES, TOKENS, differing, run_with_hooks, slow_zero

import interp
from hooks import BridgeModel, Transformer, TransformerConfig, from_bridge
from hooks.model import locks
from interp.tasks import Lego

TASK = Lego(n_vars=3)


@pytest.fixture
def model():
    return Transformer(TransformerConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=5, n_ctx=8), seed=1).eval()


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("edit", EDITS)
def test_passes_without_hooks_are_clean_next_to_edits(model, passes, edit):
    n = 200 if passes == "call" and edit is run_with_hooks else 30
    assert differing(model, PASSES[passes], edit, n) == 0


def test_wrappers_of_one_bridge_share_a_lock():
    bridge = bridge_of("native", n_layers=1)
    one, two = from_bridge(bridge), BridgeModel(bridge, from_bridge(bridge).capabilities)
    assert one.lock is two.lock is locks.lock_of(bridge)
    assert locks.lock_of(bridge_of("native", n_layers=1)) is not one.lock
    tokens = torch.tensor([[0, 1, 2, 1]])
    with torch.no_grad():
        clean = one(tokens)
        edit = lambda model: two.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_resid_post", slow_zero)])  # noqa: E731
        assert not torch.equal(edit(one), clean)
        assert differing(one, lambda model: model(tokens), edit, n=30) == 0


def test_verbs_do_not_change_each_others_mode():
    model = Transformer(interp.config_for(TASK, n_layers=1, d_model=16, n_heads=2), seed=1).train()
    alone = interp.evaluate(model, TASK, n=64).accuracy
    modes = []

    def watch(_):
        modes.append(model.training)
        return interp.evaluate(model, TASK, n=64).accuracy

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(watch, range(16)))
    assert all((one == alone).all() for one in found)
    assert model.training


def test_two_threads_with_the_same_models_in_another_order_both_end(model):
    other = copy.deepcopy(model)

    def hold(models):
        for _ in range(200):
            with locks.holding(*models):
                time.sleep(0)
        return True

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(hold, models) for models in ([model, other], [other, model])]
        assert all(one.result(timeout=30) for one in both)


def test_a_thread_that_waits_too_long_gets_an_error(model, monkeypatch):
    monkeypatch.setattr(locks, "LONGEST", 0.05)
    with ThreadPoolExecutor(1, "reader") as pool, model.hooks([("blocks.0.attn.hook_z", slow_zero)]):
        assert model(TOKENS).shape == (2, 6, 5)  # the same thread is not refused
        with pytest.raises(RuntimeError, match=r"in use by the thread 'MainThread' .* Give each thread a copy"):
            pool.submit(model, TOKENS).result()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(model, TOKENS).result().shape == (2, 6, 5)


def test_the_lock_is_released_by_an_error(model):
    def fail(activation, hook):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        model.run_with_hooks(TOKENS, fwd_hooks=[("hook_embed", fail)])
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(model, TOKENS).result(timeout=10).shape == (2, 6, 5)


def test_copies_have_another_lock(model):
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.at_depth(1)):
        assert other.lock is not model.lock
        with other.lock, ThreadPoolExecutor(1) as pool:
            pool.submit(model, TOKENS).result(timeout=10)
    assert torch.equal(pickle.loads(pickle.dumps(model))(TOKENS), model(TOKENS))
