"""Loaded models equal Hugging Face's: logits, hidden states, gradients; from an object or a folder."""

import copy
import socket

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from hooks import Encoder, Transformer, from_huggingface, verify
from hooks.adapters.huggingface.configs import ARCHITECTURES, config_of
from hooks.adapters.huggingface.loading import HARMLESS
from hooks.adapters.huggingface.parity import TOLERANCE, ParityReport
from hooks.adapters.huggingface.weights import from_hf_weights, rows, to_hf_weights
from hooks.model.presets import albert_encoder, bert_encoder, gpt

VOCAB, POS = 23, 12
ALL = list(ARCHITECTURES)
ENCODERS = [name for name in ALL if not name.startswith("GPT2")]
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *"abcdefghijklmnopqr"]


def settings_of(name, **more):
    sizes = {"vocab_size": VOCAB, "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 16}
    sizes |= {"max_position_embeddings": POS, **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))}
    if not name.startswith("GPT2"):
        sizes |= {"intermediate_size": 24, "type_vocab_size": 3, "num_labels": 5}
    if name.startswith("Albert"):
        sizes |= {"embedding_size": 10}
    return {**sizes, **more}


def theirs(name, *, seed=0, dtype=torch.float32, pooling=True, **more):
    """A small model with large random weights: patterns are far from uniform, and every weight has an effect."""
    make = getattr(transformers, name)
    kwargs = {} if pooling else {"add_pooling_layer": False}
    model = make(make.config_class(**settings_of(name, **more)), **kwargs).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = 0.35 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn + (parameter.ndim == 1) * (parameter != 0).float())
    return model


def texts(name, *, seed=0, left=False):
    """Padded inputs under Hugging Face's names, with token types and positions if the model has them."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(9) < torch.tensor([9, 6, 1, 4])[:, None]
    mask = mask.flip(1) if left else mask
    inputs = {"input_ids": torch.randint(VOCAB, (4, 9), generator=generator), "attention_mask": mask.long()}
    if not name.startswith("GPT2"):
        inputs["token_type_ids"] = torch.randint(3, (4, 9), generator=generator)
    if left:
        inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp(0)
    return inputs


def run_ours(model, inputs, **more):
    """Our model on inputs under Hugging Face's names."""
    rest = {key: value for key, value in inputs.items() if key != "input_ids"}
    return model(inputs["input_ids"], **rest, **more)


def run_theirs(model, inputs):
    """Their logits; hidden states of a class without logits; for GPT2Model the logits of GPT2LMHeadModel."""
    found = model(**inputs)
    if isinstance(model, transformers.GPT2Model):
        return found[0] @ model.wte.weight.T
    return found.prediction_logits if hasattr(found, "prediction_logits") else found[0]


def distance(a, b):
    return float((a - b).detach().abs().max())


def tokenizer_of_words():
    words = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "unk", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)


@pytest.fixture
def folder(tmp_path):
    """Saves a model, with a tokenizer."""

    def write(model, *, tokenizer=True, **options):
        model.save_pretrained(tmp_path / "model", **options)
        if tokenizer:
            tokenizer_of_words().save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return write


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("name", ALL)
def test_logits_at_every_position(name):
    reference = theirs(name)
    model = from_huggingface(reference)
    for seed in range(3):
        inputs = texts(name, seed=seed)
        found, expected = run_ours(model, inputs), run_theirs(reference, inputs)
        assert found.shape == expected.shape
        assert distance(found, expected) < 1e-5
    assert float(expected.detach().std()) > 0.3
    assert type(model) is (Transformer if name.startswith("GPT2") else Encoder)
    assert not model.training
    assert model.tokenizer is None


@pytest.mark.parametrize("name", ALL)
def test_folder_with_tokenizer(name, folder, no_network):
    reference = theirs(name)
    model = from_huggingface(folder(reference))
    assert torch.equal(run_ours(model, texts(name)), run_ours(from_huggingface(reference), texts(name)))
    assert model.tokenizer.encode("a b") == [1, 5, 6, 2]
    assert torch.equal(model.to_tokens("a b"), torch.tensor([[1, 5, 6, 2]]))
    assert from_huggingface(str(folder(reference)), with_tokenizer=False).tokenizer is None


