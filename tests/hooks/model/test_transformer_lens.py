"""TransformerLens's tools on our models, against values computed by hand."""

import pytest
import torch
from transformer_lens import TransformerBridge, TransformerBridgeConfig, patching
from transformer_lens.head_detector import detect_head
from transformer_lens.tools.analysis import direct_logit_attribution
from transformer_lens.tools.analysis.logit_lens import logit_lens

from hooks import HeadPattern
from hooks.interventions.replacements import patch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def close(ours, theirs, *, within=1e-9):
    torch.testing.assert_close(ours, theirs, atol=within, rtol=0)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def model(make):
    return make()


@pytest.fixture
def cache(model, tokens):
    return model.run_with_cache(tokens)[1]


class Letters:
    """A tokenizer: a is 0, b is 1 ..."""

    def encode(self, text):
        return [ord(letter) - ord("a") for letter in text]


@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
def test_equals_transformer_lens_native_model_with_our_weights(make, tokens, attention):
    ours = make(attention=attention, dtype=torch.float32)
    cfg = TransformerBridgeConfig(
        d_model=12, d_head=4, n_heads=3, n_layers=3, n_ctx=10, d_vocab=11, act_fn="gelu", normalization_type="LN",
        attention_dir=attention, seed=0,
    )  # fmt: skip
    theirs = TransformerBridge.boot_native(cfg)
    names = {"weights": "blocks", "attention": "attn", "norm_1": "ln1", "norm_2": "ln2", "w_in": "in", "w_out": "out"}
    names |= {"positions": "pos_embed", "norm_final": "ln_final"}
    weights = {}
    for name, weight in ours.state_dict().items():
        weights[".".join(names.get(part, part) for part in name.split("."))] = weight
    theirs.load_state_dict(weights, strict=True)
    logits, their_cache = theirs.run_with_cache(tokens)
    our_logits, our_cache = ours.run_with_cache(tokens)
    close(our_logits, logits, within=2e-5)
    for name, activation in our_cache.items():
        expected = their_cache[name]
        if name.endswith("hook_attn_scores"):  # theirs is a copy of the pattern
            activation = activation.softmax(-1)
        if name.endswith("hook_normalized"):  # theirs is before gain and bias, ours after
            norm = ours.get_submodule(name.removesuffix(".hook_normalized"))
            expected = expected * norm.w + norm.b
        close(activation, expected, within=2e-5)


def test_accumulated_resid_is_the_stream_before_and_within_each_layer(model, tokens, cache):
    stack, labels = cache.accumulated_resid(incl_mid=True, return_labels=True)
    names = [f"blocks.{layer}.hook_resid_{where}" for layer in range(3) for where in ("pre", "mid")]
    assert labels == ["0_pre", "0_mid", "1_pre", "1_mid", "2_pre", "2_mid", "final_post"]
    assert torch.equal(stack, torch.stack([cache[name] for name in [*names, "blocks.2.hook_resid_post"]]))
    read = cache.accumulated_resid(apply_ln=True) @ model.W_U + model.b_U
    for layer in range(3):
        close(read[layer], model.resume(cache["resid_pre", layer], 3))
    close(read[3], model(tokens))


@pytest.mark.parametrize("block", ["pre_ln", "dyck"])
def test_logit_lens_reads_every_layer(make, tokens, block):
    model = make(block=block)
    result = logit_lens(model, tokens, positions=None)
    _, cache = model.run_with_cache(tokens)
    for layer in range(3):
        close(result.values[layer], model.resume(cache["resid_pre", layer], 3), within=1e-5)
    close(result.values[3], model(tokens), within=1e-5)


def test_components_sum_to_the_final_stream(cache):
    stack, labels = cache.decompose_resid(return_labels=True)
    assert labels[:4] == ["embed", "pos_embed", "0_attn_out", "0_mlp_out"]
    close(stack.sum(0), cache["resid_post", 2])
    close(cache.decompose_resid(layer=1, mlp_input=True).sum(0), cache["resid_mid", 1])


@pytest.mark.parametrize("settings", [{}, {"vo_identity": True}, {"attn_bias": False}, {"tied": True}], ids=str)
def test_heads_and_bias_sum_to_what_attention_writes(make, tokens, settings):
    model = make(**settings)
    _, cache = model.run_with_cache(tokens)
    heads, labels = cache.stack_head_results(return_labels=True)
    assert labels == [f"L{layer}H{head}" for layer in range(3) for head in range(3)]
    for layer in range(3):
        close(heads[3 * layer : 3 * layer + 3].sum(0) + model.blocks[layer].attn.b_O, cache["attn_out", layer])


