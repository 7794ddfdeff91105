"""`verify` passes for every kind of model, and fails for each fault of a hook point."""

import pytest
import torch

from hooks import HeadPattern, Transformer, TransformerConfig, VerifyReport, verify
from hooks.interventions.replacements import Zero
from hooks.model.attention import Attention
from hooks.model.blocks import MLP, PreLNBlock
from hooks.model.layers import HookPoint

MIXED = (HeadPattern(kind="association"), HeadPattern(), HeadPattern(kind="local", kernel=(0.0, 0.0, 1.0)))


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "dyck"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
@pytest.mark.parametrize("positions", ["learned", "linear", "sinusoidal", "none"])
def test_every_wiring(make, block, tied, attention, positions):
    report = verify(make(block=block, tied=tied, attention=attention, positions=positions, n_layers=2))
    assert report.ok, str(report)


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "dyck"])
@pytest.mark.parametrize(
    "settings",
    [
        {"qk_identity": True},
        {"vo_identity": True},
        {"qk_identity": True, "vo_identity": True, "tied": True, "attn_bias": False},
        {"head_patterns": (MIXED,), "attention": "causal"},
        {"head_patterns": ((HeadPattern(kind="uniform"),) * 3, MIXED), "vo_identity": True},
        {"d_mlp": 0, "d_head": 5},
    ],
    ids=str,
)
def test_every_option(make, block, settings):
    report = verify(make(block=block, n_layers=2, **settings))
    assert report.ok, str(report)


def test_report_in_words(make):
    report = verify(make(n_layers=1))
    assert str(report) == "verified: 21 hook points fire once each and act; nothing is left behind"
    assert set(report.fires.values()) == {1}


def test_heads_with_zero_output_pass(make):
    model = make()
    for block in model.weights:
        block.attention.o.weight.data.zero_()
    assert verify(model).ok


def test_fresh_and_deeper_models(make):
    assert verify(Transformer(TransformerConfig(d_vocab=5, d_model=8, n_heads=2, init="normal"))).ok
    assert verify(make(tied=True).at_depth(5)).ok


def test_model_and_random_state_are_unchanged(make, tokens):
    model = make()
    model.add_hook("blocks.0.hook_attn_out", Zero().hook())
    torch.manual_seed(0)
    state, weights = torch.get_rng_state(), {name: weight.clone() for name, weight in model.state_dict().items()}
    logits = model(tokens)
    assert verify(model).ok
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert torch.equal(model(tokens), logits)
    assert len(model.hook_point("blocks.0.hook_attn_out").fwd_hooks) == 1


class Deaf(HookPoint):
    """Runs hooks, but returns the unedited activation."""

    def __call__(self, x):
        super().__call__(x)
        return x


class Leaky(HookPoint):
    """Scales the activation by 0.9."""

    def __call__(self, x):
        return super().__call__(0.9 * x)


def failures_with(model, site, name, point):
    setattr(model.get_submodule(site), name, point)
    model.setup()
    return verify(model).failures


@pytest.mark.parametrize("name", ["blocks.1.attn.hook_pattern", "blocks.0.ln2.hook_scale", "blocks.2.hook_resid_post"])
def test_notices_an_ignored_edit(make, name):
    site, point = name.rsplit(".", 1)
    assert failures_with(make(), site, point, Deaf()) == [f"an edit of {name} does not reach the logits"]


def test_notices_a_pattern_that_does_not_sum_to_one(make):
    failures = failures_with(make(), "blocks.1.attn", "hook_attn_scores", HookPoint())
    assert failures == []
    (failure,) = failures_with(make(), "blocks.1.attn", "hook_pattern", Leaky())
    assert failure.startswith("a pattern's row sums to one only within 0.1")


def test_notices_a_hook_point_that_is_never_called(make, monkeypatch):
    def write(self, resid, attn_out, at):
        resid = at.hook_resid_mid(resid + attn_out)
        return at.hook_resid_post(resid + self.mlp(self.norm_2(resid, at.ln2), at.mlp))

    monkeypatch.setattr(PreLNBlock, "write", write)
    assert verify(make(n_layers=1)).failures == [
        "blocks.0.hook_mlp_out fired 0 times in one pass",
        "an edit of blocks.0.hook_mlp_out does not reach the logits",
    ]


def test_notices_a_hook_point_that_is_called_twice(make, monkeypatch):
    original = PreLNBlock.write
    monkeypatch.setattr(
        PreLNBlock, "write", lambda self, resid, out, at: original(self, resid, at.hook_attn_out(out), at)
    )
    assert verify(make(n_layers=1)).failures == ["blocks.0.hook_attn_out fired 2 times in one pass"]


def test_notices_hook_points_that_tied_layers_share(make):
    model = make(tied=True, n_layers=2)
    original = Transformer._apply_layer
    model.__class__ = type(
        "Shared", (Transformer,), {"_apply_layer": lambda self, layer, *rest: original(self, 0, *rest)}
    )  # the mistake: sites looked up by where the weights live
    failures = verify(model).failures
    assert "blocks.0.attn.hook_z fired 2 times in one pass" in failures
    assert "blocks.1.attn.hook_z fired 0 times in one pass" in failures


def test_notices_a_pattern_that_is_ignored(make, monkeypatch):
    def forward(self, x, context, at):
        pattern = self._scores(x, context, at).softmax(-1)
        at.hook_pattern(pattern)
        v = self.v(x).unflatten(-1, (self.n_heads, -1))
        return self.o((pattern @ v.transpose(1, 2)).transpose(1, 2).flatten(2))

    monkeypatch.setattr(Attention, "forward", forward)
    failures = verify(make(n_layers=1)).failures
    assert "an edit of blocks.0.attn.hook_pattern does not reach the logits" in failures
    assert "blocks.0.attn.hook_z fired 0 times in one pass" in failures


def test_notices_hooks_left_behind(make, monkeypatch):
    model = make(n_layers=1)
    monkeypatch.setattr(HookPoint, "remove_hooks", lambda self, *args, **kwargs: None)
    report = verify(model)
    assert report.hooks_left > 0
    assert f"{report.hooks_left} hooks were left behind" in str(report)


def test_notices_a_model_with_state(make, monkeypatch):
    original, calls = MLP.forward, []
    monkeypatch.setattr(MLP, "forward", lambda *args: calls.append(1) or original(*args) * (1 + 1e-4 * len(calls)))
    report = verify(make(n_layers=1))
    assert not report.rerun_equal
    assert str(report) == "not verified: a run after the edits differs from the run before them"


def test_report_without_failures_is_ok_and_nan_fails():
    fine = {"fires": {"hook_embed": 1}, "acts": {"hook_embed": 0.5}, "pattern_error": 0.0}
    assert VerifyReport(**fine, rerun_equal=True, hooks_left=0).ok
    lost = VerifyReport(**{**fine, "acts": {"hook_embed": float("nan")}}, rerun_equal=True, hooks_left=0)
    assert lost.failures == ["an edit of hook_embed does not reach the logits"]
