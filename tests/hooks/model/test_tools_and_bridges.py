"""TransformerLens's tools on our model and on a `TransformerBridge` with the same weights: the same values."""

import copy

import pytest
import tokenizers
import torch
import transformers
from support.bridges import D_VOCAB, hugging_face
from transformer_lens import SVDInterpreter, patching
from transformer_lens.head_detector import detect_head
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformer_lens.tools.analysis import direct_logit_attribution
from transformer_lens.tools.analysis.attribution_patching import EdgeAttributionConfig, attribution_patch, faithfulness
from transformer_lens.tools.analysis.interchange import collect_activations, fit_das
from transformer_lens.tools.analysis.jacobian_lens import JacobianLens
from transformer_lens.tools.analysis.logit_lens import logit_lens
from transformer_lens.tools.analysis.projection_kernel import attention_head_subspace_affinity
from transformer_lens.tools.training import TrainConfig, train
from transformer_lens.utilities.exploratory_utils import test_prompt as prompt_report

import hooks

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:To copy construct from a tensor"),
]
TOKENS = torch.randint(D_VOCAB, (3, 7), generator=torch.Generator().manual_seed(0))
CORRUPTED = (TOKENS + torch.arange(7) * TOKENS) % D_VOCAB
ANSWERS = torch.tensor([3, 0, 10])
OTHERS = torch.tensor([1, 5, 2])
WORDS = [*"abcdefghijkl", "?"]


def letters():
    """A tokenizer of transformers for single letters."""
    engine = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="?")
    )
    engine.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=engine, unk_token="?", pad_token="?")


@pytest.fixture(scope="module")
def models():
    """Our model, a bridge with its weights, and a bridge with the gains of its norms folded into other weights."""
    original = hugging_face("gpt2").double()
    for module in original.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # ours has none
    ours = hooks.from_huggingface(copy.deepcopy(original))
    bridges = []
    for _ in range(2):
        module = copy.deepcopy(original)
        bridges.append(build_bridge_from_module(module, type(module).__name__, hf_config=module.config).eval())
    plain, folded = bridges
    unchanged = {"center_writing_weights": False, "center_unembed": False, "fold_value_biases": False}
    folded.enable_compatibility_mode(disable_warnings=True, **unchanged)
    for model in (ours, *bridges):
        model.tokenizer = letters()
    for bridge in bridges:
        bridge.cfg.default_prepend_bos = bridge.cfg.tokenizer_prepends_bos = False
    return {"ours": ours, "bridge": plain, "folded": folded}