def test_head_results_of_an_identity_model_are_the_hooked_ones(make, tokens):
    _, cache = make(vo_identity=True).run_with_cache(tokens)
    heads = cache.stack_head_results()
    for layer in range(3):
        assert torch.equal(heads[3 * layer : 3 * layer + 3], cache["result", layer].permute(2, 0, 1, 3))
    without = torch.einsum("bphe,hed->hbpd", cache["z", 0], make(vo_identity=True).blocks[0].attn.W_O)
    assert not torch.allclose(heads[:3], without, atol=1e-3)


@pytest.mark.parametrize("expand_neurons", [True, False])
@pytest.mark.parametrize("settings", [{}, {"attn_bias": False}, {"d_mlp": 0}, {"vo_identity": True}], ids=str)
def test_full_decomposition_sums_to_the_final_stream(make, tokens, settings, expand_neurons):
    model = make(**settings)
    _, cache = model.run_with_cache(tokens)
    stack, labels = cache.get_full_resid_decomposition(expand_neurons=expand_neurons, return_labels=True)
    close(stack.sum(0), cache["resid_post", 2])
    assert labels[-3:] == ["embed", "pos_embed", "bias"]
    close(stack[-1, 0, 0], model.accumulated_bias(3, include_mlp_biases=expand_neurons))
    if "d_mlp" not in settings:
        middle = cache.get_full_resid_decomposition(layer=1, mlp_input=True, expand_neurons=expand_neurons)
        close(middle.sum(0), cache["resid_mid", 1])


def constants(model, answers):
    """What no component writes: the read-out's bias, and the final norm's."""
    if model.ln_final is None:
        return model.b_U[answers]
    return (model.ln_final.b @ model.W_U + model.b_U)[answers]


@pytest.mark.parametrize("stack", ["decompose_resid", "get_full_resid_decomposition"])
def test_attributions_sum_to_the_logit_less_its_constants(model, tokens, cache, stack):
    answers = torch.tensor([3, 0, 10, 3])
    shares = cache.logit_attrs(getattr(cache, stack)(), answers)
    logits = model(tokens)[torch.arange(4), :, answers]
    close(shares.sum(0), logits - constants(model, answers)[:, None])
    others = torch.tensor([1, 2, 3, 4])
    differences = cache.logit_attrs(getattr(cache, stack)(), answers, incorrect_tokens=others)
    their_logits = model(tokens)[torch.arange(4), :, others]
    expected = logits - their_logits - (constants(model, answers) - constants(model, others))[:, None]
    close(differences.sum(0), expected)


def test_attributions_for_one_word(model, tokens, cache):
    model.tokenizer = Letters()
    shares = cache.logit_attrs(cache.decompose_resid(), "d")
    close(shares.sum(0), model(tokens)[..., 3] - constants(model, 3))
    close(shares, cache.logit_attrs(cache.decompose_resid(), 3))
    with pytest.raises(ValueError, match="'de' is 2 tokens, not one"):
        model.to_single_token("de")


@pytest.mark.parametrize("block", ["pre_ln", "dyck"])
def test_direct_logit_attribution_by_component_and_head(make, tokens, block):
    model = make(block=block)
    logit = model(tokens)[:, -1, 4] - constants(model, 4)
    by_head = direct_logit_attribution(model, tokens, 4, unit="head")
    assert by_head.labels == [f"L{layer}H{head}" for layer in range(3) for head in range(3)] + ["remainder"]
    close(by_head.attribution.sum(0), logit)
    if block == "pre_ln":  # a Dyck layer does not add to the stream, it replaces it
        by_component = direct_logit_attribution(model, tokens, 4, unit="component")
        close(by_component.attribution.sum(0), logit)
        _, cache = model.run_with_cache(tokens)
        centred = cache["mlp_out", 1][:, -1] - cache["mlp_out", 1][:, -1].mean(-1, keepdim=True)
        share = centred / cache["ln_final.hook_scale"][:, -1] * model.ln_final.w @ model.W_U[:, 4]
        close(by_component.attribution[by_component.labels.index("1_mlp_out")], share)


def test_direct_logit_attribution_by_layer_accumulates(model, tokens, cache):
    result = direct_logit_attribution(model, tokens, 4, unit="layer", pos=None)
    close(result.attribution[-1], model(tokens)[..., 4] - constants(model, 4))
    by_component = direct_logit_attribution(model, tokens, 4, pos=None).attribution
    close(result.attribution[0], by_component[:2].sum(0))
    close(result.attribution[1], by_component[:3].sum(0))


