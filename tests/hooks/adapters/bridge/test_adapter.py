"""BridgeModel: forward, resume, hooks under canonical names, errors, untrained copies."""

import dataclasses
import gc
import weakref
from functools import cache

import pytest
import torch
import transformers
from bridges import D_VOCAB, KINDS, bridge_of, hugging_face
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import hooks
from hooks.adapters.bridge import BridgeModel, Capabilities, Cell
from hooks.adapters.bridge.capabilities import capabilities_of
from hooks.interventions.replacements import Zero

HF_KINDS = KINDS[:-1]


@cache
def model_of(kind) -> BridgeModel:
    return hooks.from_bridge(bridge_of(kind))


@pytest.fixture
def tokens():
    return torch.randint(2, D_VOCAB, (3, 7), generator=torch.Generator().manual_seed(4))


def padded(tokens, side):
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1:, slice(0, 2) if side == "left" else slice(5, 7)] = False
    return mask


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_logits_equal_the_bridge(kind, tokens):
    model = model_of(kind)
    assert torch.equal(model(tokens), model.bridge(tokens))
    for side in ("left", "right"):
        mask = padded(tokens, side)
        wanted = model.bridge(tokens, attention_mask=mask.long())
        assert torch.equal(model(tokens, attention_mask=mask), wanted)
        other = torch.where(mask, tokens, (tokens + 1) % D_VOCAB)
        assert torch.allclose(model(other, attention_mask=mask)[mask], wanted[mask], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_positions_count_from_zero_in_every_model(kind, tokens):
    model = model_of(kind)
    count = torch.arange(7)[None]
    assert torch.equal(model(tokens, position_ids=count), model(tokens))
    assert not torch.allclose(model(tokens, position_ids=2 * count), model(tokens), atol=1e-3)
    assert model.capabilities.positions_in_layers == (kind in ("llama", "neox"))
    assert model.cfg.attention == ("bidirectional" if kind in ("bert", "roberta") else "causal")


@torch.no_grad()
def test_token_types_only_in_models_that_have_them(tokens):
    kinds = torch.ones_like(tokens)
    bert = model_of("bert")
    assert torch.equal(bert(tokens, token_type_ids=kinds), bert.bridge(tokens, token_type_ids=kinds))
    with pytest.raises(ValueError, match="token_type_ids is given, which this bridge of LlamaForCausalLM cannot use: "):
        model_of("llama")(tokens, token_type_ids=kinds)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 99), side=st.sampled_from(["none", "left", "right"]), layer=st.integers(0, 2))
@settings(max_examples=4, deadline=None)
@torch.no_grad()
def test_resume_from_any_layer_gives_the_full_run(kind, seed, side, layer):
    model = model_of(kind)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, D_VOCAB, (3, 7), generator=generator)
    mask = None if side == "none" else padded(tokens, side)
    positions = torch.arange(7).expand(3, -1) * 2
    logits, seen = model.run_with_cache(tokens, attention_mask=mask, position_ids=positions)
    last = layer == 2
    resid = seen["blocks.1.hook_resid_post" if last else f"blocks.{layer}.hook_resid_pre"]
    write = None if last else seen[f"blocks.{layer}.hook_attn_out"]
    read_at = torch.randint(7, (3, 2), generator=generator)
    given_positions = positions if model.capabilities.positions_in_layers else None
    for attn_out in (None, write):
        for some in (None, tokens):
            again = model.resume(
                resid,
                layer,
                attn_out=attn_out,
                tokens=some,
                attention_mask=mask,
                position_ids=given_positions,
                read_at=read_at,
            )
            wanted = logits[torch.arange(3)[:, None], read_at]
            real = torch.ones(3, 2, dtype=torch.bool) if mask is None else mask[torch.arange(3)[:, None], read_at]
            assert torch.allclose(again[real], wanted[real], atol=1e-4)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@torch.no_grad()