@pytest.mark.parametrize("name", ["BertForMaskedLM", "AlbertForTokenClassification"])
def test_to_single_token(name, folder):
    model = from_huggingface(folder(theirs(name)))
    assert model.to_single_token("[MASK]") == 4
    assert model.to_single_token("c") == 7
    with pytest.raises(ValueError, match="'c d' is 2 tokens, not one"):
        model.to_single_token("c d")


def test_sharded_folders(folder):
    reference = theirs("BertForMaskedLM")
    path = folder(reference, max_shard_size="4KB")
    assert (path / "model.safetensors.index.json").is_file()
    assert not (path / "model.safetensors").exists()
    assert torch.equal(
        run_ours(from_huggingface(path), texts("Bert")), run_ours(from_huggingface(reference), texts("Bert"))
    )


def test_left_padding_with_positions():
    reference = theirs("GPT2LMHeadModel")
    inputs = texts("GPT2LMHeadModel", left=True)
    real = inputs["attention_mask"].bool()
    found, expected = run_ours(from_huggingface(reference), inputs), run_theirs(reference, inputs)
    assert distance(found[real], expected[real]) < 1e-5
    moved = run_ours(from_huggingface(reference), {**inputs, "position_ids": torch.arange(9)[None]})
    assert distance(moved[real], expected[real]) > 0.1


@pytest.mark.parametrize("name", ALL)
def test_hidden_states_of_every_layer(name):
    reference = theirs(name)
    model = from_huggingface(reference)
    inputs = texts(name)
    rest = {key: value for key, value in inputs.items() if key != "input_ids"}
    _, cache = model.run_with_cache(inputs["input_ids"], **rest)
    expected = reference(**inputs, output_hidden_states=True).hidden_states
    found = [cache["resid_pre", layer] for layer in range(3)]
    found.append(cache["ln_final.hook_normalized"] if name.startswith("GPT2") else cache["resid_post", 2])
    assert len(expected) == 4
    for ours, hidden in zip(found, expected, strict=True):
        assert distance(ours, hidden) < 1e-5


@pytest.mark.parametrize("name", ["BertModel", "BertForPreTraining", "AlbertModel"])
def test_pooled_vectors(name):
    reference = theirs(name)
    model = from_huggingface(reference)
    inputs = texts(name)
    expected = reference.base_model(**inputs)
    assert distance(model.pool(expected.last_hidden_state), expected.pooler_output) < 1e-5
    assert model.parity.pooled < 1e-5


@pytest.mark.parametrize("name", ALL)
def test_gradients_of_every_weight(name):
    """The table of weight names also maps gradients."""
    reference = theirs(name, dtype=torch.float64)
    model = from_huggingface(reference)
    inputs = texts(name)
    real = inputs["attention_mask"].bool()
    for logits in (run_ours(model, inputs), run_theirs(reference, inputs)):
        (logits[real].logsumexp(-1) - logits[real][:, 2]).mean().backward()
    known = dict(reference.named_parameters(remove_duplicate=False))
    gradients = {key: torch.zeros_like(p) if p.grad is None else p.grad for key, p in known.items()}
    expected = from_hf_weights(gradients, rows(ARCHITECTURES[name], model.cfg))
    assert set(expected) == {key for key, _ in model.named_parameters()}
    unused = {"pooler.weight", "pooler.bias"} | ({"unembed.bias"} if name == "GPT2LMHeadModel" else set())
    for key, parameter in model.named_parameters():
        if key in unused:
            assert parameter.grad is None
            continue
        largest = float(expected[key].abs().max())
        assert largest > 0 or key.endswith("attention.k.bias"), key  # softmax is invariant to it
        assert distance(parameter.grad, expected[key]) <= 1e-10 * max(largest, 1e-2), key