def masked_sum(pattern, wanted):
    """Share of a head's attention on the wanted pairs."""
    return float((pattern * wanted).sum() / pattern.sum())


@pytest.mark.parametrize("name", ["previous_token_head", "duplicate_token_head", "induction_head"])
def test_detect_head_scores_are_masked_sums_of_patterns(make, name):
    model = make(attention="causal")
    model.tokenizer = Letters()
    text = "abcabcab"
    scores = detect_head(model, text, name)
    _, cache = model.run_with_cache(model.to_tokens(text), remove_batch_dim=True)
    wanted = torch.zeros(8, 8, dtype=torch.float64)
    for query in range(8):
        for key in range(query + 1):
            wanted[query, key] = {
                "previous_token_head": key == query - 1,
                "duplicate_token_head": key < query and text[key] == text[query],
                "induction_head": key > 0 and text[key - 1] == text[query] and key - 1 < query,
            }[name]
    ours = [[masked_sum(cache["pattern", layer][head], wanted) for head in range(3)] for layer in range(3)]
    close(scores, torch.tensor(ours), within=1e-6)


def test_detect_head_finds_the_previous_token_head_that_we_wrote_down(make):
    previous = HeadPattern(kind="local", kernel=(1.0, 0.0, 0.0))
    model = make(attention="causal", head_patterns=((HeadPattern(), previous, HeadPattern()),))
    model.tokenizer = Letters()
    scores = detect_head(model, "abcabcab", "previous_token_head")
    assert (scores.argmax(1) == 1).all()
    close(scores[:, 1], torch.full((3,), 7 / 8), within=1e-6)  # the first token has none before it


def test_texts_become_tokens(model):
    model.tokenizer = Letters()
    assert model.to_tokens("abd").tolist() == [[0, 1, 3]]
    assert model.to_tokens(["ab", "dc"]).tolist() == [[0, 1], [3, 2]]
    assert model.to_tokens(torch.tensor([2, 1])).tolist() == [[2, 1]]
    model.tokenizer = None
    with pytest.raises(ValueError, match=r"this model has no tokenizer; pass token ids, or set model.tokenizer"):
        model.to_tokens("ab")


def metric(logits):
    return logits[:, -1, 3].mean() - logits[:, 2, 5].mean()


@pytest.fixture
def corrupted(tokens):
    return (tokens + torch.arange(8)) % 11


def by_hand(model, corrupted, name, source, **where):
    return metric(model.run_with_hooks(corrupted, fwd_hooks=[(name, patch(source, **where))])).float()


@pytest.mark.parametrize("site", ["resid_pre", "resid_mid", "attn_out", "mlp_out"])
@pytest.mark.parametrize("settings", [{}, {"tied": True, "block": "post_ln"}], ids=str)
def test_patching_a_position_of_the_stream(make, tokens, corrupted, site, settings):
    model = make(**settings)
    _, cache = model.run_with_cache(tokens)
    scores = getattr(patching, f"get_act_patch_{site}")(model, corrupted, cache, metric)
    assert scores.shape == (3, 8)
    for layer, position in [(0, 0), (1, 2), (1, 7), (2, 7)]:
        name = f"blocks.{layer}.hook_{site}"
        ours = by_hand(model, corrupted, name, cache[name], positions=torch.tensor([position]))
        close(scores[layer, position], ours, within=1e-6)
    assert scores.unique().numel() > 10


@pytest.mark.parametrize(("tool", "site"), [("out", "z"), ("q", "q"), ("k", "k"), ("v", "v"), ("pattern", "pattern")])
def test_patching_a_head(model, tokens, cache, corrupted, tool, site):
    scores = getattr(patching, f"get_act_patch_attn_head_{tool}_all_pos")(model, corrupted, cache, metric)
    assert scores.shape == (3, 3)
    for layer in range(3):
        for head in range(3):
            name = f"blocks.{layer}.attn.hook_{site}"
            close(scores[layer, head], by_hand(model, corrupted, name, cache[name], head=head), within=1e-6)
    assert scores.unique().numel() == 9


@pytest.mark.parametrize(("tool", "site"), [("out", "z"), ("q", "q"), ("k", "k"), ("v", "v")])
def test_patching_a_position_of_a_head(make, tokens, corrupted, tool, site):
    model = make(n_layers=2)
    _, cache = model.run_with_cache(tokens)
    scores = getattr(patching, f"get_act_patch_attn_head_{tool}_by_pos")(model, corrupted, cache, metric)
    assert scores.shape == (2, 8, 3)
    for layer, position, head in [(0, 0, 0), (0, 5, 2), (1, 2, 1), (1, 7, 2)]:
        name = f"blocks.{layer}.attn.hook_{site}"
        ours = by_hand(model, corrupted, name, cache[name], head=head, positions=torch.tensor([position]))
        close(scores[layer, position, head], ours, within=1e-6)