def test_resume_runs_only_hooks_of_later_layers(kind, tokens):
    model = model_of(kind)
    _, seen = model.run_with_cache(tokens)
    calls = []
    watch = [(name, lambda activation, hook: calls.append(hook.name)) for name in model.hook_dict]
    with model.hooks(watch):
        model.resume(seen["blocks.1.hook_resid_pre"], 1, attn_out=seen["blocks.1.hook_attn_out"], tokens=tokens)
    assert {name.split(".")[0] for name in calls} == {"blocks", "ln_final"}
    assert not [name for name in calls if name.startswith("blocks.0") or ".attn." in name]
    assert "blocks.1.hook_attn_out" in calls
    calls.clear()
    edit = ("blocks.1.hook_resid_pre", lambda activation, hook: activation * 2)
    with model.hooks([*watch, edit]):
        twice = model.resume(seen["blocks.1.hook_resid_pre"], 1, tokens=tokens)
    wanted = model.resume(2 * seen["blocks.1.hook_resid_pre"], 1, tokens=tokens)
    assert torch.allclose(twice, wanted, atol=1e-5)
    assert "blocks.1.attn.hook_z" in calls


@torch.no_grad()
def test_resume_errors(tokens):
    model = model_of("gpt2")
    resid = torch.zeros(3, 7, 32)
    with pytest.raises(ValueError, match="layer is 3; this model can resume at 0 to 2"):
        model.resume(resid, 3)
    with pytest.raises(ValueError, match="layer is 2; this model can resume at 0 to 1"):
        model.resume(resid, 2, attn_out=resid)
    deaf = without(model, ("blocks.1.hook_attn_out", "edit"), Cell("ignored"))
    with pytest.raises(
        ValueError, match=r"an edit of blocks.1.hook_attn_out would be ignored .* Edit blocks.1.hook_re"
    ):
        deaf.resume(resid, 1, attn_out=resid)


def without(model, key, cell):
    """The same model with another result for one cell."""
    found = model.capabilities
    return BridgeModel(model.bridge, dataclasses.replace(found, cells={**found.cells, key: cell}))


@torch.no_grad()
def test_shared_values_are_repeated_per_head_and_edited_per_group(tokens):
    model = model_of("llama")
    attn, theirs = model.blocks[0].attn, model.bridge.blocks[0].attn
    assert attn.W_K.shape == attn.W_V.shape == (4, 32, 8)
    assert torch.equal(attn.W_V, theirs.W_V[[0, 0, 1, 1]])
    assert torch.equal(attn.b_V, torch.zeros(4, 8))
    assert torch.equal(attn.b_O, torch.zeros(32))
    _, seen = model.run_with_cache(tokens)
    assert seen["blocks.0.attn.hook_v"].shape == (3, 7, 4, 8)
    name = "blocks.0.attn.hook_v"

    def both(activation, hook):
        edited = activation.clone()
        edited[:, :, :2] = 0
        return edited

    def theirs_too(activation, hook):
        activation = activation.clone()
        activation[:, :, 0] = 0
        return activation

    wanted = model.bridge.run_with_hooks(tokens, fwd_hooks=[(name, theirs_too)])
    assert torch.equal(model.run_with_hooks(tokens, fwd_hooks=[(name, both)]), wanted)
    with pytest.raises(
        ValueError, match=r"hook_v differs between heads that share one v: in this model 2 query heads .*attn.hook_z"
    ):
        model.run_with_hooks(tokens, fwd_hooks=[(name, Zero().hook(head=1))])


@pytest.mark.filterwarnings("ignore::UserWarning")
@torch.no_grad()
def test_edits_in_place(tokens):
    def in_place(activation, hook):
        activation[:, 1] = 0

    for kind in KINDS:
        model = model_of(kind)
        for site in ("attn.hook_z", "hook_attn_out", "hook_resid_pre", "attn.hook_v"):
            name = f"blocks.1.{site}"

            def copied(activation, hook):
                activation = activation.clone()
                activation[:, 1] = 0
                return activation

            wanted = model.run_with_hooks(tokens, fwd_hooks=[(name, copied)])
            assert torch.equal(model.run_with_hooks(tokens, fwd_hooks=[(name, in_place)]), wanted)
            assert not torch.equal(wanted, model(tokens))
    with pytest.raises(ValueError, match=r"hook_pattern would be ignored by this model\. Edit blocks.0.attn.hook_z"):
        model_of("bert").run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_pattern", in_place)])