def same(models, tool, *, bridge="bridge"):
    """The tool's values for our model, after comparing them with those for a bridge."""
    found, expected = tool(models["ours"]), tool(models[bridge])
    torch.testing.assert_close(found.double(), expected.double(), atol=1e-5, rtol=0)
    assert found.unique().numel() > min(found.numel() // 2, 3)
    return found


def cache_of(model, tokens=TOKENS):
    return model.run_with_cache(tokens)[1]


def metric(logits):
    return logits[:, -1, 3].mean() - logits[:, 2, 5].mean()


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


CACHE_TOOLS = {
    "accumulated_resid": lambda cache: cache.accumulated_resid(incl_mid=True),
    "accumulated_resid, normalised": lambda cache: cache.accumulated_resid(apply_ln=True),
    "decompose_resid": lambda cache: cache.decompose_resid(),
    "decompose_resid, of an MLP": lambda cache: cache.decompose_resid(layer=1, mlp_input=True),
    "stack_head_results": lambda cache: cache.stack_head_results(),
    "stack_head_results, with the rest": lambda cache: cache.stack_head_results(incl_remainder=True),
    "stack_neuron_results": lambda cache: cache.stack_neuron_results(layer=2),
    "get_full_resid_decomposition": lambda cache: cache.get_full_resid_decomposition(expand_neurons=False),
    "stack_activation": lambda cache: cache.stack_activation("pattern"),
}


@pytest.mark.parametrize("tool", CACHE_TOOLS.values(), ids=CACHE_TOOLS)
def test_activation_cache(models, tool):
    same(models, lambda model: tool(cache_of(model)))


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_apply_ln_to_stack(models, layer):
    def tool(model):
        cache = cache_of(model)
        return cache.apply_ln_to_stack(cache.decompose_resid(layer=max(layer, 1)), layer=layer)

    same(models, tool)


@pytest.mark.parametrize("stack", ["decompose_resid", "stack_head_results", "get_full_resid_decomposition"])
@pytest.mark.parametrize("answers", [{"tokens": "d"}, {"tokens": 3}, {"tokens": ANSWERS, "incorrect_tokens": OTHERS}])
def test_logit_attrs(models, stack, answers):
    """The folded bridge: without folding, a bridge leaves the final norm's gain out of its directions."""
    same(
        models, lambda model: cache_of(model).logit_attrs(getattr(cache_of(model), stack)(), **answers), bridge="folded"
    )


@pytest.mark.parametrize("unit", ["component", "head", "layer"])
def test_direct_logit_attribution(models, unit):
    same(models, lambda model: direct_logit_attribution(model, TOKENS, 4, unit=unit).attribution, bridge="folded")


def test_logit_lens(models):
    same(models, lambda model: logit_lens(model, TOKENS, positions=None).values)


@pytest.mark.parametrize("name", ["previous_token_head", "duplicate_token_head", "induction_head"])
@pytest.mark.parametrize("text", ["a b c a b c a", ["a b c a b c a", "c c b b a a d"]], ids=["text", "texts"])
def test_detect_head(models, name, text):
    same(models, lambda model: detect_head(model, text, name))


@pytest.mark.parametrize("kind", ["OV", "w_in", "w_out"])
def test_singular_vectors(models, kind):
    head = {"head_index": 2} if kind == "OV" else {}  # up to sign, which is arbitrary
    same(
        models,
        lambda model: SVDInterpreter(model).get_singular_vectors(kind, layer_index=1, num_vectors=5, **head).abs(),
    )


def test_interchange(models):
    name, positions = "blocks.1.hook_resid_pre", torch.tensor([1, 6, 2])

    def activations(model):
        return collect_activations(model, name, TOKENS, lambda ids: model(ids)[:, -1], positions=positions)

    def losses(model):
        where = {"base_positions": positions, "source_positions": positions}
        with torch.enable_grad():
            logits = lambda ids: model(ids)[:, -1]  # noqa: E731
            found = fit_das(model, name, TOKENS, CORRUPTED, ANSWERS, logits, rank=2, epochs=4, **where)
        return torch.tensor(found.losses)

    same(models, activations)
    same(models, losses)


def test_prompts(models, capsys):
    for name in ("ours", "bridge"):
        prompt_report("a b c", "d", models[name], prepend_bos=False, prepend_space_to_answer=False)
    printed = capsys.readouterr().out.splitlines()
    assert printed[: len(printed) // 2] == printed[len(printed) // 2 :]
    assert printed[0] == "Tokenized prompt: ['a', 'b', 'c']"


def test_tools_that_need_a_bridge(models):
    """If one runs on our model some day, the table in docs/bridges.md changes."""
    with pytest.raises(TypeError, match="JacobianLens supports TransformerBridge only"):
        JacobianLens.fit(models["ours"], ["a b c"], corpus="letters")
    with pytest.raises(ValueError, match="model must be a TransformerBridge"):
        attention_head_subspace_affinity(models["ours"], target_role="Q")


def test_training_loop(models):
    rows = [{"tokens": row} for row in TOKENS]
    config = TrainConfig(num_epochs=2, batch_size=3, lr=0.01, device="cpu", print_every=None)

    def trained(model):
        with torch.enable_grad():
            return train(copy.deepcopy(model), config, rows)(TOKENS)

    before = models["ours"](TOKENS)
    assert (same(models, trained) - before).abs().max() > 0.1


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("given", [TOKENS, "a b d c", ["a b", "d ?"]], ids=["tokens", "text", "texts"])
def test_loss(models, given, per_token):
    options = {"return_type": "loss", "loss_per_token": per_token}
    found, expected = (models[name](given, **options) for name in ("ours", "bridge"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    logits, loss = models["ours"](given, **{**options, "return_type": "both"})
    assert torch.equal(loss, found)
    torch.testing.assert_close(logits, models["bridge"](given), atol=1e-5, rtol=0)


def test_texts(models):
    ours, bridge = models["ours"], models["bridge"]
    assert torch.equal(ours.to_tokens(["a b", "d ?"]), bridge.to_tokens(["a b", "d ?"]))
    for given in ("a b d", torch.tensor([[4, 5]]), ["a b", "c"]):
        assert ours.to_str_tokens(given) == bridge.to_str_tokens(given)
    for given in (torch.tensor([[4, 5], [1, 2]]), [3, 4, 5], torch.tensor(3)):
        assert ours.to_string(given) == bridge.to_string(given)
    assert ours.to_single_token("c") == bridge.to_single_token("c") == 2
    assert ours.to_single_str_token(4) == bridge.to_single_str_token(4) == "e"


@pytest.mark.parametrize("name", ["mlp_out", "attn_head_all_pos_every", "attn_head_pattern_dest_src_pos"])
def test_activation_patching(models, name):
    """`resid_mid`, which `block_every` contains, is not comparable: a bridge's edit of it reaches the MLP alone."""
    tool = getattr(patching, f"get_act_patch_{name}")
    same(models, lambda model: tool(model, CORRUPTED[:, :3], cache_of(model, TOKENS[:, :3]), metric))


@pytest.mark.parametrize("component", ["q", "k", "v"])
def test_direct_path_patching(models, component):
    def paths(model):
        caches = cache_of(model), cache_of(model, CORRUPTED)
        options = {"component": component, "verbose": False}
        found = patching.get_act_patch_direct_path_all_sources(model, CORRUPTED, *caches, metric, **options)
        one = patching.get_act_patch_direct_path(model, CORRUPTED, *caches, metric, 0, 2, **options)
        assert torch.equal(found[0, 2], one)
        return found

    assert not models["ours"].cfg.use_split_qkv_input
    same(models, paths)
    assert not models["ours"].cfg.use_split_qkv_input


def one_metric(logits):
    return logits[0, -1, 3] - logits[0, 2, 5]


@pytest.mark.parametrize("granularity", ["node", "edge"])
def test_attribution_patching(models, granularity):
    def scores(model):
        with torch.enable_grad():
            config = EdgeAttributionConfig(granularity=granularity)
            found = attribution_patch(model, TOKENS[:2], CORRUPTED[:2], one_metric, config)
        values: dict = found.edge_scores if granularity == "edge" else found.node_scores
        return torch.tensor([values[key] for key in sorted(values, key=str)])

    same(models, scores)


def test_faithfulness(models):
    def recovered(model):
        with torch.enable_grad():
            found = attribution_patch(
                model, TOKENS[:1], CORRUPTED[:1], one_metric, EdgeAttributionConfig(granularity="edge")
            )
        result = faithfulness(model, TOKENS[:1], CORRUPTED[:1], one_metric, found.top_edges(30))
        return torch.tensor([result.recovered, result.corrupt_metric, *result.edge_class_recovered.values()])

    same(models, recovered)