@pytest.mark.parametrize("name", ALL)
def test_the_original_is_unchanged(name):
    reference = theirs(name, hidden_dropout_prob=0.1) if not name.startswith("GPT2") else theirs(name)
    reference.set_attn_implementation("sdpa")
    reference.train()
    reference.base_model.get_input_embeddings().eval()
    before = copy.deepcopy(reference.state_dict())
    modes = [module.training for module in reference.modules()]
    random = torch.get_rng_state()
    model = from_huggingface(reference)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # copies, not views
    assert all(torch.equal(tensor, before[key]) for key, tensor in reference.state_dict().items())
    assert [module.training for module in reference.modules()] == modes
    assert reference.config._attn_implementation == "sdpa"
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("pooling", [True, False])  # if False, transformers first makes a random one
def test_loading_a_folder_is_silent_and_keeps_the_random_state(folder, capfd, pooling):
    path = folder(theirs("BertModel", pooling=pooling))
    capfd.readouterr()
    random = torch.get_rng_state()
    from_huggingface(path)
    assert torch.equal(torch.get_rng_state(), random)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BertForMaskedLM", "AlbertForMaskedLM"])
def test_untied_unembedding(name, folder):
    reference = theirs(name, tie_word_embeddings=False)
    for model in (from_huggingface(reference), from_huggingface(folder(reference))):
        assert not model.cfg.tied_embedding
        assert distance(run_ours(model, texts(name)), run_theirs(reference, texts(name))) < 1e-5
        if name == "GPT2LMHeadModel":
            assert not model.b_U.any()
    tied = from_huggingface(theirs(name))
    assert tied.cfg.tied_embedding


def test_unembedding_untied_by_hand():
    reference = theirs("GPT2LMHeadModel")
    reference.lm_head.weight = torch.nn.Parameter(2 * reference.lm_head.weight.detach())
    assert not from_huggingface(reference).cfg.tied_embedding


@pytest.mark.parametrize("name", ["BertModel", "AlbertModel"])
def test_models_without_a_pooler(name, folder):
    reference = theirs(name, pooling=False)
    for model in (from_huggingface(reference), from_huggingface(folder(reference))):
        assert not model.cfg.pooler
        assert model.parity.pooled is None


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BertForMaskedLM"])
def test_activations(name, activation):
    setting = "activation_function" if name.startswith("GPT2") else "hidden_act"
    reference = theirs(name, **{setting: activation})
    assert from_huggingface(reference).parity.logits < 1e-5


def test_unscaled_scores():
    assert from_huggingface(theirs("GPT2LMHeadModel", scale_attn_weights=False)).cfg.attn_scale == 1


def test_float64_is_kept(folder):
    reference = theirs("BertForMaskedLM", dtype=torch.float64)
    model = from_huggingface(reference)
    assert model.W_E.dtype == torch.float64
    assert model.parity.logits < 1e-13
    assert from_huggingface(folder(reference)).W_E.dtype == torch.float64


def test_dtype_is_that_of_the_stored_weights(folder):
    reference = theirs("BertForMaskedLM")
    path = folder(reference)
    config = (path / "config.json").read_text()
    (path / "config.json").write_text(config.replace('"dtype": "float32"', '"dtype": "bfloat16"'))
    assert "bfloat16" in (path / "config.json").read_text()
    assert torch.equal(from_huggingface(path).W_E, reference.get_input_embeddings().weight)


def test_half_precision_on_disk_becomes_float32_exactly(folder):
    reference = theirs("BertForMaskedLM").to(torch.bfloat16)
    model = from_huggingface(folder(reference))
    assert model.W_E.dtype == torch.float32
    assert torch.equal(model.W_E, reference.get_input_embeddings().weight.float())


def test_left_out_heads_are_named(folder):
    with_more = theirs("BertForPreTraining")
    path = folder(with_more)
    config = (path / "config.json").read_text()
    (path / "config.json").write_text(config.replace("BertForPreTraining", "BertForMaskedLM"))
    model = from_huggingface(path)
    left = ["bert.pooler.dense", "cls.seq_relationship"]
    assert model.parity.left_out == tuple(f"{name}.{part}" for name in left for part in ("bias", "weight"))
    assert from_huggingface(with_more).parity.left_out == model.parity.left_out[2:]