@torch.no_grad()
def test_a_hook_that_returns_its_input_is_no_edit(tokens):
    model, seen = model_of("bert"), []

    def look(activation, hook):
        seen.append(hook.layer())
        return activation

    logits = model.run_with_hooks(tokens, fwd_hooks=[(lambda name: name.endswith("hook_pattern"), look)])
    assert torch.equal(logits, model(tokens))
    assert seen == [0, 1]


@torch.no_grad()
def test_only_add_hook_leaves_hooks(tokens):
    model = model_of("native")
    clean = model(tokens)
    model.add_hook("blocks.0.attn.hook_z", Zero().hook(head=1))
    assert not torch.equal(model(tokens), clean)
    model.reset_hooks()
    assert torch.equal(model(tokens), clean)

    def fail(activation, hook):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", fail)])
    assert torch.equal(model(tokens), clean)
    assert not any(point.fwd_hooks for point in [*model.hook_dict.values(), *model.bridge.hook_dict.values()])


def test_backward_hooks_under_canonical_names(tokens):
    model, found = model_of("bert"), {}
    for name, run in (("blocks.0.hook_attn_out", model), ("blocks.0.attn.o.hook_out", model.bridge)):
        with run.hooks(bwd_hooks=[(name, lambda grad, hook, name=name: found.__setitem__(name, grad.clone()))]):
            run(tokens).square().sum().backward()
    ours, theirs = found.values()
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert ours.abs().max() > 0
    model.bridge.zero_grad()


def test_names_are_checked_before_anything_runs(tokens):
    model = model_of("llama")
    with pytest.raises(ValueError, match="reading hook_pos_embed is refused: missing"):
        model.run_with_cache(tokens, names_filter=["hook_pos_embed"])
    with pytest.raises(ValueError, match=r"'blocks.0.attn.hook_zz' does not exist .*Nearest: blocks.0.attn.hook_z"):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_zz", Zero().hook())])
    with pytest.raises(ValueError, match="does not exist"):
        model.add_hook("blocks.0.attn.o.hook_in", Zero().hook())
    with pytest.raises(ValueError, match="no hook name of this model meets"):
        model.run_with_cache(tokens, names_filter=lambda name: name == "nothing")
    with pytest.raises(ValueError, match="no hook name of this model meets"):
        model.run_with_hooks(tokens, fwd_hooks=[(lambda name: False, Zero().hook())])
    with pytest.raises(ValueError, match=r"W_Q' does not exist"):
        model.hook_point("blocks.0.attn.W_Q")
    assert model.hook_point("blocks.0.attn.hook_z").name == "blocks.0.attn.hook_z"


def test_bad_inputs_are_refused(tokens, as_a_user):
    model = model_of("gpt2")
    for bad, text in (
        (tokens[0], r"tokens is \(7,\); it must be \(batch, pos\)"),
        (torch.zeros(1, 41, dtype=torch.long), "tokens has 41 positions; n_ctx of this model is 40"),
        (tokens + 20, "tokens holds ids from 2. to 3.; d_vocab of this model is 13"),
    ):
        with pytest.raises(ValueError, match=text):
            model(bad)
    with pytest.raises(ValueError, match=r"attention_mask is \(3, 2\); tokens is \(3, 7\)"):
        model(tokens, attention_mask=torch.ones(3, 2))
    found = model.capabilities
    deaf = dataclasses.replace(found, attention_mask=Cell("ignored", reason="so"), position_ids=Cell("missing"))
    deaf = BridgeModel(model.bridge, deaf)
    with pytest.raises(ValueError, match=r"attention_mask is given, which this bridge .* cannot use: ignored \(so\)"):
        deaf(tokens, attention_mask=padded(tokens, "left"))
    with pytest.raises(
        ValueError, match="position_ids is given, which this bridge of GPT2LMHeadModel cannot use: missing"
    ):
        deaf(tokens, position_ids=torch.arange(7)[None])
    assert torch.equal(deaf(tokens, attention_mask=torch.ones_like(tokens)), model(tokens))