def test_patching_a_position_without_change_changes_nothing(model, tokens, cache):
    scores = patching.get_act_patch_resid_pre(model, tokens, cache, metric)
    close(scores, metric(model(tokens)).float().expand(3, 8), within=1e-6)


def test_patching_demands_evaluation_mode(model, tokens, cache):
    model.train()
    with pytest.raises(ValueError, match="evaluation mode"):
        patching.get_act_patch_resid_pre(model, tokens, cache, metric)


def test_weights_by_transformer_lens_names_give_the_activations(make, tokens):
    model = make(vo_identity=False, d_head=5)
    _, cache = model.run_with_cache(tokens)
    for layer in range(3):
        attn, mlp = model.blocks[layer].attn, model.blocks[layer].mlp
        x, y = cache[f"blocks.{layer}.ln1.hook_normalized"], cache[f"blocks.{layer}.ln2.hook_normalized"]
        for name in "QKV":
            weight, bias = getattr(attn, f"W_{name}"), getattr(attn, f"b_{name}")
            close(cache[name.lower(), layer], torch.einsum("bpd,hde->bphe", x, weight) + bias)
        close(cache["pre", layer], y @ mlp.W_in + mlp.b_in)
        close(cache["mlp_out", layer], cache["post", layer] @ mlp.W_out + mlp.b_out)
    close(model.W_E[tokens], cache["hook_embed"])
    close(cache["ln_final.hook_normalized"] @ model.W_U + model.b_U, model(tokens))


@pytest.mark.parametrize("settings", [{}, {"block": "bare", "tied": True}, {"d_mlp": 0}], ids=str)
def test_parameters_by_transformer_lens_names(make, settings):
    model = make(**settings)
    weights = model.tl_parameters()
    assert torch.equal(weights["unembed.W_U"], model.W_U)
    assert torch.equal(weights["blocks.2.attn.W_Q"], model.blocks[2].attn.W_Q)
    parts = {"attn": [f"{kind}_{name}" for kind in "Wb" for name in "QKVO"]}
    if "d_mlp" not in settings:
        parts["mlp"] = ["W_in", "W_out", "b_in", "b_out"]
    if "block" not in settings:
        parts["ln1"] = ["w", "b"]
        parts |= {} if "d_mlp" in settings else {"ln2": ["w", "b"]}
    names = {f"blocks.{layer}.{part}.{name}" for layer in range(3) for part, all in parts.items() for name in all}
    names |= set() if "block" in settings else {"ln_final.w", "ln_final.b"}
    assert set(weights) == {*names, "embed.W_E", "unembed.W_U", "unembed.b_U"}


@pytest.mark.parametrize("tied", [False, True])
def test_weights_of_all_layers_are_stacked(make, tied):
    model = make(tied=tied)
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
        for layer in range(3):
            assert torch.equal(getattr(model, name)[layer], getattr(model.blocks[layer].attn, name))
    for name in ("W_in", "W_out", "b_in", "b_out"):
        assert torch.equal(getattr(model, name)[2], getattr(model.blocks[2].mlp, name))
    close(model.QK.AB, model.W_Q @ model.W_K.transpose(-1, -2))
    close(model.OV.AB[1, 2], model.blocks[1].attn.W_V[2] @ model.blocks[1].attn.W_O[2])


def test_weights_that_a_model_lacks_are_named(make):
    with pytest.raises(ValueError, match=r"layer 0 of this model has no mlp\.W_in"):
        _ = make(d_mlp=0).W_in
    with pytest.raises(ValueError, match="there is a I"):
        _ = make(qk_identity=True).QK
    with pytest.raises(ValueError, match="there is b I"):
        _ = make(vo_identity=True).OV


def test_a_pass_stops_at_a_layer(model, tokens, cache):
    before = [cache["resid_pre", layer] for layer in range(3)] + [cache["resid_post", 2]]
    for layer in range(-3, 4):
        assert torch.equal(model(tokens, stop_at_layer=layer), before[layer if layer >= 0 else 3 + layer])
    _, partial = model.run_with_cache(tokens, stop_at_layer=1)
    assert not any(name.startswith(("blocks.1", "blocks.2", "ln_final")) for name in partial)
    with pytest.raises(ValueError, match="stop_at_layer is 4; this model can stop at -3 to 3"):
        model(tokens, stop_at_layer=4)