@pytest.mark.parametrize("name", ["h.0.attn.bias", "transformer.h.3.attn.masked_bias", "bert.embeddings.position_ids"])
def test_old_buffers_are_harmless(name):
    assert HARMLESS.search(name)


@pytest.mark.parametrize("name", ["h.0.attn.c_attn.bias", "bert.encoder.layer.0.output.dense.bias", "lora.weight"])
def test_other_weights_are_not_harmless(name):
    assert not HARMLESS.search(name)


def test_the_report_prints_as_a_table():
    report = from_huggingface(theirs("BertModel")).parity
    text = str(report)
    assert text.startswith("BertModel, 30 tokens: same\n")
    for word in ("logits", "pooled", "embedded", "layer 0", "layer 2", f"transformers {transformers.__version__}"):
        assert word in text
    assert len(report.hidden) == 4
    assert from_huggingface(theirs("BertModel"), check=False).parity is None


@pytest.mark.parametrize(
    ("values", "ok"),
    [
        ({"logits": 1e-4}, True),
        ({"logits": 2e-4}, False),
        ({"logits": 2e-4, "largest_logit": 3.0}, True),
        ({"logits": float("nan")}, False),
        ({"logits": 0.0, "pooled": 2e-4}, False),
        ({"logits": 0.0, "pooled": float("nan")}, False),
    ],
)
def test_report_tolerance(values, ok):
    report = ParityReport(**{"architecture": "X", "n_tokens": 1, "largest_logit": 0.5, "hidden": (0.0,), **values})
    assert report.ok is ok
    assert ("NOT the same" in str(report)) is not ok


def test_a_model_with_other_logits_is_refused():
    reference = theirs("BertForMaskedLM")
    attention = reference.bert.encoder.layer[1].attention.self
    attention.scaling *= 1.01
    with pytest.raises(ValueError, match=r"differs from the Hugging Face model by more than 0.0001.*\n.*NOT the same"):
        from_huggingface(reference)
    assert from_huggingface(reference, check=False).parity is None
    assert TOLERANCE == 1e-4


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BertForPreTraining", "AlbertForMaskedLM"])
def test_verify_passes(name):
    model = from_huggingface(theirs(name, num_hidden_layers=2))
    assert verify(model).ok
    assert len([key for key in model.hook_dict if key.endswith("hook_pattern")]) == 2


def test_presets_equal_the_published_configs():
    bert, albert, gpt2 = (getattr(transformers, f"{name}Config") for name in ("Bert", "Albert", "GPT2"))
    base = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    named = ARCHITECTURES.__getitem__
    assert config_of(bert(), named("BertForMaskedLM"), tied=True, pooler=False) == bert_encoder()
    assert config_of(albert(**base), named("AlbertForMaskedLM"), tied=True, pooler=False) == albert_encoder()
    ours = gpt(d_vocab=50257, tied_embedding=True)
    assert config_of(gpt2(), named("GPT2LMHeadModel"), tied=True, pooler=False) == ours


@given(
    name=st.sampled_from(ALL),
    heads=st.integers(1, 3),
    width=st.integers(1, 3),
    layers=st.integers(1, 3),
    types=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_any_sizes(name, heads, width, layers, types, seed):
    sizes = {"num_attention_heads": heads, "hidden_size": heads * width * 2, "num_hidden_layers": layers}
    if not name.startswith("GPT2"):
        sizes["type_vocab_size"] = types
    reference = theirs(name, seed=seed, dtype=torch.float64, **sizes)
    model = from_huggingface(reference)
    assert model.parity.logits < 1e-8
    table = rows(ARCHITECTURES[name], model.cfg)
    ours = dict(model.named_parameters())
    there = to_hf_weights(ours, table)
    known = dict(reference.named_parameters(remove_duplicate=False))
    assert all(torch.equal(known[key], tensor) for key, tensor in there.items())
    back = from_hf_weights(there, table)
    assert all(torch.equal(ours[key], tensor) for key, tensor in back.items())