def test_to_tokens_needs_a_tokenizer():
    model = hooks.from_bridge(bridge_of("native"))
    with pytest.raises(ValueError, match="this model has no tokenizer; pass token ids"):
        model.to_tokens("ab")

    class Letters:
        def encode(self, text):
            return [ord(letter) - ord("a") for letter in text]

    model.tokenizer = Letters()
    assert model.to_tokens("abc").tolist() == [[0, 1, 2]]
    assert model.to_tokens(["ab", "cd"]).tolist() == [[0, 1], [2, 3]]
    assert model.to_tokens(torch.tensor([1, 2])).tolist() == [[1, 2]]


def test_training_mode_is_that_of_the_bridge(tokens):
    bridge = bridge_of("bert").train()
    model = hooks.from_bridge(bridge)
    assert model.training
    assert all(module.training for module in bridge.original_model.modules())  # as before the tests
    model.eval()
    assert not model.training
    assert not any(module.training for module in bridge.original_model.modules())
    bridge.train()
    assert model.training


def test_capabilities_are_cached_and_do_not_keep_the_bridge_alive(monkeypatch):
    bridge = bridge_of("native")
    first = hooks.from_bridge(bridge)
    passes = []
    monkeypatch.setattr(type(bridge), "forward", lambda *args, **kwargs: passes.append(1))
    again = hooks.from_bridge(bridge)
    assert not passes
    assert again.capabilities is first.capabilities
    assert hooks.from_bridge(first) is first
    monkeypatch.undo()
    gone = weakref.ref(bridge)
    del bridge, first, again
    gc.collect()
    assert gone() is None


def test_from_bridge_changes_neither_bridge_nor_random_state(tokens):
    bridge = bridge_of("gpt2")
    weights = {name: value.clone() for name, value in bridge.state_dict().items()}
    before, state = bridge(tokens), torch.get_rng_state()
    hooks.from_bridge(bridge)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(bridge(tokens), before)
    assert all(torch.equal(value, weights[name]) for name, value in bridge.state_dict().items())
    assert not any(point.fwd_hooks for point in bridge.hook_dict.values())


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_untrained_has_the_same_config_and_other_weights(kind, tokens):
    model = model_of(kind)
    before, state = model(tokens), torch.get_rng_state()
    untrained, other = (model.untrained(seed) for seed in (3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model(tokens), before)
    assert dataclasses.asdict(untrained.cfg) == dataclasses.asdict(model.cfg)
    if kind in ("bert", "native"):
        assert torch.equal(untrained(tokens), model.untrained(3)(tokens))
    assert not torch.allclose(untrained(tokens), other(tokens), atol=1e-3)
    assert not torch.allclose(untrained(tokens), before, atol=1e-3)
    assert not untrained.training
    assert [row["edit"] for row in untrained.capabilities.rows()] == [row["edit"] for row in model.capabilities.rows()]


def test_untrained_without_a_config():
    model = model_of("gpt2")
    bridge = bridge_of("gpt2")
    bridge.original_model.config = None
    with pytest.raises(ValueError, match="a GPT2LMHeadModel without a Hugging Face config: no untrained copy"):
        BridgeModel(bridge, model.capabilities).untrained(0)
    broken = bridge_of("gpt2")
    broken.original_model.config.n_head = 5
    with pytest.raises(ValueError, match=r"no untrained GPT2LMHeadModel could be made from the model's config \("):
        BridgeModel(broken, model.capabilities).untrained(0)


def test_sdpa_attention_has_no_pattern(tokens):
    model = hooks.from_bridge(bridge_of("bert", attention="sdpa"))
    cell = model.capabilities.cell("blocks.0.attn.hook_pattern", "read")
    assert cell.state == "missing"
    with pytest.raises(ValueError, match="attention is sdpa; load the model with attn_implementation='eager'"):
        model.run_with_cache(tokens, names_filter=["blocks.0.attn.hook_pattern"])
    assert model.capabilities.cell("blocks.0.attn.hook_z", "edit").ok


def test_from_bridge_accepts_bridges_only(as_a_user):
    with pytest.raises(
        ValueError, match=r"model is a Linear; accepted are hooks.Transformer and transformer_lens.Transf"
    ):
        hooks.from_bridge(torch.nn.Linear(2, 2))
    with pytest.raises(
        ValueError, match=r"model is a GPT2LMHeadModel; .* Use hooks.from_huggingface, or build a bridge"
    ):
        hooks.from_bridge(hugging_face("gpt2"))
    with pytest.raises(ValueError, match=r"model is a LlamaForCausalLM; .*names\. Build a bridge: Transf"):
        hooks.from_bridge(hugging_face("llama"))
    ours = hooks.Transformer(hooks.TransformerConfig(d_vocab=3, d_model=4, n_heads=1))
    with pytest.raises(ValueError, match="model is a Transformer of this package: it needs no adapter"):
        hooks.from_bridge(ours)


def test_output_must_be_logits_per_position():
    config = hugging_face("bert").config
    model = transformers.BertForNextSentencePrediction(config).eval()
    bridge = build_bridge_from_module(model, "BertForMaskedLM", hf_config=config)
    with pytest.raises(ValueError, match=r"the model's output is .*; needed are logits \(batch, pos, vocabulary\)"):
        hooks.from_bridge(bridge)


def test_given_tokens():
    bridge = bridge_of("gpt2")
    given_tokens = torch.randint(D_VOCAB, (5, 9), generator=torch.Generator().manual_seed(1))
    copy = given_tokens.clone()
    found = hooks.from_bridge(bridge, tokens=given_tokens).capabilities
    assert torch.equal(given_tokens, copy)
    assert str(found) == str(model_of("gpt2").capabilities)
    with pytest.raises(ValueError, match=r"tokens is \(2, 9\); give \(batch, pos\) of at least \(3, 4\) to test on"):
        hooks.from_bridge(bridge, tokens=given_tokens[:2])
    with pytest.raises(ValueError, match="the model has n_ctx 3; it must be at least 4 to be tested"):
        capabilities_of(bridge_of("native", n_ctx=3))


def test_table_names_layers_that_differ():
    found = model_of("bert").capabilities
    text = found.table()
    assert text.startswith("bidirectional attention; attention_mask works, position_ids works\nsite ")
    assert "hook_attn_out             through attn.o.hook_out" in text
    assert "wrong copy (it is a copy of the pattern)  ignored" in text
    assert len(found.rows()) == 20
    key = ("blocks.1.attn.hook_z", "edit")
    rows = dataclasses.replace(found, cells={**found.cells, key: Cell("ignored")}).rows()
    assert {row["site"]: row["edit"] for row in rows if "hook_z" in row["site"]} == {
        "attn.hook_z of layer 0": "works",
        "attn.hook_z of layer 1": "ignored",
    }
    with pytest.raises(ValueError, match=r"'blocks.9.hook_resid_pre' was not tested for edit"):
        found.cell("blocks.9.hook_resid_pre", "edit")
    with pytest.raises(TypeError):
        found.cells[key] = Cell("works")  # pyright: ignore[reportIndexIssue]


def test_lacks_names_the_first_missing_use():
    found = model_of("bert").capabilities
    assert found.lacks({"attn.hook_pattern": ("read",), "attn.hook_z": ("read", "edit")}) == ""
    why = found.lacks({"attn.hook_z": ("read",), "attn.hook_pattern": ("read", "edit")})
    assert why == "it has to edit blocks.0.attn.hook_pattern, which is ignored"
    assert found.lacks({"attn.W_O": ("read",), "nowhere": ("read",)}) == "it has to read nowhere, which is missing"
    assert isinstance(found, Capabilities)


@torch.no_grad()
def test_same_table_with_more_layers_and_other_dtypes():
    cfg = {"vocab_size": 30, "n_embd": 24, "n_layer": 5, "n_head": 3, "n_positions": 12}
    for dtype in (torch.float64, torch.bfloat16):
        config = transformers.GPT2Config(**cfg, attn_implementation="eager")
        model = transformers.GPT2LMHeadModel(config).eval().to(dtype)
        bridge = build_bridge_from_module(model, "GPT2LMHeadModel", hf_config=config)
        rows = hooks.from_bridge(bridge).capabilities.rows()
        wanted = model_of("gpt2").capabilities.rows()
        assert [row["edit"].split(" ")[0] for row in rows] == [row["edit"].split(" ")[0] for row in wanted]
